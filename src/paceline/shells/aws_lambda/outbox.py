"""Messages to the queues, in batches; what a batch leaves behind is sent again, and then it is an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import boto3

from paceline.errors import StoreUnavailable
from paceline.shells.aws_lambda.messages import CallWake, CheckWake, Look, Release, write

BATCH_MAX = 10
DELAY_S_MAX = 900
ATTEMPTS_MAX = 4
TICKS = "ticks"
RUNS_FIFO = "runs.fifo"
Entry = dict[str, Any]


class Outbox:
    """The queues that the functions write to. A client of boto3 may be shared by threads."""

    def __init__(self, prefix: str) -> None:
        self.sqs = boto3.session.Session().client("sqs")
        self._prefix = prefix
        self._urls: dict[str, str] = {}

    def wake(self, wakes: Iterable[CheckWake | CallWake | Look]) -> None:
        """Into ``runs.fifo``: no delay, one group for each provider."""
        entries = [
            {"MessageBody": write(wake), "MessageGroupId": wake.group, "MessageDeduplicationId": wake.once}
            for wake in dict.fromkeys(wakes)
        ]
        self._send(RUNS_FIFO, entries)

    def release_later(self, releases: Iterable[Release], *, now_ms: int) -> None:
        """Into ``ticks``, which can delay what a FIFO queue cannot. Rounded up, so that none comes early."""
        entries = [
            {"MessageBody": write(one), "DelaySeconds": min(max(-(-(one.at - now_ms) // 1_000), 0), DELAY_S_MAX)}
            for one in dict.fromkeys(releases)
        ]
        self._send(TICKS, entries)

    def _send(self, queue: str, entries: Sequence[Entry]) -> None:
        for at in range(0, len(entries), BATCH_MAX):
            batch = {str(index): entry for index, entry in enumerate(entries[at : at + BATCH_MAX])}
            self._send_batch(queue, batch)

    def _send_batch(self, queue: str, batch: dict[str, Entry]) -> None:
        """The answer is 200 also where some of it was refused."""
        for _ in range(ATTEMPTS_MAX):
            wanted = [{"Id": name, **entry} for name, entry in batch.items()]
            failed = self.sqs.send_message_batch(QueueUrl=self._url(queue), Entries=wanted).get("Failed", [])
            if not failed:
                return
            batch = {one["Id"]: batch[one["Id"]] for one in failed}
        raise StoreUnavailable(f"AWS leaves messages to {queue} unsent ({failed[0].get('Code')}).")

    def _url(self, queue: str) -> str:
        if queue not in self._urls:
            self._urls[queue] = self.sqs.get_queue_url(QueueName=f"{self._prefix}-{queue}")["QueueUrl"]
        return self._urls[queue]

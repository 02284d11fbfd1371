"""Sends alarms, which wake a tick, and offers, for checkers that read the outgoing queue themselves.

A message says what its sender believed; the stored item is the truth. A stale, doubled or early message is dropped or
sent once more, and a lost one is replaced by the sweep: nothing depends on a single message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.client.tables import ITEMS, OUTGOING, TICKS
from paceline.adapters.aws.monitors.keys import is_outgoing, monitor_key
from paceline.core.ids import run_id
from paceline.core.instants import to_text
from paceline.core.monitors.checks import check_document
from paceline.core.monitors.stored import read_spec
from paceline.errors import StoreUnavailable
from paceline.ports.queue_messages import DELAY_MS_MAX, Alarm, Letter, RunOffer, delay_s, write


class AwsAlarmSender:
    """Sends alarms and offers after each write.

    ``sends`` is turned off if something else arms entries, such as their stream, or if loops look by themselves;
    ``offers`` if no checker reads the outgoing queue.
    """

    def __init__(self, queues: Queues, db: DynamoDatabase) -> None:
        self.sends = True
        self.offers = True
        self.unsent = 0
        """Messages that may have got lost since the start; the write before each has happened."""
        self._queues = queues
        self._db = db

    def arm(self, alarms: Iterable[Alarm], *, now_ms: int) -> None:
        """Send alarms of entries due in the next 15 minutes. The sweep finds the others in the due index."""
        if not self.sends:
            return
        soon = [alarm for alarm in alarms if alarm.due <= now_ms + DELAY_MS_MAX]
        with self._left_to_the_sweep(len(soon)):
            self.send(soon, now_ms=now_ms)

    def offer(self, runs: Iterable[Item], *, now_ms: int | None) -> None:
        """Send messages about outgoing runs that may start now, or later at their time.

        Without ``now_ms`` all are sent at once: a run offered too early is offered again when a checker asks for it.
        """
        offered = [run for run in runs if self.offers and is_outgoing(run["queue"])]
        if offered:
            with self._left_to_the_sweep(len(offered)):
                checks = self._checks(offered)
                self._queues.send(OUTGOING, [_waiting(run, checks.get(run["generation"]), now_ms) for run in offered])

    def _checks(self, runs: Sequence[Item]) -> dict[int, dict[str, Any]]:
        """Return the current checks of these runs' monitors, by generation; without those that are gone."""
        found = self._db.get_many(ITEMS, {monitor_key(run["user"], run["monitor"]) for run in runs})
        specs = {item["generation"]: read_spec(item["spec"]).check for item in found.values()}
        return {generation: check_document(check) for generation, check in specs.items()}

    def send(self, alarms: Sequence[Alarm], *, now_ms: int) -> None:
        """Send alarms. Raises StoreUnavailable if some stay unsent."""
        messages = [Letter(write(alarm), delay_s(alarm.due, now_ms)) for alarm in alarms]
        if messages:
            self._queues.send(TICKS, messages)

    @contextmanager
    def _left_to_the_sweep(self, messages: int) -> Iterator[None]:
        """Count messages that cannot be sent instead of raising.

        The write before them stays, and the sweep finds it.
        """
        try:
            yield
        except StoreUnavailable:
            self.unsent += messages


def _waiting(run: Item, check: dict[str, Any] | None, now_ms: int | None) -> Letter:
    name = run_id(run["owner"], run["monitor"], generation=run["generation"], counter=run["counter"])
    body = RunOffer(name, run["generation"], run["counter"], to_text(run["due_ms"]), run["attempt"] + 1, check)
    return Letter(write(body), delay_s(run["at"], now_ms) if now_ms is not None else 0)

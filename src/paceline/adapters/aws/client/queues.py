"""SQS as the store uses it: a message only says when to look, so one sent twice or late does no harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.client.connect import Clients, Threads, attempts, call
from paceline.errors import StoreUnavailable
from paceline.ports.queue_messages import Letter

BATCH_MAX = 10
BATCH_BYTES_MAX = 1_048_576


class Received(NamedTuple):
    id: str
    body: str
    receipt: str
    received: int
    """Number of times the message was received, including this one."""
    group: str | None
    once: str | None = None
    """The deduplication id under which the message was sent."""


class Queues:
    """All queues of one prefix. Thread-safe."""

    def __init__(self, clients: Clients, *, prefix: str, threads: Threads) -> None:
        self.prefix = prefix
        self._client = clients.sqs
        self._threads = threads
        self._urls: dict[str, str] = {}

    def url(self, name: str) -> str:
        """Return the URL of the queue with this name, given without the prefix."""
        if name not in self._urls:
            self._urls[name] = call(self._client.get_queue_url, QueueName=f"{self.prefix}-{name}")["QueueUrl"]
        return self._urls[name]

    def send(self, name: str, messages: Sequence[Letter]) -> None:
        """Send all messages, in batches. Those that AWS did not take are sent again; raises if some stay unsent."""
        url = self.url(name)
        if name.endswith(".fifo"):
            for batch in _batches(messages):  # one after the other: a FIFO queue keeps the order of sending
                self._send_batch(url, batch)
        else:
            self._threads.fan_out(lambda batch: self._send_batch(url, batch), _batches(messages))

    def _send_batch(self, url: str, batch: Sequence[Letter]) -> None:
        entries = {str(index): _entry(str(index), message) for index, message in enumerate(batch)}
        failed: list[dict[str, Any]] = []
        for _ in attempts():
            answer = call(self._client.send_message_batch, QueueUrl=url, Entries=list(entries.values()))
            failed = answer.get("Failed", [])
            if wrong := [one for one in failed if one.get("SenderFault")]:
                raise ValueError(f"SQS refuses a message: {wrong[0].get('Code')}: {wrong[0].get('Message')}")
            if not failed:
                return
            entries = {one["Id"]: entries[one["Id"]] for one in failed}
        raise StoreUnavailable(f"AWS leaves messages unsent ({failed[0].get('Code')}): try again in a moment.")

    def receive(self, name: str, *, messages_max: int, wait_s: int = 0, hidden_s: int | None = None) -> list[Received]:
        """Receive messages with one request, so at most ten.

        ``hidden_s``: how long nobody else sees them; by default the queue's own time.
        """
        params: dict[str, Any] = {} if hidden_s is None else {"VisibilityTimeout": hidden_s}
        answer = call(
            self._client.receive_message,
            QueueUrl=self.url(name),
            MaxNumberOfMessages=min(messages_max, BATCH_MAX),
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "MessageGroupId", "MessageDeduplicationId"],
            **params,
        )
        return [_received(message) for message in answer.get("Messages", [])]

    def forget(self, name: str, receipts: Sequence[str]) -> None:
        """Delete received messages. If one is not deleted it comes again, and is dropped then."""
        url = self.url(name)
        for at in range(0, len(receipts), BATCH_MAX):
            entries = [{"Id": str(n), "ReceiptHandle": one} for n, one in enumerate(receipts[at : at + BATCH_MAX])]
            call(self._client.delete_message_batch, QueueUrl=url, Entries=entries)

    def hide(self, name: str, receipt: str, *, for_s: int) -> None:
        """Set for how long nobody else sees a message; 0 gives it back."""
        call(
            self._client.change_message_visibility,
            QueueUrl=self.url(name),
            ReceiptHandle=receipt,
            VisibilityTimeout=for_s,
        )

    def depth(self, name: str) -> int:
        """Return about how many messages wait, including delayed and hidden ones."""
        names = [f"ApproximateNumberOfMessages{part}" for part in ("", "NotVisible", "Delayed")]
        answer = call(self._client.get_queue_attributes, QueueUrl=self.url(name), AttributeNames=names)
        return sum(int(value) for value in answer["Attributes"].values())


def _entry(entry_id: str, message: Letter) -> dict[str, Any]:
    entry: dict[str, Any] = {"Id": entry_id, "MessageBody": message.body}
    if message.delay_s:
        entry["DelaySeconds"] = message.delay_s
    if message.group is not None:
        entry["MessageGroupId"] = message.group
    if message.once is not None:
        entry["MessageDeduplicationId"] = message.once
    return entry


def _batches(messages: Iterable[Letter]) -> Iterator[list[Letter]]:
    """Yield batches of ten messages, or fewer if they are large."""
    batch: list[Letter] = []
    size = 0
    for message in messages:
        more = len(message.body.encode())
        if batch and (len(batch) == BATCH_MAX or size + more > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


def _received(message: dict[str, Any]) -> Received:
    notes = message.get("Attributes", {})
    return Received(
        id=message["MessageId"],
        body=message["Body"],
        receipt=message["ReceiptHandle"],
        received=int(notes.get("ApproximateReceiveCount", 1)),
        group=notes.get("MessageGroupId"),
        once=notes.get("MessageDeduplicationId"),
    )

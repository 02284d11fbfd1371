"""Event source mappings in this process, with AWS's rules: the very handlers of the deployment, pumped by a test.

The emulator's own mapping drops the failures that a stream's handler reports, and retries an exception for ever.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Event = dict[str, Any]
Handler = Callable[[Event, object], Any]
Record = dict[str, Any]


def _all(_record: Record) -> bool:
    return True


@dataclass
class Weather:
    """At-least-once delivery by seed: the likelihood that a batch is delivered again, at once or much later."""

    seed: int = 0
    again: float = 0.0
    shuffled: bool = False
    """Whether messages of a standard queue are shuffled."""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def repeats(self) -> bool:
        return self._random.random() < self.again

    def order(self, records: list[Record]) -> list[Record]:
        return self._random.sample(records, len(records)) if self.shuffled else records


def failed_ids(answer: Any, records: Sequence[Record], id_of: Callable[[Record], str]) -> set[str]:
    """What the handler's answer says failed. A malformed one fails the whole batch, as AWS has it."""
    everything = {id_of(record) for record in records}
    if answer is None or answer == {}:
        return set()
    failures = answer.get("batchItemFailures")
    if failures is None:
        return set()
    named = {failure.get("itemIdentifier") for failure in failures}
    return everything if not named <= everything else named


# -- queues


@dataclass
class QueueMapping:
    """SQS to a function. What fails comes back at once, rather than after its time-out, so that tests are quick."""

    sqs: Any
    url: str
    handler: Handler
    batch_max: int = 10
    matches: Callable[[Record], bool] = _all
    weather: Weather = field(default_factory=Weather)
    invocations: int = 0

    def pump(self, *, batches_max: int = 100) -> int:
        """Delivers messages until the queue is empty. Returns how many were processed."""
        done = 0
        for _ in range(batches_max):
            answer = self.sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=min(self.batch_max, 10),
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            messages = answer.get("Messages", [])
            if not messages:
                return done
            done += self._deliver([self._record(message) for message in messages])
        return done

    def _deliver(self, received: list[Record]) -> int:
        records = [record for record in received if self.matches(record)]
        failed = self._invoke(records) if records else set()
        if self.weather.repeats() and not failed and records:
            self._invoke(records)  # what a lost deletion would do
        for record in received:  # one that does not match the filter is deleted
            if record["messageId"] in failed:
                self.sqs.change_message_visibility(
                    QueueUrl=self.url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=0
                )
            else:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=record["receiptHandle"])
        return len(records) - len(failed)

    def _invoke(self, records: list[Record]) -> set[str]:
        self.invocations += 1
        fifo = self.url.endswith(".fifo")
        given = records if fifo else self.weather.order(records)
        try:
            answer = self.handler({"Records": given}, _Context())
        except Exception:  # noqa: BLE001  whatever a function raises fails its batch
            return {record["messageId"] for record in records}
        return failed_ids(answer, records, lambda record: str(record["messageId"]))

    def _record(self, message: dict[str, Any]) -> Record:
        name = self.url.rpartition("/")[2]
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {
                key: {"stringValue": value.get("StringValue"), "dataType": value["DataType"]}
                for key, value in message.get("MessageAttributes", {}).items()
            },
            "md5OfBody": message.get("MD5OfBody", ""),
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:us-east-1:000000000000:{name}",
            "awsRegion": "us-east-1",
        }


# -- streams


@dataclass
class StreamMapping:
    """A table's stream to a function: in order, with a checkpoint in each shard that a failure does not pass."""

    streams: Any
    arn: str
    handler: Handler
    batch_max: int = 100
    retries_max: int = 3
    """After so many retries failed records go to ``given_up``. AWS retries for ever by default."""
    bisects: bool = True
    reports: bool = True
    """ReportBatchItemFailures: without it the function's answer is not looked at."""
    matches: Callable[[Record], bool] = _all
    weather: Weather = field(default_factory=Weather)
    given_up: list[Record] = field(default_factory=list)
    invocations: int = 0
    _seen: dict[str, str] = field(default_factory=dict)

    def pump(self) -> int:
        """Delivers everything that is in the stream now. Returns how many records were read."""
        read = 0
        for shard in self._shards():
            while batch := self._next(shard):
                self._work([record for record in batch if self.matches(record)])
                self._seen[shard] = batch[-1]["dynamodb"]["SequenceNumber"]
                read += len(batch)
        return read

    def _shards(self) -> list[str]:
        told = self.streams.describe_stream(StreamArn=self.arn)["StreamDescription"]
        return [shard["ShardId"] for shard in told["Shards"]]

    def _next(self, shard: str) -> list[Record]:
        where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if shard in self._seen:
            where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": self._seen[shard]}
        iterator = self.streams.get_shard_iterator(StreamArn=self.arn, ShardId=shard, **where)["ShardIterator"]
        answer = self.streams.get_records(ShardIterator=iterator, Limit=min(self.batch_max, 1_000))
        return [self._record(record) for record in answer["Records"]]

    def _work(self, records: list[Record]) -> None:
        """One batch to its end: done, or given up. Splitting it costs no retry."""
        waiting = [(records, 0)]
        while waiting:
            batch, tries = waiting.pop()
            if not batch:
                continue
            first = self._invoke(batch)
            if first is None:
                if self.weather.repeats():
                    self._invoke(batch)
                continue
            if first > 0:
                # All before the lowest failed one is done; all from it on comes again, also what went well.
                waiting.append((batch[first:], 0))
            elif tries == self.retries_max and len(batch) == 1:
                self.given_up += batch
            elif self.bisects and len(batch) > 1:
                middle = len(batch) // 2
                waiting += [(batch[middle:], tries), (batch[:middle], tries)]
            elif tries == self.retries_max:
                self.given_up += batch
            else:
                waiting.append((batch, tries + 1))

    def _invoke(self, batch: list[Record]) -> int | None:
        """The position of the lowest failed record; None: none."""
        self.invocations += 1
        try:
            answer = self.handler({"Records": batch}, _Context())
        except Exception:  # noqa: BLE001  whatever a function raises fails its batch
            return 0
        failed = failed_ids(answer, batch, _sequence) if self.reports else set()
        return next((at for at, record in enumerate(batch) if _sequence(record) in failed), None)

    def _record(self, record: dict[str, Any]) -> Record:
        return {
            "eventID": record["eventID"],
            "eventName": record["eventName"],
            "eventVersion": record.get("eventVersion", "1.1"),
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "eventSourceARN": self.arn,
            "dynamodb": _as_json(record["dynamodb"]),
        }


def _sequence(record: Record) -> str:
    return str(record["dynamodb"]["SequenceNumber"])


def _as_json(value: Any) -> Any:
    """As it comes to a function: bytes in base 64, instants in seconds."""
    match value:
        case dict():
            return {name: _as_json(part) for name, part in value.items()}
        case list():
            return [_as_json(part) for part in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.timestamp()
        case _:
            return value


class _Context:
    """The context of a function, with the fields that Powertools reads."""

    function_name = "test"
    memory_limit_in_mb = 128
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:test"
    aws_request_id = "00000000-0000-0000-0000-000000000000"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000

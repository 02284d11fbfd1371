"""The runner of event source mappings follows AWS's rules: failed records are repeated, reports set the checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from paceline.adapters.aws.client.items import DynamoKey, delete, put
from paceline.adapters.aws.client.tables import ITEMS
from paceline.adapters.aws.store import AwsStore
from paceline.ports.queue_messages import Letter
from tests.aws.support.mapping import Event, QueueMapping, Record, StreamMapping, Weather
from tests.aws.support.ministack import Emulator, plain_client


@pytest.fixture
def stream(aws: Emulator, aws_store: AwsStore) -> Callable[..., StreamMapping]:
    """A mapping of the stream of ``items``."""
    told = plain_client("dynamodb", aws.url).describe_table(TableName=aws_store._database.table(ITEMS))["Table"]
    streams = plain_client("dynamodbstreams", aws.url)
    return lambda handler, **more: StreamMapping(streams, told["LatestStreamArn"], handler, **more)


@pytest.fixture
def ticks(aws_store: AwsStore) -> Callable[..., QueueMapping]:
    return lambda handler, **more: QueueMapping(aws_store._clients.sqs, aws_store._queues.url("ticks"), handler, **more)


def write(store: AwsStore, *names: str) -> None:
    for name in names:
        assert store._database.write(put(ITEMS, {"pk": name, "sk": "-"})).won


def name_of(record: Record) -> str:
    return str(record["dynamodb"]["Keys"]["pk"]["S"])


class Seen:
    """A handler that records what it received, and fails the named records as often as stated."""

    def __init__(self, name: Callable[[Record], str], fails: dict[str, int], *, id_of: Callable[[Record], str]) -> None:
        self.names: list[str] = []
        self._name, self._fails, self._id_of = name, Counter(fails), id_of

    def reporting(self, event: Event, _context: object) -> dict[str, Any]:
        failed = [record for record in event["Records"] if not self._take(record)]
        return {"batchItemFailures": [{"itemIdentifier": self._id_of(record)} for record in failed]}

    def raising(self, event: Event, _context: object) -> None:
        for record in event["Records"]:
            if not self._take(record):
                raise ValueError(self._name(record))

    def _take(self, record: Record) -> bool:
        name = self._name(record)
        self.names.append(name)
        self._fails[name] -= 1
        return self._fails[name] < 0


def of_stream(**fails: int) -> Seen:
    return Seen(name_of, fails, id_of=lambda record: str(record["dynamodb"]["SequenceNumber"]))


def of_queue(**fails: int) -> Seen:
    return Seen(lambda record: str(record["body"]), fails, id_of=lambda record: str(record["messageId"]))


def test_stream_mapping_delivers_each_change_once_in_order_with_both_images(aws_store: AwsStore, stream: Any) -> None:
    records: list[Record] = []
    mapping = stream(lambda event, _context: records.extend(event["Records"]))
    write(aws_store, "a", "b")
    aws_store._database.write(put(ITEMS, {"pk": "a", "sk": "-", "bytes": b"\x00", "n": 1}))
    aws_store._database.write(delete(ITEMS, DynamoKey("a", "-")))
    assert mapping.pump() == 4
    assert [(name_of(record), record["eventName"]) for record in records] == [
        ("a", "INSERT"),
        ("b", "INSERT"),
        ("a", "MODIFY"),
        ("a", "REMOVE"),
    ]
    assert records[2]["dynamodb"]["NewImage"] == {
        "pk": {"S": "a"},
        "sk": {"S": "-"},
        "bytes": {"B": "AA=="},
        "n": {"N": "1"},
    }
    assert "NewImage" not in records[3]["dynamodb"]
    assert mapping.pump() == 0
    write(aws_store, "c")
    assert mapping.pump() == 1


def test_stream_records_are_delivered_again_from_the_lowest_failed_one(aws_store: AwsStore, stream: Any) -> None:
    seen = of_stream(b=1)
    mapping = stream(seen.reporting)
    write(aws_store, "a", "b", "c")
    mapping.pump()
    assert seen.names == ["a", "b", "c", "b", "c"]
    assert mapping.given_up == []


def test_poison_stream_record_is_given_up_and_the_others_are_processed(aws_store: AwsStore, stream: Any) -> None:
    seen = of_stream(b=99)
    mapping = stream(seen.raising, retries_max=2)
    write(aws_store, "a", "b", "c", "d")
    mapping.pump()
    assert [name_of(record) for record in mapping.given_up] == ["b"]
    assert {"a", "c", "d"} <= set(seen.names)
    assert mapping.pump() == 0


def test_stream_without_bisecting_gives_up_the_whole_batch(aws_store: AwsStore, stream: Any) -> None:
    mapping = stream(of_stream(b=99).raising, retries_max=1, bisects=False)
    write(aws_store, "a", "b", "c")
    mapping.pump()
    assert [name_of(record) for record in mapping.given_up] == ["a", "b", "c"]
    assert mapping.invocations == 2


def test_a_malformed_report_fails_the_whole_batch(aws_store: AwsStore, stream: Any) -> None:
    answers = [{"batchItemFailures": [{"itemIdentifier": ""}]}, {"batchItemFailures": []}, None]
    mapping = stream(lambda _event, _context: answers.pop(0), bisects=False)
    write(aws_store, "a", "b")
    mapping.pump()
    assert mapping.invocations == 2


def test_filtered_stream_records_are_not_delivered(aws_store: AwsStore, stream: Any) -> None:
    seen = of_stream()
    write(aws_store, "a")
    aws_store._database.write(delete(ITEMS, DynamoKey("a", "-")))
    stream(seen.reporting, matches=lambda record: record["eventName"] == "REMOVE").pump()
    assert seen.names == ["a"]


def test_only_failed_queue_messages_are_delivered_again(aws_store: AwsStore, ticks: Any) -> None:
    seen = of_queue(m2=2)
    aws_store._queues.send("ticks", [Letter(f"m{number}") for number in range(4)])
    mapping = ticks(seen.reporting)
    assert mapping.pump() == 4
    assert Counter(seen.names) == {"m0": 1, "m1": 1, "m2": 3, "m3": 1}
    assert aws_store._queues.depth("ticks") == 0


def test_poison_message_is_delivered_again_until_it_ends_in_the_dead_queue(aws_store: AwsStore, ticks: Any) -> None:
    aws_store._queues.send("ticks", [Letter("poison")])
    mapping = ticks(of_queue(poison=99).raising)
    assert mapping.pump(batches_max=10) == 0
    assert mapping.invocations == 5
    assert aws_store._queues.depth("ticks-dead") == 1


def test_messages_are_repeated_and_shuffled_by_seed(aws_store: AwsStore, ticks: Any) -> None:
    def names(seed: int) -> list[str]:
        seen = of_queue()
        aws_store._queues.send("ticks", [Letter(f"m{number}") for number in range(10)])
        ticks(seen.reporting, weather=Weather(seed=seed, again=0.8, shuffled=True)).pump()
        return seen.names

    once = names(1)
    assert set(Counter(once).values()) == {2}
    assert once[:10] != sorted(once[:10])

"""The guard refuses what AWS refuses, and nothing else. The emulator alone would let most of it pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from tests.aws.support.guard import AwsRefuses
from tests.aws.support.ministack import Emulator, plain_client

Act = Callable[[Clients, str], Any]


def url(clients: Clients, prefix: str, name: str) -> str:
    return str(clients.sqs.get_queue_url(QueueName=f"{prefix}-{name}")["QueueUrl"])


def send(name: str, **message: Any) -> Act:
    given = {"MessageBody": "x"} | message
    return lambda clients, prefix: clients.sqs.send_message(QueueUrl=url(clients, prefix, name), **given)


def send_batch(name: str, entries: list[dict[str, Any]]) -> Act:
    return lambda clients, prefix: clients.sqs.send_message_batch(QueueUrl=url(clients, prefix, name), Entries=entries)


def make_queue(name: str, **attributes: str) -> Act:
    return lambda clients, prefix: clients.sqs.create_queue(QueueName=f"{prefix}-{name}", Attributes=attributes)


def item(size: int, sk: str = "b") -> dict[str, Any]:
    return {"pk": {"S": "a"}, "sk": {"S": sk}, "body": {"S": "x" * size}}


def put_item(whole: dict[str, Any]) -> Act:
    return lambda clients, prefix: clients.dynamodb.put_item(TableName=f"{prefix}-items", Item=whole)


def transact(keys: list[str], size: int = 0) -> Act:
    return lambda clients, prefix: clients.dynamodb.transact_write_items(
        TransactItems=[{"Put": {"TableName": f"{prefix}-items", "Item": item(size, sk)}} for sk in keys]
    )


def batch_write(keys: list[str]) -> Act:
    return lambda clients, prefix: clients.dynamodb.batch_write_item(
        RequestItems={f"{prefix}-items": [{"PutRequest": {"Item": item(0, sk)}} for sk in keys]}
    )


def batch_get(keys: list[str]) -> Act:
    wanted = [{"pk": {"S": "a"}, "sk": {"S": sk}} for sk in keys]
    return lambda clients, prefix: clients.dynamodb.batch_get_item(RequestItems={f"{prefix}-items": {"Keys": wanted}})


def query(**params: Any) -> Act:
    given = {
        "KeyConditionExpression": "#shard = :s",
        "ExpressionAttributeNames": {"#shard": "shard"},
        "ExpressionAttributeValues": {":s": {"S": "x"}},
        "IndexName": "ready",
    } | params
    return lambda clients, prefix: clients.dynamodb.query(TableName=f"{prefix}-runs", **given)


def names(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def dead(name: str) -> str:
    return json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{name}", "maxReceiveCount": 5})


FIFO = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
BATCH = [{"Id": name, "MessageBody": "x"} for name in names(10)]

REFUSED: dict[str, Act] = {
    "a delay of more than 15 minutes": send("ticks", DelaySeconds=901),
    "a negative delay": send("ticks", DelaySeconds=-1),
    "a delay in a FIFO queue": send("runs.fifo", DelaySeconds=1, **FIFO),
    "a FIFO message without a group": send("runs.fifo", MessageDeduplicationId="d"),
    "a FIFO message that AWS cannot tell from another": send("runs.fifo", MessageGroupId="g"),
    "a group with a space": send("runs.fifo", **(FIFO | {"MessageGroupId": "my provider"})),
    "a group with an accent": send("runs.fifo", **(FIFO | {"MessageGroupId": "caf\u00e9"})),
    "a group of 129 characters": send("runs.fifo", **(FIFO | {"MessageGroupId": "x" * 129})),
    "an empty deduplication id": send("runs.fifo", **(FIFO | {"MessageDeduplicationId": ""})),
    "a deduplication id in a standard queue": send("ticks", MessageDeduplicationId="d"),
    "a message of more than a megabyte": send("ticks", MessageBody="x" * 1_048_577),
    "eleven messages": send_batch("ticks", [*BATCH, {"Id": "k", "MessageBody": "x"}]),
    "two entries of one id": send_batch("ticks", [BATCH[0], BATCH[0]]),
    "an entry's id with a dot": send_batch("ticks", [{"Id": "a.b", "MessageBody": "x"}]),
    "a batch of more than a megabyte": send_batch("ticks", [one | {"MessageBody": "x" * 110_000} for one in BATCH]),
    "one late entry in a batch": send_batch("ticks", [BATCH[0], BATCH[1] | {"DelaySeconds": 905}]),
    "a poll for eleven": lambda c, p: c.sqs.receive_message(QueueUrl=url(c, p, "ticks"), MaxNumberOfMessages=11),
    "a poll of 21 seconds": lambda c, p: c.sqs.receive_message(QueueUrl=url(c, p, "ticks"), WaitTimeSeconds=21),
    "a queue that is hidden for a day": make_queue("x", VisibilityTimeout="86400"),
    "a FIFO queue without its name": make_queue("x", FifoQueue="true"),
    "a FIFO queue whose dead one is none": make_queue("x.fifo", FifoQueue="true", RedrivePolicy=dead("x")),
    "a queue whose dead one is FIFO": make_queue("x", RedrivePolicy=dead("x.fifo")),
    "half of high throughput": make_queue("x.fifo", FifoQueue="true", FifoThroughputLimit="perMessageGroupId"),
    "an item of more than 400 KB": put_item(item(409_600)),
    "an empty key": put_item(item(1, sk="")),
    "a sort key of more than 1 KB": put_item(item(1, sk="x" * 1_025)),
    "a transaction of 101": transact(names(101)),
    "a transaction with one item twice": transact(["a", "a"]),
    "a transaction of more than 4 MB": transact(names(11), 400_000),
    "a batch of 26 writes": batch_write(names(26)),
    "a batch with one item twice": batch_write(["a", "a"]),
    "a batch of 101 reads": batch_get(names(101)),
    "a batch that reads one item twice": batch_get(["a", "a"]),
    "a consistent read of an index": query(ConsistentRead=True),
    "a limit of none": query(Limit=0),
    "a name that no expression uses": query(ExpressionAttributeNames={"#shard": "shard", "#at": "at"}),
}

ALLOWED: dict[str, Act] = {
    "a delay of 15 minutes": send("ticks", DelaySeconds=900),
    "no delay in a FIFO queue": send("runs.fifo", DelaySeconds=0, **FIFO),
    "a group with punctuation": send("runs.fifo", **(FIFO | {"MessageGroupId": "a:b@c/d#e~%20"})),
    "a group in a standard queue": send("ticks", MessageGroupId="tenant"),
    "ten messages": send_batch("ticks", BATCH),
    "a message of a megabyte": send("ticks", MessageBody="x" * 1_048_576),
    "a transaction of 100": transact(names(100)),
    "a batch of 25 writes": batch_write(names(25)),
    "a batch of 100 reads": batch_get(names(100)),
    "an item of just 400 KB": put_item(item(400 * 1024 - len("pkskbody") - 2)),
    "a query of an index": query(),
}


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED)
def test_request_that_aws_would_refuse_is_not_sent(aws_store: AwsStore, clients: Clients, act: Act) -> None:
    with pytest.raises(AwsRefuses):
        act(clients, aws_store._database.prefix)


@pytest.mark.parametrize("act", ALLOWED.values(), ids=ALLOWED)
def test_request_that_aws_accepts_is_passed_on(aws_store: AwsStore, clients: Clients, act: Act) -> None:
    act(clients, aws_store._database.prefix)


def test_other_services_are_watched_too(aws: Emulator) -> None:
    scheduler = plain_client("scheduler", aws.url)
    target = {"Arn": "arn:aws:sqs:us-east-1:000000000000:x", "RoleArn": "arn:aws:iam::000000000000:role/x"}
    with pytest.raises(AwsRefuses):
        scheduler.create_schedule(
            Name="x", ScheduleExpression="rate(30 seconds)", FlexibleTimeWindow={"Mode": "OFF"}, Target=target
        )
    streams = plain_client("dynamodbstreams", aws.url)
    with pytest.raises(AwsRefuses):
        streams.get_records(ShardIterator="x", Limit=1_001)

"""Tables, indexes and queues as data. ``paceline aws init`` creates them; a test compares the template with them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from botocore.exceptions import ClientError

from paceline.adapters.aws.client.connect import Clients, attempts, call, code_of, find
from paceline.errors import StoreUnavailable

ITEMS = "items"
SCHEDULERS = "schedulers"
RUNS = "runs"
LEDGER = "ledger"

TICKS = "ticks"
OUTGOING = "outgoing"
RUNS_FIFO = "runs.fifo"
WORK_FIFO = "work.fifo"
"""Queue of batches' runs for the operator's own workers. Separate from ``runs.fifo``, which a function reads."""

DUE_INDEX = "due"
READY_INDEX = "ready"
StreamView = Literal["KEYS_ONLY", "NEW_AND_OLD_IMAGES"]
EXPIRES = "expires_s"
"""The attribute of DynamoDB's time to live, in seconds since 1970. Deletion may take days: nothing depends on it."""


@dataclass(frozen=True)
class TableIndex:
    """An index. An item without the two attributes is not in it; keys and ``included`` attributes are copied."""

    name: str
    shard: str
    sort: str
    included: tuple[str, ...] = ()


@dataclass(frozen=True)
class DynamoTable:
    """A table with keys ``pk`` and ``sk``, both text; billed by request."""

    name: str
    indexes: tuple[TableIndex, ...] = ()
    stream: StreamView | None = None
    """The part of a changed item that the table's stream shows; None if the table has no stream."""
    expiring: bool = False

    @property
    def streamed(self) -> bool:
        return self.stream is not None


@dataclass(frozen=True)
class SqsQueue:
    name: str
    hidden_s: int
    """Time for which a received message is hidden: six times what its function may take."""
    kept_s: int
    dead: str | None = None
    received_max: int = 5
    """After this many receives a message goes to ``dead``."""
    waits_s: int = 20

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")


DAY_S = 86_400
KEPT_S_MAX = 14 * DAY_S
ACTIVE_S_MAX = 120

TABLES = (
    DynamoTable(ITEMS, stream="NEW_AND_OLD_IMAGES"),
    DynamoTable(
        SCHEDULERS,
        indexes=(TableIndex(DUE_INDEX, "shard", "due", ("generation", "counter", "revision", "cadence")),),
        stream="NEW_AND_OLD_IMAGES",
    ),
    DynamoTable(RUNS, indexes=(TableIndex(READY_INDEX, "shard", "at", ("due_ms",)),), expiring=True),
    # Its stream only has to say that a job is new.
    DynamoTable(LEDGER, indexes=(TableIndex(READY_INDEX, "shard", "at"),), stream="KEYS_ONLY", expiring=True),
)

QUEUES = (
    # Dead queues first: a queue names its dead queue when it is made. The dead queue of a FIFO queue is FIFO.
    SqsQueue("ticks-dead", hidden_s=30, kept_s=KEPT_S_MAX),
    SqsQueue("outgoing-dead", hidden_s=30, kept_s=KEPT_S_MAX),
    SqsQueue("runs-dead.fifo", hidden_s=30, kept_s=KEPT_S_MAX),
    SqsQueue("work-dead.fifo", hidden_s=30, kept_s=KEPT_S_MAX),
    # For records that a stream's mapping gave up: AWS takes no FIFO queue for that.
    SqsQueue("streams-dead", hidden_s=30, kept_s=KEPT_S_MAX),
    SqsQueue(TICKS, hidden_s=180, kept_s=DAY_S, dead="ticks-dead"),
    SqsQueue(OUTGOING, hidden_s=180, kept_s=4 * DAY_S, dead="outgoing-dead"),
    SqsQueue(RUNS_FIFO, hidden_s=3_960, kept_s=4 * DAY_S, dead="runs-dead.fifo"),
    # Kept for a short time: runs that still wait are offered again every five minutes.
    SqsQueue(WORK_FIFO, hidden_s=180, kept_s=3_600, dead="work-dead.fifo"),
)


class TablesReport(NamedTuple):
    """Result of ``create``, with full names.

    ``differences``: texts about existing parts that are not as they should be.
    """

    created: tuple[str, ...]
    existing: tuple[str, ...]
    differences: tuple[str, ...]


def create(clients: Clients, prefix: str) -> TablesReport:
    """Create missing tables and queues and compare the others. Repeating it does nothing."""
    created: list[str] = []
    existing: list[str] = []
    differences: list[str] = []
    for table in TABLES:
        new = _create_table(clients, table, prefix)
        (created if new else existing).append(f"{prefix}-{table.name}")
    for table in TABLES:
        differences += _finish_table(clients, table, prefix)
    for queue in QUEUES:
        new, found = _create_queue(clients, queue, prefix)
        (created if new else existing).append(f"{prefix}-{queue.name}")
        differences += found
    return TablesReport(tuple(created), tuple(existing), tuple(differences))


def prefixes(clients: Clients) -> list[str]:
    """Return the prefixes of stores among the first hundred tables."""
    names = call(clients.dynamodb.list_tables)["TableNames"]
    ending = f"-{SCHEDULERS}"
    return [name.removesuffix(ending) for name in names if name.endswith(ending)]


# -- tables


def table_definition(table: DynamoTable, prefix: str) -> dict[str, Any]:
    """Return the parameters of CreateTable; the template has the same."""
    attributes = {"pk": "S", "sk": "S"}
    for index in table.indexes:
        attributes |= {index.shard: "S", index.sort: "N"}
    definition: dict[str, Any] = {
        "TableName": f"{prefix}-{table.name}",
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in attributes.items()],
        "KeySchema": _key_schema("pk", "sk"),
    }
    if table.indexes:
        definition["GlobalSecondaryIndexes"] = [_index_definition(index) for index in table.indexes]
    if table.stream is not None:
        definition["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": table.stream}
    return definition


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def _index_definition(index: TableIndex) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": "KEYS_ONLY"}
    if index.included:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.included)}
    return {"IndexName": index.name, "KeySchema": _key_schema(index.shard, index.sort), "Projection": projection}


def _create_table(clients: Clients, table: DynamoTable, prefix: str) -> bool:
    try:
        call(clients.dynamodb.create_table, **table_definition(table, prefix))
    except ClientError as error:
        if code_of(error) != "ResourceInUseException":
            raise
        return False
    return True


def _finish_table(clients: Clients, table: DynamoTable, prefix: str) -> Iterator[str]:
    """Wait until the table can be used, turn on its time to live, and yield how it differs from its definition."""
    wanted = table_definition(table, prefix)
    name = wanted["TableName"]
    found = _wait_until_active(clients, name)
    if table.expiring:
        _let_expire(clients, name)
    if found["KeySchema"] != wanted["KeySchema"]:
        yield f"{name}: its key is not (pk, sk): it was made by something else; choose another prefix"
    indexes = {index["IndexName"]: index for index in found.get("GlobalSecondaryIndexes", ())}
    for index in table.indexes:
        if not _same_index(indexes.get(index.name), _index_definition(index)):
            yield f"{name}: index {index.name} is missing or differs: make it again as deploy/aws/template.yaml has it"
    if table.streamed and found.get("StreamSpecification", {}).get("StreamViewType") != table.stream:
        yield f"{name}: its stream is off or shows something else: set it to {table.stream}"


def _wait_until_active(clients: Clients, name: str) -> dict[str, Any]:
    for _ in range(ACTIVE_S_MAX):
        # A table that was just made is sometimes not found yet.
        answer = find(clients.dynamodb.describe_table, TableName=name)
        if answer is not None and answer["Table"]["TableStatus"] in {"ACTIVE", "UPDATING"}:
            found: dict[str, Any] = answer["Table"]
            return found
        time.sleep(1)
    raise StoreUnavailable(f"{name} is still being made after {ACTIVE_S_MAX} seconds: run paceline aws init again.")


def _same_index(found: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    if found is None or found["KeySchema"] != wanted["KeySchema"]:
        return False
    has, needs = found["Projection"], wanted["Projection"]
    more = set(needs.get("NonKeyAttributes", ())) <= set(has.get("NonKeyAttributes", ()))
    return has["ProjectionType"] == "ALL" or (has["ProjectionType"] == needs["ProjectionType"] and more)


def _let_expire(clients: Clients, name: str) -> None:
    found = call(clients.dynamodb.describe_time_to_live, TableName=name)["TimeToLiveDescription"]
    if found.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}:
        return
    wanted = {"Enabled": True, "AttributeName": EXPIRES}
    call(clients.dynamodb.update_time_to_live, TableName=name, TimeToLiveSpecification=wanted)


# -- queues


def queue_attributes(queue: SqsQueue, dead_arn: str | None) -> dict[str, str]:
    """Return the attributes of CreateQueue; the template has the same. Delays belong to messages, not to queues."""
    attributes = {
        "VisibilityTimeout": str(queue.hidden_s),
        "MessageRetentionPeriod": str(queue.kept_s),
        "ReceiveMessageWaitTimeSeconds": str(queue.waits_s),
    }
    if queue.fifo:
        # Each provider is a group with its own throughput: the 300 requests a second are for each group.
        attributes |= {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
        }
    if dead_arn is not None:
        attributes["RedrivePolicy"] = json.dumps(
            {"deadLetterTargetArn": dead_arn, "maxReceiveCount": queue.received_max}
        )
    return attributes


def _create_queue(clients: Clients, queue: SqsQueue, prefix: str) -> tuple[bool, list[str]]:
    name = f"{prefix}-{queue.name}"
    dead_arn = _queue_arn(clients, f"{prefix}-{queue.dead}") if queue.dead else None
    wanted = queue_attributes(queue, dead_arn)
    if (url := _queue_url(clients, name)) is None:
        call(clients.sqs.create_queue, QueueName=name, Attributes=wanted)
        return True, []
    found = call(clients.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["All"])["Attributes"]
    differences = [
        f"{name}: {attribute} is {found.get(attribute, 'not set')}, and should be {value}"
        for attribute, value in wanted.items()
        if not _same_attribute(attribute, found.get(attribute), value)
    ]
    return False, differences


def _same_attribute(name: str, found: str | None, wanted: str) -> bool:
    if name != "RedrivePolicy" or found is None:
        return found == wanted
    has, needs = json.loads(found), json.loads(wanted)
    return has["deadLetterTargetArn"] == needs["deadLetterTargetArn"] and int(has["maxReceiveCount"]) == int(
        needs["maxReceiveCount"]
    )


def _queue_url(clients: Clients, name: str) -> str | None:
    answer = find(clients.sqs.get_queue_url, QueueName=name)
    return None if answer is None else str(answer["QueueUrl"])


def _queue_arn(clients: Clients, name: str) -> str:
    for _ in attempts():
        # A queue that was just made is sometimes not found yet.
        if (url := _queue_url(clients, name)) is not None:
            answer = call(clients.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["QueueArn"])
            return str(answer["Attributes"]["QueueArn"])
    raise StoreUnavailable(f"{name} was made and is not found: run paceline aws init again.")

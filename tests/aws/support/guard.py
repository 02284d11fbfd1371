"""AWS's limits, enforced on every client of the tests: emulators let pass what AWS refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]

MESSAGE_BYTES_MAX = 1_048_576
ITEM_BYTES_MAX = 400 * 1024
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024
REQUEST_BYTES_MAX = 16 * 1024 * 1024
EXPRESSION_BYTES_MAX = 4_096
# Alphanumeric and punctuation: no spaces, no accents.
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_QUEUE_NAME = re.compile(r"(?=.{1,80}$)[A-Za-z0-9_-]+(\.fifo)?")
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_QUEUE_RANGES = {
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1_024, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 43_200),
}


class AwsRefuses(AssertionError):
    """AWS would have refused this request; the emulator may not."""


def watch(client: Any) -> None:
    """Holds each request of the client to AWS's limits, before it leaves."""
    events = client.meta.events
    service = client.meta.service_model.service_name
    for operation, rule in RULES.get(service, {}).items():
        events.register(f"before-parameter-build.{service}.{operation}", _checking(rule))


def _checking(rule: Callable[[Params], None]) -> Callable[..., None]:
    def check(params: Params, **_: Any) -> None:
        rule(params)

    return check


def refuse_unless(holds: bool, words: str) -> None:  # noqa: FBT001  an assertion with words
    if not holds:
        raise AwsRefuses(words)


# -- SQS


def _send(params: Params) -> None:
    _message(params, fifo=params["QueueUrl"].endswith(".fifo"))


def _send_batch(params: Params) -> None:
    entries = params["Entries"]
    _batch(entries)
    for entry in entries:
        _message(entry, fifo=params["QueueUrl"].endswith(".fifo"))
    size = sum(_message_bytes(entry) for entry in entries)
    refuse_unless(size <= MESSAGE_BYTES_MAX, f"BatchRequestTooLong: {size} bytes")


def _batch(entries: list[Params]) -> None:
    refuse_unless(1 <= len(entries) <= 10, f"TooManyEntriesInBatchRequest: {len(entries)}")
    ids = [entry["Id"] for entry in entries]
    refuse_unless(len(set(ids)) == len(ids), f"BatchEntryIdsNotDistinct: {ids}")
    refuse_unless(all(_ENTRY_ID.fullmatch(one) for one in ids), f"InvalidBatchEntryId: {ids}")


def _message(message: Params, *, fifo: bool) -> None:
    delay_s = message.get("DelaySeconds", 0)
    refuse_unless(0 <= delay_s <= 900, f"DelaySeconds must be >= 0 and <= 900, not {delay_s}")
    refuse_unless(not (fifo and delay_s), f"DelaySeconds {delay_s}: not valid for this queue type (FIFO)")
    refuse_unless(not fifo or "MessageGroupId" in message, "MissingParameter: MessageGroupId on a FIFO queue")
    refuse_unless(not fifo or "MessageDeduplicationId" in message, "a FIFO queue of ours has no content deduplication")
    refuse_unless(fifo or "MessageDeduplicationId" not in message, "MessageDeduplicationId on a standard queue")
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if name in message:
            refuse_unless(
                bool(_ID.fullmatch(message[name])), f"{name} {message[name]!r}: 1 to 128 of A-Z a-z 0-9 and punctuation"
            )
    size = _message_bytes(message)
    refuse_unless(1 <= size <= MESSAGE_BYTES_MAX, f"a message of {size} bytes")
    refuse_unless(len(message.get("MessageAttributes", {})) <= 10, "more than 10 message attributes")


def _message_bytes(message: Params) -> int:
    size = len(message["MessageBody"].encode())
    for name, value in message.get("MessageAttributes", {}).items():
        size += len(name) + len(value["DataType"]) + len(str(value.get("StringValue", value.get("BinaryValue", ""))))
    return size


def _receive(params: Params) -> None:
    refuse_unless(1 <= params.get("MaxNumberOfMessages", 1) <= 10, "MaxNumberOfMessages: 1 to 10")
    refuse_unless(0 <= params.get("WaitTimeSeconds", 0) <= 20, "WaitTimeSeconds: 0 to 20")
    refuse_unless(0 <= params.get("VisibilityTimeout", 0) <= 43_200, "VisibilityTimeout: 0 to 43200")


def _hide(params: Params) -> None:
    refuse_unless(0 <= params["VisibilityTimeout"] <= 43_200, "VisibilityTimeout: 0 to 43200")


def _hide_batch(params: Params) -> None:
    _batch(params["Entries"])
    for entry in params["Entries"]:
        _hide(entry)


def _delete_batch(params: Params) -> None:
    _batch(params["Entries"])


def _create_queue(params: Params) -> None:
    name, attributes = params["QueueName"], params.get("Attributes", {})
    refuse_unless(bool(_QUEUE_NAME.fullmatch(name)), f"InvalidParameterValue: queue name {name!r}")
    fifo = name.endswith(".fifo")
    refuse_unless(
        attributes.get("FifoQueue", "false") == str(fifo).lower(),
        f"{name}: FifoQueue goes with .fifo, and is not false",
    )
    refuse_unless(fifo or "FifoQueue" not in attributes, "FifoQueue on a standard queue: leave it out")
    _queue_attributes(attributes, fifo=fifo)


def _set_queue_attributes(params: Params) -> None:
    _queue_attributes(params["Attributes"], fifo=params["QueueUrl"].endswith(".fifo"))


def _queue_attributes(attributes: Params, *, fifo: bool) -> None:
    for name, (least, most) in _QUEUE_RANGES.items():
        value = int(attributes.get(name, least))
        refuse_unless(least <= value <= most, f"{name} {value}: {least} to {most}")
    if attributes.get("FifoThroughputLimit") == "perMessageGroupId":
        refuse_unless(
            attributes.get("DeduplicationScope") == "messageGroup",
            "perMessageGroupId needs DeduplicationScope messageGroup",
        )
    if policy := attributes.get("RedrivePolicy"):
        told = json.loads(policy)
        dead = told["deadLetterTargetArn"]
        refuse_unless(
            dead.endswith(".fifo") == fifo, f"the dead letter queue of a FIFO queue is FIFO, and of no other: {dead}"
        )
        refuse_unless(1 <= int(told["maxReceiveCount"]) <= 1_000, "maxReceiveCount: 1 to 1000")


# -- DynamoDB


def _put_item(params: Params) -> None:
    _item(params["Item"])
    _written(params)


def _key_item(params: Params) -> None:
    _key(params["Key"])
    _written(params)


def _written(params: Params) -> None:
    for name in ("ConditionExpression", "UpdateExpression", "FilterExpression", "KeyConditionExpression"):
        size = len(params.get(name, "").encode())
        refuse_unless(size <= EXPRESSION_BYTES_MAX, f"{name} of {size} bytes")
    texts = " ".join(params.get(name, "") for name in _EXPRESSIONS)
    for kind, sign in (("ExpressionAttributeNames", "#"), ("ExpressionAttributeValues", ":")):
        unused = [name for name in params.get(kind, {}) if not re.search(rf"{sign}{name[1:]}\b", texts)]
        refuse_unless(not unused, f"ValidationException: {kind} unused in expressions: {unused}")
        refuse_unless(kind not in params or bool(params[kind]), f"ValidationException: {kind} must not be empty")
    for value in params.get("ExpressionAttributeValues", {}).values():
        refuse_unless(_value_bytes(value) <= ITEM_BYTES_MAX, "a value of more than 400 KB")


_EXPRESSIONS = (
    "ConditionExpression",
    "UpdateExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
)


def _transact_write(params: Params) -> None:
    parts = params["TransactItems"]
    refuse_unless(1 <= len(parts) <= 100, f"a transaction of {len(parts)} actions: 1 to 100")
    seen: list[str] = []
    for part in parts:
        ((kind, action),) = part.items()
        whole = action.get("Item", action.get("Key"))
        (_put_item if kind == "Put" else _key_item)(action)
        seen.append(f"{action['TableName']} {whole['pk']} {whole['sk']}" if "pk" in whole else str(whole))
    refuse_unless(len(set(seen)) == len(seen), "a transaction with two actions on one item")
    size = sum(_item_bytes(action.get("Item", action.get("Key", {}))) for part in parts for action in part.values())
    refuse_unless(size <= TRANSACTION_BYTES_MAX, f"a transaction of {size} bytes: 4 MB at most")


def _transact_get(params: Params) -> None:
    refuse_unless(1 <= len(params["TransactItems"]) <= 100, "TransactGetItems: 1 to 100")


def _batch_write(params: Params) -> None:
    requests = [(table, one) for table, ones in params["RequestItems"].items() for one in ones]
    refuse_unless(1 <= len(requests) <= 25, f"BatchWriteItem of {len(requests)}: 1 to 25")
    seen, size = [], 0
    for table, request in requests:
        ((_, action),) = request.items()
        whole = action.get("Item", action.get("Key"))
        _item(whole)
        size += _item_bytes(whole)
        seen.append(f"{table} {whole.get('pk', whole.get('id'))} {whole.get('sk')}")
    refuse_unless(len(set(seen)) == len(seen), "ValidationException: Provided list of item keys contains duplicates")
    refuse_unless(size <= REQUEST_BYTES_MAX, f"BatchWriteItem of {size} bytes")


def _batch_get(params: Params) -> None:
    keys = [(table, one) for table, wanted in params["RequestItems"].items() for one in wanted["Keys"]]
    refuse_unless(1 <= len(keys) <= 100, f"BatchGetItem of {len(keys)}: 1 to 100")
    seen = [f"{table} {sorted(key.items())}" for table, key in keys]
    refuse_unless(len(set(seen)) == len(seen), "ValidationException: Provided list of item keys contains duplicates")


def _read(params: Params) -> None:
    refuse_unless(params.get("Limit", 1) >= 1, "Limit: 1 or more")
    refuse_unless(
        not ("IndexName" in params and params.get("ConsistentRead")), "consistent reads of an index are not supported"
    )
    _written(params)


def _create_table(params: Params) -> None:
    refuse_unless(bool(_TABLE_NAME.fullmatch(params["TableName"])), f"table name {params['TableName']!r}")
    indexes = params.get("GlobalSecondaryIndexes", [])
    refuse_unless(len(indexes) <= 20, "more than 20 indexes")
    included = [index["Projection"].get("NonKeyAttributes", []) for index in indexes]
    refuse_unless(sum(map(len, included)) <= 100, "more than 100 attributes in the indexes")
    named = {one["AttributeName"] for schema in [params, *indexes] for one in schema["KeySchema"]}
    defined = {one["AttributeName"] for one in params["AttributeDefinitions"]}
    refuse_unless(named == defined, f"attribute definitions and keys differ: {named ^ defined}")


def _item(item: Params) -> None:
    _key(item)
    size = _item_bytes(item)
    refuse_unless(size <= ITEM_BYTES_MAX, f"Item size has exceeded the maximum allowed size: {size} bytes")


def _key(item: Params) -> None:
    for name, most in (("pk", 2_048), ("sk", 1_024)):
        if name in item:
            size = _value_bytes(item[name])
            refuse_unless(1 <= size <= most, f"key {name} of {size} bytes: 1 to {most}")


def _item_bytes(item: Params) -> int:
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Params) -> int:
    ((kind, told),) = value.items()
    match kind:
        case "S":
            return len(told.encode())
        case "B":
            return len(told)
        case "N":
            refuse_unless(len(re.sub(r"^-?0*|[.]|[eE].*$", "", told)) <= 38, f"a number of more than 38 digits: {told}")
            return 1 + (len(told) + 1) // 2
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in told)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(part) for name, part in told.items())
        case _:
            return 1


# -- Streams and Scheduler


def _get_records(params: Params) -> None:
    refuse_unless(1 <= params.get("Limit", 1) <= 1_000, "GetRecords: 1 to 1000")


def _schedule(params: Params) -> None:
    rate = re.fullmatch(r"rate\((\d+) (\w+)\)", params["ScheduleExpression"])
    refuse_unless(
        rate is None or (int(rate[1]) >= 1 and rate[2] in {"minute", "minutes", "hour", "hours", "day", "days"}),
        f"ScheduleExpression {params['ScheduleExpression']}: minutes, hours or days",
    )


RULES: dict[str, dict[str, Callable[[Params], None]]] = {
    "sqs": {
        "SendMessage": _send,
        "SendMessageBatch": _send_batch,
        "ReceiveMessage": _receive,
        "ChangeMessageVisibility": _hide,
        "ChangeMessageVisibilityBatch": _hide_batch,
        "DeleteMessageBatch": _delete_batch,
        "CreateQueue": _create_queue,
        "SetQueueAttributes": _set_queue_attributes,
    },
    "dynamodb": {
        "PutItem": _put_item,
        "UpdateItem": _key_item,
        "DeleteItem": _key_item,
        "GetItem": _key_item,
        "TransactWriteItems": _transact_write,
        "TransactGetItems": _transact_get,
        "BatchWriteItem": _batch_write,
        "BatchGetItem": _batch_get,
        "Query": _read,
        "Scan": _read,
        "CreateTable": _create_table,
    },
    "dynamodbstreams": {"GetRecords": _get_records},
    "scheduler": {"CreateSchedule": _schedule, "UpdateSchedule": _schedule},
}

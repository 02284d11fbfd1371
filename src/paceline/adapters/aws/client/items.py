"""Items as Python values, keys as text, and writes as values: each states its condition, and every name is aliased.

An expression is written with ``#name`` for an attribute and ``:value`` for a value; both are collected from the text,
so that no attribute name meets DynamoDB's 573 reserved words (counter, key, state, url, …), and no value is left over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypedDict
from urllib.parse import quote
from zlib import crc32

Value = str | int | float | bool | bytes | list[Any] | dict[str, Any] | None
Item = dict[str, Any]
"""An item as Python values. An attribute that is None is not stored."""
Wire = dict[str, dict[str, Any]]
"""An item in the form of DynamoDB's API, each value with its type."""
Kind = Literal["Put", "Update", "Delete", "ConditionCheck"]

ITEM_BYTES_MAX = 400 * 1024
DIGITS = 19
"""Digits of the largest signed 64-bit number; numbers in sort keys are padded to this length."""
_NAME = re.compile(r"#(\w+)")
_VALUE = re.compile(r":(\w+)")


class DynamoKey(NamedTuple):
    """The key of an item."""

    pk: str
    sk: str


PK_BYTES_MAX, SK_BYTES_MAX = 2_048, 1_024


def is_possible(key: DynamoKey) -> bool:
    """Return True if an item can have this key: a caller may ask for a longer name than DynamoDB allows."""
    return 0 < len(key.pk.encode()) <= PK_BYTES_MAX and 0 < len(key.sk.encode()) <= SK_BYTES_MAX


class Action(NamedTuple):
    """One write, or one check, of one item: alone or as a part of a transaction. ``table`` is without the prefix."""

    kind: Kind
    table: str
    key: DynamoKey
    params: dict[str, Any]


def put(table: str, item: Mapping[str, Any], *, when: str = "", **values: Value) -> Action:
    """Return a write of the whole item. ``when=ABSENT`` writes it only if there is none."""
    params = {"Item": encode_item(item)} | _expressions(when=when, values=values)
    return Action("Put", table, DynamoKey(item["pk"], item["sk"]), params)


def update(table: str, key: DynamoKey, change: str, *, when: str, **values: Value) -> Action:
    """Return an update by an expression. Without ``when`` it creates a missing item."""
    params = {"Key": encode_key(key)} | _expressions(when=when, change=change, values=values)
    return Action("Update", table, key, params)


def delete(table: str, key: DynamoKey, *, when: str = "", **values: Value) -> Action:
    return Action("Delete", table, key, {"Key": encode_key(key)} | _expressions(when=when, values=values))


def check(table: str, key: DynamoKey, *, when: str, **values: Value) -> Action:
    """Return a check that writes nothing: its transaction is won only if the condition holds."""
    return Action("ConditionCheck", table, key, {"Key": encode_key(key)} | _expressions(when=when, values=values))


ABSENT = "attribute_not_exists(#pk)"
PRESENT = "attribute_exists(#pk)"


def setting(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an update expression and its values: SET for attributes with a value, REMOVE for those that are None."""
    given = {name: value for name, value in values.items() if value is not None}
    gone = [f"#{name}" for name, value in values.items() if value is None]
    parts = ["SET " + ", ".join(f"#{name} = :{name}" for name in given)] if given else []
    parts += ["REMOVE " + ", ".join(gone)] if gone else []
    return " ".join(parts), given


class Bounds(TypedDict, total=False):
    """Bounds on the sort keys of a partition; without any, all items. An empty text is no bound.

    ``index``: read the index with this name, not the table. ``first`` and ``last`` are included, ``after`` and
    ``before`` are not. DynamoDB takes one of these, or ``first`` with ``last``.
    """

    index: str
    begins: str
    first: str | int
    last: str | int
    after: str | int
    before: str | int


class ReadOptions(Bounds, total=False):
    """A read of a partition. ``only``: these attributes. ``filtered``: a condition, with its ``given`` values.

    ``behind``: begin behind the item with these keys, in the order of the index and within the bounds.
    """

    only: str
    filtered: str
    given: Mapping[str, Any]
    newest_first: bool
    behind: Mapping[str, Any]


_COMPARED = {"first": ">=", "last": "<=", "after": ">", "before": "<"}


def key_condition(pk: str, names: tuple[str, str], bounds: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the condition on a partition and its sort keys, with its values; an empty text if no item can match."""
    values = {name: bounds[name] for name in ("begins", *_COMPARED) if bounds.get(name, "") != ""}
    if not is_possible(DynamoKey(pk, "-")) or (
        "first" in values and "last" in values and values["first"] > values["last"]
    ):
        return "", {}
    where, sort = f"#{names[0]} = :of", f"#{names[1]}"
    match list(values):
        case []:
            pass
        case ["begins"]:
            where += f" AND begins_with({sort}, :begins)"
        case ["first", "last"]:
            where += f" AND {sort} BETWEEN :first AND :last"
        case [name]:
            where += f" AND {sort} {_COMPARED[name]} :{name}"
        case more:
            raise AssertionError(f"DynamoDB takes one bound, or first and last: {more}")
    return where, values | {"of": pk}


def query_params(*, where: str, filtered: str = "", only: str = "", values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a query.

    ``where`` chooses by keys, ``filtered`` among the items that were read; ``only`` names the wanted attributes.
    """
    texts = {"KeyConditionExpression": where, "FilterExpression": filtered, "ProjectionExpression": only}
    return _gathered({name: text for name, text in texts.items() if text}, values)


def _expressions(*, when: str, values: Mapping[str, Any], change: str = "") -> dict[str, Any]:
    texts = {"ConditionExpression": when, "UpdateExpression": change}
    return _gathered({name: text for name, text in texts.items() if text}, values)


def _gathered(texts: dict[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    whole = " ".join(texts.values())
    names = set(_NAME.findall(whole))
    used = set(_VALUE.findall(whole))
    assert used == set(values), f"{whole}: {used ^ set(values)} is in the text or in the values, not in both"
    params: dict[str, Any] = dict(texts)
    if names:
        params["ExpressionAttributeNames"] = {f"#{name}": name for name in sorted(names)}
    if used:
        params["ExpressionAttributeValues"] = {f":{name}": encode(values[name]) for name in sorted(used)}
    return params


def encode(value: Value) -> dict[str, Any]:
    """Return a Python value with its DynamoDB type."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": repr(value)}
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case list():
            return {"L": [encode(part) for part in value]}
        case dict():
            return {"M": {name: encode(part) for name, part in value.items()}}


def decode(wire: Mapping[str, Any]) -> Any:
    """Return the Python value. DynamoDB writes 1.0 as 1, so a float without a fraction comes back as an int."""
    ((kind, value),) = wire.items()
    match kind:
        case "N":
            return float(value) if set(value) & set(".eE") else int(value)
        case "L":
            return [decode(part) for part in value]
        case "M":
            return {name: decode(part) for name, part in value.items()}
        case "NULL":
            return None
        case "B":
            return bytes(value)
        case _:
            return value


def encode_item(item: Mapping[str, Any]) -> Wire:
    return {name: encode(value) for name, value in item.items() if value is not None}


def decode_item(wire: Mapping[str, Any]) -> Item:
    return {name: decode(value) for name, value in wire.items()}


def encode_key(key: DynamoKey) -> Wire:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def key_of(item: Mapping[str, Any]) -> DynamoKey:
    return DynamoKey(item["pk"], item["sk"])


def item_at(key: DynamoKey, **fields: Any) -> Item:
    """Return an item with this key and these attributes."""
    return {"pk": key.pk, "sk": key.sk} | fields


def joined(kind: str, *parts: str | int) -> str:
    """Return one key made of several parts, escaped: (1, 2#3) and (1#2, 3) never collide."""
    return "#".join([kind, *(quote(str(part), safe="") for part in parts)])


def padded(number: int) -> str:
    """Return a number as text that sorts like the number."""
    assert 0 <= number < 10**DIGITS
    return f"{number:0{DIGITS}d}"


def shard_of(name: str | int, shards: int) -> int:
    """Return the shard of a name. The rule must never change: shards are stored in items."""
    return crc32(str(name).encode()) % shards

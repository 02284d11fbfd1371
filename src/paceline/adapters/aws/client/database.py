"""DynamoDB as the store uses it: consistent reads, conditional writes that return whether they won, and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar, Unpack

from botocore.exceptions import ClientError

from paceline.adapters.aws.client.connect import THROTTLED, Clients, Threads, attempts, busy, call, code_of
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import (
    Action,
    Bounds,
    DynamoKey,
    Item,
    ReadOptions,
    Value,
    decode_item,
    encode,
    encode_item,
    encode_key,
    is_possible,
    key_condition,
    key_of,
    query_params,
)
from paceline.adapters.aws.client.tables import TABLES
from paceline.core.leases import write_time_ms
from paceline.errors import StoreUnavailable
from paceline.ports import Clock

T = TypeVar("T")

ACTIONS_MAX = 100
"""Maximum of actions in one transaction."""
GETS_MAX = 100
WRITES_MAX = 25
PAGE_MAX = 1_000

_KEYS: dict[str | None, tuple[str, str]] = {None: ("pk", "sk")}
_KEYS |= {index.name: (index.shard, index.sort) for table in TABLES for index in table.indexes}
"""The attributes that find and order the items of a table (None) and of each index."""
_LOST = "ConditionalCheckFailed"
_CONFLICTS = frozenset({"TransactionConflict", "TransactionConflictException"})


class WriteResult(NamedTuple):
    """The result of a write.

    ``item``: if the write was won, what an update left, or what a put or delete replaced; if it was lost, the stored
    item.
    """

    won: bool
    item: Item | None = None


class Transacted(NamedTuple):
    """The result of a transaction: whether it was won as a whole.

    If not, ``lost`` says which actions' conditions failed, and ``items`` has the stored items.
    """

    won: bool
    lost: tuple[bool, ...] = ()
    items: tuple[Item | None, ...] = ()


class DynamoDatabase:
    """All tables of one prefix. Thread-safe."""

    def __init__(
        self,
        clients: Clients,
        *,
        prefix: str,
        threads: Threads,
        clock: Clock | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.prefix = prefix
        self.threads = threads
        self.retention = retention or Retention()
        self._clock = clock
        self._client = clients.dynamodb
        self._mark = token_hex(6)
        self._marks = count()

    def table(self, name: str) -> str:
        """Return the table's full name."""
        return f"{self.prefix}-{name}"

    # -- reading

    def get(self, table: str, key: DynamoKey) -> Item | None:
        if not is_possible(key):
            return None
        found = call(self._client.get_item, TableName=self.table(table), Key=encode_key(key), ConsistentRead=True)
        return decode_item(found["Item"]) if "Item" in found else None

    def glance(self, table: str, key: DynamoKey) -> Item | None:
        """Return the item as it was a moment ago, for half the price: a hint."""
        found = call(self._client.get_item, TableName=self.table(table), Key=encode_key(key))
        return decode_item(found["Item"]) if "Item" in found else None

    def get_many(self, table: str, keys: Iterable[DynamoKey]) -> dict[DynamoKey, Item]:
        """Return the items that exist, however many are asked for."""
        return {key: item for (_, key), item in self.get_mixed((table, key) for key in keys).items()}

    def get_mixed(self, keys: Iterable[tuple[str, DynamoKey]]) -> dict[tuple[str, DynamoKey], Item]:
        """Return the items that exist, of several tables in the same requests."""
        wanted = [one for one in dict.fromkeys(keys) if is_possible(one[1])]
        pages = [wanted[at : at + GETS_MAX] for at in range(0, len(wanted), GETS_MAX)]
        found: dict[tuple[str, DynamoKey], Item] = {}
        for items in self.threads.fan_out(self._get_page, pages):
            found |= items
        return found

    def _get_page(self, keys: Sequence[tuple[str, DynamoKey]]) -> dict[tuple[str, DynamoKey], Item]:
        names = {self.table(table): table for table, _ in keys}
        wanted: dict[str, Any] = {name: {"Keys": [], "ConsistentRead": True} for name in names}
        for table, key in keys:
            wanted[self.table(table)]["Keys"].append(encode_key(key))
        found: dict[tuple[str, DynamoKey], Item] = {}
        for _ in attempts():
            answer = call(self._client.batch_get_item, RequestItems=wanted)
            for name, items in answer["Responses"].items():
                found |= {(names[name], key_of(item)): item for item in map(decode_item, items)}
            wanted = answer.get("UnprocessedKeys") or {}
            if not wanted:
                return found
        raise StoreUnavailable(
            f"AWS leaves keys of {', '.join(names)} unread, also after several attempts: try again in a moment."
        )

    def get_together(self, keys: Sequence[tuple[str, DynamoKey]]) -> list[Item | None]:
        """Return a snapshot of at most 100 items of any tables: no transaction is seen half done."""
        assert len(keys) <= ACTIONS_MAX
        gets = [{"Get": {"TableName": self.table(table), "Key": encode_key(key)}} for table, key in keys]
        for _ in attempts():
            try:
                answers = call(self._client.transact_get_items, TransactItems=gets)["Responses"]
            except ClientError as error:
                if not _may_repeat(error):
                    raise
                continue
            return [decode_item(answer["Item"]) if answer.get("Item") else None for answer in answers]
        raise busy("the items that are read together")

    def page(self, table: str, pk: str, *, limit: int, **asked: Unpack[ReadOptions]) -> list[Item]:
        """Return the first items of ``walk``, at most ``limit``."""
        # Items that are filtered out count towards DynamoDB's limit, so it cannot be our limit.
        size = PAGE_MAX if asked.get("filtered") else min(limit, PAGE_MAX)
        return list(islice(self.walk(table, pk, size=size, **asked), limit)) if limit > 0 else []

    def walk(self, table: str, pk: str, *, size: int = PAGE_MAX, **asked: Unpack[ReadOptions]) -> Iterator[Item]:
        """Yield items of a partition in key order, ``size`` a request; consistent, unless an index is named: a hint."""
        where, values = key_condition(pk, _KEYS[asked.get("index")], asked)
        if not where:
            return iter(())
        texts = {"filtered": asked.get("filtered", ""), "only": asked.get("only", "")}
        params = query_params(where=where, **texts, values={**values, **asked.get("given", {})}) | self._of(
            table, asked
        )
        params |= {"Limit": size, "ScanIndexForward": not asked.get("newest_first", False)}
        behind = asked.get("behind")
        return self._walk("query", params, {"ExclusiveStartKey": encode_item(behind)} if behind else None)

    def count(self, table: str, pk: str, *, limit: int, **bounds: Unpack[Bounds]) -> int:
        """Return how many items ``walk`` would yield, counting up to the limit."""
        where, values = key_condition(pk, _KEYS[bounds.get("index")], bounds)
        params = query_params(where=where, values=values) | self._of(table, bounds) | {"Select": "COUNT"}
        found = 0
        while found < limit:
            answer = call(self._client.query, **params, Limit=min(limit - found, PAGE_MAX))
            found += answer["Count"]
            if "LastEvaluatedKey" not in answer:
                break
            params["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return min(found, limit)

    def _of(self, table: str, bounds: Bounds) -> dict[str, Any]:
        index = bounds.get("index")
        return {"TableName": self.table(table)} | ({"IndexName": index} if index else {"ConsistentRead": True})

    def scan(self, table: str, *, index: str | None = None, filtered: str = "", **values: Value) -> Iterator[Item]:
        """Yield every item, page by page, in no order. For upkeep: it reads the whole table."""
        params = query_params(where="", filtered=filtered, values=values) | {"TableName": self.table(table)}
        params |= {"IndexName": index} if index else {"ConsistentRead": True}
        return self._walk("scan", params)

    def _walk(self, operation: str, params: dict[str, Any], start: dict[str, Any] | None = None) -> Iterator[Item]:
        """Yield the items of all pages; each page begins behind the one before."""
        method = getattr(self._client, operation)
        start = start or {}
        while True:
            answer = call(method, **params, **start)
            yield from map(decode_item, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    # -- writing

    def write_ms(self, asked_ms: int) -> int:
        """Return the time now for a write, if a clock was given: ``asked_ms`` may be old after the reads before it."""
        return write_time_ms(asked_ms, self._clock.now_ms() if self._clock else None)

    def write(self, action: Action) -> WriteResult:
        """Make one write; if its condition fails it is lost, and nothing is written."""
        if "ConditionExpression" in action.params and not is_possible(action.key):
            return WriteResult(False)
        if action.kind == "Delete" and "ConditionExpression" in action.params:
            return self._write_as_transaction(action)
        params, mark = self._marked(action)
        method = getattr(
            self._client, {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}[action.kind]
        )
        for _ in attempts():
            try:
                answer = call(method, **params)
            except ClientError as error:
                if code_of(error) == _LOST + "Exception":
                    return _lost_or_repeated(error, mark)
                if code_of(error) not in _CONFLICTS:
                    raise
                continue
            return WriteResult(True, decode_item(answer["Attributes"]) if answer.get("Attributes") else None)
        raise busy(f"the same items of {action.table}")

    def _marked(self, action: Action) -> tuple[dict[str, Any], str]:
        """Return the parameters of a conditional write with a mark, ``w``, that it leaves in the item.

        A reply can get lost. The write is then repeated, and fails because of its own first attempt: the mark shows
        that, and the write counts as won.
        """
        params = action.params | {"TableName": self.table(action.table)}
        params["ReturnValues"] = "ALL_NEW" if action.kind == "Update" else "ALL_OLD"
        mark = f"{self._mark}{next(self._marks):x}"
        if "ConditionExpression" not in params:
            return params, mark
        params["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if action.kind == "Put":
            return params | {"Item": params["Item"] | {"w": encode(mark)}}, mark
        change: str = params["UpdateExpression"]
        begin, found, rest = change.partition("SET ")
        params["UpdateExpression"] = f"{begin}SET #w = :w, {rest}" if found else f"{change} SET #w = :w"
        params["ExpressionAttributeNames"] = params.get("ExpressionAttributeNames", {}) | {"#w": "w"}
        params["ExpressionAttributeValues"] = params.get("ExpressionAttributeValues", {}) | {":w": encode(mark)}
        return params, mark

    def _write_as_transaction(self, action: Action) -> WriteResult:
        """Delete in a transaction, for twice the price: a deleted item keeps no mark, but a transaction has a token."""
        done = self._transact([action])
        return WriteResult(done.won, done.items[0] if done.items else None)

    def transact(self, actions: Sequence[Action]) -> Transacted:
        """Do all of at most 100 writes and checks, each of another item, or nothing. Repeating it does it once."""
        assert 0 < len(actions) <= ACTIONS_MAX
        if not all(is_possible(action.key) for action in actions):
            return Transacted(False, tuple(not is_possible(one.key) for one in actions), (None,) * len(actions))
        assert len({(action.table, action.key) for action in actions}) == len(actions), "one action for an item"
        if len(actions) == 1 and actions[0].kind != "ConditionCheck":
            done = self.write(actions[0])  # a single write costs half as much
            return Transacted(True) if done.won else Transacted(False, (True,), (done.item,))
        return self._transact(actions)

    def _transact(self, actions: Sequence[Action]) -> Transacted:
        parts = [{action.kind: self._part(action)} for action in actions]
        for _ in attempts():
            try:
                # With the token, a request repeated after a lost answer is done once; AWS keeps it for ten minutes.
                call(self._client.transact_write_items, TransactItems=parts, ClientRequestToken=token_hex(16))
            except ClientError as error:
                if _may_repeat(error):
                    continue
                reasons = error.response.get("CancellationReasons", [])
                if not any(reason.get("Code") == _LOST for reason in reasons):
                    raise
                return Transacted(
                    False,
                    tuple(reason.get("Code") == _LOST for reason in reasons),
                    tuple(decode_item(reason["Item"]) if reason.get("Item") else None for reason in reasons),
                )
            return Transacted(True)
        raise busy(f"the same items of {', '.join(sorted({action.table for action in actions}))}")

    def _part(self, action: Action) -> dict[str, Any]:
        params = action.params | {"TableName": self.table(action.table)}
        if "ConditionExpression" in params:
            params["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return params

    def write_many(self, actions: Iterable[Action]) -> None:
        """Make any number of unconditional puts and deletes; not atomic, but all durable on return."""
        parts: list[tuple[str, dict[str, Any]]] = []
        for action in actions:
            assert "ConditionExpression" not in action.params, "a batch has no conditions"
            kind = {"Put": "PutRequest", "Delete": "DeleteRequest"}[action.kind]
            parts.append((self.table(action.table), {kind: action.params}))
        pages = [parts[at : at + WRITES_MAX] for at in range(0, len(parts), WRITES_MAX)]
        self.threads.fan_out(self._write_page, pages)

    def _write_page(self, parts: Sequence[tuple[str, dict[str, Any]]]) -> None:
        wanted: dict[str, list[dict[str, Any]]] = {}
        for table, part in parts:
            wanted.setdefault(table, []).append(part)
        for _ in attempts():
            wanted = call(self._client.batch_write_item, RequestItems=wanted).get("UnprocessedItems") or {}
            if not wanted:
                return
        raise StoreUnavailable("AWS leaves items unwritten, also after several attempts: try again in a moment.")

    def write_each(self, actions: Sequence[Action]) -> list[WriteResult]:
        """Make conditional writes that do not depend on each other, some at a time."""
        return self.threads.fan_out(self.write, actions)

    def transact_each(self, transactions: Sequence[Sequence[Action]]) -> list[Transacted]:
        """Run transactions that do not depend on each other, some at a time."""
        return self.threads.fan_out(self.transact, transactions)


def in_pages(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the rows in order, ``size`` at a time."""
    left = iter(rows)
    while page := list(islice(left, size)):
        yield page


def _may_repeat(error: ClientError) -> bool:
    """Return True if the request conflicted with another transaction or was throttled, and no condition failed."""
    reasons = {reason.get("Code", "None") for reason in error.response.get("CancellationReasons", [])} - {"None"}
    repeatable = _CONFLICTS | THROTTLED
    return code_of(error) in _CONFLICTS or (bool(reasons) and reasons <= repeatable)


def _lost_or_repeated(error: ClientError, mark: str) -> WriteResult:
    stands: Any = error.response.get("Item")
    item = decode_item(stands) if stands else None
    return WriteResult(item is not None and item.get("w") == mark, item)

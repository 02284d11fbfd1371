"""Begins a send: writes the intent and takes every meter at once. Parks or refuses measurements that are not sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Action, Item, check, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys, meters
from paceline.adapters.aws.jobs.measurement_actions import job_started, unsent_ends
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import chances, stored_measurement
from paceline.adapters.aws.jobs.turns import leaves, served
from paceline.core.jobs.meters import Short, take
from paceline.core.jobs.names import ATTEMPTS_MAX, INDEX_BITS, key_number
from paceline.core.jobs.transitions import EndsUnsent, is_usable, refuse_begin, short_of_balance
from paceline.core.jobs.values import Busy, StoredMeasurement

PARKED_TOGETHER_MAX = 45
"""Measurements in one transaction: each may bring an action on another user's turn."""


class _Sender(NamedTuple):
    """The account and key with which a send begins, and when."""

    account: str
    key: int
    sending_max: int
    now_ms: int
    intent_ms: int
    """The time of the write, which may be long after ``now_ms``, the time at which the account was chosen."""


def begin(
    store: JobParts, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
) -> StoredMeasurement | Short | Busy | None:
    """Begin a send in one request, from cached rows. If that write is lost, read everything and decide."""
    sender = _Sender(account, max(key_number(key), 0), sending_max, now_ms, store.db.write_ms(now_ms))
    return _begin_as_seen(store, item, sender) or _begin(store, item, sender)


def _begin_as_seen(store: JobParts, item: StoredMeasurement, sender: _Sender) -> StoredMeasurement | None:
    """Begin a send from cached rows; None if the row is not cached or has changed.

    The turn only orders users, so it may be a little old.
    """
    known, turn = store.row_cache.take(item.handle), store.row_cache.next_turn(sending_max=sender.sending_max)
    if known is None or turn is None or item.attempt >= ATTEMPTS_MAX:
        return None
    row, job = known
    if (row["attempt"], row["state"]) != (item.attempt, "queued"):
        return None
    # An account with a stored reason is read first: the next send that RIPE accepts removes the reason.
    took = _taking(sender, row, when="#reason = :unblamed", unblamed="")
    if not store.db.transact(_intents(row, job, sender, took, turn=turn)).won:
        return None
    return _begun(store, row, job, item, sender, unblamed=True)


def _begin(store: JobParts, item: StoredMeasurement, sender: _Sender) -> StoredMeasurement | Short | Busy | None:
    account, now_ms = sender.account, sender.now_ms
    job_number = item.handle >> INDEX_BITS
    item_keys = [
        keys.row_key(item.handle),
        keys.job_key(job_number),
        keys.LINE,
        keys.account_key(account),
        keys.key_key(account, sender.key),
    ]
    for _ in keys.tries():
        row, job, line, account_item, key_item = keys.read(store.db, item_keys)
        store.row_cache.note_line(line)
        if row is None or job is None or (row["attempt"], row["state"]) != (item.attempt, "queued"):
            return None
        line = line or {}
        refused = refuse_begin(
            attempt=item.attempt,
            reason=item.reason,
            sending=line.get("sending", 0),
            sending_max=sender.sending_max,
            usable=_usable(account_item, key_item, now_ms=now_ms),
        )
        match refused:
            case Busy():
                return refused
            case "unusable":
                return None
            case EndsUnsent():
                if store.db.transact(unsent_ends(row, job, refused, now_ms=now_ms)).won:
                    return None
                continue
        assert account_item is not None
        account_item = meters.freshened(store.db, account_item, now_ms=now_ms)
        if (short := _short(account_item, item, now_ms=now_ms)) is not None:
            return short
        sender = sender._replace(intent_ms=store.db.write_ms(now_ms))
        actions = _intents(row, job, sender, _taking(sender, row), turn=line.get("turns", 0) + 1)
        if store.db.transact(actions).won:
            return _begun(store, row, job, item, sender, unblamed=not account_item["reason"])
    raise keys.too_busy()


def _short(account: Item, item: StoredMeasurement, *, now_ms: int) -> Short | None:
    """Return the meter or the balance of the account that has too little room."""
    balance = meters.balance_of(account)
    if short := short_of_balance(account["name"], item.cost, None if balance is None else balance.free):
        return short
    taken = take("", meters.needs_of(account["name"], item.cost), meters.meters_of(account), now_ms=now_ms)
    return taken if isinstance(taken, Short) else None


def _intents(row: Item, job: Item, sender: _Sender, took: Action, *, turn: int) -> list[Action]:
    """Return all actions that begin a send: the intent, what it takes of every meter, and the user's turn."""
    key = keys.key_key(sender.account, sender.key)
    return [
        keys.moved(row, **_intent(row, sender)),
        took,
        check(LEDGER, key, when="#enabled = :yes AND #quarantine = :none", yes=True, none=""),
        meters.hold_posting(sender.account, row, attempt=row["attempt"] + 1, now_ms=sender.now_ms),
        _sending(sender.sending_max),
        served(row["owner"], job["user"], turn=turn),
        job_started(job, now_ms=sender.now_ms),
    ]


def _intent(row: Item, sender: _Sender) -> Item:
    return {
        "state": "sending",
        "attempt": row["attempt"] + 1,
        "lookups": 0,
        "slot": 1,
        "account": sender.account,
        "key_number": sender.key,
        "intent_ms": sender.intent_ms,
        "reason": "",
    }


def _begun(
    store: JobParts, row: Item, job: Item, item: StoredMeasurement, sender: _Sender, *, unblamed: bool
) -> StoredMeasurement:
    after = keys.after_move(row, **_intent(row, sender))
    store.row_cache.note_sending(1)
    if unblamed:
        store.row_cache.note(after, job)
    return stored_measurement(after, job=job, owner=item.owner)


def _usable(account: Item | None, key: Item | None, *, now_ms: int) -> bool:
    if account is None or key is None:
        return False
    return is_usable(
        enabled=account["enabled"],
        closed_until_ms=account["closed_until_ms"],
        key_enabled=key["enabled"],
        quarantine=key["quarantine"],
        now_ms=now_ms,
    )


def _taking(sender: _Sender, row: Item, *, when: str = "", **more: str) -> Action:
    """Return the action that holds the cost on each meter, on condition that there is room when it is written."""
    write = meters.taking(meters.cost_of(row))
    conditions = ["#enabled = :enabled", "#closed_until_ms <= :now_ms", *([when] if when else [])]
    values: dict[str, Any] = {"enabled": True, "now_ms": sender.now_ms, **more}
    for name, amount in write.adds.items():
        if name == "balance_free":
            conditions.append("(attribute_not_exists(#balance_ms) OR #balance_free >= :need_balance)")
            values["need_balance"] = -amount
        elif name.endswith("_free") and amount:
            conditions.append(f"#{name} >= :need_{name}")
            values[f"need_{name}"] = -amount
    counted = meters.joined_write(write, meters.Write({"sends": 1}, {}))
    return meters.account_action(sender.account, counted, when=" AND ".join(conditions), **values)


def _sending(sending_max: int) -> Action:
    """Return the action that counts a turn and a send under way, if fewer than ``sending_max`` of all processes are."""
    when = "attribute_not_exists(#sending) OR #sending < :most"
    return update(LEDGER, keys.LINE, "ADD #sending :one, #turns :one", when=when, one=1, most=sending_max)


def park(store: JobParts, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
    """Park measurements together, from cached rows; one at a time if that is lost or a row is not cached."""
    changes = {"state": "parked", "next_ms": next_ms, "reason": reason}
    known = {handle: store.row_cache.take(handle) for handle, _ in items}
    pairs = {fence: pair for fence in items if (pair := known[fence[0]]) is not None and _is_queued(pair[0], fence)}
    done: set[int] = set()
    for piece in keys.pieces((row for row, _ in pairs.values()), rows_max=PARKED_TOGETHER_MAX):
        users = {(row["owner"], pairs[row["handle"], row["attempt"]][1]["user"]) for row in piece}
        owners = Counter(row["owner"] for row in piece)
        left = [leaves(owner, user, owners[owner]) for owner, user in users]
        if store.db.transact([*(keys.moved(row, **changes) for row in piece), *left]).won:
            done |= {row["handle"] for row in piece}

    def act(row: Item, job: Item) -> list[Action]:
        return [keys.moved(row, **changes), leaves(row["owner"], job["user"])]

    won = [fence[0] in done or _change_queued(store.db, fence, act) for fence in items]
    store.shard_cache.touch("parked")
    return won


def note_passed(store: JobParts, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
    def act(row: Item, _job: Item) -> list[Action]:
        return [keys.moved(row, passed_ms=row.get("passed_ms", now_ms))]

    for fence in fences:
        _change_queued(store.db, fence, act, known=store.row_cache.take(fence[0]))


def refuse(store: JobParts, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
    def act(row: Item, job: Item) -> list[Action]:
        return unsent_ends(row, job, EndsUnsent("failed", reason), now_ms=now_ms)

    return [_change_queued(store.db, fence, act, known=store.row_cache.take(fence[0])) for fence in fences]


def _is_queued(row: Item, fence: tuple[int, int]) -> bool:
    return (row["attempt"], row["state"]) == (fence[1], "queued")


def _change_queued(
    database: DynamoDatabase,
    fence: tuple[int, int],
    act: Callable[[Item, Item], list[Action]],
    known: tuple[Item, Item] | None = None,
) -> bool:
    pairs = chances(database, known, fence[0], lambda row: _is_queued(row, fence))
    return any(database.transact(act(row, job)).won for row, job in pairs)

"""Measurements that are sent: the intent, which takes every meter at once, or a step aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Action, Item, check, update
from paceline.adapters.aws.jobs_accounts import key_number
from paceline.adapters.aws.jobs_acts import job_started, unsent_ends
from paceline.adapters.aws.jobs_keys import (
    INDEX_BITS,
    LINE,
    account_key,
    after_move,
    job_key,
    key_key,
    moved,
    pieces,
    read,
    row_key,
    too_busy,
    tries,
)
from paceline.adapters.aws.jobs_meters import (
    Write,
    account_action,
    balance_of,
    cost_of,
    freshened,
    hold_posting,
    joined_write,
    meters_of,
    needs_of,
    taking,
)
from paceline.adapters.aws.jobs_quiet import Quiet
from paceline.adapters.aws.jobs_read import chances, stored_measurement
from paceline.adapters.aws.jobs_seen import Seen
from paceline.adapters.aws.jobs_turns import leaves, served
from paceline.adapters.aws.tables import LEDGER
from paceline.core.meters import NEVER_MS, Short, take
from paceline.ports.job_values import (
    Busy,
    StoredMeasurement,
)

ATTEMPTS_MAX = 9_999
"""A marker has no room for more; whoever was refused so often does not get through."""
PARKED_TOGETHER_MAX = 45
"""Of one transaction: with each of them may come another user's turn."""


class _Sender(NamedTuple):
    """What a send is begun with."""

    account: str
    key: int
    sending_max: int
    now_ms: int
    intent_ms: int
    """When it is written, which may be long after ``now_ms``, by which the account was chosen."""


def begin(
    database: Database, seen: Seen, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
) -> StoredMeasurement | Short | Busy | None:
    """Writes all of it in one request, as it was seen. If that is lost, it reads everything, decides and writes."""
    sender = _Sender(account, max(key_number(key), 0), sending_max, now_ms, database.write_ms(now_ms))
    return _begin_as_seen(database, seen, item, sender) or _begin(database, seen, item, sender)


def _begin_as_seen(
    database: Database, seen: Seen, item: StoredMeasurement, sender: _Sender
) -> StoredMeasurement | None:
    """None: it is not known, or not any more. A new turn is only a place in the line, so it may be a little old."""
    known, turn = seen.take(item.handle), seen.next_turn(sending_max=sender.sending_max)
    if known is None or turn is None or item.attempt >= ATTEMPTS_MAX:
        return None
    row, job = known
    if (row["attempt"], row["state"]) != (item.attempt, "queued"):
        return None
    # An account that was closed for a reason is read, for whoever is sent first sets that back.
    took = _taking(sender, row, when="#reason = :unblamed", unblamed="")
    if not database.transact(_intents(row, job, sender, took, turn=turn)).won:
        return None
    return _begun(seen, row, job, item, sender, unblamed=True)


def _begin(
    database: Database, seen: Seen, item: StoredMeasurement, sender: _Sender
) -> StoredMeasurement | Short | Busy | None:
    account, now_ms = sender.account, sender.now_ms
    job_number = item.handle >> INDEX_BITS
    keys = [row_key(item.handle), job_key(job_number), LINE, account_key(account), key_key(account, sender.key)]
    for _ in tries():
        row, job, line, account_item, key_item = read(database, keys)
        seen.note_line(line)
        if row is None or job is None or (row["attempt"], row["state"]) != (item.attempt, "queued"):
            return None
        if not _usable(account_item, key_item, now_ms=now_ms):
            return None
        assert account_item is not None
        line = line or {}
        if line.get("sending", 0) >= sender.sending_max:
            return Busy()
        if item.attempt >= ATTEMPTS_MAX:
            reason = f"refused {ATTEMPTS_MAX} times; last: {item.reason}"
            if database.transact(unsent_ends(row, job, "failed", reason, now_ms=now_ms)).won:
                return None
            continue
        account_item = freshened(database, account_item, now_ms=now_ms)
        taken = take("", needs_of(account, item.cost), meters_of(account_item), now_ms=now_ms)
        if isinstance(taken, Short):
            return taken
        balance, need = balance_of(account_item), item.cost.daily_credits
        if balance is not None and need > balance.free:
            left = max(balance.free, 0)
            return Short(f"account/{account}/balance", need, left, left, NEVER_MS)
        sender = sender._replace(intent_ms=database.write_ms(now_ms))
        actions = _intents(row, job, sender, _taking(sender, row), turn=line.get("turns", 0) + 1)
        if database.transact(actions).won:
            return _begun(seen, row, job, item, sender, unblamed=not account_item["reason"])
    raise too_busy()


def _intents(row: Item, job: Item, sender: _Sender, took: Action, *, turn: int) -> list[Action]:
    """All of a send's beginning: the intent, what it takes of every meter, and the user's turn."""
    key = key_key(sender.account, sender.key)
    return [
        moved(row, **_intent(row, sender)),
        took,
        check(LEDGER, key, when="#enabled = :yes AND #quarantine = :none", yes=True, none=""),
        hold_posting(sender.account, row, attempt=row["attempt"] + 1, now_ms=sender.now_ms),
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
    seen: Seen, row: Item, job: Item, item: StoredMeasurement, sender: _Sender, *, unblamed: bool
) -> StoredMeasurement:
    after = after_move(row, **_intent(row, sender))
    seen.note_sending(1)
    if unblamed:
        seen.note(after, job)
    return stored_measurement(after, job=job, owner=item.owner)


def _usable(account: Item | None, key: Item | None, *, now_ms: int) -> bool:
    """They may have changed since they were chosen."""
    if account is None or key is None:
        return False
    open_now = account["enabled"] and account["closed_until_ms"] <= now_ms
    return bool(open_now and key["enabled"] and not key["quarantine"])


def _taking(sender: _Sender, row: Item, *, when: str = "", **more: str) -> Action:
    """Holds so much of each meter, where there is still room for it, whatever others took since it was looked at."""
    write = taking(cost_of(row))
    conditions = ["#enabled = :enabled", "#closed_until_ms <= :now_ms", *([when] if when else [])]
    values: dict[str, Any] = {"enabled": True, "now_ms": sender.now_ms, **more}
    for name, amount in write.adds.items():
        if name == "balance_free":
            conditions.append("(attribute_not_exists(#balance_ms) OR #balance_free >= :need_balance)")
            values["need_balance"] = -amount
        elif name.endswith("_free") and amount:
            conditions.append(f"#{name} >= :need_{name}")
            values[f"need_{name}"] = -amount
    counted = joined_write(write, Write({"sends": 1}, {}))
    return account_action(sender.account, counted, when=" AND ".join(conditions), **values)


def _sending(sending_max: int) -> Action:
    """The semaphore of all processes, and the count of turns."""
    when = "attribute_not_exists(#sending) OR #sending < :most"
    return update(LEDGER, LINE, "ADD #sending :one, #turns :one", when=when, one=1, most=sending_max)


def park(
    database: Database, seen: Seen, quiet: Quiet, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str
) -> list[bool]:
    """Together, as they were seen; each alone that is not known, or where one of them has changed meanwhile."""
    changes = {"state": "parked", "next_ms": next_ms, "reason": reason}
    known = {handle: seen.take(handle) for handle, _ in items}
    pairs = {fence: pair for fence in items if (pair := known[fence[0]]) is not None and _is_queued(pair[0], fence)}
    done: set[int] = set()
    for piece in pieces((row for row, _ in pairs.values()), rows_max=PARKED_TOGETHER_MAX):
        users = {(row["owner"], pairs[row["handle"], row["attempt"]][1]["user"]) for row in piece}
        owners = Counter(row["owner"] for row in piece)
        left = [leaves(owner, user, owners[owner]) for owner, user in users]
        if database.transact([*(moved(row, **changes) for row in piece), *left]).won:
            done |= {row["handle"] for row in piece}

    def act(row: Item, job: Item) -> list[Action]:
        return [moved(row, **changes), leaves(row["owner"], job["user"])]

    won = [fence[0] in done or _change_queued(database, fence, act) for fence in items]
    quiet.touch("parked")
    return won


def note_passed(database: Database, seen: Seen, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
    def act(row: Item, _job: Item) -> list[Action]:
        return [moved(row, passed_ms=row.get("passed_ms", now_ms))]

    for fence in fences:
        _change_queued(database, fence, act, known=seen.take(fence[0]))


def refuse(
    database: Database, seen: Seen, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int
) -> list[bool]:
    def act(row: Item, job: Item) -> list[Action]:
        return unsent_ends(row, job, "failed", reason, now_ms=now_ms)

    return [_change_queued(database, fence, act, known=seen.take(fence[0])) for fence in fences]


def _is_queued(row: Item, fence: tuple[int, int]) -> bool:
    return (row["attempt"], row["state"]) == (fence[1], "queued")


def _change_queued(
    database: Database,
    fence: tuple[int, int],
    act: Callable[[Item, Item], list[Action]],
    known: tuple[Item, Item] | None = None,
) -> bool:
    pairs = chances(database, known, fence[0], lambda row: _is_queued(row, fence))
    return any(database.transact(act(row, job)).won for row, job in pairs)

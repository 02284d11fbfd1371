"""Measurements on their way: the intent that takes every meter at once, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Action, Item, Key, check, put, update
from paceline.adapters.aws.jobs_accounts import key_number
from paceline.adapters.aws.jobs_acts import job_adds, job_started, sending_over, unsent_ends
from paceline.adapters.aws.jobs_blame import blamed_account, blamed_beside, blamed_key, clear_blame, is_of_account
from paceline.adapters.aws.jobs_keys import (
    GATE,
    INDEX_BITS,
    LINE,
    account_key,
    atlas_key,
    handle_in,
    hinted,
    job_key,
    key_key,
    moved,
    read,
    row_key,
    slot_key,
    target_key,
    too_busy,
    tries,
)
from paceline.adapters.aws.jobs_meters import (
    Write,
    account_action,
    applied,
    difference,
    empty_write,
    freshened,
    hold_posting,
    joined_write,
    meters_of,
    needs_of,
    refunding,
)
from paceline.adapters.aws.jobs_read import measurement_in, stored_measurement
from paceline.adapters.aws.jobs_turns import joins, leaves, served
from paceline.adapters.aws.tables import LEDGER
from paceline.core.atlas import expected_end_ms
from paceline.core.measurement import targets_of
from paceline.core.meters import Short, take
from paceline.ports.jobs import (
    Blame,
    Busy,
    MeterFull,
    NotSent,
    Rejected,
    SendOutcome,
    Sent,
    StoredMeasurement,
    Unsure,
)

ATTEMPTS_MAX = 9_999
"""A marker has no room for more; whoever was refused so often does not get through."""
SENDING_MAX = 10_000
ATLAS_TOGETHER_MAX = 80
"""So many ids of RIPE's are noted in the transaction itself; those of a larger measurement before it."""


def begin(
    database: Database, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
) -> StoredMeasurement | Short | Busy | None:
    """Reads everything in one request, decides, and writes everything in another."""
    number = max(key_number(key), 0)
    keys = [
        row_key(item.handle),
        job_key(item.handle >> INDEX_BITS),
        LINE,
        account_key(account),
        key_key(account, number),
    ]
    for _ in tries():
        row, job, line, account_item, key_item = read(database, keys)
        if row is None or job is None or (row["attempt"], row["state"]) != (item.attempt, "queued"):
            return None
        if not _usable(account_item, key_item, now_ms=now_ms):
            return None
        assert account_item is not None
        line = line or {}
        if line.get("sending", 0) >= sending_max:
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
        after = _intent(row, account=account, key=number, now_ms=now_ms)
        actions = [
            moved(row, **after),
            _taking(account_item, difference(account_item, taken.meters), now_ms=now_ms),
            check(LEDGER, keys[4], when="#enabled = :yes AND #quarantine = :none", yes=True, none=""),
            hold_posting(account, row, attempt=item.attempt + 1, now_ms=now_ms),
            _sending(sending_max),
            served(row["owner"], turn=line.get("turns", 0) + 1),
            job_started(job, now_ms=now_ms),
        ]
        if database.transact(actions).won:
            return stored_measurement(row | after, job_id=job["name"], owner=item.owner)
    raise too_busy()


def _intent(row: Item, *, account: str, key: int, now_ms: int) -> Item:
    return {
        "state": "sending",
        "attempt": row["attempt"] + 1,
        "lookups": 0,
        "slot": 1,
        "account": account,
        "key_number": key,
        "intent_ms": now_ms,
        "reason": "",
    }


def _usable(account: Item | None, key: Item | None, *, now_ms: int) -> bool:
    """They may have changed since they were chosen."""
    if account is None or key is None:
        return False
    open_now = account["enabled"] and account["closed_until_ms"] <= now_ms
    return bool(open_now and key["enabled"] and not key["quarantine"])


def _taking(account: Item, write: Write, *, now_ms: int) -> Action:
    """Holds so much of each meter, where there is still room for it, whatever others took since it was read."""
    conditions = ["#enabled = :enabled", "#closed_until_ms <= :now_ms"]
    values: dict[str, int | bool] = {"enabled": True, "now_ms": now_ms}
    for name, amount in write.adds.items():
        if name.endswith("_free") and amount:
            conditions.append(f"#{name} >= :need_{name}")
            values[f"need_{name}"] = -amount
    counted = joined_write(write, Write({"sends": 1}, {}))
    return account_action(account, counted, when=" AND ".join(conditions), **values)


def _sending(sending_max: int) -> Action:
    """The semaphore of all processes, and the count of turns."""
    when = "attribute_not_exists(#sending) OR #sending < :most"
    return update(LEDGER, LINE, "ADD #sending :one, #turns :one", when=when, one=1, most=sending_max)


def park(database: Database, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
    def act(row: Item, job: Item) -> list[Action]:
        del job
        return [moved(row, state="parked", next_ms=next_ms, reason=reason), leaves(row["owner"])]

    return [_change_queued(database, fence, act) for fence in items]


def refuse(database: Database, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
    def act(row: Item, job: Item) -> list[Action]:
        return unsent_ends(row, job, "failed", reason, now_ms=now_ms)

    return [_change_queued(database, fence, act) for fence in fences]


def _change_queued(database: Database, fence: tuple[int, int], act: Callable[[Item, Item], list[Action]]) -> bool:
    for _ in tries():
        row, job = read(database, [row_key(fence[0]), job_key(fence[0] >> INDEX_BITS)])
        if row is None or job is None or (row["attempt"], row["state"]) != (fence[1], "queued"):
            return False
        if database.transact(act(row, job)).won:
            return True
    raise too_busy()


class _Out(NamedTuple):
    """A measurement that is out, with all that an answer to it can concern."""

    row: Item
    job: Item
    account: Item
    turns: int
    gate: Item | None
    targets: list[Item]
    blamed: Item | None


def answer(
    database: Database, handle: int, attempt: int, outcome: SendOutcome, *, blame: Blame | None, now_ms: int
) -> bool:
    for _ in tries():
        out = _out(database, handle, attempt, blame)
        if out is None:
            return False
        if isinstance(blame, MeterFull):
            out = out._replace(account=freshened(database, out.account, now_ms=now_ms))
        write, actions = _following(database, out, outcome, now_ms=now_ms)
        if is_of_account(blame) or write.adds:
            write = blamed_account(out.account, write, blame, now_ms=now_ms)
            actions.append(account_action(out.account, write))
        actions += blamed_beside(blame, account=out.row["account"], key=f"k{out.row['key_number']}", seen=out.blamed)
        if database.transact(actions).won:
            if isinstance(outcome, Sent):
                account = applied(out.account, write)
                clear_blame(database, account=account, gate=out.gate, targets=out.targets, now_ms=now_ms)
            return True
    raise too_busy()


def _out(database: Database, handle: int, attempt: int, blame: Blame | None) -> _Out | None:
    row, job, line, gate = read(database, [row_key(handle), job_key(handle >> INDEX_BITS), LINE, GATE])
    if row is None or job is None or row["attempt"] != attempt or row["state"] not in {"sending", "unknown"}:
        return None
    targets = [target_key(name) for name in sorted(targets_of(measurement_in(row)))]
    blamed = blamed_key(blame, account=row["account"], key=f"k{row['key_number']}")
    keys: list[Key] = [account_key(row["account"]), *targets]
    found = database.get_many(LEDGER, [*keys, *([blamed] if blamed else [])])
    return _Out(
        row,
        job,
        found[keys[0]],
        (line or {}).get("turns", 0),
        gate,
        [found[key] for key in targets if key in found],
        found.get(blamed) if blamed else None,
    )


def _following(database: Database, out: _Out, outcome: SendOutcome, *, now_ms: int) -> tuple[Write, list[Action]]:
    """What is written to the account, and the actions beside it."""
    row, job = out.row, out.job
    match outcome:
        case Sent():
            return empty_write(), _sent(database, row, outcome.atlas_ids, now_ms=now_ms)
        case Unsure():
            lookups = max(row["lookups"], outcome.lookups)
            move = moved(row, state="unknown", next_ms=outcome.look_ms, reason=outcome.reason, lookups=lookups)
            return empty_write(), [move, *sending_over(row)]
        case NotSent() if not row["stopping"]:
            closing = refunding(out.account, row, now_ms=now_ms)
            return closing.write, [*_back(out, outcome), *closing.beside, *sending_over(row)]
        case NotSent() | Rejected():
            closing = refunding(out.account, row, now_ms=now_ms)
            if isinstance(outcome, Rejected):
                ends = unsent_ends(row, job, "failed", outcome.reason, now_ms=now_ms)
            else:
                ends = unsent_ends(row, job, "cancelled", "cancelled", now_ms=now_ms)
            return closing.write, [*ends, *closing.beside, *sending_over(row)]


def _back(out: _Out, outcome: NotSent) -> list[Action]:
    state = "queued" if outcome.next_ms is None else "parked"
    row = moved(
        out.row, state=state, next_ms=outcome.next_ms, reason=outcome.reason, slot=0, account=None, key_number=None
    )
    actions = [row, job_adds(out.job, waiting=1)]
    if state == "queued":
        actions.append(joins(out.row["owner"], out.job["user"], 1, turns=out.turns))
    return actions


def _sent(database: Database, row: Item, atlas_ids: tuple[int, ...], *, now_ms: int) -> list[Action]:
    assert len(atlas_ids) == row["concurrent"]
    # From the intent: one that was found by a lookup began long before its answer.
    expected_ms = expected_end_ms(measurement_in(row), sent_ms=row["intent_ms"])
    slot = {
        **slot_key(row["account"], row["handle"])._asdict(),
        "expected_ms": expected_ms,
        "concurrent": row["concurrent"],
        "atlas_ids": list(atlas_ids),
    }
    atlas = [[atlas_id, None, 0] for atlas_id in atlas_ids]
    move = moved(row, state="ongoing", answered_ms=now_ms, next_ms=None, reason="", atlas=atlas)
    noted = [put(LEDGER, {**atlas_key(one)._asdict(), "handle": row["handle"]}) for one in atlas_ids]
    if len(noted) > ATLAS_TOGETHER_MAX:
        # Whoever finds such a note looks whether the measurement has the id, so one that comes too early says nothing.
        database.write_many(noted)
        noted = []
    return [move, put(LEDGER, slot), *noted, *sending_over(row)]


def lose(database: Database, *, intent_before_ms: int, look_ms: int) -> int:
    lost = 0
    for hint in hinted(database, "sending", limit=SENDING_MAX):
        lost += _lose_one(database, handle_in(hint), intent_before_ms=intent_before_ms, look_ms=look_ms)
    return lost


def _lose_one(database: Database, handle: int, *, intent_before_ms: int, look_ms: int) -> bool:
    reason = "its sender stopped before it had an answer"
    for _ in tries():
        [row] = read(database, [row_key(handle)])
        if row is None or row["state"] != "sending" or row["intent_ms"] >= intent_before_ms:
            return False
        move = moved(row, state="unknown", next_ms=look_ms, reason=reason)
        if database.transact([move, *sending_over(row)]).won:
            return True
    raise too_busy()

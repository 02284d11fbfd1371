"""What came of a send, and what follows from it: for the measurement, its account, its key, a target, everybody."""

from __future__ import annotations

from typing import NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Action, Item, Key, put
from paceline.adapters.aws.jobs_acts import job_adds, sending_over, unsent_ends
from paceline.adapters.aws.jobs_blame import blamed_account, blamed_beside, blamed_key, clear_blame, is_of_account
from paceline.adapters.aws.jobs_keys import (
    GATE,
    INDEX_BITS,
    LINE,
    account_key,
    after_move,
    atlas_key,
    handle_in,
    hinted,
    job_key,
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
    empty_write,
    freshened,
    refunding,
)
from paceline.adapters.aws.jobs_quiet import Quiet
from paceline.adapters.aws.jobs_read import measurement_in
from paceline.adapters.aws.jobs_seen import Seen
from paceline.adapters.aws.jobs_turns import joins
from paceline.adapters.aws.tables import LEDGER
from paceline.core.atlas import expected_end_ms
from paceline.core.measurement import targets_of
from paceline.ports.job_values import (
    Blame,
    MeterFull,
    NotSent,
    Rejected,
    SendOutcome,
    Sent,
    Unsure,
)

SENDING_MAX = 10_000
ATLAS_TOGETHER_MAX = 80
"""So many ids of RIPE's are noted in the transaction itself; those of a larger measurement before it."""


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
    database: Database,
    seen: Seen,
    quiet: Quiet,
    handle: int,
    attempt: int,
    outcome: SendOutcome,
    *,
    blame: Blame | None,
    now_ms: int,
) -> bool:
    known = seen.take(handle)
    if known is not None and blame is None and _answer_as_seen(database, seen, known, attempt, outcome, now_ms=now_ms):
        won = True
    else:
        won = _answer(database, seen, known, handle, attempt, outcome, blame=blame, now_ms=now_ms)
    if won and not isinstance(outcome, Sent | Rejected):
        quiet.touch("unknown", "parked", "turn")
    return won


def _answer_as_seen(
    database: Database, seen: Seen, known: tuple[Item, Item], attempt: int, outcome: SendOutcome, *, now_ms: int
) -> bool:
    """In one request, where nothing of the account or of what was refused has to be known. False: it has to be read."""
    row, job = known
    if row["attempt"] != attempt or row["state"] not in {"sending", "unknown"}:
        return False
    match outcome:
        case Sent() if row["state"] == "sending" and seen.is_unblamed(targets_of(measurement_in(row))):
            actions = _sent(database, row, outcome.atlas_ids, now_ms=now_ms)
            after = after_move(row, **_sent_changes(outcome.atlas_ids, now_ms=now_ms))
        case Unsure():
            actions = _unsure(row, outcome)
            after = after_move(row, **_unsure_changes(row, outcome))
        case _:
            return False
    if not database.transact(actions).won:
        return False
    _note_answered(seen, row)
    seen.note(after, job)
    return True


def _note_answered(seen: Seen, row: Item) -> None:
    if row["state"] == "sending":
        seen.note_sending(-1)


def _answer(
    database: Database,
    seen: Seen,
    known: tuple[Item, Item] | None,
    handle: int,
    attempt: int,
    outcome: SendOutcome,
    *,
    blame: Blame | None,
    now_ms: int,
) -> bool:
    for _ in tries():
        out = _out(database, known, handle, attempt, blame)
        known = None
        if out is None:
            return False
        if isinstance(blame, MeterFull):
            out = out._replace(account=freshened(database, out.account, now_ms=now_ms))
        write, actions = _following(database, out, outcome, now_ms=now_ms)
        if is_of_account(blame) or write.adds:
            write = blamed_account(out.account, write, blame, now_ms=now_ms)
            actions.append(account_action(out.row["account"], write))
        actions += blamed_beside(blame, account=out.row["account"], key=f"k{out.row['key_number']}", seen=out.blamed)
        if not database.transact(actions).won:
            continue
        _note_answered(seen, out.row)
        if blame is not None:
            seen.forget_gates()
        if isinstance(outcome, Sent):
            account = applied(out.account, write)
            clear_blame(database, account=account, gate=out.gate, targets=out.targets, now_ms=now_ms)
            seen.forget_gates()
        return True
    raise too_busy()


def _out(
    database: Database, known: tuple[Item, Item] | None, handle: int, attempt: int, blame: Blame | None
) -> _Out | None:
    """In one request if it is known what it concerns: a measurement and, while it is out, its account never change."""
    keys = [row_key(handle), job_key(handle >> INDEX_BITS), LINE, GATE]
    beside = [] if known is None or "account" not in known[0] else _concerned(known[0], blame)
    found = database.get_many(LEDGER, [*keys, *beside])
    row, job, line, gate = (found.get(key) for key in keys)
    if row is None or job is None or row["attempt"] != attempt or row["state"] not in {"sending", "unknown"}:
        return None
    concerned = _concerned(row, blame)
    if missing := [key for key in concerned if key not in beside]:
        found |= database.get_many(LEDGER, missing)
    blamed = blamed_key(blame, account=row["account"], key=f"k{row['key_number']}")
    return _Out(
        row,
        job,
        found[account_key(row["account"])],
        (line or {}).get("turns", 0),
        gate,
        [found[key] for key in map(target_key, sorted(targets_of(measurement_in(row)))) if key in found],
        found.get(blamed) if blamed else None,
    )


def _concerned(row: Item, blame: Blame | None) -> list[Key]:
    """Its account, its targets, and whatever is to blame."""
    targets = [target_key(name) for name in sorted(targets_of(measurement_in(row)))]
    blamed = blamed_key(blame, account=row["account"], key=f"k{row['key_number']}")
    return [account_key(row["account"]), *targets, *([blamed] if blamed else [])]


def _following(database: Database, out: _Out, outcome: SendOutcome, *, now_ms: int) -> tuple[Write, list[Action]]:
    """What is written to the account, and the actions beside it."""
    row, job = out.row, out.job
    match outcome:
        case Sent():
            return empty_write(), _sent(database, row, outcome.atlas_ids, now_ms=now_ms)
        case Unsure():
            return empty_write(), _unsure(row, outcome)
        case NotSent() if not row["stopping"]:
            closing = refunding(row, now_ms=now_ms)
            return closing.write, [*_back(out, outcome), *closing.beside, *sending_over(row)]
        case NotSent() | Rejected():
            closing = refunding(row, now_ms=now_ms)
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


def _unsure(row: Item, outcome: Unsure) -> list[Action]:
    return [moved(row, **_unsure_changes(row, outcome)), *sending_over(row)]


def _unsure_changes(row: Item, outcome: Unsure) -> Item:
    lookups = max(row["lookups"], outcome.lookups)
    return {"state": "unknown", "next_ms": outcome.look_ms, "reason": outcome.reason, "lookups": lookups}


def _sent_changes(atlas_ids: tuple[int, ...], *, now_ms: int) -> Item:
    atlas = [[atlas_id, None, 0] for atlas_id in atlas_ids]
    return {"state": "ongoing", "answered_ms": now_ms, "next_ms": None, "reason": "", "atlas": atlas}


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
    move = moved(row, **_sent_changes(atlas_ids, now_ms=now_ms))
    noted = [put(LEDGER, {**atlas_key(one)._asdict(), "handle": row["handle"]}) for one in atlas_ids]
    if len(noted) > ATLAS_TOGETHER_MAX:
        # Whoever finds such a note looks whether the measurement has the id, so one that comes too early says nothing.
        database.write_many(noted)
        noted = []
    return [move, put(LEDGER, slot), *noted, *sending_over(row)]


def lose(database: Database, quiet: Quiet, *, intent_before_ms: int, look_ms: int) -> int:
    lost = 0
    for hint in hinted(database, "sending", limit=SENDING_MAX):
        lost += _lose_one(database, handle_in(hint), intent_before_ms=intent_before_ms, look_ms=look_ms)
    if lost:
        quiet.touch("unknown")
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

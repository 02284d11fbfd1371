"""Measurements being sent: whose turn it is, the intent, the answer, and the end that settles them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, assert_never

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.jobs import accounts, jobs, ledger
from paceline.adapters.sqlite.kept_counts import tally
from paceline.core.jobs import transitions
from paceline.core.jobs.atlas import expected_end_ms
from paceline.core.jobs.cost import Cost, needs_of
from paceline.core.jobs.measurement import parse_stored_measurement, targets_of
from paceline.core.jobs.meters import Short
from paceline.core.jobs.names import INDEX_BITS, OWNERS_HOLD, hold_of, key_number
from paceline.core.jobs.send_order import QueuedUser, Turn, next_turns
from paceline.core.jobs.upkeep import next_send_ms
from paceline.core.jobs.values import (
    Busy,
    EndResult,
    EndState,
    HeldState,
    MeasurementEnd,
    MeasurementProgress,
    RefusalEffect,
    SendCounts,
    SendOutcome,
    StoredMeasurement,
)

TURNS_PAGE = 64
"""Users that are read together from the queue of users."""


class _SentRow(NamedTuple):
    """A measurement that is sent or followed, with the fields that a transition needs."""

    handle: int
    attempt: int
    owner: int
    state: str
    stopping: int
    lookups: int
    account: int
    key: int
    meter: int
    """The meter of its owner's day."""
    cost: Cost


def next_to_send(db: Connection, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
    _wake(db, now_ms=now_ms)
    turns = next_turns(_turns(db), users_max=users_max)
    db.executemany("DELETE FROM turn WHERE owner = ?", [(turn.owner,) for turn in turns.leaving])
    return [item for turn in turns.ready for item in _first_queued(db, turn, each_max)]


def send_line(db: Connection, *, users_max: int, each_max: int, count_max: int) -> list[QueuedUser]:
    found = []
    for turn in next_turns(_turns(db), users_max=users_max).ready:
        if first := _first_queued(db, turn, each_max):
            queued = _count_queued(db, turn.owner, below=1 << 62, limit=count_max) if len(first) == each_max else 0
            found.append(QueuedUser(first[0].owner, max(queued, len(first)), tuple(first)))
    return found


def queued_before(db: Connection, owner: str, handle: int, *, limit: int) -> int:
    row = db.execute("SELECT id FROM user WHERE name = ?", (owner,)).fetchone()
    return 0 if row is None else _count_queued(db, row[0], below=handle, limit=limit)


def _first_queued(db: Connection, turn: Turn, each_max: int) -> list[StoredMeasurement]:
    rows = db.execute(
        f"""{jobs.SELECT} WHERE state = 'queued' AND measurement.owner = ? ORDER BY measurement.id LIMIT ?""",
        (turn.owner, each_max),
    ).fetchall()
    return [jobs.stored_measurement(db, row) for row in rows]


def _count_queued(db: Connection, owner: int, *, below: int, limit: int) -> int:
    counted: int = db.execute(
        """SELECT count(*) FROM
               (SELECT 1 FROM measurement WHERE state = 'queued' AND owner = ? AND id < ? LIMIT ?)""",
        (owner, below, limit),
    ).get
    return counted


def next_ms(db: Connection) -> int | None:
    later = (
        db.execute("SELECT min(next_ms) FROM measurement WHERE state = ? AND next_ms IS NOT NULL", (state,)).get
        for state in ("parked", "unknown")
    )
    return next_send_ms(queued=any(turn.is_ready for turn in _turns(db)), later_ms=later)


def _turns(db: Connection) -> Iterator[Turn]:
    """Yield the users in the order of their queue."""
    last = (-1, 0)
    while rows := db.execute(
        """SELECT served, turn.owner,
                  EXISTS (SELECT 1 FROM measurement WHERE state = 'queued' AND owner = turn.owner), user.disabled
           FROM turn LEFT JOIN user ON user.id = turn.owner
           WHERE (served, turn.owner) > (?, ?) ORDER BY served, turn.owner LIMIT ?""",
        (*last, TURNS_PAGE),
    ).fetchall():
        for served, owner, queued, disabled in rows:
            yield Turn(served, owner, bool(queued), None if disabled is None else bool(disabled))
        last = rows[-1][:2]


def counts(db: Connection) -> SendCounts:
    """Return counts, from tallies, the index of measurements with a slot, and the first in each user's queue."""
    queued_first = db.execute(
        """SELECT min(first) FROM (SELECT
               (SELECT min(id) FROM measurement WHERE state = 'queued' AND owner = turn.owner) AS first FROM turn)"""
    ).get
    parked_first = db.execute("SELECT min(id) FROM measurement WHERE state = 'parked'").get
    sending, unknown, ongoing = (
        db.execute("SELECT count(*) FROM measurement WHERE slot = 1 AND state = ?", (state,)).get
        for state in ("sending", "unknown", "ongoing")
    )
    queued, parked = tally(db, "measurements_queued"), tally(db, "measurements_parked")
    first = min((one for one in (queued_first, parked_first) if one is not None), default=None)
    row = None if first is None else db.execute("SELECT created_ms FROM job WHERE id = ?", (first >> INDEX_BITS,))
    return SendCounts(
        queued, parked, sending, unknown, ongoing, tally(db, "jobs_open"), None if row is None else row.get
    )


def begin(
    db: Connection,
    item: StoredMeasurement,
    *,
    account: str,
    key: str,
    sending_max: int,
    now_ms: int,
    intent_ms: int,
) -> StoredMeasurement | Short | Busy | None:
    """Write the intent to send.

    ``intent_ms``: the time of this write, which may be long after ``now_ms``, the time of the choice.
    """
    row = db.execute(
        "SELECT owner FROM measurement WHERE id = ? AND attempt = ? AND state = 'queued'", (item.handle, item.attempt)
    ).fetchone()
    numbers = _usable(db, account, key_number(key), now_ms=now_ms)
    if row is None:
        return None
    sending = db.execute("SELECT count(*) FROM measurement WHERE slot = 1 AND state = 'sending'").get
    refused = transitions.refuse_begin(
        attempt=item.attempt,
        reason=item.reason,
        sending=sending,
        sending_max=sending_max,
        usable=numbers is not None,
    )
    match refused:
        case Busy():
            return refused
        case transitions.EndsUnsent():
            _end_unsent(db, item.handle, refused, now_ms=now_ms)
            return None
        case "unusable":
            return None
    assert numbers is not None
    account_number, *meters = numbers
    if (
        short := transitions.short_of_balance(account, item.cost, accounts.balance_free(db, account_number))
    ) is not None:
        return short
    needs = dict(zip(meters, needs_of(item.cost).values(), strict=True))
    short = ledger.take_all(db, hold_of(item.handle, item.attempt + 1), needs, now_ms=now_ms)
    if short is not None:
        return short._replace(meter=db.execute("SELECT name FROM meter WHERE id = ?", (int(short.meter),)).get)
    db.execute(
        """UPDATE measurement SET state = 'sending', attempt = attempt + 1, lookups = 0, slot = 1, account = ?,
                  "key" = ?, intent_ms = ?, reason = '' WHERE id = ?""",
        (account_number, key_number(key), intent_ms, item.handle),
    )
    db.execute("UPDATE account SET sends = sends + 1 WHERE id = ?", (account_number,))
    accounts.move_balance(db, account_number, -item.cost.daily_credits)
    db.execute("UPDATE job SET started_ms = ? WHERE id = ? AND started_ms IS NULL", (now_ms, item.handle >> INDEX_BITS))
    _serve(db, row[0])
    return jobs.measurement(db, item.handle)


def park(db: Connection, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
    won = []
    for handle, attempt in items:
        db.execute(
            """UPDATE measurement SET state = 'parked', next_ms = ?, reason = ?
               WHERE id = ? AND attempt = ? AND state = 'queued'""",
            (next_ms, reason, handle, attempt),
        )
        won.append(db.changes() == 1)
    return won


def note_passed(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
    db.executemany(
        """UPDATE measurement SET passed_ms = ?
           WHERE id = ? AND attempt = ? AND state = 'queued' AND passed_ms IS NULL""",
        [(now_ms, *fence) for fence in fences],
    )


def refuse(db: Connection, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
    won = []
    for handle, attempt in fences:
        there = db.execute(
            "SELECT 1 FROM measurement WHERE id = ? AND attempt = ? AND state = 'queued'", (handle, attempt)
        ).fetchone()
        won.append(there is not None)
        if there is not None:
            _end_unsent(db, handle, transitions.EndsUnsent("failed", reason), now_ms=now_ms)
    return won


def answer(
    db: Connection, handle: int, attempt: int, outcome: SendOutcome, *, effect: RefusalEffect | None = None, now_ms: int
) -> bool:
    out = _out(db, handle, attempt, transitions.OUT)
    if out is None:
        return False
    answered = transitions.after_answer(outcome, lookups=out.lookups, stopping=bool(out.stopping))
    match answered:
        case transitions.Runs():
            _note_sent(db, out, answered.atlas_ids, now_ms=now_ms)
        case transitions.IsUnknown():
            db.execute(
                "UPDATE measurement SET state = 'unknown', reason = ?, next_ms = ?, lookups = ? WHERE id = ?",
                (*answered, handle),
            )
        case transitions.GoesBack():
            _refund_account(db, out, now_ms=now_ms)
            db.execute(
                """UPDATE measurement SET state = ?, reason = ?, next_ms = ?, slot = 0, account = NULL, "key" = NULL
                   WHERE id = ?""",
                (*answered, handle),
            )
            if answered.state == "queued":
                jobs.join_turn(db, out.owner)
        case transitions.EndsUnsent():
            _refund_account(db, out, now_ms=now_ms)
            _end_unsent(db, handle, answered, now_ms=now_ms)
        case _:
            assert_never(answered)
    if effect is not None:
        accounts.apply_effect(db, effect, account_number=out.account, key=out.key, now_ms=now_ms)
    return True


def lose(db: Connection, *, intent_before_ms: int, look_ms: int) -> int:
    """Mark sends without an answer as unknown. Fast path of ``core.jobs.transitions.is_given_up``."""
    db.execute(
        """UPDATE measurement SET state = 'unknown', next_ms = ?, reason = ?
           WHERE slot = 1 AND state = 'sending' AND intent_ms < ?""",
        (look_ms, transitions.LOST, intent_before_ms),
    )
    return db.changes()


def to_look_up(db: Connection, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
    rows = db.execute(
        f"{jobs.SELECT} WHERE state = 'unknown' AND next_ms <= ? ORDER BY next_ms, measurement.id LIMIT ?",
        (now_ms, limit),
    ).fetchall()
    return [jobs.stored_measurement(db, row) for row in rows]


def holding(db: Connection, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
    rows = db.execute(
        f"{jobs.SELECT} WHERE slot = 1 AND state = ? AND measurement.id > ? ORDER BY measurement.id LIMIT ?",
        (state, after, limit),
    ).fetchall()
    return [jobs.stored_measurement(db, row) for row in rows]


def note_progress(db: Connection, progress: Sequence[MeasurementProgress]) -> list[bool]:
    won = []
    for one in progress:
        there = _out(db, one.handle, one.attempt, transitions.RUNNING) is not None
        won.append(there)
        if there:
            pairs = zip_longest(jobs.atlas_of(db, one.handle)[: len(one.reported)], one.reported, one.scheduled)
            after = (transitions.with_progress(*pair) for pair in pairs)
            db.executemany(
                """UPDATE atlas_measurement SET status = ?, delivered = ?, scheduled = ?
                   WHERE measurement = ? AND atlas_id = ?""",
                [(now.status, now.delivered, now.scheduled, one.handle, now.atlas_id) for now in after],
            )
            if one.reason is not None:
                db.execute("UPDATE measurement SET reason = ? WHERE id = ?", (one.reason, one.handle))
    return won


def end(db: Connection, endings: Sequence[MeasurementEnd], *, now_ms: int) -> list[EndResult]:
    return [_end_sent(db, ending, now_ms=now_ms) for ending in endings]


def free_slots(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    won = []
    for handle, attempt in fences:
        out = _out(db, handle, attempt, transitions.ENDED)
        won.append(out is not None)
        if out is not None:
            delivered = sum(one.delivered for one in jobs.atlas_of(db, handle))
            settled = db.execute("SELECT settled FROM measurement WHERE id = ?", (handle,)).get
            spent = transitions.spent_before(out.cost, settled=settled, delivered=delivered)
            _let_account_go(db, out, *spent, now_ms=now_ms)
    return won


def pull_back(db: Connection, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
    """Pull back times that lie too far ahead. Fast path of ``core.jobs.upkeep.pulled_back_ms``."""
    now_ms, before = read_ms(), db.total_changes()
    far_ms = now_ms + wait_ms_max
    db.execute(
        """UPDATE measurement SET next_ms = ?1 WHERE id IN
               (SELECT id FROM measurement WHERE state IN ('parked', 'unknown') AND next_ms > ?1)""",
        (far_ms,),
    )
    # Otherwise a send whose process died would not count as lost before the clock is back where it was.
    db.execute(
        "UPDATE measurement SET intent_ms = ?1 WHERE slot = 1 AND state = 'sending' AND intent_ms > ?1", (now_ms,)
    )
    db.execute("UPDATE account SET closed_until_ms = ?1 WHERE closed_until_ms > ?1", (far_ms,))
    db.execute("UPDATE target SET until_ms = ?1 WHERE until_ms > ?1", (far_ms,))
    db.execute("UPDATE atlas SET until_ms = ?1 WHERE until_ms > ?1", (far_ms,))
    db.execute("UPDATE job SET hook_ms = ?1 WHERE hook_ms > ?1", (far_ms,))
    return db.total_changes() - before


def _wake(db: Connection, *, now_ms: int) -> None:
    rows = db.execute(
        """UPDATE measurement SET state = 'queued', next_ms = NULL WHERE id IN
               (SELECT id FROM measurement WHERE state = 'parked' AND next_ms <= ? ORDER BY next_ms LIMIT ?)
           RETURNING owner""",
        (now_ms, transitions.WOKEN_MAX),
    ).fetchall()
    for owner in {row[0] for row in rows}:
        jobs.join_turn(db, owner)


def _serve(db: Connection, owner: int) -> None:
    served = db.execute("UPDATE tally SET value = value + 1 WHERE name = 'turns' RETURNING value").get
    db.execute("UPDATE turn SET served = ? WHERE owner = ?", (served, owner))


def _usable(db: Connection, account: str, key: int, *, now_ms: int) -> tuple[int, ...] | None:
    """Return the numbers of the account and its meters; None if account or key cannot be used now."""
    row = db.execute(
        """SELECT account.enabled, closed_until_ms, "key".enabled, quarantine, account.id, concurrent, results, credits
           FROM account JOIN "key" ON "key".account = account.id WHERE account.name = ? AND "key".id = ?""",
        (account, key),
    ).fetchone()
    if row is None:
        return None
    enabled, closed_until_ms, key_enabled, quarantine, *numbers = row
    usable = transitions.is_usable(
        enabled=bool(enabled),
        closed_until_ms=closed_until_ms,
        key_enabled=bool(key_enabled),
        quarantine=quarantine,
        now_ms=now_ms,
    )
    return tuple(numbers) if usable else None


def _out(db: Connection, handle: int, attempt: int, states: Collection[str]) -> _SentRow | None:
    row: tuple[Any, ...] | None = db.execute(
        """SELECT measurement.id, attempt, measurement.owner, state, stopping, lookups, account, "key", job.meter,
                  credits, results, concurrent, daily_credits, daily_results
           FROM measurement JOIN job ON job.id = measurement.id >> 14
           WHERE measurement.id = ? AND attempt = ? AND slot = 1""",
        (handle, attempt),
    ).fetchone()
    if row is None or row[3] not in states:
        return None
    return _SentRow._make((*row[:9], Cost(*row[9:])))


def _note_sent(db: Connection, out: _SentRow, atlas_ids: tuple[int, ...], *, now_ms: int) -> None:
    assert len(atlas_ids) == out.cost.concurrent
    body, intent_ms = db.execute("SELECT body, intent_ms FROM measurement WHERE id = ?", (out.handle,)).fetchone()
    measurement = parse_stored_measurement(body)
    db.execute(
        """UPDATE measurement SET state = 'ongoing', answered_ms = ?, expected_ms = ?, next_ms = NULL, reason = ''
           WHERE id = ?""",
        # Counted from the intent: a measurement found by a lookup began long before its answer.
        (now_ms, expected_end_ms(measurement, sent_ms=intent_ms), out.handle),
    )
    db.executemany(
        "INSERT INTO atlas_measurement (measurement, definition, atlas_id) VALUES (?, ?, ?)",
        [(out.handle, definition, atlas_id) for definition, atlas_id in enumerate(atlas_ids)],
    )
    accounts.clear_effects(db, account_number=out.account, targets=targets_of(measurement), now_ms=now_ms)


def _refund_account(db: Connection, out: _SentRow, *, now_ms: int) -> None:
    ledger.refund_all(db, hold_of(out.handle, out.attempt), now_ms=now_ms)
    accounts.move_balance(db, out.account, out.cost.daily_credits)


def _end_unsent(db: Connection, handle: int, end: transitions.EndsUnsent, *, now_ms: int) -> None:
    """End a measurement that is not at RIPE and refund its user in full. The account's hold is closed already."""
    ledger.refund_all(db, hold_of(handle, OWNERS_HOLD), now_ms=now_ms)
    _record_end(db, handle, end.state, end.reason, settled=0, now_ms=now_ms)
    db.execute('UPDATE measurement SET slot = 0, account = NULL, "key" = NULL WHERE id = ?', (handle,))


def _end_sent(db: Connection, ending: MeasurementEnd, *, now_ms: int) -> EndResult:
    out = _out(db, ending.handle, ending.attempt, transitions.RUNNING)
    if out is None:
        return EndResult(won=False)
    owners = {out.meter: ending.credits}
    overrun = ledger.close_lines(db, hold_of(out.handle, OWNERS_HOLD), owners, now_ms=now_ms)
    beyond = overrun.get(out.meter, 0)
    _record_end(db, out.handle, ending.state, ending.reason, settled=ending.credits - beyond, now_ms=now_ms)
    if ending.frees_slot:
        _let_account_go(db, out, ending.credits, ending.results, now_ms=now_ms)
    return EndResult(won=True, overrun=beyond)


def _let_account_go(db: Connection, out: _SentRow, credits_spent: int, results: int, *, now_ms: int) -> None:
    """Settle what the account holds for the measurement, and free its slot."""
    row = db.execute("SELECT concurrent, results, credits FROM account WHERE id = ?", (out.account,)).fetchone()
    settled = transitions.account_actual(out.cost, credits_spent=credits_spent, results=results)
    actual, day_credits = dict(zip(row, settled, strict=True)), settled[2]
    accounts.move_balance(db, out.account, out.cost.daily_credits - day_credits)
    ledger.close_lines(db, hold_of(out.handle, out.attempt), actual, now_ms=now_ms)
    db.execute("UPDATE measurement SET slot = 0 WHERE id = ?", (out.handle,))


def _record_end(db: Connection, handle: int, state: EndState, reason: str, *, settled: int, now_ms: int) -> None:
    held, definitions, was = db.execute(
        "SELECT credits, concurrent, state FROM measurement WHERE id = ?", (handle,)
    ).fetchone()
    db.execute(
        "UPDATE measurement SET state = ?, reason = ?, ended_ms = ?, settled = ?, next_ms = NULL WHERE id = ?",
        (state, reason, now_ms, settled, handle),
    )
    sums = transitions.job_sums(state, was=was, held=held, settled=settled, definitions=definitions)
    db.execute(
        """UPDATE job SET open = open + :open, done = done + :done, failed = failed + :failed,
                  cancelled = cancelled + :cancelled, settled = settled + :settled, refunded = refunded + :refunded,
                  definitions_done = definitions_done + :definitions_done,
                  definitions_failed = definitions_failed + :definitions_failed,
                  definitions_cancelled = definitions_cancelled + :definitions_cancelled WHERE id = :job""",
        sums | {"job": handle >> INDEX_BITS},
    )

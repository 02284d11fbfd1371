"""Measurements on their way: whose turn it is, the intent, what came of it, and the end that settles it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from paceline.adapters.sqlite import accounts, jobs, ledger
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.ledger import INDEX_BITS, OWNERS_HOLD, hold_of
from paceline.adapters.sqlite.tallies import tally
from paceline.core.atlas import expected_end_ms
from paceline.core.cost import Cost, daily_actual
from paceline.core.measurement import parse_stored_measurement, targets_of
from paceline.core.meters import NEVER_MS, Short
from paceline.ports.job_values import (
    Blame,
    Busy,
    Ended,
    Ending,
    EndState,
    HeldState,
    NotSent,
    Progress,
    Rejected,
    SendCounts,
    SendOutcome,
    Sent,
    StoredMeasurement,
    Unsure,
)

ATTEMPTS_MAX = 9_999
"""A marker has no room for more; whoever was refused so often does not get through."""
WOKEN_MAX = 1_000


class _Out(NamedTuple):
    """A measurement that is sent or followed, as far as an act needs it."""

    handle: int
    attempt: int
    owner: int
    state: str
    stopping: int
    account: int
    key: int
    meter: int
    """Of its owner's day."""
    cost: Cost


def next_to_send(db: Connection, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
    _wake(db, now_ms=now_ms)
    db.execute(
        "DELETE FROM turn WHERE NOT EXISTS (SELECT 1 FROM measurement WHERE state = 'queued' AND owner = turn.owner)"
    )
    owners = db.execute(
        # CROSS: in the order of the line, which ends early, and not user by user.
        """SELECT turn.owner FROM turn CROSS JOIN user ON user.id = turn.owner WHERE user.disabled = 0
           ORDER BY served, turn.owner LIMIT ?""",
        (users_max,),
    ).fetchall()
    found = []
    for owner in owners:
        rows = db.execute(
            f"""{jobs.SELECT} WHERE state = 'queued' AND measurement.owner = ? ORDER BY measurement.id LIMIT ?""",
            (*owner, each_max),
        ).fetchall()
        found += [jobs.stored_measurement(db, row) for row in rows]
    return found


def next_ms(db: Connection) -> int | None:
    queued = db.execute(
        """SELECT EXISTS (SELECT 1 FROM turn CROSS JOIN user ON user.id = turn.owner
                          CROSS JOIN measurement ON measurement.owner = turn.owner AND measurement.state = 'queued'
                          WHERE user.disabled = 0)"""
    ).get
    if queued:
        return 0
    later = [
        db.execute("SELECT min(next_ms) FROM measurement WHERE state = ? AND next_ms IS NOT NULL", (state,)).get
        for state in ("parked", "unknown")
    ]
    return min((one for one in later if one is not None), default=None)


def counts(db: Connection) -> SendCounts:
    """Kept figures, and partial indexes: of what the accounts have room for, and of the first in each user's queue."""
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
    """``intent_ms``: when it is written, which may be long after ``now_ms``, by which the account was chosen."""
    row = db.execute(
        "SELECT owner FROM measurement WHERE id = ? AND attempt = ? AND state = 'queued'", (item.handle, item.attempt)
    ).fetchone()
    numbers = _usable(db, account, accounts.key_number(key), now_ms=now_ms)
    if row is None or numbers is None:
        return None
    if db.execute("SELECT count(*) FROM measurement WHERE slot = 1 AND state = 'sending'").get >= sending_max:
        return Busy()
    if item.attempt >= ATTEMPTS_MAX:
        _end_unsent(db, item.handle, "failed", f"refused {ATTEMPTS_MAX} times; last: {item.reason}", now_ms=now_ms)
        return None
    account_number, *meters = numbers
    needs = (item.cost.concurrent, item.cost.daily_results, item.cost.daily_credits)
    free = accounts.balance_free(db, account_number)
    if free is not None and item.cost.daily_credits > free:
        return Short(f"account/{account}/balance", item.cost.daily_credits, max(free, 0), max(free, 0), NEVER_MS)
    hold = hold_of(item.handle, item.attempt + 1)
    short = ledger.take_all(db, hold, dict(zip(meters, needs, strict=True)), now_ms=now_ms)
    if short is not None:
        name = db.execute("SELECT name FROM meter WHERE id = ?", (int(short.meter),)).get
        return short._replace(meter=name)
    db.execute(
        """UPDATE measurement SET state = 'sending', attempt = attempt + 1, lookups = 0, slot = 1, account = ?,
                  "key" = ?, intent_ms = ?, reason = '' WHERE id = ?""",
        (account_number, accounts.key_number(key), intent_ms, item.handle),
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
            _end_unsent(db, handle, "failed", reason, now_ms=now_ms)
    return won


def answer(
    db: Connection, handle: int, attempt: int, outcome: SendOutcome, *, blame: Blame | None, now_ms: int
) -> bool:
    out = _out(db, handle, attempt, ("sending", "unknown"))
    if out is None:
        return False
    match outcome:
        case Sent():
            _note_sent(db, out, outcome.atlas_ids, now_ms=now_ms)
        case Unsure():
            db.execute(
                """UPDATE measurement SET state = 'unknown', next_ms = ?, reason = ?,
                          lookups = max(lookups, ?) WHERE id = ?""",
                (outcome.look_ms, outcome.reason, outcome.lookups, handle),
            )
        case NotSent():
            _take_back(db, out, outcome, now_ms=now_ms)
        case Rejected():
            _refund_account(db, out, now_ms=now_ms)
            _end_unsent(db, handle, "failed", outcome.reason, now_ms=now_ms)
    if blame is not None:
        accounts.blame(db, blame, account_number=out.account, key=out.key, now_ms=now_ms)
    return True


def lose(db: Connection, *, intent_before_ms: int, look_ms: int) -> int:
    db.execute(
        """UPDATE measurement SET state = 'unknown', next_ms = ?, reason = 'its sender stopped before it had an answer'
           WHERE slot = 1 AND state = 'sending' AND intent_ms < ?""",
        (look_ms, intent_before_ms),
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


def note_progress(db: Connection, progress: Sequence[Progress]) -> list[bool]:
    won = []
    for one in progress:
        there = _out(db, one.handle, one.attempt, ("ongoing",)) is not None
        won.append(there)
        if there:
            db.executemany(
                # Results do not go away, so a count that is lower is an older answer.
                """UPDATE atlas_measurement
                   SET status = ?, delivered = max(delivered, ?), scheduled = coalesce(?, scheduled)
                   WHERE measurement = ? AND definition = ?""",
                [
                    (*told, scheduled, one.handle, definition)
                    for definition, (told, scheduled) in enumerate(zip_longest(one.told, one.scheduled))
                ],
            )
            if one.reason is not None:
                db.execute("UPDATE measurement SET reason = ? WHERE id = ?", (one.reason, one.handle))
    return won


def end(db: Connection, endings: Sequence[Ending], *, now_ms: int) -> list[Ended]:
    return [_end_sent(db, ending, now_ms=now_ms) for ending in endings]


def free_slots(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    won = []
    for handle, attempt in fences:
        out = _out(db, handle, attempt, ("done", "failed", "cancelled"))
        won.append(out is not None)
        if out is not None:
            _let_account_go(db, out, *_spent(db, out), now_ms=now_ms)
    return won


def known_atlas_ids(db: Connection, atlas_ids: Sequence[int]) -> set[int]:
    rows = db.execute("SELECT atlas_id FROM atlas_measurement WHERE atlas_id IN carray(?)", (integers(atlas_ids),))
    return {row[0] for row in rows}


def pull_back(db: Connection, *, now_ms: int, wait_ms_max: int) -> int:
    far_ms = now_ms + wait_ms_max
    before = db.total_changes()
    db.execute(
        """UPDATE measurement SET next_ms = ?1 WHERE id IN
               (SELECT id FROM measurement WHERE state IN ('parked', 'unknown') AND next_ms > ?1)""",
        (far_ms,),
    )
    # Else a sender that died would be waited for until the clock is where it was.
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
        (now_ms, WOKEN_MAX),
    ).fetchall()
    for owner in {row[0] for row in rows}:
        jobs.join_turn(db, owner)


def _serve(db: Connection, owner: int) -> None:
    served = db.execute("UPDATE tally SET value = value + 1 WHERE name = 'turns' RETURNING value").get
    db.execute("UPDATE turn SET served = ? WHERE owner = ?", (served, owner))


def _usable(db: Connection, account: str, key: int, *, now_ms: int) -> tuple[int, ...] | None:
    """The account and its meters, if account and key can be used now: they may have changed since they were chosen."""
    row: tuple[int, ...] | None = db.execute(
        """SELECT account.id, concurrent, results, credits FROM account JOIN "key" ON "key".account = account.id
           WHERE account.name = ? AND account.enabled = 1 AND closed_until_ms <= ?
             AND "key".id = ? AND "key".enabled = 1 AND quarantine = ''""",
        (account, now_ms, key),
    ).fetchone()
    return row


def _out(db: Connection, handle: int, attempt: int, states: tuple[str, ...]) -> _Out | None:
    row: tuple[Any, ...] | None = db.execute(
        """SELECT measurement.id, attempt, measurement.owner, state, stopping, account, "key", job.meter, credits,
                  results, concurrent, daily_credits, daily_results
           FROM measurement JOIN job ON job.id = measurement.id >> 14
           WHERE measurement.id = ? AND attempt = ? AND slot = 1""",
        (handle, attempt),
    ).fetchone()
    if row is None or row[3] not in states:
        return None
    return _Out._make((*row[:8], Cost(*row[8:])))


def _note_sent(db: Connection, out: _Out, atlas_ids: tuple[int, ...], *, now_ms: int) -> None:
    assert len(atlas_ids) == out.cost.concurrent
    body, intent_ms = db.execute("SELECT body, intent_ms FROM measurement WHERE id = ?", (out.handle,)).fetchone()
    measurement = parse_stored_measurement(body)
    db.execute(
        """UPDATE measurement SET state = 'ongoing', answered_ms = ?, expected_ms = ?, next_ms = NULL, reason = ''
           WHERE id = ?""",
        # From the intent: one that was found by a lookup began long before its answer.
        (now_ms, expected_end_ms(measurement, sent_ms=intent_ms), out.handle),
    )
    db.executemany(
        "INSERT INTO atlas_measurement (measurement, definition, atlas_id) VALUES (?, ?, ?)",
        [(out.handle, definition, atlas_id) for definition, atlas_id in enumerate(atlas_ids)],
    )
    accounts.clear_blame(db, account_number=out.account, targets=targets_of(measurement), now_ms=now_ms)


def _take_back(db: Connection, out: _Out, outcome: NotSent, *, now_ms: int) -> None:
    _refund_account(db, out, now_ms=now_ms)
    if out.stopping:
        _end_unsent(db, out.handle, "cancelled", "cancelled", now_ms=now_ms)
        return
    db.execute(
        """UPDATE measurement SET state = iif(?1 IS NULL, 'queued', 'parked'), next_ms = ?1, reason = ?2, slot = 0,
                  account = NULL, "key" = NULL WHERE id = ?3""",
        (outcome.next_ms, outcome.reason, out.handle),
    )
    jobs.join_turn(db, out.owner)


def _refund_account(db: Connection, out: _Out, *, now_ms: int) -> None:
    ledger.refund_all(db, hold_of(out.handle, out.attempt), now_ms=now_ms)
    accounts.move_balance(db, out.account, out.cost.daily_credits)


def _end_unsent(db: Connection, handle: int, state: EndState, reason: str, *, now_ms: int) -> None:
    """It cost nothing: its owner gets all of it back. What its account held is closed already."""
    ledger.refund_all(db, hold_of(handle, OWNERS_HOLD), now_ms=now_ms)
    _record_end(db, handle, state, reason, settled=0, now_ms=now_ms)
    db.execute('UPDATE measurement SET slot = 0, account = NULL, "key" = NULL WHERE id = ?', (handle,))


def _end_sent(db: Connection, ending: Ending, *, now_ms: int) -> Ended:
    out = _out(db, ending.handle, ending.attempt, ("ongoing",))
    if out is None:
        return Ended(won=False)
    owners = {out.meter: ending.credits}
    overrun = ledger.close_lines(db, hold_of(out.handle, OWNERS_HOLD), owners, now_ms=now_ms)
    beyond = overrun.get(out.meter, 0)
    _record_end(db, out.handle, ending.state, ending.reason, settled=ending.credits - beyond, now_ms=now_ms)
    if ending.frees_slot:
        _let_account_go(db, out, ending.credits, ending.results, now_ms=now_ms)
    return Ended(won=True, overrun=beyond)


def _let_account_go(db: Connection, out: _Out, credits_spent: int, results: int, *, now_ms: int) -> None:
    """All that the account holds for it, together: while it runs, RIPE reckons with the most it can deliver."""
    row = db.execute("SELECT concurrent, results, credits FROM account WHERE id = ?", (out.account,)).fetchone()
    day_credits, day_results = daily_actual(out.cost, credits_spent=credits_spent, results=results)
    actual = dict(zip(row, (0, day_results, day_credits), strict=True))
    accounts.move_balance(db, out.account, out.cost.daily_credits - min(day_credits, out.cost.daily_credits))
    ledger.close_lines(db, hold_of(out.handle, out.attempt), actual, now_ms=now_ms)
    db.execute("UPDATE measurement SET slot = 0 WHERE id = ?", (out.handle,))


def _spent(db: Connection, out: _Out) -> tuple[int, int]:
    """Credits and results that one that has ended was settled on."""
    settled = db.execute("SELECT settled FROM measurement WHERE id = ?", (out.handle,)).get
    if settled >= out.cost.credits:
        return out.cost.credits, out.cost.results  # also if nobody could count them
    counted = db.execute(
        "SELECT coalesce(sum(delivered), 0) FROM atlas_measurement WHERE measurement = ?", (out.handle,)
    ).get
    return settled, counted


def _record_end(db: Connection, handle: int, state: EndState, reason: str, *, settled: int, now_ms: int) -> None:
    credits_held, definitions = db.execute(
        """UPDATE measurement SET state = ?, reason = ?, ended_ms = ?, settled = ?, next_ms = NULL WHERE id = ?
           RETURNING credits, concurrent""",
        (state, reason, now_ms, settled, handle),
    ).fetchone()
    db.execute(
        """UPDATE job SET open = open - 1, done = done + (?1 = 'done'), failed = failed + (?1 = 'failed'),
                  cancelled = cancelled + (?1 = 'cancelled'), settled = settled + ?2, refunded = refunded + ?3,
                  definitions_done = definitions_done + iif(?1 = 'done', ?5, 0),
                  definitions_failed = definitions_failed + iif(?1 = 'failed', ?5, 0),
                  definitions_cancelled = definitions_cancelled + iif(?1 = 'cancelled', ?5, 0)
           WHERE id = ?4""",
        (state, settled, credits_held - settled, handle >> INDEX_BITS, definitions),
    )

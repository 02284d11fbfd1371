"""Runs that are out: settled, extended, given back, or pulled back after the clock was set back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from paceline.adapters.sqlite.database import Connection, insert_rows
from paceline.adapters.sqlite.keys import LANE_BITS, NEVER_MS, queue_of
from paceline.adapters.sqlite.monitors.alerting.health import follow
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.monitors.definition import cadence_of
from paceline.core.monitors.leases import GIVEN_BACK, Lease, RunEnd, ended, holds, waits
from paceline.core.monitors.outcome import Done, Retry
from paceline.core.monitors.overlap import QUEUED, follow_ms
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import Settlement

_HANDLE = itemgetter(0)


def settle(db: Connection, settlements: Sequence[Settlement]) -> list[bool]:
    if _close_all(db, settlements):
        _write_outcomes(db, sorted([ended(item) for item in settlements], key=_HANDLE), were_out=True)
        follow(db, settlements)
        return [True] * len(settlements)
    claims = {
        row[0]: row
        for row in db.execute(
            "SELECT handle, attempt, at_ms, started_ms, lost FROM open WHERE handle IN carray(?) AND state = 'out'",
            (integers(item.handle for item in settlements),),
        )
    }
    leases = {handle: Lease(*row[1:3]) for handle, row in claims.items()}
    won: list[bool] = []
    ends: list[Settlement] = []
    again: list[tuple[Any, ...]] = []
    for item in settlements:
        if not holds(leases.get(item.handle), attempt=item.attempt, at_ms=item.ended_ms):
            won.append(False)
            continue
        del leases[item.handle]  # if there are two with the right fence, the first counts
        won.append(True)
        if isinstance(item.outcome, Retry):
            again.append((item.outcome.not_before_ms, item.outcome.reason, item.handle))
        else:
            ends.append(item)
    db.executemany("UPDATE open SET state = 'retry', at_ms = ?, reason = ? WHERE handle = ?", again)
    make_ready(db, ((handle, at_ms) for at_ms, _, handle in again))
    count_out(db, gone=[handle for _, _, handle in again])
    rows = sorted([ended(item) for item in ends], key=_HANDLE)
    count_out(db, gone=[row.handle for row in rows])
    record_outcomes(db, rows)
    # For a first attempt, as nearly all are, there is nothing to remember.
    later = [claims[item.handle] for item in ends if item.attempt > 1]
    db.executemany(
        "UPDATE outcome SET claimed_ms = ?, lost = ? WHERE handle = ?", [(row[3], row[4], row[0]) for row in later]
    )
    follow(db, ends)
    return won


def _close_all(db: Connection, settlements: Sequence[Settlement]) -> bool:
    """Delete the leases of these runs, if all of them end a first attempt that is still leased. Return whether it did.

    Fast path of core.monitors.leases.holds: one statement finds the leases and deletes them.
    """
    handles = [
        item.handle
        for item in settlements
        # Nearly all outcomes are Done, and finding that one is no Retry takes five times longer.
        if item.attempt == 1 and (isinstance(item.outcome, Done) or not isinstance(item.outcome, Retry))
    ]
    if not handles or len(set(handles)) < len(settlements):
        return False
    db.execute("SAVEPOINT leases")
    db.execute(
        "DELETE FROM open WHERE handle IN carray(?) AND state = 'out' AND attempt = 1 AND at_ms >= ?",
        (integers(handles), max([item.ended_ms for item in settlements])),
    )
    closed = db.changes() == len(handles)
    if not closed:
        db.execute("ROLLBACK TO leases")
    db.execute("RELEASE leases")
    return closed


def count_out(db: Connection, *, come: Sequence[int] = (), gone: Sequence[int] = ()) -> None:
    """Update each queue's count of runs that are out: ``come`` are out now, ``gone`` no longer.

    Every writer of ``open`` calls it.
    """
    more = _by_lane(come)
    for lane, count in _by_lane(gone).items():
        more[lane] = more.get(lane, 0) - count
    for lane, change in more.items():
        if change:
            db.execute("UPDATE lane SET out = out + ? WHERE id = ?", (change, lane))


def _by_lane(handles: Sequence[int]) -> dict[int, int]:
    """Return how many of these runs each queue has. Most often all are in one queue."""
    if handles and (lane := min(handles) >> LANE_BITS) == max(handles) >> LANE_BITS:
        return {lane: len(handles)}
    return Counter([handle >> LANE_BITS for handle in handles])


def out_of(db: Connection, handles: Iterable[int]) -> list[int]:
    """Return those of these runs that are out."""
    rows = db.execute("SELECT handle FROM open WHERE handle IN carray(?) AND state = 'out'", (integers(handles),))
    return [row[0] for row in rows]


def record_outcomes(db: Connection, rows: Sequence[RunEnd]) -> None:
    """End runs for good: write their outcomes, delete their leases, and let runs parked behind them start.

    The caller has to count those of them that were out.
    """
    if rows:
        db.execute("DELETE FROM open WHERE handle IN carray(?)", (integers(row.handle for row in rows),))
        _write_outcomes(db, rows)


def _write_outcomes(db: Connection, rows: Sequence[RunEnd], *, were_out: bool = False) -> None:
    """Write outcomes of runs whose leases are deleted, and let runs parked behind them start.

    ``were_out``: all of them were out, and this counts them out.
    """
    columns = "handle, state, attempt, started_ms, ended_ms, latency_ms, code, reason, detail"
    insert_rows(db, f"outcome ({columns})", rows)
    for lane, count in _by_lane([row[0] for row in rows]).items():
        out = count if were_out else 0
        db.execute("UPDATE lane SET ended = ended + ?, out = out - ? WHERE id = ?", (count, out, lane))
    # Most often no run is parked, and then each run need not be looked up.
    if db.execute("SELECT EXISTS (SELECT 1 FROM open WHERE behind IS NOT NULL)").get:
        _let_follow(db, rows)


def _let_follow(db: Connection, rows: Sequence[RunEnd]) -> None:
    """Let runs that are parked behind the ended ones start: at once or, if they were queued, at a pace."""
    before = {row.handle: (row.attempt, row.started_ms, row.ended_ms) for row in rows}
    waiting = db.execute(
        """SELECT open.handle, open.behind, open.at_ms, open.reason, run.due_ms, coalesce(previous.due_ms, run.due_ms),
                  run.generation, monitor.spec
           FROM open JOIN run ON run.handle = open.handle LEFT JOIN run AS previous ON previous.handle = run.previous
                LEFT JOIN monitor ON monitor.generation = run.generation
           WHERE open.behind IN carray(?)""",
        (integers(before),),
    ).fetchall()
    at_once: list[int] = []
    later: list[tuple[int, int]] = []
    for handle, behind, at_ms, reason, due_ms, previous_due_ms, generation, spec in waiting:
        attempt, started_ms, ended_ms = before[behind]
        from_ms = at_ms if at_ms < NEVER_MS else 0  # to be caught up at a moment of its own
        if attempt and reason == QUEUED:  # without an attempt nothing was sent
            from_ms = follow_ms(
                cadence_of(read_spec(spec)) if spec is not None else None,
                started_ms=started_ms,
                previous_due_ms=previous_due_ms,
                due_ms=due_ms,
                generation=generation,
            )
        if from_ms > ended_ms:
            later.append((from_ms, handle))
        else:
            at_once.append(handle)
    db.execute(
        """UPDATE open SET started_ms = iif(at_ms > 0 AND at_ms < ?, at_ms, started_ms), at_ms = 0
           WHERE handle IN carray(?)""",
        (NEVER_MS, integers(at_once)),
    )
    db.executemany("UPDATE open SET state = 'later', behind = NULL, at_ms = ? WHERE handle = ?", later)
    make_ready(db, [*((handle, 0) for handle in at_once), *((handle, at_ms) for at_ms, handle in later)])


def make_ready(db: Connection, runs: Iterable[tuple[int, int]]) -> None:
    """Let claims look into the queues of these runs from a time on; ``runs`` has (handle, time) pairs."""
    earliest: dict[int, int] = {}
    for handle, at_ms in runs:
        lane = queue_of(handle)
        earliest[lane] = min(at_ms, earliest.get(lane, at_ms))
    db.executemany(
        "UPDATE lane SET ready_ms = min(ready_ms, ?) WHERE id = ?", [(at_ms, lane) for lane, at_ms in earliest.items()]
    )


def extend(db: Connection, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    """Extend a lease. The condition is that of ``core.monitors.leases.holds``."""
    db.execute(
        "UPDATE open SET at_ms = ? WHERE handle = ? AND attempt = ? AND state = 'out' AND at_ms >= ?",
        (until_ms, handle, attempt, now_ms),
    )
    extended = db.changes() == 1
    if extended:
        make_ready(db, [(handle, until_ms)])  # the new end may be earlier than the old one
    return extended


def pull_back(db: Connection, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
    """Move runs after the clock was set back. Return how many. Fast path of core.monitors.leases.pulled_back."""
    now_ms, bounds = read_ms(), waits(wait_ms_max=wait_ms_max, later_ms_max=later_ms_max)
    db.execute(
        """UPDATE open SET at_ms = ?1 + (at_ms - started_ms), started_ms = ?1
           WHERE state = 'out' AND started_ms > ?1""",
        (now_ms,),
    )
    moved = db.changes()
    moved += _wait_again(db, now_ms)
    db.execute(
        "UPDATE open SET at_ms = ?1 WHERE state IN ('retry', 'held') AND at_ms > ?1", (now_ms + bounds.retry_ms_max,)
    )
    moved += db.changes()
    db.execute(
        "UPDATE open SET at_ms = ?1 WHERE (state = 'later' OR state = 'parked') AND at_ms > ?1 AND at_ms < ?2",
        (now_ms + bounds.later_ms_max, NEVER_MS),
    )
    moved += db.changes()
    if moved:
        db.execute("UPDATE lane SET ready_ms = 0 WHERE id IN (SELECT lane FROM open)")
    return moved


def _wait_again(db: Connection, now_ms: int) -> int:
    """Put back runs whose moment or next try had come, that did not start, and whose time lies ahead again.

    Return how many. Claims have parked them or set them aside, with that time in ``started_ms``.
    """
    db.execute(
        """UPDATE open SET at_ms = open.started_ms, started_ms = NULL,
                           state = CASE WHEN attempt > 0 THEN 'retry' WHEN at_ms = ?2 THEN 'parked' ELSE 'later' END,
                           behind = iif(at_ms = ?2, behind, NULL),
                           generation = iif(attempt > 0, NULL, run.generation),
                           counter = iif(attempt > 0, NULL, run.counter)
           FROM run
           WHERE run.handle = open.handle AND state IN ('parked', 'held') AND open.started_ms > ?1 AND NOT lost""",
        (now_ms, NEVER_MS),
    )
    return db.changes()


def release(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    released = []
    for handle, attempt in fences:
        db.execute(
            """UPDATE open SET state = 'retry', at_ms = ?, reason = ?
               WHERE handle = ? AND attempt = ? AND state = 'out'""",
            (now_ms, GIVEN_BACK, handle, attempt),
        )
        released.append(db.changes() == 1)
    count_out(db, gone=[handle for (handle, _), done in zip(fences, released, strict=True) if done])
    make_ready(db, ((handle, now_ms) for (handle, _), done in zip(fences, released, strict=True) if done))
    return released

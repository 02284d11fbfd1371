"""Runs that are out: settled, extended, given back, pulled back after the clock was set back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from paceline.adapters.sqlite.database import Connection, insert_rows
from paceline.adapters.sqlite.definitions import read_spec
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.keys import LANE_BITS, NEVER_MS, queue_of
from paceline.core.definition import cadence_of
from paceline.core.outcome import Done, Retry, terminal_state
from paceline.core.overlap import QUEUED, follow_ms
from paceline.ports import Settlement


def settle(db: Connection, settlements: Sequence[Settlement]) -> list[bool]:
    leases = {
        row[0]: row[1:]
        for row in db.execute(
            "SELECT handle, attempt, at_ms FROM open WHERE handle IN carray(?) AND state = 'out'",
            (integers(item.handle for item in settlements),),
        )
    }
    won: list[bool] = []
    ended: list[tuple[Any, ...]] = []
    again: list[tuple[Any, ...]] = []
    for item in settlements:
        attempt, until_ms = leases.get(item.handle, (None, 0))
        if attempt != item.attempt or item.ended_ms > until_ms:
            won.append(False)
            continue
        del leases[item.handle]  # of two that are right, the first counts
        won.append(True)
        if isinstance(item.outcome, Retry):
            again.append((item.outcome.not_before_ms, item.outcome.reason, item.handle))
        else:
            ended.append(_outcome_row(item))
    db.executemany("UPDATE open SET state = 'retry', at_ms = ?, reason = ? WHERE handle = ?", again)
    make_ready(db, ((handle, at_ms) for at_ms, _, handle in again))
    ended.sort()
    count_out(db, gone=[*(row[0] for row in ended), *(handle for _, _, handle in again)])
    record_outcomes(db, ended)
    return won


def count_out(db: Connection, *, come: Iterable[int] = (), gone: Iterable[int] = ()) -> None:
    """For whoever writes to ``open``: these runs are out now, and those are not any more. Figures of each queue."""
    more = _by_lane(come)
    more.subtract(_by_lane(gone))
    changes = [(change, lane) for lane, change in more.items() if change]
    if changes:
        db.executemany("UPDATE lane SET out = out + ? WHERE id = ?", changes)


def _by_lane(handles: Iterable[int]) -> Counter[int]:
    return Counter([handle >> LANE_BITS for handle in handles])


def out_of(db: Connection, handles: Iterable[int]) -> list[int]:
    """Of these runs, those that are out."""
    rows = db.execute("SELECT handle FROM open WHERE handle IN carray(?) AND state = 'out'", (integers(handles),))
    return [row[0] for row in rows]


def record_outcomes(db: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Ends runs for good: their outcome is written, their lease goes, and what is parked behind them may start.

    Those of them that are out are for the caller to count.
    """
    if not rows:
        return
    columns = "handle, state, attempt, started_ms, ended_ms, latency_ms, code, reason, detail"
    insert_rows(db, f"outcome ({columns})", rows)
    handles = [row[0] for row in rows]
    ended = _by_lane(handles)
    db.executemany("UPDATE lane SET ended = ended + ? WHERE id = ?", [(count, lane) for lane, count in ended.items()])
    db.execute("DELETE FROM open WHERE handle IN carray(?)", (integers(handles),))
    # Most often nothing at all is parked, and then it need not be asked of each run.
    if db.execute("SELECT EXISTS (SELECT 1 FROM open WHERE behind IS NOT NULL)").get:
        _let_follow(db, rows)


def _let_follow(db: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """What is parked behind runs that have just ended may start: at once, or, if it was queued, at a pace."""
    ended = {row[0]: row[2:5] for row in rows}
    waiting = db.execute(
        """SELECT open.handle, open.behind, open.at_ms, open.reason, run.due_ms, coalesce(previous.due_ms, run.due_ms),
                  run.generation, monitor.spec
           FROM open JOIN run ON run.handle = open.handle LEFT JOIN run AS previous ON previous.handle = run.previous
                LEFT JOIN monitor ON monitor.generation = run.generation
           WHERE open.behind IN carray(?)""",
        (integers(ended),),
    ).fetchall()
    at_once: list[int] = []
    later: list[tuple[int, int]] = []
    for handle, behind, at_ms, reason, due_ms, previous_due_ms, generation, spec in waiting:
        attempt, started_ms, ended_ms = ended[behind]
        from_ms = at_ms if at_ms < NEVER_MS else 0  # to be made up for at a moment of its own
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
    db.execute("UPDATE open SET at_ms = 0 WHERE handle IN carray(?)", (integers(at_once),))
    db.executemany("UPDATE open SET state = 'later', behind = NULL, at_ms = ? WHERE handle = ?", later)
    make_ready(db, [*((handle, 0) for handle in at_once), *((handle, at_ms) for at_ms, handle in later)])


def make_ready(db: Connection, runs: Iterable[tuple[int, int]]) -> None:
    """Lets claims look into the queues of these runs from then on: (handle, time)."""
    earliest: dict[int, int] = {}
    for handle, at_ms in runs:
        lane = queue_of(handle)
        earliest[lane] = min(at_ms, earliest.get(lane, at_ms))
    db.executemany(
        "UPDATE lane SET ready_ms = min(ready_ms, ?) WHERE id = ?", [(at_ms, lane) for lane, at_ms in earliest.items()]
    )


def extend(db: Connection, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    db.execute(
        "UPDATE open SET at_ms = ? WHERE handle = ? AND attempt = ? AND state = 'out' AND at_ms >= ?",
        (until_ms, handle, attempt, now_ms),
    )
    extended = db.changes() == 1
    if extended:
        make_ready(db, [(handle, until_ms)])  # it may end earlier than before
    return extended


def pull_back(db: Connection, *, now_ms: int, wait_ms_max: int, later_ms_max: int = 0) -> int:
    db.execute(
        """UPDATE open SET at_ms = ?1 + (at_ms - started_ms), started_ms = ?1
           WHERE state = 'out' AND started_ms > ?1""",
        (now_ms,),
    )
    moved = db.changes()
    db.execute("UPDATE open SET at_ms = ?1 WHERE state IN ('retry', 'held') AND at_ms > ?1", (now_ms + wait_ms_max,))
    moved += db.changes()
    db.execute(
        "UPDATE open SET at_ms = ?1 WHERE (state = 'later' OR state = 'parked') AND at_ms > ?1 AND at_ms < ?2",
        (now_ms + max(wait_ms_max, later_ms_max), NEVER_MS),
    )
    moved += db.changes()
    if moved:
        db.execute("UPDATE lane SET ready_ms = 0 WHERE id IN (SELECT lane FROM open)")
    return moved


def release(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    released = []
    for handle, attempt in fences:
        db.execute(
            """UPDATE open SET state = 'retry', at_ms = ?, reason = 'given back before it started'
               WHERE handle = ? AND attempt = ? AND state = 'out'""",
            (now_ms, handle, attempt),
        )
        released.append(db.changes() == 1)
    count_out(db, gone=[handle for (handle, _), done in zip(fences, released, strict=True) if done])
    make_ready(db, ((handle, now_ms) for (handle, _), done in zip(fences, released, strict=True) if done))
    return released


def _outcome_row(item: Settlement) -> tuple[Any, ...]:
    outcome = item.outcome
    assert not isinstance(outcome, Retry)
    facts: tuple[Any, ...] = (None, None, outcome.reason, "{}")
    if isinstance(outcome, Done):
        detail = msgspec.json.encode(outcome.detail).decode() if outcome.detail else "{}"
        facts = (outcome.latency_ms, outcome.code, outcome.reason, detail)
    return (item.handle, terminal_state(outcome), item.attempt, item.started_ms, item.ended_ms, *facts)

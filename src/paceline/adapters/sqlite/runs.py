"""Runs between being made and being settled: claims, leases, fencing, order within a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.definitions import read_spec
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.keys import CHECKS_LANE, LANE_BITS, NEVER_MS, lane_bounds
from paceline.core.outcome import Done, Retry, terminal_state
from paceline.core.overlap import QUEUED, follow_ms
from paceline.ports import Claimed, Queue, Settlement

HOLD_MS = 30_000
SIFTED_MIN = 64
SEQUENCE_MASK = (1 << LANE_BITS) - 1

# A run is clear to start when the run before it in its group is settled, or so old that its record is gone.
CLEAR = """(run.previous = 0 OR EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.previous)
            OR NOT EXISTS (SELECT 1 FROM run AS earlier WHERE earlier.handle = run.previous))"""
# A run that is caught up later may be out or settled while it still stands in the tail.
TOUCHED = """(EXISTS (SELECT 1 FROM open WHERE open.handle = run.handle)
              OR EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle))"""
# The columns that a claim judges a run by.
_FACTS = f"""run.handle, run.generation, run.counter, run.due_ms, run.previous, {CLEAR},
             monitor.name, monitor.spec, user.name, user.disabled"""
_OWNER = "LEFT JOIN monitor ON monitor.generation = run.generation LEFT JOIN user ON user.id = monitor.owner"


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A run that may be claimed, and what is known of earlier attempts."""

    handle: int
    generation: int
    counter: int
    due_ms: int
    previous: int
    clear: int
    monitor: str | None
    spec: str | None
    owner: str | None
    disabled: int | None
    attempt: int = 0
    lost: int = 0


class Lanes:
    """Takes turns between the owners' lanes, so that no owner's backlog keeps another's waiting."""

    def __init__(self) -> None:
        self._last = 0

    def pick(self, db: Connection, *, now_ms: int, limit: int) -> list[int]:
        """Lanes with something to claim, beginning after the one that was served last.

        Also those whose owner was removed: their runs end when they are claimed, for their monitors are gone.
        """
        query = """SELECT lane.id FROM lane LEFT JOIN user ON user.id = lane.owner
                   WHERE user.disabled IS NOT 1 AND lane.id > 1 AND lane.id {} ?
                     AND (lane.position < lane.tail OR EXISTS
                         (SELECT 1 FROM open WHERE open.lane = lane.id AND open.at_ms <= ?))
                   ORDER BY lane.id LIMIT ?"""
        picked: list[int] = []
        for side in (">", "<="):
            rows = db.execute(query.format(side), (self._last, now_ms, limit - len(picked)))
            picked += [row[0] for row in rows]
        if picked:
            self._last = picked[-1]
        return picked


def claim(db: Connection, queue: Queue, lanes: Lanes, *, now_ms: int, runs_max: int, lease_ms: int) -> list[Claimed]:
    if not queue.outgoing:
        return _claim_lane(db, CHECKS_LANE, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
    if queue.owner is not None:
        row = db.execute(
            "SELECT lane.id FROM lane JOIN user ON user.id = lane.owner WHERE user.name = ?", (queue.owner,)
        ).fetchone()
        return _claim_lane(db, row[0], now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms) if row else []
    claimed: list[Claimed] = []
    picked = lanes.pick(db, now_ms=now_ms, limit=runs_max)
    for index, lane in enumerate(picked):
        share = -(-(runs_max - len(claimed)) // (len(picked) - index))
        claimed += _claim_lane(db, lane, now_ms=now_ms, runs_max=share, lease_ms=lease_ms)
    return claimed


def next_run_ms(db: Connection) -> int | None:
    """0 while the tail has something: whether it may start is for the claim to see."""
    next_ms = db.execute(
        """SELECT iif(lane.position < lane.tail, 0,
                      (SELECT min(open.at_ms) FROM open WHERE open.lane = lane.id AND open.at_ms < ?))
           FROM lane WHERE lane.id = ?""",
        (NEVER_MS, CHECKS_LANE),
    ).get
    return None if next_ms is None else int(next_ms)


def take(db: Connection, handle: int, attempt: int | None, *, now_ms: int, lease_ms: int) -> Claimed | None:
    """One run of an outgoing lane, out of turn: the tail passes over it later, as over all that is open or settled."""
    lane = handle >> LANE_BITS
    row = db.execute(
        f"""SELECT {_FACTS}, open.attempt, open.lost OR open.state = 'out', open.state, open.at_ms,
                   EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)
            FROM run LEFT JOIN open ON open.handle = run.handle {_OWNER} WHERE run.handle = ?""",  # noqa: S608
        (handle,),
    ).fetchone()
    if row is None or lane == CHECKS_LANE:
        return None
    *facts, attempts, lost, state, at_ms, settled = row
    run = Candidate(*(*facts, attempts or 0, lost or 0))
    pausing = state in ("out", "retry", "later", "parked") and at_ms > now_ms
    if settled or pausing or not run.clear or run.disabled or run.spec is None:
        return None
    if attempt not in (None, run.attempt + 1):
        return None
    return _decide(db, lane, [run], now_ms=now_ms, lease_ms=lease_ms)[0]


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
    ended.sort()
    record_outcomes(db, ended)
    return won


def record_outcomes(db: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Ends runs for good: their outcome is written, their lease goes, and what is parked behind them may start."""
    if not rows:
        return
    db.executemany(
        """INSERT INTO outcome (handle, state, attempt, started_ms, ended_ms, latency_ms, code, reason, detail)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        rows,
    )
    handles = [row[0] for row in rows]
    ended = Counter(handle >> LANE_BITS for handle in handles)
    db.executemany("UPDATE lane SET ended = ended + ? WHERE id = ?", [(count, lane) for lane, count in ended.items()])
    db.execute("DELETE FROM open WHERE handle IN carray(?)", (integers(handles),))
    # Most often nothing at all is parked, and then it need not be asked of each run.
    if db.execute("SELECT EXISTS (SELECT 1 FROM open WHERE behind IS NOT NULL)").get:
        _let_follow(db, rows)


def _let_follow(db: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """What is parked behind runs that have just ended may start: at once, or, if it was queued, at a pace."""
    ended = {row[0]: row[2:5] for row in rows}
    waiting = db.execute(
        """SELECT open.handle, open.behind, open.reason, run.due_ms, coalesce(previous.due_ms, run.due_ms)
           FROM open JOIN run ON run.handle = open.handle LEFT JOIN run AS previous ON previous.handle = run.previous
           WHERE open.behind IN carray(?)""",
        (integers(ended),),
    ).fetchall()
    at_once: list[int] = []
    later: list[tuple[int, int]] = []
    for handle, behind, reason, due_ms, previous_due_ms in waiting:
        attempt, started_ms, ended_ms = ended[behind]
        from_ms = follow_ms(started_ms=started_ms, previous_due_ms=previous_due_ms, due_ms=due_ms)
        if attempt and reason == QUEUED and from_ms > ended_ms:  # without an attempt nothing was sent
            later.append((from_ms, handle))
        else:
            at_once.append(handle)
    db.execute("UPDATE open SET at_ms = 0 WHERE handle IN carray(?)", (integers(at_once),))
    db.executemany("UPDATE open SET state = 'later', behind = NULL, at_ms = ? WHERE handle = ?", later)


def extend(db: Connection, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    db.execute(
        "UPDATE open SET at_ms = ? WHERE handle = ? AND attempt = ? AND state = 'out' AND at_ms >= ?",
        (until_ms, handle, attempt, now_ms),
    )
    return db.changes() == 1


def pull_back(db: Connection, *, now_ms: int, wait_ms_max: int) -> int:
    db.execute(
        """UPDATE open SET at_ms = ?1 + (at_ms - started_ms), started_ms = ?1
           WHERE state = 'out' AND started_ms > ?1""",
        (now_ms,),
    )
    moved = db.changes()
    db.execute(
        "UPDATE open SET at_ms = ?1 WHERE state IN ('retry', 'later', 'held') AND at_ms > ?1", (now_ms + wait_ms_max,)
    )
    return moved + db.changes()


def release(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    released = []
    for handle, attempt in fences:
        db.execute(
            """UPDATE open SET state = 'retry', at_ms = ?, reason = 'given back before it started'
               WHERE handle = ? AND attempt = ? AND state = 'out'""",
            (now_ms, handle, attempt),
        )
        released.append(db.changes() == 1)
    return released


def _claim_lane(db: Connection, lane: int, *, now_ms: int, runs_max: int, lease_ms: int) -> list[Claimed]:
    """First what comes back (retries, run-out leases, caught-up and unparked runs), then the untouched tail."""
    claimed = _claim_open(db, lane, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
    position, tail = db.execute("SELECT position, tail FROM lane WHERE id = ?", (lane,)).fetchone()
    start, sifted_max = position, 4 * runs_max + SIFTED_MIN
    while len(claimed) < runs_max and position < tail and position - start < sifted_max:
        found, position = _sift(db, lane, position, limit=runs_max - len(claimed))
        claimed += _decide(db, lane, found, now_ms=now_ms, lease_ms=lease_ms)
    if position != start:
        db.execute("UPDATE lane SET position = ? WHERE id = ?", (position, lane))
    return claimed


def _claim_open(db: Connection, lane: int, *, now_ms: int, runs_max: int, lease_ms: int) -> list[Claimed]:
    claimed: list[Claimed] = []
    looked, looked_max = 0, 4 * runs_max + SIFTED_MIN
    while len(claimed) < runs_max and looked < looked_max:
        rows = _claimable(db, lane, now_ms=now_ms, limit=runs_max - len(claimed))
        if not rows:
            break
        looked += len(rows)
        claimed += _decide(db, lane, rows, now_ms=now_ms, lease_ms=lease_ms)
    return claimed


def _claimable(db: Connection, lane: int, *, now_ms: int, limit: int) -> list[Candidate]:
    rows = db.execute(
        f"""SELECT {_FACTS}, open.attempt, open.lost OR open.state = 'out'
            FROM open JOIN run ON run.handle = open.handle {_OWNER}
            WHERE open.lane = ? AND open.at_ms <= ? ORDER BY open.at_ms LIMIT ?""",  # noqa: S608  fixed texts
        (lane, now_ms, limit),
    ).fetchall()
    return [Candidate(*row) for row in rows]


def _sift(db: Connection, lane: int, position: int, *, limit: int) -> tuple[list[Candidate], int]:
    """The next runs of the tail that are neither open nor settled already, and the position after them."""
    begin, end = lane_bounds(lane)
    # Most often nothing in the tail has been touched, and then it need not be asked of each run.
    touched = db.execute(
        """SELECT EXISTS (SELECT 1 FROM open WHERE handle > ?1 AND handle < ?2)
               OR EXISTS (SELECT 1 FROM outcome WHERE handle > ?1 AND handle < ?2)""",
        (begin | position, end),
    ).get
    rows = db.execute(
        f"""SELECT {_FACTS}, {TOUCHED if touched else "0"}
            FROM run {_OWNER} WHERE run.handle > ? AND run.handle < ? ORDER BY run.handle LIMIT ?""",  # noqa: S608
        (begin | position, end, limit),
    ).fetchall()
    if not rows:
        return [], int(db.execute("SELECT tail FROM lane WHERE id = ?", (lane,)).get)
    return [Candidate(*row[:-1]) for row in rows if not row[-1]], rows[-1][0] & SEQUENCE_MASK


def _decide(db: Connection, lane: int, candidates: Sequence[Candidate], *, now_ms: int, lease_ms: int) -> list[Claimed]:
    """Leases what may start; parks what is behind another of its group; holds what a disabled user owns."""
    until_ms = now_ms + lease_ms
    claimed: list[Claimed] = []
    first: list[int] = []
    opened: list[tuple[Any, ...]] = []
    for run in candidates:
        if not run.clear:
            opened.append((run.handle, lane, "parked", NEVER_MS, run.attempt, run.lost, run.previous, None, ""))
            continue
        if run.disabled:
            reason = "its owner is disabled"
            opened.append((run.handle, lane, "held", now_ms + HOLD_MS, run.attempt, run.lost, None, None, reason))
            continue
        if run.attempt or run.lost:
            opened.append((run.handle, lane, "out", until_ms, run.attempt + 1, run.lost, None, now_ms, ""))
        else:
            first.append(run.handle)
        claimed.append(_claimed(run, until_ms))
    # First attempts, which are nearly all, differ in nothing but their handle: one statement for all of them.
    db.execute(
        """INSERT OR REPLACE INTO open (handle, lane, state, at_ms, attempt, lost, behind, started_ms, reason)
           SELECT value, ?, 'out', ?, 1, 0, NULL, ?, '' FROM carray(?) WHERE value > 0""",
        (lane, until_ms, now_ms, integers(first)),
    )
    db.executemany(
        """INSERT OR REPLACE INTO open (handle, lane, state, at_ms, attempt, lost, behind, started_ms, reason)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        opened,
    )
    return claimed


def _claimed(run: Candidate, until_ms: int) -> Claimed:
    return Claimed(
        run.handle,
        run.attempt + 1,
        run.owner or "",
        run.monitor or "",
        run.generation,
        run.counter,
        run.due_ms,
        until_ms,
        lost=bool(run.lost),
        check=read_spec(run.spec).check if run.spec is not None else None,
    )


def _outcome_row(item: Settlement) -> tuple[Any, ...]:
    outcome = item.outcome
    assert not isinstance(outcome, Retry)
    facts: tuple[Any, ...] = (None, None, outcome.reason, "{}")
    if isinstance(outcome, Done):
        detail = msgspec.json.encode(outcome.detail).decode()
        facts = (outcome.latency_ms, outcome.code, outcome.reason, detail)
    return (item.handle, terminal_state(outcome), item.attempt, item.started_ms, item.ended_ms, *facts)

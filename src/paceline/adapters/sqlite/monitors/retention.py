"""Retention: deletes old runs and ends runs that nobody claimed, in passes that hold the lock for a moment only."""

from __future__ import annotations

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import CHECKS_LANE, NEVER_MS, OLD_CHECK_LANES, is_outgoing, lane_bounds
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.adapters.sqlite.monitors.outgoing_claims import CLEAR, SEQUENCE_MASK, TOUCHED
from paceline.adapters.sqlite.monitors.runs import count_out, out_of, record_outcomes
from paceline.adapters.sqlite.monitors.uptime import fold_before_delete
from paceline.core.monitors.leases import EXPIRED, given_up, has_expired
from paceline.core.monitors.values import PurgeReport

LANES_MAX = 500
"""Queues that one pass reads."""
NEAR_MAX = 64
"""After this many runs that are too young, it is checked whether any behind them can be old enough."""


class RunPurge:
    """Goes round the queues, pass by pass, and remembers where the last pass stopped."""

    def __init__(self) -> None:
        self._lane = 0
        self._open = self._settled = 0
        """Handles up to which open and settled runs were read, in the queue where the last pass stopped."""

    def purge(
        self, db: Connection, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int
    ) -> PurgeReport:
        lanes = db.execute(
            "SELECT id, owner, tail, position FROM lane WHERE id >= ? ORDER BY id LIMIT ?", (self._lane, LANES_MAX)
        ).fetchall()
        delete_left = expire_left = limit
        for lane, owner, tail, position in lanes:
            expire_left -= _expire_tail(
                db, lane, position, due_before_ms=due_before_ms, now_ms=now_ms, limit=expire_left
            )
            expire_left -= self._expire_open(db, lane, due_before_ms=due_before_ms, now_ms=now_ms, limit=expire_left)
            delete_left -= self._delete_settled(db, lane, settled_before_ms=settled_before_ms, limit=delete_left)
            end = lane_bounds(lane)[1]
            if min(self._open, self._settled) < end or not delete_left or not expire_left:
                self._lane = lane
                break
            self._open = self._settled = 0
            if lane > CHECKS_LANE and tail == position and (owner is None or lane > OLD_CHECK_LANES):
                _drop_if_empty(db, lane)
        else:
            self._lane = lanes[-1][0] + 1 if len(lanes) == LANES_MAX else 0
        return PurgeReport(limit - delete_left, limit - expire_left, more=self._lane > 0)

    def _expire_open(self, db: Connection, lane: int, *, due_before_ms: int, now_ms: int, limit: int) -> int:
        """End open runs of a queue that have expired (``core.monitors.leases.has_expired``). Return how many.

        Runs were made in order of their due times, except for caught-up ones, so the search ends after a few that are
        young enough. Many of the old ones may be out, so the walk over them is bounded, too.
        """
        if limit <= 0:
            return 0
        begin, end = lane_bounds(lane)
        rows = db.execute(
            f"""SELECT handle, due_ms, coalesce(behind, previous), {CLEAR} AND (behind IS NULL OR at_ms = 0),
                       state, at_ms
                FROM open JOIN run USING (handle)
                WHERE handle > ? AND handle < ? ORDER BY handle LIMIT ?""",  # noqa: S608  fixed texts
            (max(begin, self._open), end, limit),
        )
        outgoing = is_outgoing(lane)
        expired: set[int] = set()
        looked, handle, young = 0, 0, 0
        for handle, due_ms, previous, clear, state, at_ms in rows:
            looked += 1
            if due_ms >= due_before_ms:
                young += 1
                if young == NEAR_MAX:
                    break
            elif (clear or previous in expired) and has_expired(  # else the run before it is out
                due_ms=due_ms, state=state, at_ms=at_ms, outgoing=outgoing, due_before_ms=due_before_ms
            ):
                expired.add(handle)
        self._open = handle if looked == limit and young < NEAR_MAX else end
        _end_expired(db, expired, now_ms=now_ms)
        return len(expired)

    def _delete_settled(self, db: Connection, lane: int, *, settled_before_ms: int, limit: int) -> int:
        """Delete outcomes of a queue that are old enough. Return how many.

        A run that ended without being sent may have ended before an earlier run of its monitor, which is found through
        it: it stays as long as that one. After many that are too young, the due time of one is read: no run behind it
        can have ended before that. Until then the walk goes on over runs that stay, for those behind them.
        """
        if limit <= 0:
            return 0
        begin, end = lane_bounds(lane)
        rows = db.execute(
            """SELECT handle, ended_ms, iif(attempt = 0, (SELECT earlier.handle FROM run JOIN run AS earlier
                                                              ON earlier.handle = run.previous
                                                          WHERE run.handle = outcome.handle), NULL)
               FROM outcome WHERE handle > ? AND handle < ? ORDER BY handle LIMIT ?""",
            (max(begin, self._settled), end, limit),
        )
        old: dict[int, None] = {}
        looked, handle, young = 0, 0, 0
        for handle, ended_ms, earlier in rows:
            looked += 1
            if ended_ms >= settled_before_ms:
                young += 1
                if young % NEAR_MAX == 0 and _due_ms(db, handle) >= settled_before_ms:
                    looked = 0
                    break
            elif earlier is None or earlier in old:
                old[handle] = None
        self._settled = handle if looked == limit else end
        deleted = fold_before_delete(db, list(old))
        _delete(db, deleted)
        return len(deleted)


def _expire_tail(db: Connection, lane: int, position: int, *, due_before_ms: int, now_ms: int, limit: int) -> int:
    begin, end = lane_bounds(lane)
    head_ms = db.execute(
        "SELECT due_ms FROM run WHERE handle > ? AND handle < ? ORDER BY handle LIMIT 1", (begin | position, end)
    ).fetchone()
    if head_ms is None or head_ms[0] >= due_before_ms:
        return 0
    rows = db.execute(
        f"""SELECT handle, due_ms, previous, generation, counter, {CLEAR}, {TOUCHED} FROM run
            WHERE handle > ? AND handle < ? ORDER BY handle LIMIT ?""",  # noqa: S608  fixed texts
        (begin | position, end, max(limit, 0)),
    ).fetchall()
    expired: set[int] = set()
    parked: list[tuple[int, ...]] = []
    last = None
    for handle, due_ms, previous, generation, counter, clear, touched in rows:
        if due_ms >= due_before_ms:
            break
        last = handle
        if touched:
            continue
        if clear or previous in expired:
            expired.add(handle)
        else:  # the run before it is out: it is parked, as a claim would park it
            parked.append((handle, lane, NEVER_MS, previous, generation, counter))
    if last is not None:
        db.execute("UPDATE lane SET position = ? WHERE id = ?", (last & SEQUENCE_MASK, lane))
        db.executemany(
            """INSERT INTO open (handle, lane, state, at_ms, behind, generation, counter)
               VALUES (?, ?, 'parked', ?, ?, ?, ?)""",
            parked,
        )
        _end_expired(db, expired, now_ms=now_ms)
    return len(expired)


def _end_expired(db: Connection, handles: set[int], *, now_ms: int) -> None:
    count_out(db, gone=out_of(db, handles))
    old = sorted(handles)
    tried = "SELECT handle, attempt FROM open WHERE handle IN carray(?) AND attempt > 0"
    attempts: dict[int, int] = dict(db.execute(tried, (integers(old),))) if old else {}
    record_outcomes(db, [given_up(one, EXPIRED, attempt=attempts.get(one, 0), now_ms=now_ms) for one in old])


def _due_ms(db: Connection, handle: int) -> int:
    return int(db.execute("SELECT due_ms FROM run WHERE handle = ?", (handle,)).get)


def _delete(db: Connection, old: list[int]) -> None:
    """Delete runs, given in ascending order."""
    if not old:
        return
    span = (old[0], old[-1])
    runs = db.execute("SELECT count(*) FROM run WHERE handle BETWEEN ? AND ?", span).get
    if runs == len(old):  # no other run is between them: this takes a third of the time of looking up each
        db.execute("DELETE FROM outcome WHERE handle BETWEEN ? AND ?", span)
        db.execute("DELETE FROM run WHERE handle BETWEEN ? AND ?", span)
        db.execute("DELETE FROM extra WHERE handle BETWEEN ? AND ?", span)
    else:
        db.execute("DELETE FROM outcome WHERE handle IN carray(?)", (integers(old),))
        db.execute("DELETE FROM run WHERE handle IN carray(?)", (integers(old),))
        db.execute("DELETE FROM extra WHERE handle IN carray(?)", (integers(old),))


def _drop_if_empty(db: Connection, lane: int) -> None:
    """Delete a lane that gets no more runs, once it has none and no change is left that may still use it."""
    begin, end = lane_bounds(lane)
    db.execute(
        """DELETE FROM lane WHERE id = ? AND NOT EXISTS (SELECT 1 FROM run WHERE handle > ? AND handle < ?)
           AND NOT EXISTS (SELECT 1 FROM change)""",
        (lane, begin, end),
    )

"""Runs that could have started long ago: a walk over the open runs of each queue, in order of their handles."""

from __future__ import annotations

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS, lane_bounds
from paceline.adapters.sqlite.monitors.outgoing_claims import CLEAR, OPEN_CLEAR
from paceline.adapters.sqlite.monitors.run_ages import START
from paceline.core.monitors.alerting.found import LatePage, LateRun
from paceline.core.monitors.alerting.stored import decode_health
from paceline.core.monitors.stored import StoredMonitor

LANES_MAX = 500

# Runs that a claim has looked at, and runs behind the position of claims.
_LOOKED = """SELECT handle FROM (SELECT handle FROM open WHERE handle > :after AND handle < :end
                                 ORDER BY handle LIMIT :limit)
             UNION
             SELECT handle FROM (SELECT handle FROM run WHERE handle > max(:after, :position) AND handle < :end
                                 ORDER BY handle LIMIT :limit)
             ORDER BY handle LIMIT :limit"""
_LATE = f"""SELECT run.handle, run.counter, {START}, run.due_ms,
                   iif(open.handle IS NULL, {CLEAR}, {OPEN_CLEAR}) AND NOT user.disabled
                       AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle),
                   user.name, monitor.name, monitor.generation, monitor.revision, monitor.spec, monitor.created_ms,
                   monitor.updated_ms, health.record
            FROM ({_LOOKED}) AS few JOIN run USING (handle) LEFT JOIN open ON open.handle = run.handle
                 LEFT JOIN monitor ON monitor.generation = run.generation
                 LEFT JOIN user ON user.id = monitor.owner LEFT JOIN health ON health.generation = run.generation
            ORDER BY run.handle"""  # noqa: S608  fixed texts


def late_runs(db: Connection, *, before_ms: int, after: int, limit: int) -> LatePage:
    lanes = db.execute(
        "SELECT id, position FROM lane WHERE id >= ? AND tail > ended ORDER BY id LIMIT ?",
        (after >> LANE_BITS, LANES_MAX),
    ).fetchall()
    for lane, position in lanes:
        page = _late_of(db, lane, position, before_ms=before_ms, after=after, limit=limit)
        if page.runs or page.after is not None:
            return page if page.after is not None else page._replace(after=lane_bounds(lane)[1])
    return LatePage([], lane_bounds(lanes[-1][0])[1] if len(lanes) == LANES_MAX else None)


def _late_of(db: Connection, lane: int, position: int, *, before_ms: int, after: int, limit: int) -> LatePage:
    """Return a page of one queue. It ends at a run that is due too late: those behind it are not due earlier."""
    begin, end = lane_bounds(lane)
    names = {"after": max(after, begin), "position": begin | position, "end": end, "limit": limit}
    rows = db.execute(_LATE, names).fetchall()
    late = [
        LateRun(StoredMonitor(*row[7:12]).monitor(row[5], row[6]), row[0], row[1], row[2], decode_health(row[12]))
        for row in rows
        if row[4] and row[2] < before_ms
    ]
    more = len(rows) == limit and rows[-1][3] < before_ms
    return LatePage(late, rows[-1][0] if more else None)

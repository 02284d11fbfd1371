"""Roll-ups of monitors: outcomes are folded into one row for each monitor, in the order of their counters.

The row has the counter of the last run that it includes, written together with the figures. So each run is folded once,
either by the pass that follows the queues or by the purge that is about to delete it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS
from paceline.adapters.sqlite.monitors.cadences import Cadences
from paceline.adapters.sqlite.monitors.entries import DueRow, integers, locate
from paceline.adapters.sqlite.monitors.outgoing_claims import SEQUENCE_MASK
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.uptime.rollup import EndedRow, Rollup, decode_rollup, encode_rollup, fold, settled_first
from paceline.core.monitors.values import FoldReport

FOLD_EVERY = 64
"""A monitor is folded after this many of its runs, so that one row is written for all of them. The first fold comes
after this many to twice as many."""
LANES_MAX = 500
SCANNED_MAX = 20_000
"""Runs that one pass reads to find monitors whose turn it is: a few milliseconds."""
BACK_MAX = 100_000
"""Runs of a monitor that are read back. If an open run keeps more than that from being folded, the purge folds them
from the oldest on."""

# A monitor's runs from this one back that are not folded. Deleted runs were folded before.
_BACK = """
WITH RECURSIVE back (handle, counter, due_ms, previous) AS (
    SELECT handle, counter, due_ms, previous FROM run WHERE handle = ?1 AND counter > ?2
    UNION ALL
    SELECT run.handle, run.counter, run.due_ms, run.previous FROM back JOIN run ON run.handle = back.previous
    WHERE run.counter > ?2 LIMIT ?3)
SELECT back.counter, due_ms, state, ended_ms, latency_ms, reason FROM back LEFT JOIN outcome USING (handle)"""


class FoldPass:
    """Goes round the queues, pass by pass, and remembers in which queue the last pass stopped."""

    def __init__(self) -> None:
        self._lane = 0

    def fold(self, db: Connection, *, limit: int) -> FoldReport:
        lanes = db.execute(
            "SELECT id, folded, position FROM lane WHERE id >= ? ORDER BY id LIMIT ?", (self._lane, LANES_MAX)
        ).fetchall()
        runs = monitors = scanned = 0
        for lane, folded, position in lanes:
            turns_max = max(1, (limit - runs) // FOLD_EVERY)
            until = min(position, folded + SCANNED_MAX - scanned)
            turns = _whose_turn(db, lane, folded, until, limit=turns_max)
            if len(turns) == turns_max:
                until = turns[-1][0] & SEQUENCE_MASK
            made = [_fold_back(db, generation, handle) for handle, generation in turns]
            runs, monitors, scanned = runs + sum(made), monitors + sum(map(bool, made)), scanned + until - folded
            if until > folded:
                db.execute("UPDATE lane SET folded = ? WHERE id = ?", (until, lane))
            if until < position or runs >= limit or scanned >= SCANNED_MAX:
                self._lane = lane if until < position else lane + 1
                break
        else:
            self._lane = lanes[-1][0] + 1 if len(lanes) == LANES_MAX else 0
        return FoldReport(runs, monitors, more=self._lane > 0)


def _whose_turn(db: Connection, lane: int, after: int, until: int, *, limit: int) -> list[tuple[int, int]]:
    """Return runs up to which their monitors are folded now. Monitors that were made together get different turns."""
    begin = lane << LANE_BITS
    return db.execute(
        """SELECT handle, generation FROM run
           WHERE handle > ?1 AND handle <= ?2 AND (counter + generation) % ?3 = 0 AND counter >= ?3
           ORDER BY handle LIMIT ?4""",
        (begin | after, begin | until, FOLD_EVERY, limit),
    ).fetchall()


def fold_before_delete(db: Connection, handles: Sequence[int]) -> list[int]:
    """Fold runs that have ended and are about to be deleted.

    Return those that may be deleted: folded, or of a monitor that is gone.
    """
    rows = db.execute(
        """SELECT run.handle, run.generation, monitor.generation, coalesce(uptime.counter, -1),
                  run.counter, run.due_ms, state, ended_ms, latency_ms, reason
           FROM run JOIN outcome USING (handle) LEFT JOIN monitor ON monitor.generation = run.generation
                LEFT JOIN uptime ON uptime.generation = run.generation
           WHERE run.handle IN carray(?)""",
        (integers(handles),),
    ).fetchall()
    unfolded: dict[int, list[_Unfolded]] = {}
    for handle, generation, exists, folded, *run in rows:
        if exists is not None and run[0] > folded:
            unfolded.setdefault(generation, []).append(_Unfolded(tuple(run), folded, handle))
    if not unfolded:
        return list(handles)
    for generation in _fold_whole(db, unfolded):
        _fold_back(db, generation, max(unfolded[generation]).handle)
    reached = _counters(db, unfolded)
    return sorted(row[0] for row in rows if row[1] not in unfolded or row[4] <= reached.get(row[1], -1))


class _Unfolded(NamedTuple):
    """A run that has ended and is not folded."""

    run: EndedRow
    folded: int
    """Counter of the last run of its monitor that is folded."""
    handle: int


def _fold_whole(db: Connection, unfolded: Mapping[int, list[_Unfolded]]) -> list[int]:
    """Fold the monitors of which all runs from the first unfolded one on are given. Return the others.

    Fast path of ``_fold_back``, which reads the runs of each monitor by themselves.
    """
    whole: dict[int, list[_Unfolded]] = {}
    others: list[int] = []
    for generation, runs in unfolded.items():
        runs.sort()
        if runs[-1].run[0] - runs[0].folded == len(runs):
            whole[generation] = runs
        else:
            others.append(generation)
    stored = dict(
        db.execute("SELECT generation, rollup FROM uptime WHERE generation IN carray(?)", (integers(whole),)).fetchall()
    )
    rollups = []
    for generation, runs in whole.items():
        before = decode_rollup(stored[generation]) if generation in stored else Rollup()
        after = fold(before, [one.run for one in runs])
        rollups.append((generation, after.counter, encode_rollup(after)))
    db.executemany(
        """INSERT INTO uptime (generation, counter, rollup) VALUES (?, ?, ?)
           ON CONFLICT (generation) DO UPDATE SET counter = excluded.counter, rollup = excluded.rollup""",
        rollups,
    )
    return others


def uptimes(db: Connection, cadences: Cadences, monitors: Sequence[Monitor], *, now_ms: int) -> list[Rollup]:
    places = locate(db, cadences, [monitor.generation for monitor in monitors], now_ms=now_ms)
    return [_until_now(db, monitor.generation, places.get(monitor.generation)) for monitor in monitors]


def _until_now(db: Connection, generation: int, place: DueRow | None) -> Rollup:
    rollup = _stored(db, generation)
    return fold(rollup, _ended_since(db, rollup, place.last_run)) if place else rollup


def put_rollups(db: Connection, rollups: Sequence[tuple[int, Rollup]]) -> int:
    before = db.total_changes()
    db.executemany(
        "INSERT OR IGNORE INTO uptime (generation, counter, rollup) VALUES (?, ?, ?)",
        [(generation, rollup.counter, encode_rollup(rollup)) for generation, rollup in rollups],
    )
    return db.total_changes() - before


def _fold_back(db: Connection, generation: int, handle: int) -> int:
    """Fold the monitor's runs up to this one, as far as all earlier ones have ended. Return how many."""
    rollup = _stored(db, generation)
    runs = list(_ended_since(db, rollup, handle))
    if not runs:
        return 0
    folded = fold(rollup, runs)
    db.execute(
        """INSERT INTO uptime (generation, counter, rollup) SELECT generation, ?, ? FROM monitor WHERE generation = ?
           ON CONFLICT (generation) DO UPDATE SET counter = excluded.counter, rollup = excluded.rollup""",
        (folded.counter, encode_rollup(folded), generation),
    )
    return len(runs)


def _ended_since(db: Connection, rollup: Rollup, handle: int) -> Iterable[EndedRow]:
    """Return the runs up to this one that are not folded, oldest first, before the first that has not ended."""
    rows = db.execute(_BACK, (handle, rollup.counter, BACK_MAX)).fetchall()
    if len(rows) == BACK_MAX:
        return ()
    return settled_first(row if row[2] is not None else None for row in reversed(rows))


def _stored(db: Connection, generation: int) -> Rollup:
    row = db.execute("SELECT rollup FROM uptime WHERE generation = ?", (generation,)).fetchone()
    return decode_rollup(row[0]) if row else Rollup()


def _counters(db: Connection, generations: Iterable[int]) -> dict[int, int]:
    rows = db.execute("SELECT generation, counter FROM uptime WHERE generation IN carray(?)", (integers(generations),))
    return dict(rows)

"""Retention, counts, and the checks of ``paceline check``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import apsw

from paceline.adapters.sqlite import batch_upkeep, job_upkeep
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import first_due_ms, integers
from paceline.adapters.sqlite.keys import CHECKS_LANE, EPOCH_MS, GENERATION_MASK, LANE_BITS, lane_bounds
from paceline.adapters.sqlite.run_keys import TIME_MASK
from paceline.adapters.sqlite.runs import CLEAR, SEQUENCE_MASK, TOUCHED, record_outcomes
from paceline.errors import StoreUnavailable
from paceline.ports import PurgeReport, StoreStatus

BACKUP_PAGES = 1_000
SHOWN_MAX = 5

# Each query returns what breaks a promise; the text says what it means.
_INVARIANTS = (
    (
        "promise 1: an entry has more than one live next firing (generation {})",
        "SELECT k & :mask FROM due GROUP BY k & :mask HAVING count(*) > 1",
    ),
    (
        "promise 10: a monitor has no entry and no recorded change (generation {})",
        """SELECT generation FROM monitor WHERE generation NOT IN (SELECT k & :mask FROM due)
           AND generation NOT IN (SELECT generation FROM change)""",
    ),
    (
        "promise 3: an entry has no monitor and no recorded change (generation {})",
        """SELECT k & :mask FROM due WHERE k & :mask NOT IN (SELECT generation FROM monitor)
           AND k & :mask NOT IN (SELECT generation FROM change)""",
    ),
    (
        "the two halves of an entry disagree (generation {})",
        """SELECT due.k & :mask FROM due LEFT JOIN entry ON entry.generation = due.k & :mask
           WHERE entry.cadence IS NOT due.cadence""",
    ),
    (
        "promise 5: a run was made twice (generation {})",
        "SELECT generation FROM run GROUP BY generation, counter HAVING count(*) > 1",
    ),
    (
        "promise 4: an entry's counter is not past its newest run (generation {})",
        "SELECT due.k & :mask FROM due JOIN run ON run.handle = due.last_run WHERE run.counter >= due.counter",
    ),
    (
        "promise 10: a run is both settled and open (handle {})",
        "SELECT handle FROM open JOIN outcome USING (handle)",
    ),
    (
        "promise 10: an open or settled run has no record (handle {})",
        """SELECT handle FROM (SELECT handle FROM open UNION ALL SELECT handle FROM outcome)
           WHERE handle NOT IN (SELECT handle FROM run)""",
    ),
    (
        "promise 10: a run was passed over by its queue and is neither open nor settled (handle {})",
        """SELECT run.handle FROM lane JOIN run
                  ON run.handle > lane.id << :bits AND run.handle <= (lane.id << :bits | lane.position)
           WHERE run.handle NOT IN (SELECT handle FROM open) AND run.handle NOT IN (SELECT handle FROM outcome)""",
    ),
    (
        "promise 6: a run waits behind one that is settled (handle {})",
        "SELECT open.handle FROM open JOIN outcome ON outcome.handle = open.behind WHERE open.at_ms > 0",
    ),
    (
        "promise 6: two runs of one monitor are out at once (generation {})",
        """SELECT run.generation FROM open JOIN run USING (handle) WHERE open.state = 'out'
           GROUP BY run.generation HAVING count(*) > 1""",
    ),
    (
        "a queue's end is before its newest run (lane {})",
        """SELECT handle >> :bits FROM run GROUP BY handle >> :bits
           HAVING max(handle) > (SELECT id << :bits | tail FROM lane WHERE id = handle >> :bits)""",
    ),
    (
        "a user's number of monitors is wrong (user {})",
        "SELECT name FROM user WHERE monitors <> (SELECT count(*) FROM monitor WHERE owner = user.id)",
    ),
)


_NAMES = {"mask": GENERATION_MASK, "bits": LANE_BITS, "time_mask": TIME_MASK, "epoch_ms": EPOCH_MS}


def verify(db: Connection) -> list[str]:
    """SQLite's own integrity check, then the promises' cheap invariants; at most a few examples of each."""
    problems = [f"integrity: {row[0]}" for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [f"foreign key: {row}" for row in db.execute("PRAGMA foreign_key_check").fetchall()[:SHOWN_MAX]]
    for text, query in (*_INVARIANTS, *batch_upkeep.INVARIANTS, *job_upkeep.INVARIANTS):
        names = {name: value for name, value in _NAMES.items() if f":{name}" in query}
        rows = db.execute(f"{query} LIMIT {SHOWN_MAX}", names)
        problems += [text.format(row[0]) for row in rows]
    return problems


def purge(db: Connection, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
    deleted = expired = 0
    for lane, owner, tail, position in db.execute("SELECT id, owner, tail, position FROM lane").fetchall():
        expired += _expire_tail(db, lane, position, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit - expired)
        deleted += _delete_settled(db, lane, settled_before_ms=settled_before_ms, limit=limit - deleted)
        if owner is None and lane > 1 and tail == position:
            _drop_if_empty(db, lane)
    expired += _expire_open(db, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit - expired)
    return PurgeReport(runs_deleted=deleted, runs_expired=expired)


def status(db: Connection, *, bytes_used: int) -> StoreStatus:
    users, monitors = db.execute("SELECT count(*), coalesce(sum(monitors), 0) FROM user").fetchone()
    opened = dict(db.execute("SELECT state = 'out', count(*) FROM open GROUP BY 1").fetchall())
    untouched, oldest_ms = db.execute(
        """SELECT coalesce(sum(lane.tail - lane.position), 0), min(run.due_ms)
           FROM lane LEFT JOIN run ON run.handle = (lane.id << ? | (lane.position + 1))""",
        (LANE_BITS,),
    ).fetchone()
    # Runs that are caught up later may be open or settled while they still stand in the tail.
    touched = db.execute(
        """SELECT coalesce(sum((SELECT count(*) FROM open WHERE handle > seen AND handle < beyond)
                             + (SELECT count(*) FROM outcome WHERE handle > seen AND handle < beyond)), 0)
           FROM (SELECT id << ?1 | position AS seen, id + 1 << ?1 AS beyond FROM lane WHERE position < tail)""",
        (LANE_BITS,),
    ).get
    oldest_open_ms = db.execute(
        "SELECT min(run.due_ms) FROM open JOIN run USING (handle) WHERE state NOT IN ('out', 'later')"
    ).fetchone()[0]
    return StoreStatus(
        users=users,
        monitors=monitors,
        entries=db.execute("SELECT count(*) FROM entry").fetchone()[0],
        changes=db.execute("SELECT count(*) FROM change").fetchone()[0],
        runs_waiting=untouched + opened.get(0, 0) - touched,
        runs_out=opened.get(1, 0),
        next_due_ms=first_due_ms(db),
        oldest_waiting_due_ms=min((ms for ms in (oldest_ms, oldest_open_ms) if ms is not None), default=None),
        file_bytes=bytes_used,
        **batch_upkeep.counts(db),
    )


def backup(db: Connection, target: Path, *, progress: Callable[[int, int], None]) -> None:
    """Online: a consistent copy while others go on writing."""
    try:
        # For its owner alone from the first byte; SQLite's side files take its mode.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreUnavailable(f"{target} exists already; give a new file name.") from None
    copy = apsw.Connection(str(target))
    try:
        with copy.backup("main", cast("apsw.Connection", db), "main") as steps:
            while not steps.done:
                steps.step(BACKUP_PAGES)
                progress(steps.page_count - steps.remaining, steps.page_count)
    finally:
        copy.close()


def _expire_tail(db: Connection, lane: int, position: int, *, due_before_ms: int, now_ms: int, limit: int) -> int:
    begin, end = lane_bounds(lane)
    rows = db.execute(
        f"""SELECT handle, due_ms, previous, {CLEAR}, {TOUCHED} FROM run
            WHERE handle > ? AND handle < ? ORDER BY handle LIMIT ?""",  # noqa: S608  fixed texts
        (begin | position, end, max(limit, 0)),
    ).fetchall()
    expired: set[int] = set()
    last = None
    for handle, due_ms, previous, clear, touched in rows:
        if due_ms >= due_before_ms or not (touched or clear or previous in expired):
            break
        last = handle
        if not touched:
            expired.add(handle)
    if last is not None:
        db.execute("UPDATE lane SET position = ? WHERE id = ?", (last & SEQUENCE_MASK, lane))
        _end_expired(db, expired, now_ms=now_ms)
    return len(expired)


def _expire_open(db: Connection, *, due_before_ms: int, now_ms: int, limit: int) -> int:
    """Also what a checker of somebody's own took and left: nobody has claimed it since its lease ran out."""
    rows = db.execute(
        f"""SELECT handle, previous, {CLEAR} FROM open JOIN run USING (handle)
            WHERE (state <> 'out' OR (at_ms < ?1 AND lane <> ?2)) AND due_ms < ?1
            ORDER BY handle LIMIT ?3""",  # noqa: S608  fixed texts
        (due_before_ms, CHECKS_LANE, max(limit, 0)),
    ).fetchall()
    expired: set[int] = set()
    for handle, previous, clear in rows:
        if clear or previous in expired:  # else the run before it is out, and the one after it must not overtake
            expired.add(handle)
    _end_expired(db, expired, now_ms=now_ms)
    return len(expired)


def _end_expired(db: Connection, handles: set[int], *, now_ms: int) -> None:
    reason = "expired: nobody claimed it in time"
    record_outcomes(db, [(handle, "dead", 0, now_ms, now_ms, None, None, reason, "{}") for handle in sorted(handles)])


def _delete_settled(db: Connection, lane: int, *, settled_before_ms: int, limit: int) -> int:
    begin, end = lane_bounds(lane)
    rows = db.execute(
        "SELECT handle, ended_ms FROM outcome WHERE handle > ? AND handle < ? ORDER BY handle LIMIT ?",
        (begin, end, max(limit, 0)),
    ).fetchall()
    old = [handle for handle, ended_ms in rows if ended_ms < settled_before_ms]
    if old:
        db.execute("DELETE FROM outcome WHERE handle IN carray(?)", (integers(old),))
        db.execute("DELETE FROM run WHERE handle IN carray(?)", (integers(old),))
    return len(old)


def _drop_if_empty(db: Connection, lane: int) -> None:
    """A removed user's lane goes when its last run is gone."""
    begin, end = lane_bounds(lane)
    if db.execute("SELECT 1 FROM run WHERE handle > ? AND handle < ? LIMIT 1", (begin, end)).fetchone() is None:
        db.execute("DELETE FROM lane WHERE id = ?", (lane,))

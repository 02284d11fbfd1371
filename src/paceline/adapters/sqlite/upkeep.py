"""Counts, backup, and the invariants that ``paceline check`` tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import apsw

from paceline.adapters.sqlite import kept_counts
from paceline.adapters.sqlite.batches import upkeep as batch_upkeep
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.jobs import upkeep as job_upkeep
from paceline.adapters.sqlite.keys import EPOCH_MS, GENERATION_MASK, LANE_BITS
from paceline.adapters.sqlite.monitors.entries import first_due_ms
from paceline.adapters.sqlite.monitors.run_ages import read_ages
from paceline.core import findings
from paceline.core.batches.run_keys import TIME_MASK
from paceline.core.daemons import Leases
from paceline.core.findings import SHOWN_MAX
from paceline.core.store_status import StoreStatus
from paceline.errors import StoreUnavailable

BACKUP_PAGES = 1_000

# Each query returns rows that break a promise; the text names the promise.
_INVARIANTS = (
    (
        "promise 1: an entry has more than one live next firing (generation {})",
        "SELECT k & :mask FROM due GROUP BY k & :mask HAVING count(*) > 1",
    ),
    (
        findings.NO_ENTRY,  # this and the next: fast paths of core.findings.entry_finding
        """SELECT generation FROM monitor WHERE generation NOT IN (SELECT k & :mask FROM due)
           AND generation NOT IN (SELECT generation FROM change)""",
    ),
    (
        findings.NO_MONITOR,
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
        f"{findings.COUNTER_BEHIND} (generation {{}})",
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
        "promise 6: a run that waits is not in its monitor's queue (handle {})",
        """SELECT handle FROM open JOIN run USING (handle) WHERE CASE
               WHEN state = 'parked' OR state = 'later'
               THEN open.generation IS NOT run.generation OR open.counter IS NOT run.counter
               ELSE open.generation IS NOT NULL END""",
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
        "a queue's number of runs that have ended is wrong (lane {})",
        """SELECT id FROM lane WHERE tail - ended <>
               (SELECT count(*) FROM run WHERE handle > id << :bits AND handle < id + 1 << :bits)
             - (SELECT count(*) FROM outcome WHERE handle > id << :bits AND handle < id + 1 << :bits)""",
    ),
    (
        "a queue's number of runs that are out is wrong (lane {})",
        """SELECT id FROM lane WHERE out <> (SELECT count(*) FROM open WHERE state = 'out'
               AND handle > id << :bits AND handle < id + 1 << :bits)""",
    ),
    (
        "promise 13: a queue with something to claim would be asked too late (lane {})",
        """SELECT lane.id FROM lane LEFT JOIN user ON user.id = lane.owner WHERE user.disabled IS NOT 1
           AND (lane.position < lane.tail AND lane.ready_ms > 0
                OR lane.ready_ms > (SELECT min(at_ms) FROM open WHERE open.lane = lane.id))""",
    ),
    (
        f"{findings.HEALTH_MISPLACED} (generation {{}})",
        """SELECT health.generation FROM health
           LEFT JOIN monitor USING (generation)
           WHERE (monitor.owner, monitor.name) IS NOT (health.owner, health.name)
              OR coalesce(json_extract(record, '$.failing'), 0) <> failing
              OR (json_extract(record, '$.held_back') IS NULL) <> (closes_ms IS NULL)""",
    ),
    (
        findings.ROLLUP_LEFT,
        "SELECT generation FROM uptime WHERE generation NOT IN (SELECT generation FROM monitor)",
    ),
    (
        findings.ROLLUP_AHEAD,
        """SELECT uptime.generation FROM due JOIN uptime ON uptime.generation = due.k & :mask
           WHERE uptime.counter >= due.counter""",
    ),
    (
        findings.MONITORS_MISCOUNTED,
        "SELECT name FROM user WHERE monitors <> (SELECT count(*) FROM monitor WHERE owner = user.id)",
    ),
)


_NAMES = {"mask": GENERATION_MASK, "bits": LANE_BITS, "time_mask": TIME_MASK, "epoch_ms": EPOCH_MS}


def leases(db: Connection, *, now_ms: int) -> Leases:
    row = db.execute("SELECT count(*), max(at_ms) FROM open WHERE state = 'out' AND at_ms > ?", (now_ms,)).fetchone()
    return Leases(*row)


def verify(db: Connection) -> list[str]:
    """Return what SQLite's integrity check and the invariants of the promises find, a few examples of each."""
    problems = [f"integrity: {row[0]}" for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [f"foreign key: {row}" for row in db.execute("PRAGMA foreign_key_check").fetchall()[:SHOWN_MAX]]
    for text, query in (*_INVARIANTS, *kept_counts.INVARIANTS, *batch_upkeep.INVARIANTS, *job_upkeep.INVARIANTS):
        names = {name: value for name, value in _NAMES.items() if f":{name}" in query}
        rows = db.execute(f"{query} LIMIT {SHOWN_MAX}", names)
        problems += [text.format(row[0]) for row in rows]
    return [*problems, *job_upkeep.verify(db)]


def status(db: Connection, *, bytes_used: int) -> StoreStatus:
    """Return counts that writers keep, and the age of each queue's first runs: no table is scanned."""
    users, monitors = db.execute("SELECT count(*), coalesce(sum(monitors), 0) FROM user").fetchone()
    waiting, out = db.execute("SELECT coalesce(sum(tail - ended - out), 0), coalesce(sum(out), 0) FROM lane").fetchone()
    ages = read_ages(db)
    return StoreStatus(
        users=users,
        monitors=monitors,
        entries=kept_counts.tally(db, "entries"),
        changes=db.execute("SELECT count(*) FROM change").fetchone()[0],
        runs_waiting=waiting,
        runs_out=out,
        next_due_ms=first_due_ms(db),
        oldest_waiting_due_ms=ages.waiting_since_ms,
        file_bytes=bytes_used,
        check_start_ms=ages.check_start_ms,
        outgoing_start_ms=ages.outgoing_start_ms,
        **batch_upkeep.counts(db),
    )


def backup(db: Connection, target: Path, *, progress: Callable[[int, int], None]) -> None:
    """Write a consistent copy to the target while other processes go on writing."""
    try:
        # Readable by its owner alone from the first byte; SQLite's side files get the same mode.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreUnavailable(f"{target} exists already; give a new file name.") from None
    copy = apsw.Connection(str(target))
    try:
        _copy_pages(db, copy, progress=progress)
    except (apsw.FullError, apsw.IOError) as error:
        copy.close()
        target.unlink(missing_ok=True)  # half a backup must not be mistaken for a whole one
        raise StoreUnavailable(
            f"The copy cannot be written: its disk is full or broken ({type(error).__name__}). The unfinished copy was"
            " removed; make room, or name a file on another disk."
        ) from error
    finally:
        copy.close()


def _copy_pages(db: Connection, copy: apsw.Connection, *, progress: Callable[[int, int], None]) -> None:
    """Copy the pages. Not ``with``: closing a failed copy that way would raise its error again, as "not an error"."""
    steps = copy.backup("main", cast("apsw.Connection", db), "main")
    try:
        while not steps.done:
            steps.step(BACKUP_PAGES)
            progress(steps.page_count - steps.remaining, steps.page_count)
    finally:
        steps.close(force=True)

"""Counts, backup, and the checks of ``paceline check``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, cast

import apsw

from paceline.adapters.sqlite import kept_counts
from paceline.adapters.sqlite.batches import upkeep as batch_upkeep
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.jobs import upkeep as job_upkeep
from paceline.adapters.sqlite.keys import EPOCH_MS, GENERATION_MASK, LANE_BITS, NEVER_MS
from paceline.adapters.sqlite.monitors.entries import first_due_ms
from paceline.core import findings
from paceline.core.batches.run_keys import TIME_MASK
from paceline.core.daemons import Leases
from paceline.core.findings import SHOWN_MAX
from paceline.core.store_status import StoreStatus
from paceline.errors import StoreUnavailable

BACKUP_PAGES = 1_000
LANES_MAX = 10_000
"""How many queues with waiting runs are read for the oldest run."""
TOUCHED_MAX = 100
"""How many runs at the start of a queue are read for the first that was not taken out of order."""

# Each query returns what breaks a promise; the text says what it means.
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
    return problems


def status(db: Connection, *, bytes_used: int) -> StoreStatus:
    """Return counts that writers keep, and the first run of each queue with waiting runs: no table is scanned."""
    users, monitors = db.execute("SELECT count(*), coalesce(sum(monitors), 0) FROM user").fetchone()
    waiting, out = db.execute("SELECT coalesce(sum(tail - ended - out), 0), coalesce(sum(out), 0) FROM lane").fetchone()
    heads = _heads(db)
    return StoreStatus(
        users=users,
        monitors=monitors,
        entries=kept_counts.tally(db, "entries"),
        changes=db.execute("SELECT count(*) FROM change").fetchone()[0],
        runs_waiting=waiting,
        runs_out=out,
        next_due_ms=first_due_ms(db),
        oldest_waiting_due_ms=_first(ms for head in heads for ms in (head.tail_due_ms, head.open_due_ms)),
        file_bytes=bytes_used,
        check_start_ms=_first(ms for head in heads if not head.outgoing for ms in head.starts_ms),
        outgoing_start_ms=_first(ms for head in heads if head.outgoing for ms in head.starts_ms),
        **batch_upkeep.counts(db),
    )


class _Head(NamedTuple):
    """The first runs of a queue: of its untouched tail, of the waiting runs, and of those that may be claimed next."""

    outgoing: int
    rests: int
    """True if the queue's owner is disabled: none of its runs may start."""
    tail_due_ms: int | None
    open_due_ms: int | None
    next_at_ms: int | None
    next_due_ms: int | None

    @property
    def starts_ms(self) -> tuple[int | None, ...]:
        """Return since when the queue's first runs could have started."""
        if self.rests:
            return ()
        # 0 stands for a run that was parked, and may start since the one before it has ended.
        return self.tail_due_ms, self.next_at_ms or self.next_due_ms


def _heads(db: Connection) -> list[_Head]:
    """Read the first runs of every queue. The tail's first run is the first that was not taken out of order."""
    rows = db.execute(
        """SELECT lane.outgoing, user.disabled IS 1,
                  (SELECT due_ms FROM (SELECT handle, due_ms FROM run WHERE handle > (lane.id << ?1 | lane.position)
                                           AND handle < lane.id + 1 << ?1 ORDER BY handle LIMIT ?4) AS few
                   WHERE NOT EXISTS (SELECT 1 FROM open WHERE open.handle = few.handle)
                     AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = few.handle) LIMIT 1),
                  waits.due_ms, next.at_ms, again.due_ms
           FROM lane LEFT JOIN user ON user.id = lane.owner
           LEFT JOIN run AS waits ON waits.handle =
               (SELECT min(handle) FROM open WHERE handle > lane.id << ?1 AND handle < lane.id + 1 << ?1
                                               AND state <> 'out' AND state <> 'later')
           LEFT JOIN open AS next ON next.handle =
               (SELECT handle FROM open WHERE open.lane = lane.id AND at_ms < ?2 ORDER BY at_ms LIMIT 1)
           LEFT JOIN run AS again ON again.handle = next.handle
           WHERE lane.tail > lane.ended LIMIT ?3""",
        (LANE_BITS, NEVER_MS, LANES_MAX, TOUCHED_MAX),
    )
    return [_Head(*row) for row in rows]


def _first(times_ms: Iterable[int | None]) -> int | None:
    return min((ms for ms in times_ms if ms is not None), default=None)


def backup(db: Connection, target: Path, *, progress: Callable[[int, int], None]) -> None:
    """Write a consistent copy to the target while other processes go on writing."""
    try:
        # For its owner alone from the first byte; SQLite's side files take its mode.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreUnavailable(f"{target} exists already; give a new file name.") from None
    copy = apsw.Connection(str(target))
    try:
        _copy_pages(db, copy, progress=progress)
    except (apsw.FullError, apsw.IOError) as error:
        copy.close()
        target.unlink(missing_ok=True)  # half a backup must not be taken for one
        raise StoreUnavailable(
            f"{target} cannot be written: its disk is full or broken ({type(error).__name__}). The unfinished copy was"
            " removed; make room, or name a file on another disk."
        ) from error
    finally:
        copy.close()


def _copy_pages(db: Connection, copy: apsw.Connection, *, progress: Callable[[int, int], None]) -> None:
    """Not ``with``: finishing a copy that failed raises the error again, then as "not an error"."""
    steps = copy.backup("main", cast("apsw.Connection", db), "main")
    try:
        while not steps.done:
            steps.step(BACKUP_PAGES)
            progress(steps.page_count - steps.remaining, steps.page_count)
    finally:
        steps.close(force=True)

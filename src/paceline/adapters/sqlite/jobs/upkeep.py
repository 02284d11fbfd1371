"""Retention of jobs, duties, and the invariants that ``paceline check`` tests."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.adapters.sqlite.database import BUSY_TIMEOUT_MS, Connection
from paceline.core.findings import Finding, examples
from paceline.core.jobs import findings
from paceline.core.jobs.findings import JOB_COUNTS, MeterFacts, StateSums
from paceline.core.jobs.meters import Balance, balances
from paceline.core.jobs.names import ATTEMPT_BITS, handle_of
from paceline.core.jobs.upkeep import days_before, is_duty_due

EXPIRIES_EACH = 10
"""Expiries that are added up for each measurement that may be removed: an account has some every minute."""

# Each query returns rows that break a promise; the text names the promise.
INVARIANTS = (
    (
        "promise 8: a posting is on no meter (hold {})",
        "SELECT hold FROM posting WHERE meter NOT IN (SELECT id FROM meter)",
    ),
    (
        findings.NO_MEASUREMENT,
        "SELECT hold FROM posting WHERE hold >= 0 AND hold >> 14 NOT IN (SELECT id FROM measurement)",
    ),
    (
        findings.UNEQUAL_CLOSE,
        """SELECT hold FROM posting WHERE kind <> 'expire' GROUP BY hold, meter
           HAVING count(*) NOT IN (1, 3) OR sum(kind = 'hold') <> 1
               OR count(*) = 3 AND sum(CASE kind WHEN 'hold' THEN amount ELSE -amount END) <> 0""",
    ),
    (
        findings.OWNERS_HOLD,
        """SELECT measurement.id FROM measurement JOIN job ON job.id = measurement.id >> 14 WHERE (ended_ms IS NULL) <>
           (SELECT count(*) = 1 FROM posting WHERE hold = measurement.id << 14 AND posting.meter = job.meter)""",
    ),
    (
        "promise 8: a measurement was settled on another sum than the ledger has (measurement {})",
        """SELECT measurement.id FROM measurement JOIN posting ON hold = measurement.id << 14 AND kind = 'settle'
           WHERE amount <> measurement.settled""",
    ),
    (
        findings.SLOT,
        """SELECT measurement.id FROM measurement WHERE attempt > 0 AND slot <> EXISTS
               (SELECT 1 FROM posting AS line JOIN meter ON meter.id = line.meter AND "window" = 'until_released'
                WHERE line.hold = measurement.id << 14 | attempt AND line.kind = 'hold' AND NOT EXISTS
                    (SELECT 1 FROM posting WHERE hold = line.hold AND meter = line.meter AND kind = 'settle'))""",
    ),
    (
        "promise 8: a hold is open whose send is over (hold {})",
        """SELECT hold FROM posting LEFT JOIN measurement ON measurement.id = hold >> 14 WHERE kind <> 'expire'
           AND hold & 16383 > 0 AND (measurement.id IS NULL OR slot = 0 OR attempt <> hold & 16383)
           GROUP BY hold, meter HAVING count(*) < 3""",
    ),
    (
        findings.LINE,
        "SELECT id FROM measurement WHERE state = 'queued' AND owner NOT IN (SELECT owner FROM turn)",
    ),
    (
        findings.ATLAS_IDS,
        """SELECT id FROM measurement WHERE (state = 'ongoing' OR state IN ('done', 'failed') AND account IS NOT NULL)
           AND concurrent <> (SELECT count(*) FROM atlas_measurement WHERE measurement = measurement.id)""",
    ),
)


def verify(db: Connection) -> list[str]:
    """Return meters and jobs whose figures do not add up, judged by ``core.jobs.findings``."""
    return examples([*_meter_findings(db), *_job_findings(db)])


def _meter_findings(db: Connection) -> Iterator[Finding]:
    posted = balances(db.execute("SELECT meter, kind, sum(amount) FROM posting GROUP BY meter, kind").fetchall())
    released = dict(db.execute("SELECT meter, sum(amount) FROM release GROUP BY meter").fetchall())
    for number, name, window, *pots in db.execute(
        'SELECT id, name, "window", held, spent, opened_held, opened_spent FROM meter'
    ):
        sums = posted.get(number, Balance()), released.get(number, 0)
        yield from findings.meter_findings(MeterFacts(name, window, Balance(*pots[:2]), Balance(*pots[2:]), *sums))


def _job_findings(db: Connection) -> Iterator[Finding]:
    sums: dict[int, list[StateSums]] = {}
    for number, *some in db.execute(
        """SELECT id >> 14, state, count(*), sum(concurrent), sum(credits), coalesce(sum(settled), 0), sum(slot)
           FROM measurement GROUP BY 1, 2"""
    ):
        sums.setdefault(number, []).append(StateSums(*some))
    names = ["id", "name", "purged", "finished_ms", *(name for name in JOB_COUNTS if name not in {"waiting", "slots"})]
    for row in db.execute(f"SELECT {', '.join(names)} FROM job"):  # noqa: S608  fixed names
        number, name, *_ = row
        yield from findings.job_findings(name, dict(zip(names, row, strict=True)), sums.get(number, ()))


def take_duty(db: Connection, name: str, *, every_ms: int, now_ms: int) -> bool:
    taken_ms = db.execute("SELECT at_ms FROM duty WHERE name = ?", (name,)).fetchone()
    known_ms = taken_ms[0] if taken_ms else None
    due = is_duty_due(known_ms, every_ms=every_ms, now_ms=now_ms, apart_ms_max=BUSY_TIMEOUT_MS)
    if due:
        db.execute("INSERT OR REPLACE INTO duty (name, at_ms) VALUES (?, ?)", (name, now_ms))
    return due


def purge(db: Connection, *, finished_before_ms: int, limit: int) -> int:
    """Remove old jobs, part by part. Fast path of ``core.jobs.upkeep.may_be_removed``: one statement finds the jobs."""
    numbers = db.execute(
        # Each has at least one measurement, so more jobs than the limit are never needed.
        """SELECT id FROM job WHERE finished_ms < ? AND hook_ms IS NULL AND NOT EXISTS
               (SELECT 1 FROM measurement WHERE slot = 1 AND state IN ('done', 'failed', 'cancelled')
                    AND measurement.id >= job.id << 14 AND measurement.id < job.id + 1 << 14)
           ORDER BY finished_ms LIMIT ?""",
        (finished_before_ms, limit),
    ).fetchall()
    removed = 0
    for (number,) in numbers:
        if removed == limit:
            break
        removed += _remove_some(db, number, limit=limit - removed)
    _compact_expiries(db, before_ms=finished_before_ms, limit=limit * EXPIRIES_EACH)
    _drop_days(db, ended_before_ms=finished_before_ms, limit=limit)
    return removed


def _remove_some(db: Connection, number: int, *, limit: int) -> int:
    """Remove the first measurements of a job with their rows, and the job with its last one. Return how many."""
    rows = db.execute(
        "SELECT id FROM measurement WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (handle_of(number, 0), handle_of(number + 1, 0), limit),
    ).fetchall()
    first, beyond = rows[0][0], rows[-1][0] + 1
    _compact(db, first << ATTEMPT_BITS, beyond << ATTEMPT_BITS)
    db.execute("DELETE FROM atlas_measurement WHERE measurement >= ? AND measurement < ?", (first, beyond))
    db.execute("DELETE FROM measurement WHERE id >= ? AND id < ?", (first, beyond))
    # Nobody sees the job any more, so its idempotency key becomes free.
    db.execute("UPDATE job SET purged = purged + ?, idempotency = NULL WHERE id = ?", (len(rows), number))
    db.execute("DELETE FROM job WHERE id = ? AND purged = measurements", (number,))
    return len(rows)


def _compact_expiries(db: Connection, *, before_ms: int, limit: int) -> None:
    row = db.execute(
        """SELECT max(hold) FROM (SELECT hold FROM posting WHERE hold > ? AND hold < 0 ORDER BY hold LIMIT ?)""",
        (-before_ms, limit),
    ).fetchone()
    if row[0] is not None:
        _compact(db, 1 - before_ms, row[0] + 1)


def _compact(db: Connection, first: int, beyond: int) -> None:
    """Replace the postings of these holds by their sums, one for each meter."""
    sums = db.execute(
        "SELECT meter, kind, sum(amount) FROM posting WHERE hold >= ? AND hold < ? GROUP BY meter, kind",
        (first, beyond),
    )
    db.executemany(
        "UPDATE meter SET opened_held = opened_held + ?, opened_spent = opened_spent + ? WHERE id = ?",
        [(*balance, meter) for meter, balance in balances(sums.fetchall()).items()],
    )
    db.execute("DELETE FROM posting WHERE hold >= ? AND hold < ?", (first, beyond))


def _drop_days(db: Connection, *, ended_before_ms: int, limit: int) -> None:
    """Remove users' meters of past days that no job refers to (``core.jobs.upkeep.days_before``)."""
    db.execute(
        """DELETE FROM meter WHERE id IN (SELECT id FROM meter
               WHERE "window" = 'day' AND CAST(substr(name, instr(name, '@') + 1) AS INTEGER) < ?
                 AND NOT EXISTS (SELECT 1 FROM job WHERE job.meter = meter.id) LIMIT ?)""",
        (days_before(ended_before_ms), limit),
    )

"""What ``paceline check`` verifies of jobs and of the ledger: the books are added up anew from the postings."""

from __future__ import annotations

# Each query returns what breaks a promise; the text says what it means.
INVARIANTS = (
    (
        "promise 8: the postings do not add up to what is held or spent on a meter ({})",
        """SELECT name FROM meter LEFT JOIN (SELECT meter,
               sum(CASE kind WHEN 'hold' THEN amount WHEN 'expire' THEN 0 ELSE -amount END) AS held,
               sum(CASE kind WHEN 'settle' THEN amount WHEN 'expire' THEN -amount ELSE 0 END) AS spent
               FROM posting GROUP BY meter) AS sums ON sums.meter = meter.id
           WHERE meter.held <> coalesce(sums.held, 0) OR meter.spent <> coalesce(sums.spent, 0)""",
    ),
    (
        "promise 8: a posting is on no meter (hold {})",
        "SELECT hold FROM posting WHERE meter NOT IN (SELECT id FROM meter)",
    ),
    (
        "promise 8: a sliding meter's releases do not add up to what is spent on it ({})",
        """SELECT name FROM meter WHERE "window" = 'sliding'
           AND spent <> (SELECT coalesce(sum(amount), 0) FROM release WHERE release.meter = meter.id)""",
    ),
    (
        "promise 8: a hold is not closed on exactly what it held (hold {})",
        """SELECT hold FROM posting WHERE kind <> 'expire' GROUP BY hold, meter
           HAVING count(*) NOT IN (1, 3) OR sum(kind = 'hold') <> 1
               OR count(*) = 3 AND sum(CASE kind WHEN 'hold' THEN amount ELSE -amount END) <> 0""",
    ),
    (
        "promise 8: a measurement has ended and its owner's hold is open, or the other way round (measurement {})",
        """SELECT measurement.id FROM measurement JOIN job ON job.id = measurement.id >> 14 WHERE (ended_ms IS NULL) <>
           (SELECT count(*) = 1 FROM posting WHERE hold = measurement.id << 14 AND posting.meter = job.meter)""",
    ),
    (
        "promise 8: a measurement was settled on another sum than the ledger has (measurement {})",
        """SELECT measurement.id FROM measurement JOIN posting ON hold = measurement.id << 14 AND kind = 'settle'
           WHERE amount <> measurement.settled""",
    ),
    (
        "promise 8: a measurement's slot is held and its line is closed, or the other way round (measurement {})",
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
        "promise 11: a job's counts or sums are not those of its measurements (job {})",
        """SELECT name FROM job JOIN (SELECT id >> 14 AS number, count(*) AS measurements,
               sum(ended_ms IS NULL) AS open, sum(state = 'done') AS done,
               sum(state = 'failed') AS failed, sum(credits) AS reserved,
               coalesce(sum(settled), 0) AS settled, coalesce(sum(iif(settled IS NULL, 0, credits - settled)), 0) AS
               refunded FROM measurement GROUP BY id >> 14) AS sums ON sums.number = job.id
           WHERE (sums.measurements, sums.open, sums.done, sums.failed, sums.reserved, sums.settled, sums.refunded)
               IS NOT (job.measurements, job.open, job.done, job.failed, job.reserved, job.settled, job.refunded)""",
    ),
    (
        "promise 10: a job has no measurements (job {})",
        """SELECT name FROM job WHERE NOT EXISTS
               (SELECT 1 FROM measurement WHERE measurement.id >= job.id << 14
                    AND measurement.id < job.id + 1 << 14)""",
    ),
    (
        "promise 10: a queued measurement's owner is not in the line (measurement {})",
        "SELECT id FROM measurement WHERE state = 'queued' AND owner NOT IN (SELECT owner FROM turn)",
    ),
    (
        "promise 9: a measurement runs and has no id at RIPE, or fewer than definitions (measurement {})",
        """SELECT id FROM measurement WHERE (state = 'ongoing' OR state IN ('done', 'failed') AND account IS NOT NULL)
           AND concurrent <> (SELECT count(*) FROM atlas_measurement WHERE measurement = measurement.id)""",
    ),
)

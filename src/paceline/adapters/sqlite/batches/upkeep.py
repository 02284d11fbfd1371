"""Retention of batches' runs, their counts, and the invariants that ``paceline check`` tests."""

from __future__ import annotations

from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add, tally
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.run_keys import (
    NEVER_MS,
    RECORD_BITS,
    RECORD_MASK,
    TIME_BITS,
    day_bounds,
    due_ms_of,
    queue_key,
)
from paceline.core.batches.settle import PURGED_DAYS_MAX, is_old
from paceline.core.batches.values import FOR_WORKERS_MAX, CallPurge

TOMBSTONES_MAX = 200
HEADS_MAX = 10_000
"""Queues whose first run is looked at to find the oldest one."""

_OF_PROVIDER = f"k >= pace.provider << {TIME_BITS} AND k < pace.provider + 1 << {TIME_BITS}"

# Each query returns rows that break a promise; the text names the promise. A run is in queue, aside or result. If none
# of a provider's runs is out or in back-off, its first run is next, so the provider must become ready at some time.
INVARIANTS = (
    (
        "promise 10: a planned run is neither waiting nor aside nor ended (run {})",
        """SELECT run FROM planned WHERE NOT EXISTS (SELECT 1 FROM queue WHERE k = planned.k AND run = planned.run)
           AND NOT EXISTS (SELECT 1 FROM aside WHERE k = planned.k AND run = planned.run)
           AND NOT EXISTS (SELECT 1 FROM result WHERE k = planned.k AND run = planned.run)""",
    ),
    (
        "promise 5: a batch's run stands in more than one place (key {})",
        """SELECT k FROM queue WHERE k IN (SELECT k FROM aside) OR k IN (SELECT k FROM result)
           UNION ALL SELECT k FROM aside WHERE k IN (SELECT k FROM result)""",
    ),
    (
        "promise 5: a waiting run is not the one that the ledger has there (key {})",
        "SELECT queue.k FROM queue LEFT JOIN planned USING (run) WHERE planned.k IS NOT queue.k",
    ),
    (
        "promise 5: a run that is set aside is not the one that the ledger has there (key {})",
        "SELECT aside.k FROM aside LEFT JOIN planned USING (run) WHERE planned.k IS NOT aside.k",
    ),
    (
        "promise 5: an ended run is not the one that the ledger has there (key {})",
        "SELECT result.k FROM result LEFT JOIN planned USING (run) WHERE planned.k IS NOT result.k",
    ),
    (
        "promise 10: a planned run has no day or no record (run {})",
        f"""SELECT run FROM planned WHERE run >> {RECORD_BITS} NOT IN (SELECT id FROM day)
           OR run & {RECORD_MASK} NOT IN (SELECT id FROM record)""",  # noqa: S608  fixed texts
    ),
    (
        "a provider has no lane (provider {})",
        "SELECT name FROM provider WHERE id NOT IN (SELECT provider FROM pace)",
    ),
    (
        "a lane believes in another revision of its provider (provider {})",
        """SELECT provider.name FROM provider JOIN pace ON pace.provider = provider.id
           WHERE NOT provider.deleted AND pace.revision IS NOT provider.revision""",
    ),
    (
        "a lane is for another kind of provider than it has (provider {})",
        """SELECT provider.name FROM provider JOIN pace ON pace.provider = provider.id
           WHERE NOT provider.deleted AND pace.outgoing IS NOT (json_extract(provider.spec, '$.kind') = 'outgoing')""",
    ),
    (
        "promise 10: a provider with waiting runs would never be looked at (provider {})",
        f"""SELECT provider.name FROM pace JOIN provider ON provider.id = pace.provider
           JOIN queue ON queue.k = (SELECT k FROM queue WHERE {_OF_PROVIDER}
                                    ORDER BY k LIMIT 1)
           WHERE pace.ready_ms >= {NEVER_MS} AND json_extract(provider.spec, '$.paused') IS NOT 1
             AND NOT EXISTS (SELECT 1 FROM (SELECT state FROM queue
                                            WHERE {_OF_PROVIDER}
                                            ORDER BY k LIMIT 2000)
                             WHERE state <> 'waiting')""",  # noqa: S608
    ),
    (
        "a run is out without a lease, or waits for another try without a time (key {})",
        "SELECT k FROM queue WHERE state <> 'waiting' AND (at_ms <= 0 OR attempt < 1)",
    ),
    (
        "promise 10: a run that failed or is unknown has no reason (key {})",
        "SELECT k FROM result WHERE state IN ('failed', 'unknown') AND reason = ''",
    ),
    (
        "only a run that failed or is unknown can be a dead letter (key {})",
        "SELECT k FROM result WHERE dead = 1 AND state NOT IN ('failed', 'unknown')",
    ),
)


def purge(db: Connection, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int) -> CallPurge:
    """Continue through the ledger from ``after``, over a bounded number of its days and runs, and delete old runs."""
    looked = deleted = 0
    for day in _days_from(db, after):
        end_ms = db.execute("SELECT end_ms FROM day WHERE id = ?", (day,)).get
        if end_ms >= ended_before_ms:
            after = day_bounds(day)[1] - 1
            continue
        rows = db.execute(
            """SELECT planned.run, planned.k, result.ended_ms, result.dead FROM planned
               LEFT JOIN result ON result.k = planned.k AND result.run = planned.run
               WHERE planned.run > ? AND planned.run >= ? AND planned.run < ? ORDER BY planned.run LIMIT ?""",
            (after, *day_bounds(day), limit - looked),
        ).fetchall()
        deleted += _delete(db, rows, ended_before_ms=ended_before_ms, dead_before_ms=dead_before_ms)
        looked += len(rows)
        if looked >= limit:
            return CallPurge(deleted, after=rows[-1][0])
        after = day_bounds(day)[1] - 1
    more = db.execute("SELECT 1 FROM planned WHERE run > ? LIMIT 1", (after,)).fetchone()
    return CallPurge(deleted, after=after if more else None)


def purge_records(db: Connection, *, after: int) -> CallPurge:
    found = db.execute(
        "SELECT id FROM record WHERE deleted = 1 AND id > ? ORDER BY id LIMIT ?", (after, TOMBSTONES_MAX)
    ).fetchall()
    if not found:
        return CallPurge(0, after=None)
    records = [row[0] for row in found]
    named = db.execute(
        """SELECT DISTINCT record.value FROM carray(?1) AS record, carray(?2) AS day
           WHERE EXISTS (SELECT 1 FROM planned WHERE run = day.value << ?3 | record.value)""",
        (integers(records), integers(_days_from(db, -1)), RECORD_BITS),
    )
    gone = sorted(set(records) - {row[0] for row in named})
    db.execute("DELETE FROM newcomer WHERE record IN carray(?)", (integers(gone),))
    db.execute("DELETE FROM record WHERE id IN carray(?)", (integers(gone),))
    return CallPurge(len(gone), after=records[-1] if len(records) == TOMBSTONES_MAX else None)


def counts(db: Connection) -> dict[str, Any]:
    """Return the fields of ``StoreStatus`` that are about batches."""
    heads = db.execute(
        """SELECT (SELECT k FROM queue WHERE k >= provider << ?1 AND k < provider + 1 << ?1 ORDER BY k LIMIT 1)
           FROM pace WHERE ready_ms < ?2 LIMIT ?3""",
        (TIME_BITS, NEVER_MS, HEADS_MAX),
    )
    return {
        "providers": db.execute("SELECT count(*) FROM provider WHERE deleted = 0").get,
        "batches": db.execute("SELECT count(*) FROM batch").get,
        "calls_waiting": tally(db, "calls_waiting"),
        "calls_aside": tally(db, "calls_aside"),
        "dead_letters": tally(db, "dead_letters"),
        "call_start_ms": _start_ms(db, outgoing=0),
        "worker_start_ms": _start_ms(db, outgoing=1),
        "oldest_call_due_ms": min((due_ms_of(k) for (k,) in heads if k is not None), default=None),
    }


def calls_for_workers(db: Connection, *, now_ms: int) -> int:
    counted: int = db.execute(
        f"""SELECT count(*) FROM (
                SELECT 1 FROM pace CROSS JOIN queue
                    ON queue.k >= pace.provider << {TIME_BITS} AND queue.k <= (pace.provider << {TIME_BITS} | ?1)
                WHERE pace.outgoing = 1 AND pace.ready_ms < {NEVER_MS} AND queue.state = 'waiting' LIMIT ?2)""",  # noqa: S608
        (queue_key(0, now_ms), FOR_WORKERS_MAX),
    ).get
    return counted


def _start_ms(db: Connection, *, outgoing: int) -> int | None:
    row = db.execute(
        "SELECT ready_ms FROM pace WHERE outgoing = ? AND ready_ms < ? ORDER BY ready_ms LIMIT 1", (outgoing, NEVER_MS)
    ).fetchone()
    return row[0] if row else None


def _days_from(db: Connection, after: int) -> list[int]:
    """Return the days of which the ledger has runs, from that of ``after`` on; one statement for each day."""
    days: list[int] = []
    first = after + 1
    while len(days) < PURGED_DAYS_MAX:
        run = db.execute("SELECT min(run) FROM planned WHERE run >= ?", (first,)).get
        if run is None:
            break
        days.append(run >> RECORD_BITS)
        first = day_bounds(days[-1])[1]
    return days


def _delete(db: Connection, rows: list[tuple[Any, ...]], *, ended_before_ms: int, dead_before_ms: int) -> int:
    old = [
        (run, k, dead)
        for run, k, ended_ms, dead in rows
        if is_old(ended_ms, dead=bool(dead), ended_before_ms=ended_before_ms, dead_before_ms=dead_before_ms)
    ]
    if old:
        db.execute("DELETE FROM result WHERE k IN carray(?)", (integers([k for _, k, _ in old]),))
        db.execute("DELETE FROM planned WHERE run IN carray(?)", (integers([run for run, _, _ in old]),))
        add(db, "dead_letters", -sum(dead for _, _, dead in old))
    return len(old)

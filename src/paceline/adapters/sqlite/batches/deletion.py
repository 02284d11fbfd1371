"""Deletes a batch: its runs day by day, then its records, then the batch itself."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.adapters.sqlite.batches.definitions import batch as find_batch
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.batch import Batch
from paceline.core.batches.deletion import DeletePass
from paceline.core.batches.run_keys import day_bounds

# A run that is out stays until it is settled or its lease has ended; ?4 is the time now.
_RUNS = """SELECT planned.run, planned.k, queue.k IS NOT NULL, aside.k IS NOT NULL, COALESCE(result.dead, 0)
           FROM planned
           LEFT JOIN queue ON queue.k = planned.k AND queue.run = planned.run
           LEFT JOIN aside ON aside.k = planned.k AND aside.run = planned.run
           LEFT JOIN result ON result.k = planned.k AND result.run = planned.run
           WHERE planned.run >= ?1 AND planned.run < ?2 AND NOT (queue.state IS 'out' AND queue.at_ms > ?4)
           ORDER BY planned.run LIMIT ?3"""


def mark(db: Connection, batch_id: str, *, now_ms: int) -> Batch | None:
    """Mark a batch as deleted. This also pauses it, so that no more runs start, and ends plans under way."""
    there = find_batch(db, batch_id)
    if there is None or there.deleting is not None:
        return there
    text = msgspec.json.encode(msgspec.structs.replace(there.spec, paused=True)).decode()
    db.execute(
        "UPDATE batch SET spec = ?, revision = revision + 1, updated_ms = ?, deleting_ms = ? WHERE id = ?",
        (text, now_ms, now_ms, there.number),
    )
    db.execute("UPDATE day SET state = 'planned' WHERE batch = ? AND state = 'planning'", (there.number,))
    return find_batch(db, batch_id)


def delete_pass(db: Connection, batch: Batch, *, now_ms: int, limit: int) -> DeletePass:
    runs = _delete_runs(db, batch, now_ms=now_ms, limit=limit)
    days_left = db.execute("SELECT EXISTS (SELECT 1 FROM day WHERE batch = ?)", (batch.number,)).get
    records = 0 if days_left else _delete_records(db, batch, limit=limit - runs)
    if days_left or runs + records >= limit:
        db.execute(
            "UPDATE batch SET deleted_runs = deleted_runs + ?, deleted_records = deleted_records + ? WHERE id = ?",
            (runs, records, batch.number),
        )
        return DeletePass(runs, records, over=False)
    db.execute("DELETE FROM batch WHERE id = ? AND deleting_ms IS NOT NULL", (batch.number,))
    return DeletePass(runs, records, over=True)


def _delete_runs(db: Connection, batch: Batch, *, now_ms: int, limit: int) -> int:
    deleted = 0
    for (day,) in db.execute("SELECT id FROM day WHERE batch = ? ORDER BY id", (batch.number,)).fetchall():
        bounds = day_bounds(day)
        rows = db.execute(_RUNS, (*bounds, limit - deleted, now_ms)).fetchall()
        _delete(db, rows)
        deleted += len(rows)
        if deleted >= limit:
            break
        db.execute(
            "DELETE FROM day WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM planned WHERE run >= ?2 AND run < ?3)",
            (day, *bounds),
        )
    return deleted


def _delete(db: Connection, rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        return
    runs, keys, queued, aside, dead = zip(*rows, strict=True)
    for statement in (
        "DELETE FROM queue WHERE k IN carray(?)",
        "DELETE FROM aside WHERE k IN carray(?)",
        "DELETE FROM result WHERE k IN carray(?)",
    ):
        db.execute(statement, (integers(keys),))
    db.execute("DELETE FROM planned WHERE run IN carray(?)", (integers(runs),))
    add(db, "calls_waiting", -sum(queued))
    add(db, "calls_aside", -sum(aside))
    add(db, "dead_letters", -sum(dead))


def _delete_records(db: Connection, batch: Batch, *, limit: int) -> int:
    found = [row[0] for row in db.execute("SELECT id FROM record WHERE batch = ? LIMIT ?", (batch.number, limit))]
    db.execute("DELETE FROM newcomer WHERE record IN carray(?)", (integers(found),))
    db.execute("DELETE FROM record WHERE id IN carray(?)", (integers(found),))
    return len(found)

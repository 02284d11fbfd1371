"""Days of a batch: the order in which a day is planned, and the runs that planning makes."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

import apsw
import msgspec

from paceline.adapters.sqlite.batches.definitions import wake
from paceline.adapters.sqlite.batches.free_keys import are_unused, free_keys
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.deletion import no_batch
from paceline.core.batches.run_keys import EPOCH_MS, RECORD_BITS, TIME_BITS, TIME_MASK, day_bounds, due_ms_of, queue_key
from paceline.core.batches.unwanted import MISSED_WHEN_PLANNED
from paceline.core.batches.values import LateRecord, PagePlan, Placements, PlanOrder

BLOCK_BITS = 17
"""Records are planned in blocks of neighbouring numbers. Without blocks a page, which has few providers, would touch
nearly every leaf of the ledger's tree; with them it touches few of the ledger's and few of the queue's."""
CHUNK_ROWS = 4_096


def open_day(db: Connection, batch: Batch, date: str, *, start_ms: int, end_ms: int) -> Day:
    db.execute(
        """INSERT INTO day (batch, date, start_ms, end_ms, state)
           SELECT id, ?2, ?3, ?4, 'planning' FROM batch WHERE id = ?1 AND deleting_ms IS NULL
           ON CONFLICT (batch, date) DO NOTHING""",
        (batch.number, date, start_ms, end_ms),
    )
    if (opened := day(db, batch, date)) is None:
        raise no_batch(batch.id)
    return opened


def day(db: Connection, batch: Batch, date: str) -> Day | None:
    row = db.execute(
        """SELECT id, date, start_ms, end_ms, state, cursor_provider, cursor_record, enqueued, skipped FROM day
           WHERE batch = ? AND date = ?""",
        (batch.number, date),
    ).fetchone()
    return _day(batch, row) if row else None


def days(db: Connection, batch: Batch, *, before: str | None, limit: int) -> list[Day]:
    rows = db.execute(
        """SELECT id, date, start_ms, end_ms, state, cursor_provider, cursor_record, enqueued, skipped FROM day
           WHERE batch = ? AND date < ? ORDER BY date DESC LIMIT ?""",
        (batch.number, before or "~", limit),
    )
    return [_day(batch, row) for row in rows]


def plan_order(db: Connection, batch: Batch, cursor: tuple[int, int] | None) -> PlanOrder:
    # Not by the index, which is ordered by name: looking up each row takes ten times as long as reading all in turn.
    rows = db.execute(
        """SELECT provider, place, id FROM record NOT INDEXED WHERE batch = ? AND active = 1 AND deleted = 0
           ORDER BY provider << 32 | place, id""",
        (batch.number,),
    )
    begin = None
    if cursor is not None:
        begin = (cursor[1] >> BLOCK_BITS, cursor[0], _place(db, cursor[1]), cursor[1])
    return _with_wishes(db, batch, _order(rows, begin))


def _with_wishes(db: Connection, batch: Batch, order: PlanOrder) -> PlanOrder:
    """Return the order with the priorities and predecessors that providers and records ask for; most ask for none."""
    orders = db.execute(
        "SELECT id, spec ->> '$.order' FROM provider WHERE id IN carray(?) AND spec ->> '$.order' <> 'spread'",
        (integers([provider for provider, _ in order.providers]),),
    ).fetchall()
    rows = db.execute(
        """SELECT record.id, iif(other.active AND NOT other.deleted, other.id, NULL)
           FROM record INDEXED BY record_after
           LEFT JOIN record AS other ON other.batch = record.batch AND other.name = record.after
           WHERE record.batch = ? AND record.after IS NOT NULL AND record.active = 1 AND record.deleted = 0""",
        (batch.number,),
    )
    after = dict(rows.fetchall())
    priorities = _priorities(db, batch) if any(by == "priority" for _, by in orders) else {}
    return msgspec.structs.replace(order, orders=dict(orders), priorities=priorities, after=after)


def _priorities(db: Connection, batch: Batch) -> dict[int, int]:
    rows = db.execute(
        "SELECT id, priority FROM record NOT INDEXED WHERE batch = ? AND priority IS NOT NULL", (batch.number,)
    )
    return dict(rows.fetchall())


def late_order(db: Connection, batch: Batch) -> PlanOrder:
    rows = db.execute(
        """SELECT record.provider, record.place, record.id FROM newcomer JOIN record ON record.id = newcomer.record
           WHERE newcomer.batch = ? ORDER BY record.provider, place, record.id""",
        (batch.number,),
    )
    return _order(rows, None)


def plan_page(
    db: Connection, day: Day, page: Placements, *, cursor: tuple[int, int], skipped: Placements, now_ms: int
) -> PagePlan:
    if not _move_cursor(db, day, cursor):
        return PagePlan(won=False, enqueued=0, already=0, skipped=0)
    enqueued = _enqueue(db, day, page)
    ended = _end(db, day, skipped, now_ms=now_ms)
    _count(db, day, enqueued=enqueued, skipped=ended)
    already = len(page.records) + len(skipped.records) - enqueued - ended
    return PagePlan(won=True, enqueued=enqueued, already=already, skipped=ended)


def close_day(db: Connection, day: Day) -> bool:
    provider, record = day.cursor or (None, None)
    db.execute(
        """UPDATE day SET state = 'planned'
           WHERE id = ? AND state = 'planning' AND cursor_provider IS ? AND cursor_record IS ?""",
        (day.number, provider, record),
    )
    return db.changes() == 1


def late_records(db: Connection, batch: Batch, *, limit: int) -> list[LateRecord]:
    rows = db.execute(
        """SELECT record.id, record.provider, record.place FROM newcomer JOIN record ON record.id = newcomer.record
           WHERE newcomer.batch = ? ORDER BY newcomer.record LIMIT ?""",
        (batch.number, limit),
    )
    return [LateRecord(*row) for row in rows]


def plan_late_records(db: Connection, day: Day, page: Placements) -> PagePlan:
    if db.execute("SELECT 1 FROM day WHERE id = ?", (day.number,)).fetchone() is None:
        return PagePlan(won=False, enqueued=0, already=0, skipped=0)
    enqueued = _enqueue(db, day, page)
    _count(db, day, enqueued=enqueued, skipped=0)
    return PagePlan(won=True, enqueued=enqueued, already=len(page.records) - enqueued, skipped=0)


def forget_late_records(db: Connection, done: Sequence[int]) -> None:
    if done:
        db.execute("DELETE FROM newcomer WHERE record IN carray(?)", (integers(done),))


def unplanned(db: Connection, day: Day, records: Sequence[int]) -> set[int]:
    """Return those of the records that have no run on the day."""
    return set(records) - {run & ((1 << RECORD_BITS) - 1) for run in _known(db, _runs(day, records))}


def taken(db: Connection, of: int | Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
    if isinstance(of, Day):
        return _taken_on(db, of, from_ms=from_ms, to_ms=to_ms, limit=limit)
    rows = db.execute(
        "SELECT k FROM queue WHERE k >= ? AND k < ? ORDER BY k LIMIT ?",
        (queue_key(of, from_ms), queue_key(of, to_ms), limit),
    )
    return [due_ms_of(row[0]) for row in rows]


def _taken_on(db: Connection, day: Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
    """Return the due times on a day, read provider by provider: the queue has no order by time alone."""
    rows = db.execute(
        """SELECT queue.k & ?1 AS since FROM provider CROSS JOIN queue
           ON queue.k >= (provider.id << ?2 | ?3) AND queue.k < (provider.id << ?2 | ?4)
           WHERE queue.run >= ?5 AND queue.run < ?6 ORDER BY since LIMIT ?7""",
        (TIME_MASK, TIME_BITS, queue_key(0, from_ms), queue_key(0, to_ms), *day_bounds(day.number), limit),
    )
    return [row[0] + EPOCH_MS for row in rows]


def record_names(db: Connection, numbers: Sequence[int]) -> dict[int, str]:
    rows = db.execute("SELECT id, name FROM record WHERE id IN carray(?)", (integers(numbers),))
    return dict(rows.fetchall())


def _order(rows: Iterable[tuple[int, int, int]], begin: tuple[int, int, int, int] | None) -> PlanOrder:
    """Return the plan order. ``begin``: (block, provider, place, record) of the last record that was planned."""
    records = array("q")
    counts: Counter[int] = Counter()
    blocks: defaultdict[int, array[int]] = defaultdict(partial(array, "I"))
    passed = 0
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        providers, _, numbers = zip(*chunk, strict=True)
        for index, number in enumerate(numbers, len(records)):
            blocks[number >> BLOCK_BITS].append(index)
        records.extend(numbers)
        counts.update(providers)
        if begin is not None:
            passed += sum((row[2] >> BLOCK_BITS, *row) <= begin for row in chunk)
    turns = array("I")
    for block in sorted(blocks):
        turns += blocks.pop(block)
    return PlanOrder(providers=list(counts.items()), records=records, turns=turns, begin=passed)


def _place(db: Connection, record: int) -> int:
    return int(db.execute("SELECT place FROM record WHERE id = ?", (record,)).get)


def _move_cursor(db: Connection, day: Day, cursor: tuple[int, int]) -> bool:
    provider, record = day.cursor or (None, None)
    db.execute(
        """UPDATE day SET cursor_provider = ?, cursor_record = ?
           WHERE id = ? AND state = 'planning' AND cursor_provider IS ? AND cursor_record IS ?""",
        (*cursor, day.number, provider, record),
    )
    return db.changes() == 1


def _count(db: Connection, day: Day, *, enqueued: int, skipped: int) -> None:
    db.execute(
        "UPDATE day SET enqueued = enqueued + ?, skipped = skipped + ? WHERE id = ?", (enqueued, skipped, day.number)
    )


def _enqueue(db: Connection, day: Day, page: Placements) -> int:
    """Insert the page's runs. Tries first as if all were new, as they nearly always are; if not, looks at each."""
    rows = _rows(day, page)
    db.execute("SAVEPOINT enqueue")
    try:
        keys = _insert(db, rows) if are_unused(db, [row[0] for row in rows]) else None
    except apsw.ConstraintError:
        keys = None
    if keys is None:
        db.execute("ROLLBACK TO enqueue")
        keys = _insert(db, _new_rows(db, rows))
    db.execute("RELEASE enqueue")
    wake(db, keys)
    return len(keys)


def _insert(db: Connection, rows: list[tuple[int, int]]) -> list[int]:
    """Insert the rows; each table gets them in the order of its own keys."""
    db.executemany("INSERT INTO queue (k, run) VALUES (?, ?)", rows)
    add(db, "calls_waiting", len(rows))
    db.executemany("INSERT INTO planned (k, run) VALUES (?, ?)", sorted(rows, key=itemgetter(1)))
    return [row[0] for row in rows]


def _end(db: Connection, day: Day, page: Placements, *, now_ms: int) -> int:
    rows = _new_rows(db, _rows(day, page))
    db.executemany(
        "INSERT INTO result (k, run, state, attempt, ended_ms, reason) VALUES (?, ?, 'skipped', 0, ?, ?)",
        ((key, run, now_ms, MISSED_WHEN_PLANNED) for key, run in rows),
    )
    db.executemany("INSERT INTO planned (k, run) VALUES (?, ?)", sorted(rows, key=itemgetter(1)))
    return len(rows)


def _rows(day: Day, page: Placements) -> list[tuple[int, int]]:
    """Return (key, run) pairs in order of keys."""
    keys = [
        provider << TIME_BITS | due_ms - EPOCH_MS for provider, due_ms in zip(page.providers, page.dues_ms, strict=True)
    ]
    return sorted(zip(keys, _runs(day, page.records), strict=True))


def _new_rows(db: Connection, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the rows that are not in the ledger yet, each with a free key."""
    known = _known(db, [row[1] for row in rows])
    new = [row for row in rows if row[1] not in known]
    keys = free_keys(db, [row[0] for row in new])
    return [(key, row[1]) for key, row in zip(keys, new, strict=True)]


def _runs(day: Day, records: Sequence[int]) -> list[int]:
    first = day.number << RECORD_BITS
    return [first | record for record in records]


def _known(db: Connection, runs: Sequence[int]) -> set[int]:
    return {row[0] for row in db.execute("SELECT run FROM planned WHERE run IN carray(?)", (integers(runs),))}


def _day(batch: Batch, row: tuple[Any, ...]) -> Day:
    number, date, start_ms, end_ms, state, provider, record, enqueued, skipped = row
    cursor = None if provider is None else (provider, record)
    return Day(number, batch.id, date, start_ms, end_ms, state, cursor, enqueued, skipped)

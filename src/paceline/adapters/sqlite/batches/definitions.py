"""Batches and their records, as the operator declared them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Any

import apsw
import msgspec

from paceline.adapters.sqlite.batches.free_keys import free_keys
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.batch import Batch, BatchSpec, Deletion, RecordSpec, parse_stored_batch
from paceline.core.batches.put import RecordPuts, RecordState, new_names, put_disposition
from paceline.core.batches.records.options import options_text, parse_options
from paceline.core.batches.run_keys import due_ms_of, provider_of
from paceline.core.batches.spread import place_of, places_of
from paceline.core.batches.values import RECORDS_READ_MAX, BatchPut, RecordPut

_COLUMNS = "id, name, revision, spec, created_ms, updated_ms, deleting_ms, deleted_runs, deleted_records"
_RECORD = """SELECT record.name, provider.name, endpoint, body, active, options
             FROM record JOIN provider ON provider.id = record.provider"""


def put(db: Connection, name: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int) -> BatchPut:
    now = batch(db, name)
    if now is not None and now.deleting is not None:
        return BatchPut("deleting", now)
    revision, same = (now.revision, now.spec == spec) if now is not None else (None, False)
    disposition = put_disposition(revision=revision, expected=expected_revision, same=same)
    if disposition in ("revision_mismatch", "unchanged"):
        return BatchPut(disposition, now)
    text = msgspec.json.encode(spec).decode()
    if now is None:
        db.execute(
            "INSERT INTO batch (name, revision, spec, created_ms, updated_ms) VALUES (?, 1, ?, ?, ?)",
            (name, text, now_ms, now_ms),
        )
        return BatchPut(disposition, batch(db, name))
    db.execute(
        "UPDATE batch SET revision = ?, spec = ?, updated_ms = ? WHERE id = ?",
        (now.revision + 1, text, now_ms, now.number),
    )
    if now.spec.paused and not spec.paused:
        _bring_back(db, now.number)
    return BatchPut(disposition, batch(db, name))


def batch(db: Connection, name: str) -> Batch | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM batch WHERE name = ?",  # noqa: S608  fixed texts
        (name,),
    ).fetchone()
    return _batch(row) if row else None


def batches(db: Connection, *, after: str, limit: int) -> list[Batch]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM batch WHERE name > ? ORDER BY name LIMIT ?",  # noqa: S608  fixed texts
        (after, limit),
    )
    return [_batch(row) for row in rows]


def put_records(db: Connection, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[RecordPut]:
    if db.execute("SELECT deleting_ms IS NULL FROM batch WHERE id = ?", (batch.number,)).get != 1:
        return ["no_batch"] * len(records)
    page = _RecordWrites(db, batch, records, now_ms=now_ms)
    results = page.insert_all(records) or page.judge_all(records)
    page.write(db)
    return results


def record(db: Connection, batch: Batch, name: str) -> RecordSpec | None:
    row = db.execute(
        f"{_RECORD} WHERE record.batch = ? AND record.name = ? AND record.deleted = 0",
        (batch.number, name),
    ).fetchone()
    return _record(row) if row else None


def afters(db: Connection, batch: Batch, names: Collection[str]) -> dict[str, str | None]:
    rows = db.execute(
        "SELECT name, after FROM record WHERE batch = ? AND name IN carray(?) AND deleted = 0",
        (batch.number, apsw.carray(tuple(names) or ("",))),
    )
    return dict(rows.fetchall())


def record_numbers(db: Connection, batch: Batch) -> array[int]:
    rows = db.execute("SELECT id FROM record NOT INDEXED WHERE batch = ? AND deleted = 0 ORDER BY id", (batch.number,))
    return array("q", [row[0] for row in rows])


def records_of(db: Connection, numbers: Sequence[int]) -> list[RecordSpec]:
    rows = db.execute(
        f"{_RECORD} WHERE record.id IN carray(?) AND record.deleted = 0 ORDER BY record.id",
        (integers(numbers),),
    )
    return [_record(row) for row in rows]


def find_records(
    db: Connection, batch: Batch, *, provider: str | None = None, active: bool | None = None, after: str, limit: int
) -> tuple[list[RecordSpec], str | None]:
    rows = db.execute(
        """SELECT record.name, provider.name, active FROM record JOIN provider ON provider.id = record.provider
           WHERE record.batch = ? AND record.name > ? AND record.deleted = 0 ORDER BY record.name LIMIT ?""",
        (batch.number, after, RECORDS_READ_MAX),
    ).fetchall()
    found = [name for name, of, on in rows if provider in (None, of) and active in (None, bool(on))]
    page = found[:limit]
    more = len(found) > limit or len(rows) == RECORDS_READ_MAX
    last = page[-1] if len(found) > limit else rows[-1][0] if rows else ""
    wanted = db.execute(
        f"{_RECORD} WHERE record.batch = ? AND record.name IN carray(?) AND record.deleted = 0 ORDER BY record.name",
        (batch.number, apsw.carray(tuple(page) or ("",))),
    )
    return [_record(row) for row in wanted], last if more else None


def remove_record(db: Connection, batch: Batch, name: str) -> bool:
    row = db.execute(
        "UPDATE record SET deleted = 1 WHERE batch = ? AND name = ? AND deleted = 0 RETURNING id", (batch.number, name)
    ).fetchall()
    if row:
        db.execute("DELETE FROM newcomer WHERE record = ?", row[0])
    return bool(row)


class _RecordWrites:
    """Records judged one by one against the stored ones, and written together."""

    def __init__(self, db: Connection, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> None:
        self._batch = batch
        self._day_is_on = _day_is_on(db, batch, now_ms=now_ms)
        self._providers = _provider_numbers(db, {record.provider for record in records})
        self._current = _current(db, batch, [record.id for record in records])
        self._first_new = int(db.execute("SELECT coalesce(max(id), 0) FROM record").get) + 1
        self._inserts: dict[int, tuple[Any, ...]] = {}
        self._updates: dict[int, tuple[Any, ...]] = {}
        self._came: set[int] = set()
        self._went: set[int] = set()

    def insert_all(self, records: Sequence[RecordSpec]) -> list[RecordPut]:
        """Insert a page of records that are all new, like the pages of an import; return an empty list if they are not.

        Fast path of core.batches.put.put_record.
        """
        names = [record.id for record in records]
        known = self._providers.keys() >= {record.provider for record in records}
        if self._current or not known or len(set(names)) < len(names):
            return []
        batch, providers, numbers = self._batch.number, self._providers, count(self._first_new)
        places = places_of(self._batch.id, [record.id for record in records])
        self._inserts = {
            number: (
                number,
                batch,
                one.id,
                providers[one.provider],
                place,
                1 if one.active else 0,
                one.endpoint,
                one.body,
                options_text(one.options),
            )
            for number, one, place in zip(numbers, records, places, strict=False)
        }
        if self._day_is_on:
            self._came = {number for number, row in self._inserts.items() if row[5]}
        return ["created"] * len(records)

    def judge_all(self, records: Sequence[RecordSpec]) -> list[RecordPut]:
        new = new_names(records, providers=self._providers, known=self._current)
        numbers = dict(zip(new, count(self._first_new), strict=False))
        puts = RecordPuts(self._current, providers=self._providers, numbers=numbers)
        results = puts.judge(records)
        for name, after in puts.changed().items():
            if after.number >= self._first_new:
                self._inserts[after.number] = self._new_row(name, after)
            else:
                texts = (after.endpoint, after.body, after.options)
                self._updates[after.number] = (after.provider, after.active, *texts, after.number)
        self._came, self._went = set(puts.came.values()), set(puts.went.values())
        return results

    def write(self, db: Connection) -> None:
        if self._inserts:
            db.executemany(
                """INSERT INTO record (id, batch, name, provider, place, active, deleted, endpoint, body, options)
                   VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)""",
                self._inserts.values(),
            )
        if self._updates:
            db.executemany(
                """UPDATE record SET provider = ?, active = ?, deleted = 0, endpoint = ?, body = ?, options = ?
                   WHERE id = ?""",
                self._updates.values(),
            )
        if self._went:
            db.executemany("DELETE FROM newcomer WHERE record = ?", [(number,) for number in self._went])
        if self._came and self._day_is_on:
            rows = [(number, self._batch.number) for number in sorted(self._came)]
            db.executemany("INSERT OR IGNORE INTO newcomer (record, batch) VALUES (?, ?)", rows)

    def _new_row(self, name: str, state: RecordState) -> tuple[Any, ...]:
        batch = self._batch
        facts = (state.provider, place_of(batch.id, name), state.active)
        return (state.number, batch.number, name, *facts, state.endpoint, state.body, state.options)


def _provider_numbers(db: Connection, names: Iterable[str]) -> dict[str, int]:
    rows = db.execute(
        "SELECT name, id FROM provider WHERE name IN carray(?) AND deleted = 0", (apsw.carray(tuple(names) or ("",)),)
    )
    return dict(rows.fetchall())


def _current(db: Connection, batch: Batch, names: Sequence[str]) -> dict[str, RecordState]:
    """Return records by name, including deleted ones."""
    last = db.execute("SELECT max(name) FROM record WHERE batch = ?", (batch.number,)).get
    if not names or last is None or min(names) > last:
        return {}  # an import in order of names: each page comes after all stored records
    rows = db.execute(
        """SELECT name, id, provider, active, deleted, endpoint, body, options FROM record
           WHERE batch = ? AND name IN carray(?)""",
        (batch.number, apsw.carray(tuple(names) or ("",))),
    )
    return {
        name: RecordState(number, provider, bool(active), bool(deleted), *texts)
        for name, number, provider, active, deleted, *texts in rows
    }


def _day_is_on(db: Connection, batch: Batch, *, now_ms: int) -> bool:
    """Return True if a day of the batch is planned, or being planned, and not over."""
    return bool(
        db.execute("SELECT EXISTS (SELECT 1 FROM day WHERE batch = ? AND end_ms > ?)", (batch.number, now_ms)).get
    )


def _bring_back(db: Connection, batch: int) -> None:
    """Put the batch's runs that were set aside back at their old keys, or at the next free ones."""
    rows = db.execute("SELECT k, run, attempt, lost FROM aside WHERE batch = ? ORDER BY k", (batch,)).fetchall()
    if not rows:
        return
    db.execute("DELETE FROM aside WHERE batch = ?", (batch,))
    add(db, "calls_aside", -len(rows))
    add(db, "calls_waiting", len(rows))
    keys = free_keys(db, [row[0] for row in rows])
    db.executemany(
        "INSERT INTO queue (k, run, attempt, lost) VALUES (?, ?, ?, ?)",
        ((key, *row[1:]) for key, row in zip(keys, rows, strict=True)),
    )
    moved = [(key, row[1]) for key, row in zip(keys, rows, strict=True) if key != row[0]]
    db.executemany("UPDATE planned SET k = ? WHERE run = ?", moved)
    wake(db, keys)


def wake(db: Connection, keys: Sequence[int]) -> None:
    """Make each provider ready no later than the due time of the first of these runs."""
    first: dict[int, int] = {}
    for key in keys:
        provider = provider_of(key)
        if provider not in first or first[provider] > key:
            first[provider] = key
    db.executemany(
        "UPDATE pace SET ready_ms = ?2 WHERE provider = ?1 AND ready_ms > ?2",
        [(provider, due_ms_of(key)) for provider, key in first.items()],
    )


def _batch(row: tuple[Any, ...]) -> Batch:
    number, name, revision, text, created_ms, updated_ms, deleting_ms, runs, records = row
    deleting = None if deleting_ms is None else Deletion(deleting_ms, runs, records)
    return Batch(name, number, revision, parse_stored_batch(text), created_ms, updated_ms, deleting)


def _record(row: tuple[Any, ...]) -> RecordSpec:
    name, provider, endpoint, body, active, options = row
    return RecordSpec(name, provider, endpoint, body, bool(active), parse_options(options))

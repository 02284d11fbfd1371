"""Import of a batch with the days it has begun: runs that have ended are not repeated, the others run at their time."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import msgspec

from paceline.core.batches.batch import Batch, Day, RecordSpec
from paceline.core.batches.day_plan import no_placements
from paceline.core.batches.values import LateRecord, Placements, RecordPut
from paceline.errors import AlreadyExists
from paceline.ports import BatchStore
from paceline.steps.move.stream import BatchLine, MovedDay, RecordLine


class BatchMove:
    """Fills one batch, page by page.

    Its days are opened before its records come, so the store takes each record for a late one and tells its number.
    With that number the page's runs are planned as they were. A record without a run stays a late record and is planned
    into the rest of its day, as it would have been. A day is closed when all records are there.
    """

    def __init__(self, store: BatchStore, line: BatchLine, *, now_ms: int) -> None:
        put = store.put_batch(line.id, line.spec, expected_revision=None, now_ms=line.since_ms)
        assert put.batch is not None
        self.id = line.id
        self.disposition: str = put.disposition
        self._store = store
        self._batch: Batch = put.batch
        self._now_ms = now_ms
        self._days: list[Day] = []
        self._stayed = 0
        for moved in line.days:
            self._open(moved)

    def _open(self, moved: MovedDay) -> None:
        store = self._store
        day = store.open_day(self._batch, moved.date, start_ms=moved.start_ms, end_ms=moved.end_ms)
        if moved.open and day.state == "planning":
            self._days.append(day)
        elif day.state == "planning":
            store.close_day(day)

    def put(self, records: Sequence[RecordSpec], lines: Sequence[RecordLine]) -> list[RecordPut]:
        # A moment at which the first of the days is on: otherwise its records would not be late records of it.
        at_ms = min((day.end_ms - 1 for day in self._days), default=self._now_ms)
        puts = self._store.put_records(self._batch, records, now_ms=min(at_ms, self._now_ms))
        if self._days:
            self._plan(records, lines)
        return puts

    def _plan(self, records: Sequence[RecordSpec], lines: Sequence[RecordLine]) -> None:
        store = self._store
        page = {record.id: line for record, line in zip(records, lines, strict=True)}
        newcomers = store.late_records(self._batch, limit=len(page) + self._stayed)
        names = store.record_names([one.record for one in newcomers])
        mine = [(one, page[names[one.record]]) for one in newcomers if names[one.record] in page]
        self._days = [self._plan_day(day, mine) for day in self._days]
        on = {day.date for day in self._days if day.end_ms > self._now_ms}
        done = [one.record for one, line in mine if on <= {run.date for run in line.runs}]
        store.forget_late_records(done)
        self._stayed += len(mine) - len(done)

    def _plan_day(self, day: Day, mine: Sequence[tuple[LateRecord, RecordLine]]) -> Day:
        waiting, ended = no_placements(), no_placements()
        for one, line in mine:
            for run in line.runs:
                if run.date == day.date:
                    _append(ended if run.ended else waiting, one, run.due_ms)
        if not waiting.records and not ended.records:
            return day
        placed = zip(waiting.providers + ended.providers, waiting.records + ended.records, strict=True)
        cursor = max(placed, key=itemgetter(1))
        made = self._store.plan_page(day, waiting, cursor=cursor, skipped=ended, now_ms=self._now_ms)
        if not made.won:
            raise AlreadyExists(
                f"Day {day.date} of batch {self.id!r} is being planned by somebody else: stop every Paceline that"
                " runs on this store, and import again."
            )
        return msgspec.structs.replace(day, cursor=cursor)

    def finish(self) -> None:
        for day in self._days:
            self._store.close_day(day)


def _append(page: Placements, one: LateRecord, due_ms: int) -> None:
    page.records.append(one.record)
    page.providers.append(one.provider)
    page.dues_ms.append(due_ms)

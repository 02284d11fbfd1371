"""The half of the Store that knows batches, on SQLite. Each method is one transaction; the modules beside hold SQL."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Literal

from paceline.adapters.sqlite import batch_upkeep, batches, calls, days, deads, providers, results
from paceline.adapters.sqlite.database import Database
from paceline.core.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.calls import CallSettlement, CallState
from paceline.core.provider import ProviderDefinition
from paceline.ports import (
    BatchPut,
    CallPurge,
    CallRun,
    ClaimedCall,
    DayCount,
    DeadChoice,
    Newcomer,
    PagePlan,
    Placements,
    PlanOrder,
    ProviderPut,
    ProviderStanding,
    PutProvider,
    RecordPut,
    Replayed,
)


class SqliteBatchStore:
    """Fills ``ports.BatchStore``."""

    _db: Database
    _policies: providers.Policies

    # -- providers

    def put_provider(self, put: PutProvider, *, now_ms: int) -> ProviderPut:
        with self._db.write() as db:
            return providers.put(db, put, now_ms=now_ms)

    def provider(self, provider_id: str) -> ProviderDefinition | None:
        with self._db.peek() as db:
            return providers.provider(db, provider_id)

    def provider_by_number(self, number: int) -> ProviderDefinition | None:
        with self._db.peek() as db:
            return providers.provider_by_number(db, number)

    def providers(self, *, after: str, limit: int) -> list[ProviderDefinition]:
        with self._db.read() as db:
            return providers.providers(db, after=after, limit=limit)

    def remove_provider(self, provider_id: str) -> Literal["removed", "not_found", "in_use"]:
        with self._db.write() as db:
            return providers.remove(db, provider_id)

    def provider_standing(self, number: int, *, now_ms: int) -> ProviderStanding:
        with self._db.read() as db:
            return providers.standing(db, number, now_ms=now_ms)

    # -- batches and records

    def put_batch(self, batch_id: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int) -> BatchPut:
        with self._db.write() as db:
            return batches.put(db, batch_id, spec, expected_revision=expected_revision, now_ms=now_ms)

    def batch(self, batch_id: str) -> Batch | None:
        with self._db.peek() as db:
            return batches.batch(db, batch_id)

    def batches(self, *, after: str, limit: int) -> list[Batch]:
        with self._db.read() as db:
            return batches.batches(db, after=after, limit=limit)

    def put_records(self, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[RecordPut]:
        with self._db.write() as db:
            return batches.put_records(db, batch, records, now_ms=now_ms)

    def record(self, batch: Batch, record_id: str) -> RecordSpec | None:
        with self._db.peek() as db:
            return batches.record(db, batch, record_id)

    def records(self, batch: Batch, *, after: str, limit: int) -> list[RecordSpec]:
        with self._db.read() as db:
            return batches.records(db, batch, after=after, limit=limit)

    def remove_record(self, batch: Batch, record_id: str) -> bool:
        with self._db.write() as db:
            return batches.remove_record(db, batch, record_id)

    # -- days

    def open_day(self, batch: Batch, date: str, *, start_ms: int, end_ms: int) -> Day:
        with self._db.write() as db:
            return days.open_day(db, batch, date, start_ms=start_ms, end_ms=end_ms)

    def day(self, batch: Batch, date: str) -> Day | None:
        with self._db.peek() as db:
            return days.day(db, batch, date)

    def days(self, batch: Batch, *, before: str | None, limit: int) -> list[Day]:
        with self._db.read() as db:
            return days.days(db, batch, before=before, limit=limit)

    def plan_order(self, batch: Batch, cursor: tuple[int, int] | None) -> PlanOrder:
        with self._db.read() as db:
            return days.plan_order(db, batch, cursor)

    def plan_page(
        self, day: Day, page: Placements, *, cursor: tuple[int, int], skipped: Placements, now_ms: int
    ) -> PagePlan:
        with self._db.write() as db:
            return days.plan_page(db, day, page, cursor=cursor, skipped=skipped, now_ms=now_ms)

    def close_day(self, day: Day) -> bool:
        with self._db.write() as db:
            return days.close_day(db, day)

    def newcomers(self, batch: Batch, *, limit: int) -> list[Newcomer]:
        with self._db.read() as db:
            return days.newcomers(db, batch, limit=limit)

    def newcomer_order(self, batch: Batch) -> PlanOrder:
        with self._db.read() as db:
            return days.newcomer_order(db, batch)

    def unplanned(self, day: Day, records: Sequence[int]) -> set[int]:
        with self._db.peek() as db:
            return days.unplanned(db, day, records)

    def plan_newcomers(self, day: Day, page: Placements) -> PagePlan:
        with self._db.write() as db:
            return days.plan_newcomers(db, day, page)

    def forget_newcomers(self, done: Sequence[int]) -> None:
        with self._db.write() as db:
            days.forget_newcomers(db, done)

    def taken(self, provider: int, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
        with self._db.read() as db:
            return days.taken(db, provider, from_ms=from_ms, to_ms=to_ms, limit=limit)

    def taken_by_all(self, day: Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
        with self._db.read() as db:
            return days.taken_by_all(db, day, from_ms=from_ms, to_ms=to_ms, limit=limit)

    def record_names(self, numbers: Sequence[int]) -> dict[int, str]:
        with self._db.peek() as db:
            return days.record_names(db, numbers)

    def latencies_ms(self, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
        with self._db.read() as db:
            return providers.latencies_ms(db, numbers, runs_max=runs_max)

    def day_counts(self, day: Day) -> list[DayCount]:
        with self._db.read() as db:
            return results.day_counts(db, day)

    def day_dues(self, day: Day) -> tuple[array[int], array[int]]:
        with self._db.read() as db:
            return results.day_dues(db, day)

    def day_runs(
        self, day: Day, *, state: CallState | None, provider: str | None, after: int, limit: int
    ) -> tuple[list[CallRun], int | None]:
        with self._db.read() as db:
            return results.day_runs(db, day, state=state, provider=provider, after=after, limit=limit)

    # -- calls

    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
        with self._db.write() as db:
            now_ms = self._db.write_ms(now_ms)
            return calls.claim(db, self._policies, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)

    def next_call_ms(self) -> int | None:
        with self._db.peek() as db:
            return calls.next_ms(db)

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        with self._db.write() as db:
            return calls.settle(db, self._policies, settlements)

    def settle_and_claim_calls(
        self, settlements: Sequence[CallSettlement], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> tuple[list[bool], list[ClaimedCall]]:
        with self._db.write() as db:
            won, now_ms = calls.settle(db, self._policies, settlements), self._db.write_ms(now_ms)
            return won, calls.claim(db, self._policies, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)

    def release_calls(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        with self._db.write() as db:
            return calls.release(db, fences, now_ms=now_ms)

    def pull_back_calls(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        with self._db.write() as db:
            return calls.pull_back(db, self._policies, now_ms=read_ms(), wait_ms_max=wait_ms_max)

    def purge_calls(self, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int) -> CallPurge:
        with self._db.write() as db:
            return batch_upkeep.purge(
                db, ended_before_ms=ended_before_ms, dead_before_ms=dead_before_ms, after=after, limit=limit
            )

    def purge_records(self, *, after: int) -> CallPurge:
        with self._db.write() as db:
            return batch_upkeep.purge_records(db, after=after)

    def find_call_run(self, batch_id: str, record_id: str, date: str) -> CallRun | None:
        with self._db.read() as db:
            return results.find_run(db, batch_id, record_id, date)

    # -- dead letters

    def dead(self, choice: DeadChoice, *, after: int, limit: int) -> tuple[list[CallRun], int | None]:
        with self._db.read() as db:
            return deads.dead(db, choice, after=after, limit=limit)

    def redrive(self, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
        with self._db.write() as db:
            return deads.redrive(db, self._policies, choice, gap_ms=gap_ms, now_ms=now_ms, limit=limit)

    def discard(self, choice: DeadChoice, *, limit: int) -> int:
        with self._db.write() as db:
            return deads.discard(db, choice, limit=limit)

    def dead_messages(self) -> dict[str, int]:
        return {}  # SQLite has no queues

    def replay_dead(self, *, now_ms: int, limit: int, react: Callable[[], object]) -> dict[str, Replayed]:
        del now_ms, limit, react
        return {}

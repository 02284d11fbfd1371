"""The half of the Store on DynamoDB that knows: providers, batches, their days and their runs.

No method is one transaction as a whole where it is about many: each run, and each provider's lane, moves in an act of
its own, and what was cut short is done again without harm.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Literal

from paceline.adapters.aws import (
    batches_claims,
    batches_days,
    batches_deads,
    batches_lanes,
    batches_providers,
    batches_records,
    batches_results,
    batches_settlements,
    batches_upkeep,
    batches_verify,
    dead_queues,
)
from paceline.adapters.aws.batches_facts import Facts
from paceline.adapters.aws.batches_keys import NEVER_MS
from paceline.adapters.aws.batches_lanes import Looks
from paceline.adapters.aws.part import BatchCounts, Part
from paceline.core.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.calls import CallSettlement, CallState
from paceline.core.provider import ProviderDefinition
from paceline.ports.batches import (
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
)


class AwsBatchStore(Part):
    """Fills ``ports.BatchStore``."""

    @cached_property
    def _facts(self) -> Facts:
        return Facts()

    @cached_property
    def _looks(self) -> Looks:
        return Looks(batches_lanes.ready_index(self._database, self.news))

    def put_provider(self, put: PutProvider, *, now_ms: int) -> ProviderPut:
        made = batches_providers.put_provider(self._database, self._numbers, self._looks, put, now_ms=now_ms)
        self.news.ring()
        return made

    def provider(self, provider_id: str) -> ProviderDefinition | None:
        return batches_providers.provider(self._database, provider_id)

    def provider_by_number(self, number: int) -> ProviderDefinition | None:
        return batches_providers.provider_by_number(self._database, self._facts.policies, number)

    def providers(self, *, after: str, limit: int) -> list[ProviderDefinition]:
        return batches_providers.providers(self._database, after=after, limit=limit)

    def remove_provider(self, provider_id: str) -> Literal["removed", "not_found", "in_use"]:
        return batches_providers.remove(self._database, self._looks, provider_id)

    def provider_standing(self, number: int, *, now_ms: int) -> ProviderStanding:
        return batches_providers.standing(self._database, number, now_ms=now_ms)

    def put_batch(self, batch_id: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int) -> BatchPut:
        made = batches_records.put_batch(
            self._database, self._numbers, self._looks, batch_id, spec, seen=expected_revision, now_ms=now_ms
        )
        self.news.ring()
        return made

    def batch(self, batch_id: str) -> Batch | None:
        return batches_records.batch(self._database, batch_id)

    def batches(self, *, after: str, limit: int) -> list[Batch]:
        return batches_records.batches(self._database, after=after, limit=limit)

    def put_records(self, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[RecordPut]:
        made = batches_records.put_records(self._database, self._numbers, batch, records, now_ms=now_ms)
        self.news.ring()
        return made

    def record(self, batch: Batch, record_id: str) -> RecordSpec | None:
        item = batches_records.record_item(self._database, batch, record_id)
        if item is None:
            return None
        names = self._facts.policies.names(self._database, [item["provider"]])
        return batches_records.read_record(item, names[item["provider"]])

    def records(self, batch: Batch, *, after: str, limit: int) -> list[RecordSpec]:
        items = batches_records.record_items(self._database, batch, after=after, limit=limit)
        names = self._facts.policies.names(self._database, (item["provider"] for item in items))
        return [batches_records.read_record(item, names[item["provider"]]) for item in items]

    def remove_record(self, batch: Batch, record_id: str) -> bool:
        return batches_records.remove_record(self._database, batch, record_id)

    def open_day(self, batch: Batch, date: str, *, start_ms: int, end_ms: int) -> Day:
        return batches_days.open_day(self._database, self._numbers, batch, date, start_ms=start_ms, end_ms=end_ms)

    def day(self, batch: Batch, date: str) -> Day | None:
        return batches_days.day(self._database, batch, date)

    def days(self, batch: Batch, *, before: str | None, limit: int) -> list[Day]:
        return batches_days.days(self._database, batch, before=before, limit=limit)

    def plan_order(self, batch: Batch, cursor: tuple[int, int] | None) -> PlanOrder:
        return batches_days.plan_order(self._database, batch, cursor)

    def plan_page(
        self, day: Day, page: Placements, *, cursor: tuple[int, int], skipped: Placements, now_ms: int
    ) -> PagePlan:
        made = batches_days.plan_page(
            self._database, self._looks, day, page, cursor=cursor, skipped=skipped, now_ms=now_ms
        )
        self.news.ring()
        return made

    def close_day(self, day: Day) -> bool:
        return batches_days.close_day(self._database, day)

    def newcomers(self, batch: Batch, *, limit: int) -> list[Newcomer]:
        return batches_records.newcomers(self._database, batch, limit=limit)

    def newcomer_order(self, batch: Batch) -> PlanOrder:
        return batches_days.newcomer_order(self._database, batch)

    def unplanned(self, day: Day, records: Sequence[int]) -> set[int]:
        return batches_days.unplanned(self._database, day, records)

    def plan_newcomers(self, day: Day, page: Placements) -> PagePlan:
        made = batches_days.plan_newcomers(self._database, self._looks, day, page)
        self.news.ring()
        return made

    def forget_newcomers(self, done: Sequence[int]) -> None:
        batches_records.forget_newcomers(self._database, done)

    def taken(self, provider: int, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
        return batches_lanes.taken_dues(self._database, provider, from_ms=from_ms, to_ms=to_ms, limit=limit)

    def taken_by_all(self, day: Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
        return batches_days.taken_by_all(self._database, day, from_ms=from_ms, to_ms=to_ms, limit=limit)

    def record_names(self, numbers: Sequence[int]) -> dict[int, str]:
        return batches_records.record_names(self._database, numbers)

    def latencies_ms(self, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
        return batches_providers.latencies_ms(self._database, numbers, runs_max=runs_max)

    def day_counts(self, day: Day) -> list[DayCount]:
        return batches_results.day_counts(self._database, self._facts, day)

    def day_dues(self, day: Day) -> tuple[array[int], array[int]]:
        return batches_results.day_dues(self._database, day)

    def day_runs(
        self, day: Day, *, state: CallState | None, provider: str | None, after: int, limit: int
    ) -> tuple[list[CallRun], int | None]:
        return batches_results.day_runs(
            self._database, self._facts, day, state=state, provider=provider, after=after, limit=limit
        )

    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
        return batches_claims.claim(
            self._database, self._facts, self._looks, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms
        )

    def claim_calls_of(
        self, providers: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> list[ClaimedCall]:
        """``claim_calls``, of these providers alone: who is told of one need not look for others."""
        return batches_claims.claim(
            self._database,
            self._facts,
            self._looks,
            now_ms=now_ms,
            runs_max=runs_max,
            lease_ms=lease_ms,
            providers=providers,
        )

    def next_call_ms(self) -> int | None:
        return batches_lanes.next_ready_ms(self._database, self._looks)

    def ready_lanes(self, *, until_ms: int) -> list[tuple[int, int]]:
        """(provider, when) of those that may start a run up to then, the first ones first. From an index: a hint."""
        return batches_lanes.ready_lanes(self._database, until_ms=until_ms)

    def ready_of(self, providers: Collection[int]) -> dict[int, int]:
        """When each may start its next run; without those that have none, or rest."""
        lanes = batches_lanes.lanes_of(self._database, providers)
        return {number: lane.ready_ms for number, lane in lanes.items() if lane.ready_ms < NEVER_MS}

    def dead_letters(self) -> int:
        """How many wait for somebody to redrive or discard them, counted no further than ``status`` does."""
        return batches_upkeep.dead_letters(self._database)

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        return batches_settlements.settle(self._database, self._facts.policies, self._looks, settlements)

    def settle_and_claim_calls(
        self, settlements: Sequence[CallSettlement], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> tuple[list[bool], list[ClaimedCall]]:
        won = self.settle_calls(settlements)
        return won, self.claim_calls(now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)

    def release_calls(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        released = batches_settlements.release(self._database, self._looks, fences, now_ms=now_ms)
        self.news.ring()
        return released

    def pull_back_calls(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        return batches_settlements.pull_back(
            self._database, self._facts.policies, self._looks, read_ms, wait_ms_max=wait_ms_max
        )

    def purge_calls(self, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int) -> CallPurge:
        return batches_upkeep.purge(
            self._database,
            self._looks,
            ended_before_ms=ended_before_ms,
            dead_before_ms=dead_before_ms,
            after=after,
            limit=limit,
        )

    def purge_records(self, *, after: int) -> CallPurge:
        return batches_upkeep.purge_records(self._database, after=after)

    def find_call_run(self, batch_id: str, record_id: str, date: str) -> CallRun | None:
        return batches_results.find_run(self._database, self._facts, batch_id, record_id, date)

    def dead(self, choice: DeadChoice, *, after: int, limit: int) -> tuple[list[CallRun], int | None]:
        return batches_deads.dead(self._database, self._facts, choice, after=after, limit=limit)

    def redrive(self, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
        done = batches_deads.redrive(
            self._database, self._facts, self._looks, choice, gap_ms=gap_ms, now_ms=now_ms, limit=limit
        )
        dead_queues.tell(self._queues, done.firsts, now_ms=now_ms)
        self.news.ring()
        return done.runs

    def discard(self, choice: DeadChoice, *, limit: int) -> int:
        return batches_deads.discard(self._database, choice, limit=limit)

    def verify_batches(self) -> list[str]:
        """What is wrong with this half, in plain words."""
        return batches_verify.verify(self._database)

    def batch_counts(self) -> BatchCounts:
        return batches_upkeep.counts(self._database)

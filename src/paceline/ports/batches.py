"""Providers, batches, their days and their runs: what the store keeps of them and what it promises."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol

from paceline.core.batches import values
from paceline.core.batches.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.batches.calls import CallSettlement, CallState
from paceline.core.batches.deletion import DeletePass
from paceline.core.batches.provider import Policy, ProviderDefinition
from paceline.core.why.queued import ProviderQueue


class BatchStore(Protocol):
    """Providers, batches, their days and their runs. The same rules as for ``Store``."""

    # -- providers

    def put_provider(self, put: values.PutProvider, *, now_ms: int) -> values.ProviderPut:
        """Takes effect with the next claim: a paused provider starts nothing more.

        Another kind does so, too: what waits keeps its place and is claimed by the new kind; what is out stays with
        the process that claimed it, until it is settled or its lease ends.
        """

    def provider(self, key: str | int) -> ProviderDefinition | None:
        """By its name; or by its number, also one that was removed: results still name it."""

    def providers(self, *, after: str, limit: int) -> list[ProviderDefinition]: ...
    def remove_provider(self, provider_id: str) -> Literal["removed", "not_found", "in_use"]:
        """``in_use``: a record names it, or a run of it has not ended."""

    def provider_standing(self, number: int, *, now_ms: int) -> values.ProviderStanding: ...
    def provider_queue(self, number: int, policy: Policy, *, limit: int) -> ProviderQueue:
        """Returns the provider's pace, all of its runs that are out or in back-off, and its first waiting ones.

        Each with what ``core.why.queued.queued_call`` says of it, in due order; at most ``limit`` that wait.
        """

    # -- batches and records

    def put_batch(
        self, batch_id: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int
    ) -> values.BatchPut:
        """Pausing lets nothing more of it start; resuming brings back what came up meanwhile, in its place."""

    def batch(self, batch_id: str) -> Batch | None: ...
    def batches(self, *, after: str, limit: int) -> list[Batch]: ...
    def put_records(self, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[values.RecordPut]:
        """Each judged by itself, in order; all durable on return.

        While a day of the batch is planned and not over, a record that comes, or comes back, is a late record of it.
        """

    def record(self, batch: Batch, record_id: str) -> RecordSpec | None: ...
    def find_records(
        self, batch: Batch, *, provider: str | None = None, active: bool | None = None, after: str, limit: int
    ) -> tuple[list[RecordSpec], str | None]:
        """In order of id; ``after`` and the second of the answer are cursors, None at the end.

        Looks at a bounded number of records, so a page may be short and not be the last.
        """

    def afters(self, batch: Batch, names: Collection[str]) -> dict[str, str | None]:
        """Of those of these records that are there, which record each comes after."""

    def record_numbers(self, batch: Batch) -> array[int]:
        """The numbers of all records, in the order in which they were put first. A few bytes for each."""

    def records_of(self, numbers: Sequence[int]) -> list[RecordSpec]:
        """In order of number; without those that were removed."""

    def remove_record(self, batch: Batch, record_id: str) -> bool:
        """Delete the record: it runs no more, also today. Put again, it is the same record: a day's run stays one."""

    def mark_batch_deleted(self, batch_id: str, *, now_ms: int) -> Batch | None:
        """Nothing more of the batch starts, is planned or is put from here on. None: there is no such batch."""

    def delete_batch_pass(self, batch: Batch, *, now_ms: int, limit: int) -> DeletePass:
        """Deletes at most so many runs, then records, of a batch that is marked, and in the end the batch itself.

        A run that is out stays until it is settled or its lease has ended.
        """

    # -- days

    def open_day(self, batch: Batch, date: str, *, start_ms: int, end_ms: int) -> Day:
        """The day as it stands; made in state ``planning`` if there was none. NotFound: the batch is being deleted."""

    def day(self, batch: Batch, date: str) -> Day | None: ...
    def days(self, batch: Batch, *, before: str | None, limit: int) -> list[Day]:
        """Newest first; those with a date before the given one."""

    def plan_order(self, batch: Batch, cursor: tuple[int, int] | None) -> values.PlanOrder:
        """Active records. One read; a few bytes for each record."""

    def plan_page(
        self, day: Day, page: values.Placements, *, cursor: tuple[int, int], skipped: values.Placements, now_ms: int
    ) -> values.PagePlan:
        """Enqueues a page and moves the cursor on, if it still stands at ``day.cursor``.

        A run that the ledger has already is not made again. Those in ``skipped`` get their run and end at once.
        Two runs of a provider never share a millisecond: the later one moves on to the next free.
        """

    def close_day(self, day: Day) -> bool:
        """``planning`` becomes ``planned``, if the cursor still stands at ``day.cursor``."""

    def late_records(self, batch: Batch, *, limit: int) -> list[values.LateRecord]:
        """Records that came, or came back, while a day was on, and are not planned into it yet."""

    def late_order(self, batch: Batch) -> values.PlanOrder:
        """All of them, when they are many."""

    def unplanned(self, day: Day, records: Sequence[int]) -> set[int]:
        """Those of the records that have no run on the day yet."""

    def plan_late_records(self, day: Day, page: values.Placements) -> values.PagePlan:
        """Enqueues late additions; those that the ledger has already are not made again. Not won: the day is gone."""

    def forget_late_records(self, done: Sequence[int]) -> None: ...
    def taken(self, of: int | Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
        """Due times of the runs that have not ended, in order: of a provider, by its number, or of a day."""

    def record_names(self, numbers: Sequence[int]) -> dict[int, str]: ...
    def latencies_ms(self, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
        """The mean latency of the newest of each provider's runs that were done; none for one without."""

    def day_counts(self, day: Day) -> list[values.DayCount]: ...
    def day_dues(self, day: Day) -> tuple[array[int], array[int]]:
        """The due time of each of the day's runs in due order, and beside it the provider's number."""

    def day_runs(
        self, day: Day, *, state: CallState | None, provider: str | None, after: int, limit: int
    ) -> tuple[list[values.CallRun], int | None]:
        """In order of record number; ``after`` and the second of the answer are cursors, None at the end.

        Looks at a bounded number of runs, so a page may be short and not be the last.
        """

    # -- calls

    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[values.ClaimedCall]:
        """Takes runs that may start now and leases them, as ``core.batches.pace`` decides for each provider.

        Of providers of kind ``http`` alone. A lease lasts ``lease_ms`` longer than the provider's own time-out. What
        its record, its batch or the missed policy no longer wants ends as ``skipped`` here; what a paused batch owns
        steps aside; what has another provider by now moves to it. The cost depends on what is claimed, not on what
        waits or on how many providers.
        """

    def next_call_ms(self) -> int | None:
        """When ``claim_calls`` may next have something to do."""

    def claim_for_worker(
        self, provider: int, *, now_ms: int, runs_max: int, lease_ms: int, run: int | None = None
    ) -> list[values.ClaimedCall]:
        """``claim_calls`` of one provider alone, by its number: nothing, unless it is of kind ``outgoing`` now.

        With ``run``, as ``CallRun.handle`` names it, takes that one or nothing: the run that would start first. A lease
        lasts ``lease_ms``.
        """

    def next_for_worker_ms(self, provider: int) -> int | None:
        """When ``claim_for_worker`` may next have something to do for this provider."""

    def calls_for_workers(self, *, now_ms: int) -> int:
        """Counts runs that are due and wait at providers of kind ``outgoing`` that are not paused.

        Up to ``core.batches.values.FOR_WORKERS_MAX``.
        """

    def out_calls(self, handles: Sequence[int]) -> dict[int, values.OutCall]:
        """Reads runs that are out, by the handles of their claims. Returns those that are."""

    def extend_call(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        """Moves the end of a lease that has not run out yet. Returns False if it has."""

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        """Records each once and moves the provider's lane by ``core.batches.pace``. False (fencing): no longer out."""

    def settle_and_claim_calls(
        self, settlements: Sequence[CallSettlement], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> tuple[list[bool], list[values.ClaimedCall]]:
        """``settle_calls`` and then ``claim_calls``, in one act."""

    def release_calls(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]: ...
    def pull_back_calls(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        """After the clock was set back: no lease, retry, closure or token lies further ahead than it can have meant."""

    def purge_calls(self, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int) -> values.CallPurge:
        """Deletes runs of days that are over, ended before the one, or before the other while they are dead letters.

        Looks at no more than ``limit`` runs. The day itself stays: planned again, it must not run again.
        """

    def purge_records(self, *, after: int) -> values.CallPurge:
        """Deletes removed records that no run names any more, a bounded number.

        Until then their names keep a day's runs single.
        """

    def find_call_run(self, batch_id: str, record_id: str, date: str) -> values.CallRun | None: ...

    # -- dead letters

    def dead(self, choice: values.DeadChoice, *, after: int, limit: int) -> tuple[list[values.CallRun], int | None]:
        """In order of provider and due time; ``after`` and the second of the answer are cursors, None at the end."""

    def redrive(self, choice: values.DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
        """Puts dead letters back, each once: provider by provider, in their old order.

        They are due ``gap_ms`` apart from now on, or as far apart as the provider's rate asks, behind what was redriven
        before. At most ``limit`` in one act.
        """

    def discard(self, choice: values.DeadChoice, *, limit: int) -> int:
        """They stay in their day's results and are dead letters no longer."""

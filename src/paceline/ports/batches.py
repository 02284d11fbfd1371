"""Store of providers, batches, their days and their runs."""

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
    """Store of providers, batches, their days and their runs. The same rules as for ``Store``."""

    # -- providers

    def put_provider(self, put: values.PutProvider, *, now_ms: int) -> values.ProviderPut:
        """Put the provider. It takes effect with the next claim: a paused provider starts nothing more.

        Another kind takes effect then, too: waiting runs keep their places and are claimed by the new kind; runs that
        are out stay with the process that claimed them, until they are settled or their leases end.
        """

    def provider(self, key: str | int) -> ProviderDefinition | None:
        """Return a provider by its name, or by its number, even if it was removed: results still name it."""

    def providers(self, *, after: str, limit: int) -> list[ProviderDefinition]: ...
    def remove_provider(self, provider_id: str) -> Literal["removed", "not_found", "in_use"]:
        """Remove the provider. ``in_use``: a record names it, or a run of it has not ended."""

    def provider_standing(self, number: int, *, now_ms: int) -> values.ProviderStanding: ...
    def provider_queue(self, number: int, policy: Policy, *, limit: int) -> ProviderQueue:
        """Return the provider's pace, all of its runs that are out or in back-off, and its first waiting ones.

        Each comes with the facts of ``core.why.queued.queued_call``, in due order; at most ``limit`` waiting ones.
        """

    # -- batches and records

    def put_batch(
        self, batch_id: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int
    ) -> values.BatchPut:
        """Put the batch.

        Pausing lets no more runs start; resuming brings back those that came up meanwhile, in their places.
        """

    def batch(self, batch_id: str) -> Batch | None: ...
    def batches(self, *, after: str, limit: int) -> list[Batch]: ...
    def put_records(self, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[values.RecordPut]:
        """Put records, each judged by itself, in order; all are durable on return.

        While a day of the batch is planned and not over, a record that comes, or comes back, is a late record of it.
        """

    def record(self, batch: Batch, record_id: str) -> RecordSpec | None: ...
    def find_records(
        self, batch: Batch, *, provider: str | None = None, active: bool | None = None, after: str, limit: int
    ) -> tuple[list[RecordSpec], str | None]:
        """Return records in order of id; ``after`` and the second part of the answer are cursors, None at the end.

        It looks at a bounded number of records, so a page may be short and not be the last.
        """

    def afters(self, batch: Batch, names: Collection[str]) -> dict[str, str | None]:
        """Return which record each of these existing records comes after."""

    def record_numbers(self, batch: Batch) -> array[int]:
        """Return the numbers of all records, in the order in which they were put first. A few bytes for each."""

    def records_of(self, numbers: Sequence[int]) -> list[RecordSpec]:
        """Return records in order of number, without removed ones."""

    def remove_record(self, batch: Batch, record_id: str) -> bool:
        """Delete the record: it does not run any more, not even today.

        Put again, it is the same record: a day's run stays one.
        """

    def mark_batch_deleted(self, batch_id: str, *, now_ms: int) -> Batch | None:
        """Mark the batch: from here on none of its runs starts, and nothing is planned or put.

        None: there is no such batch.
        """

    def delete_batch_pass(self, batch: Batch, *, now_ms: int, limit: int) -> DeletePass:
        """Delete at most ``limit`` runs, then records, of a marked batch, and in the end the batch itself.

        A run that is out stays until it is settled or its lease has ended.
        """

    # -- days

    def open_day(self, batch: Batch, date: str, *, start_ms: int, end_ms: int) -> Day:
        """Return the day; it is made in state ``planning`` if there was none. NotFound: the batch is being deleted."""

    def day(self, batch: Batch, date: str) -> Day | None: ...
    def days(self, batch: Batch, *, before: str | None, limit: int) -> list[Day]:
        """Return days with a date before the given one, newest first."""

    def plan_order(self, batch: Batch, cursor: tuple[int, int] | None) -> values.PlanOrder:
        """Return the active records in the order of a plan. One read; a few bytes for each record."""

    def plan_page(
        self, day: Day, page: values.Placements, *, cursor: tuple[int, int], skipped: values.Placements, now_ms: int
    ) -> values.PagePlan:
        """Enqueue a page and move the cursor on, if it is still at ``day.cursor``.

        A run that the ledger has already is not made again. Those in ``skipped`` get their run and end at once. No two
        runs of a provider share a millisecond: the later one moves to the next free one.
        """

    def close_day(self, day: Day) -> bool:
        """Change the day from ``planning`` to ``planned``, if the cursor is still at ``day.cursor``."""

    def late_records(self, batch: Batch, *, limit: int) -> list[values.LateRecord]:
        """Return records that came, or came back, while a day was on, and are not planned into it yet."""

    def late_order(self, batch: Batch) -> values.PlanOrder:
        """Return all late records in the order of a plan, when they are many."""

    def unplanned(self, day: Day, records: Sequence[int]) -> set[int]:
        """Return the records that have no run on the day yet."""

    def plan_late_records(self, day: Day, page: values.Placements) -> values.PagePlan:
        """Enqueue late records; those that the ledger has already are not made again. Not won: the day is gone."""

    def forget_late_records(self, done: Sequence[int]) -> None: ...
    def taken(self, of: int | Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
        """Return the due times of open runs, in order: of a provider, by its number, or of a day."""

    def record_names(self, numbers: Sequence[int]) -> dict[int, str]: ...
    def latencies_ms(self, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
        """Return the mean latency of each provider's newest done runs; providers without any are left out."""

    def day_counts(self, day: Day) -> list[values.DayCount]: ...
    def day_dues(self, day: Day) -> tuple[array[int], array[int]]:
        """Return the due time of each of the day's runs in due order, and in parallel the provider's number."""

    def day_runs(
        self, day: Day, *, state: CallState | None, provider: str | None, after: int, limit: int
    ) -> tuple[list[values.CallRun], int | None]:
        """Return runs in order of record number.

        ``after`` and the second part of the answer are cursors, None at the end. It looks at a bounded number of runs,
        so a page may be short and not be the last.
        """

    # -- calls

    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[values.ClaimedCall]:
        """Lease runs that may start now, as ``core.batches.pace`` decides for each provider.

        Only providers of kind ``http`` take part. A lease lasts ``lease_ms`` longer than the provider's own time-out. A
        run that its record, its batch or the missed policy no longer wants ends as ``skipped`` here; a run of a paused
        batch is set aside; a run whose record has another provider by now moves there. The cost depends on the number
        of claimed runs, not on how many wait or how many providers there are.
        """

    def next_call_ms(self) -> int | None:
        """Return when ``claim_calls`` may next have something to do."""

    def claim_for_worker(
        self, provider: int, *, now_ms: int, runs_max: int, lease_ms: int, run: int | None = None
    ) -> list[values.ClaimedCall]:
        """Claim like ``claim_calls`` for one provider, by its number: nothing, unless it is of kind ``outgoing`` now.

        With ``run``, as ``CallRun.handle`` names it, it takes that run or nothing: the one that would start first. A
        lease lasts ``lease_ms``.
        """

    def next_for_worker_ms(self, provider: int) -> int | None:
        """Return when ``claim_for_worker`` may next have something to do for this provider."""

    def calls_for_workers(self, *, now_ms: int) -> int:
        """Count due runs that wait at providers of kind ``outgoing`` that are not paused.

        They are counted up to ``core.batches.values.FOR_WORKERS_MAX``.
        """

    def out_calls(self, handles: Sequence[int]) -> dict[int, values.OutCall]:
        """Return those of the runs that are out, by the handles of their claims."""

    def extend_call(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        """Move the end of a lease that has not run out yet. Return False if it has."""

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        """Record each once and move the provider's lane by ``core.batches.pace``. False (fencing): no longer out."""

    def settle_and_claim_calls(
        self, settlements: Sequence[CallSettlement], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> tuple[list[bool], list[values.ClaimedCall]]:
        """Do ``settle_calls`` and then ``claim_calls``, in one act."""

    def release_calls(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]: ...
    def pull_back_calls(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        """Move leases, retries, closures and tokens that lie too far ahead after the clock was set back.

        Return how many.
        """

    def purge_calls(self, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int) -> values.CallPurge:
        """Delete runs of days that are over, if they ended before a time. Dead letters have a time of their own.

        It looks at no more than ``limit`` runs. The day itself stays: planned again, it must not run again.
        """

    def purge_records(self, *, after: int) -> values.CallPurge:
        """Delete removed records that no run names any more, a bounded number.

        Until then their names keep a day's runs single.
        """

    def find_call_run(self, batch_id: str, record_id: str, date: str) -> values.CallRun | None: ...

    # -- dead letters

    def dead(self, choice: values.DeadChoice, *, after: int, limit: int) -> tuple[list[values.CallRun], int | None]:
        """Return dead letters in order of provider and due time.

        ``after`` and the second part of the answer are cursors, None at the end.
        """

    def redrive(self, choice: values.DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
        """Put dead letters back, each once: provider by provider, in their old order.

        They are due ``gap_ms`` apart from now on, or as far apart as the provider's rate requires, after those that
        were redriven before. At most ``limit`` in one act. Return how many.
        """

    def discard(self, choice: values.DeadChoice, *, limit: int) -> int:
        """Discard dead letters: they stay in their day's results and are dead letters no longer. Return how many."""

"""A real store seen by the books of batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.batches.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.deletion import DeletePass
from paceline.core.batches.provider import policy_of
from paceline.core.batches.records.options import parse_options
from paceline.core.batches.reruns import is_round
from paceline.core.batches.values import (
    BatchPut,
    ClaimedCall,
    DeadChoice,
    PagePlan,
    Placements,
    ProviderPut,
    PutProvider,
    RecordPut,
)
from paceline.ports import Store
from tests.world.support.batch_ledger import BatchLedger, ProviderBook
from tests.world.support.ledger import demand
from tests.world.support.stores import Call

BATCH_WRITES = frozenset(
    {"put_provider", "put_batch", "put_records", "remove_record", "open_day", "plan_page", "close_day"}
    | {"plan_late_records", "claim_calls", "settle_calls", "release_calls", "redrive", "discard"}
    | {"claim_for_worker", "extend_call"}
    | {"mark_batch_deleted", "delete_batch_pass"}
)
BATCH_REPEATED = ("settle_calls", "plan_page", "plan_late_records", "close_day")
EVERYTHING = 10_000


class WatchedBatches:
    """Reports calls that took effect to the ledger; all other methods are those of the store."""

    def __init__(self, inner: Store, ledger: BatchLedger, past: deque[Call], clock: Any) -> None:
        self._inner = inner
        self._ledger = ledger
        self._past = past
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_provider(self, put: PutProvider, *, now_ms: int) -> ProviderPut:
        result = self._inner.put_provider(put, now_ms=now_ms)
        if result.provider is not None:
            policy = policy_of(result.provider.spec)
            book = self._ledger.providers.setdefault(result.provider.number, ProviderBook(policy, put.id))
            if book.policy.rate_gap_us != policy.rate_gap_us:
                book.starts_us.clear()
            book.policy = policy
        return result

    def put_batch(self, batch_id: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int) -> BatchPut:
        result = self._inner.put_batch(batch_id, spec, expected_revision=expected_revision, now_ms=now_ms)
        if result.batch is not None:
            paused = self._ledger.paused_batches
            (paused.add if result.batch.spec.paused else paused.discard)(batch_id)
        return result

    def put_records(self, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[RecordPut]:
        results = self._inner.put_records(batch, records, now_ms=now_ms)
        for record, result in zip(records, results, strict=True):
            if result not in ("no_provider", "no_batch"):
                name = (batch.id, record.id)
                (self._ledger.inactive.discard if record.active else self._ledger.inactive.add)(name)
        return results

    def remove_record(self, batch: Batch, record_id: str) -> bool:
        removed = self._inner.remove_record(batch, record_id)
        if removed:
            self._ledger.inactive.add((batch.id, record_id))
        return removed

    def mark_batch_deleted(self, batch_id: str, *, now_ms: int) -> Batch | None:
        batch = self._inner.mark_batch_deleted(batch_id, now_ms=now_ms)
        if batch is not None:
            self._ledger.deleted(batch_id)
        return batch

    def delete_batch_pass(self, batch: Batch, *, now_ms: int, limit: int) -> DeletePass:
        done = self._inner.delete_batch_pass(batch, now_ms=now_ms, limit=limit)
        if done.over:
            self._ledger.paused_batches.discard(batch.id)
        return done

    def plan_page(self, day: Day, page: Placements, **more: Any) -> PagePlan:
        result = self._inner.plan_page(day, page, **more)
        self._past.append(("plan_page", (day, page), more))
        return result

    def plan_late_records(self, day: Day, page: Placements, **more: Any) -> PagePlan:
        result = self._inner.plan_late_records(day, page, **more)
        self._past.append(("plan_late_records", (day, page), more))
        return result

    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
        waiting = self._waiting()
        claimed = self._inner.claim_calls(now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
        self._ledger.claimed(claimed, now_ms=now_ms, kind="http")
        self._judge_order(claimed, waiting)
        self._judge_followers(claimed)
        return claimed

    def claim_for_worker(self, provider: int, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
        waiting = self._waiting()
        claimed = self._inner.claim_for_worker(provider, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
        self._ledger.claimed(claimed, now_ms=now_ms, kind="outgoing")
        self._judge_order(claimed, waiting)
        self._judge_followers(claimed)
        return claimed

    def extend_call(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        extended = self._inner.extend_call(handle, attempt, until_ms=until_ms, now_ms=now_ms)
        if extended:
            self._ledger.extended(handle, attempt, until_ms=until_ms, now_ms=now_ms)
        return extended

    def _judge_followers(self, claimed: Sequence[ClaimedCall]) -> None:
        """What comes after another starts only when that is done; in a rerun, if that is run again at all."""
        for item in claimed:
            after = parse_options(item.options).after
            if after is None or item.attempt > 1:
                continue
            before = self._inner.find_call_run(item.batch, after, item.date)
            state = "done" if before is None and is_round(item.date) else before and before.state
            demand(
                6, state == "done", f"{item.record}@{item.date} started while {after}, which comes first, is {state}"
            )

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        won = self._inner.settle_calls(settlements)
        self._ledger.settled(settlements, won)
        self._past.append(("settle_calls", (settlements,), {}))
        return won

    def release_calls(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        won = self._inner.release_calls(fences, now_ms=now_ms)
        self._ledger.released(fences, won, now_ms=now_ms)
        return won

    def pull_back_calls(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        moved = self._inner.pull_back_calls(read_ms, wait_ms_max=wait_ms_max)
        self._ledger.pulled_back(now_ms=read_ms(), wait_ms_max=wait_ms_max)
        return moved

    def redrive(self, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
        before = self._dead(choice)
        redriven = self._inner.redrive(choice, gap_ms=gap_ms, now_ms=now_ms, limit=limit)
        after = self._dead(choice)
        gone = {name: state for name, state in before.items() if name not in after}
        demand(5, len(gone) == redriven <= limit, f"{redriven} were said to be redriven of {gone}")
        self._ledger.redriven(gone)
        return redriven

    def _dead(self, choice: DeadChoice) -> dict[str, str]:
        runs, _ = self._inner.dead(choice, after=0, limit=EVERYTHING)
        return {f"{run.batch}/{run.record}@{run.date}": run.state for run in runs}

    def _waiting(self) -> dict[int, list[tuple[int, str]]]:
        """Of each provider, what waits and has not started, with its due time."""
        waiting: dict[int, list[tuple[int, str]]] = {}
        for batch in self._inner.batches(after="", limit=100):
            for day in self._inner.days(batch, before=None, limit=100):
                runs, _ = self._inner.day_runs(day, state="waiting", provider=None, after=0, limit=EVERYTHING)
                for run in runs:
                    provider = self._inner.provider(run.provider)
                    assert provider is not None
                    name = f"{run.batch}/{run.record}@{run.date}"
                    waiting.setdefault(provider.number, []).append((run.due_ms, name))
        return waiting

    def _judge_order(self, claimed: Sequence[ClaimedCall], before: dict[int, list[tuple[int, str]]]) -> None:
        """What started for the first time was due no later than anything of its provider that still waits."""
        left = self._waiting()
        for item in claimed:
            if item.attempt > 1:
                continue
            name = f"{item.batch}/{item.record}@{item.date}"
            earlier = [
                other
                for other in left.get(item.provider, ())
                if other[0] < item.due_ms and other in before.get(item.provider, ())
            ]
            demand(6, not earlier, f"{name}, due {item.due_ms}, started before {earlier}")

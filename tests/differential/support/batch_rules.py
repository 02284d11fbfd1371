"""Acts on providers, batches, records, their days and calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from paceline.core.batches import day_plan
from paceline.core.batches import late_records as late_rules
from paceline.core.batches.batch import BatchSpec, RecordSpec, day_at
from paceline.core.batches.calls import CallResult
from paceline.core.batches.deletion import GRACE_MS
from paceline.core.batches.provider import BreakerSpec, Order, ProviderSpec, RetrySpec, WhenUnknown
from paceline.core.batches.records.options import RecordOptions
from paceline.core.monitors.schedule import Missed
from paceline.ports import Store
from paceline.steps.batches import batches, call, deletion, late_records, plan, providers, redrive, rerun
from paceline.steps.upkeep import purge
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS
from tests.differential.support.history import act
from tests.differential.support.machine import Machine, a_pick
from tests.differential.support.pair import Both, Side
from tests.differential.support.views import VAULT

PAGE_RUNS = 2
SENT_MAX = 8
RESULTS: dict[str, dict[str, Any]] = {
    "done": {"code": 200, "latency_ms": 12.5, "payload": "fine"},
    "refused": {"code": 400, "reason": "400"},
    "broken": {"code": 500, "reason": "500"},
    "too many": {"code": 429, "reason": "429", "retry_after_ms": 5 * MINUTE_MS},
    "closed": {"code": 503, "reason": "503", "retry_after_ms": 1_000},
    "not connected": {"fault": "network", "arrived": False, "reason": "no connection"},
    "timed out": {"fault": "time_out", "reason": "no answer in time"},
}

a_provider = ("p1", "p2", "p3")
a_batch = ("b1", "b2")
a_record = ("r1", "r2", "r3", "r4", "r5")
a_revision = (None, None, None, 0, 1)
a_lease = (1_000, MINUTE_MS)


@contextmanager
def small_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(day_plan, "PAGE_RUNS", PAGE_RUNS)
        patch.setattr(late_records, "PAGE_RUNS", PAGE_RUNS)
        patch.setattr(late_rules, "PAGE_RUNS", PAGE_RUNS)
        yield


def in_order_of_provider(sent: list[call.SentCall]) -> list[call.SentCall]:
    """The port promises the order of each provider's runs, and none between providers."""
    return sorted(sent, key=lambda one: one.provider)


class BatchRules(Machine):
    """``sent``: what was claimed last, also what is settled, stale or lost by now."""

    def __init__(self) -> None:
        self.sent: list[Both] = []
        super().__init__()

    def furnish(self) -> None:
        super().furnish()
        self.books = {side.name: call.ProviderBook(side.store, VAULT) for side in (self.pair.sqlite, self.pair.aws)}
        self.stack.enter_context(small_pages())
        policy = {"in_flight": 1, "rate": None, "attempts": 3, "failures": 3, "unknown": "hold"}
        self.put_provider(provider="p1", revision=None, **policy)
        self.put_provider(provider="p2", revision=None, **policy | {"in_flight": 2})
        self.put_batch(batch="b1", revision=None, start="14:00", window="1h", missed="once")
        self.put_records(batch="b1", records=["r1", "r2"], provider="p1", active=True, body=None)
        self.put_records(batch="b1", records=["r3", "r4"], provider="p2", active=True, body='{"a":1}')
        self.plan_day(batch="b1", days=0)

    def can(self, act: str) -> bool:
        return super().can(act) and (bool(self.sent) or act not in {"answer_call", "answer_and_claim", "release_call"})

    # -- definitions

    @act(
        3,
        provider=a_provider,
        revision=a_revision,
        in_flight=(1, 1, 2),
        rate=(None, None, "1/1s", "2/1m"),
        attempts=(1, 3),
        failures=(1, 3),
        unknown=("retry", "hold", "look_up"),
        order=("spread", "imported", "priority"),
    )
    def put_provider(
        self,
        provider: str,
        revision: int | None,
        in_flight: int,
        rate: str | None,
        attempts: int,
        failures: int,
        unknown: WhenUnknown,
        order: Order = "spread",
    ) -> None:
        spec = ProviderSpec(
            base_url="http://example.org",
            headers={"X-Key": "secret"},
            max_in_flight=in_flight,
            rate=rate,
            timeout="1s",
            retry=RetrySpec(max_attempts=attempts),
            breaker=BreakerSpec(failures=failures),
            unknown=unknown,
            order=order,
            look_up="/calls/{run}" if unknown == "look_up" else None,
        )

        def put(side: Side) -> object:
            return providers.put_provider_spec(
                side.store, VAULT, provider, spec, expected_revision=revision, now_ms=self.now_ms
            )

        self.ask("put_provider", put)

    @act(2, provider=a_provider, paused=(False, True))
    def pause_provider(self, provider: str, *, paused: bool) -> None:
        def pause(side: Side) -> object:
            return providers.set_provider_paused(side.store, provider, paused=paused, now_ms=self.now_ms)

        self.ask("pause_provider", pause)

    @act(1, provider=a_provider)
    def remove_provider(self, provider: str) -> None:
        self.ask("remove_provider", lambda side: side.store.remove_provider(provider))

    @act(
        2,
        batch=a_batch,
        revision=a_revision,
        start=("00:00", "14:00", "14:20"),
        window=("24h", "1h", "10m"),
        missed=("skip", "once", "all"),
    )
    def put_batch(self, batch: str, revision: int | None, start: str, window: str, missed: Missed) -> None:
        spec = BatchSpec(start=start, window=window, missed=missed)

        def put(side: Side) -> object:
            return side.store.put_batch(batch, spec, expected_revision=revision, now_ms=self.now_ms)

        self.ask("put_batch", put)

    @act(2, batch=a_batch, paused=(False, True))
    def pause_batch(self, batch: str, *, paused: bool) -> None:
        def pause(side: Side) -> object:
            return batches.set_batch_paused(side.store, batch, paused=paused, now_ms=self.now_ms)

        self.ask("pause_batch", pause)

    @act(
        4,
        batch=a_batch,
        records=(["r1"], ["r2", "r3"], ["r4", "r5"], ["r1", "r3", "r5"]),
        provider=a_provider,
        active=(True, True, True, False),
        body=(None, '{"a":1}'),
        after=(None, None, None, "r1", "r4"),
        priority=(0, 0, 2),
    )
    def put_records(
        self,
        batch: str,
        records: list[str],
        provider: str,
        *,
        active: bool,
        body: str | None,
        after: str | None = None,
        priority: int = 0,
    ) -> None:
        """Also moves a record to another provider."""
        options = RecordOptions(after=after, priority=priority)
        specs = [RecordSpec(name, provider, f"/{name}", body, active, options) for name in records]

        def put(side: Side) -> object:
            return batches.put_records(side.store, batches.get_batch(side.store, batch), specs, now_ms=self.now_ms)

        self.ask("put_records", put)

    @act(2, batch=a_batch, record=a_record)
    def remove_record(self, batch: str, record: str) -> None:
        def remove(side: Side) -> object:
            return side.store.remove_record(batches.get_batch(side.store, batch), record)

        self.ask("remove_record", remove)

    # -- days

    @act(3, batch=a_batch, days=(0, 0, 1, -1))
    def plan_day(self, batch: str, days: int) -> None:
        """It is stopped after its first page and begun again: stores may differ in which records a page has."""

        def plan_it(side: Side) -> object:
            found = batches.get_batch(side.store, batch)
            date = day_at(found.spec, self.now_ms) + timedelta(days=days)
            plan.plan_day(side.store, found, date, now_ms=self.now_ms, keep_on=lambda: False)
            return plan.plan_day(side.store, found, date, now_ms=self.now_ms)

        def arrange(report: plan.PlanReport) -> object:
            return report.enqueued + report.already, report.skipped, report.finished

        self.ask("plan_day", plan_it, arrange=arrange)

    @act(3)
    def plan_due(self) -> None:
        self.ask("plan_due", lambda side: plan.plan_due(side.store, now_ms=self.now_ms))

    @act(2, batch=a_batch, days=(0, 0, -1), state=("done", "failed", "skipped"))
    def rerun(self, batch: str, days: int, state: str) -> None:
        def run_again(side: Side) -> object:
            found = batches.get_batch(side.store, batch)
            date = day_at(found.spec, self.now_ms) + timedelta(days=days)
            return rerun.rerun(side.store, found, date.isoformat(), state=state, now_ms=self.now_ms)

        self.ask("rerun", run_again)

    @act(1, batch=a_batch)
    def delete_batch(self, batch: str) -> None:
        """To its end if nothing of it is out; where a deletion waits, stores differ in when they look again."""

        def delete(side: Side) -> object:
            out = out_runs(side.store, batch, now_ms=self.now_ms)
            if out:
                return out
            later_ms = self.now_ms + GRACE_MS
            left = deletion.delete_all_of(side.store, batch, read_ms=lambda: self.now_ms, progress=lambda _: None)
            while left is not None and left.deleting is not None:
                side.store.delete_batch_pass(left, now_ms=later_ms, limit=1_000)
                left = side.store.batch(batch)
            return "gone"

        self.ask("delete_batch", delete)

    @act(1, batch=a_batch, provider=(None, *a_provider), active=(None, True, False), limit=(1, 9))
    def find_records(self, batch: str, provider: str | None, *, active: bool | None, limit: int) -> None:
        def find(side: Side) -> object:
            found = batches.get_batch(side.store, batch)
            return side.store.find_records(found, provider=provider, active=active, after="", limit=limit)

        self.ask("find_records", find, arrange=lambda told: told[0])

    # -- calls

    @act(12, runs_max=(100,), lease_ms=a_lease)
    def claim_calls(self, runs_max: int, lease_ms: int) -> None:
        """With room for all: with less, a store looks at few providers, and which ones is not promised."""

        def claim(side: Side) -> object:
            return call.claim_calls(
                side.store, self.books[side.name], now_ms=self.now_ms, runs_max=runs_max, lease_ms=lease_ms
            )

        self._keep(self.ask("claim_calls", claim, arrange=in_order_of_provider))

    def _keep(self, claimed: Both) -> None:
        others = {(one.call.run_id, one.call.attempt): one for one in claimed.aws}
        found = [Both(one, others[one.call.run_id, one.call.attempt]) for one in claimed.sqlite]
        self.sent = [*found, *self.sent][:SENT_MAX]

    @act(10, pick=a_pick, result=sorted(RESULTS))
    def answer_call(self, pick: int, result: str) -> None:
        item = self.sent[pick % len(self.sent)]

        def answer(side: Side) -> object:
            sent: call.SentCall = item.of(side)
            return call.settle_calls(side.store, {sent.fence: sent}, [self._result(sent, result)], chance=lambda: 0.5)

        self.ask("answer_call", answer)

    @act(4, pick=a_pick, result=sorted(RESULTS), runs_max=(100,))
    def answer_and_claim(self, pick: int, result: str, runs_max: int) -> None:
        item = self.sent[pick % len(self.sent)]

        def answer(side: Side) -> object:
            sent: call.SentCall = item.of(side)
            return call.settle_and_claim(
                side.store,
                self.books[side.name],
                {sent.fence: sent},
                [self._result(sent, result)],
                chance=lambda: 0.5,
                now_ms=self.now_ms,
                runs_max=runs_max,
                lease_ms=MINUTE_MS,
            )

        both = self.ask("answer_and_claim", answer, arrange=lambda told: (told[0], in_order_of_provider(told[1])))
        self._keep(Both(both.sqlite[1], both.aws[1]))

    def _result(self, sent: call.SentCall, result: str) -> CallResult:
        return CallResult(sent.call.handle, sent.call.attempt, self.now_ms - 1, self.now_ms, **RESULTS[result])

    @act(2, pick=a_pick)
    def release_call(self, pick: int) -> None:
        item = self.sent[pick % len(self.sent)]

        def release(side: Side) -> object:
            return side.store.release_calls([item.of(side).fence], now_ms=self.now_ms)

        self.ask("release_call", release)

    # -- dead letters and upkeep

    @act(3, provider=(None, *a_provider), batch=(None, *a_batch))
    def redrive(self, provider: str | None, batch: str | None) -> None:
        def put_back(side: Side) -> object:
            choice = redrive.choose(side.store, provider=provider, batch=batch)
            return redrive.redrive(side.store, choice, now_ms=self.now_ms)

        self.ask("redrive", put_back)

    @act(1, batch=a_batch, record=a_record)
    def discard(self, batch: str, record: str) -> None:
        def let_go(side: Side) -> object:
            date = day_at(BatchSpec(), self.now_ms).isoformat()
            return redrive.discard(side.store, redrive.choose(side.store, runs=[f"{batch}/{record}@{date}"]))

        self.ask("discard", let_go)

    @act(2, keep_ms=(0, HOUR_MS, DAY_MS), dead_keep_ms=(0, DAY_MS))
    def purge_calls(self, keep_ms: int, dead_keep_ms: int) -> None:
        def purge_all(side: Side) -> object:
            return purged(side.store, keep_ms=keep_ms, dead_keep_ms=dead_keep_ms, now_ms=self.now_ms)

        self.ask("purge_calls", purge_all)


def out_runs(store: Store, batch: str, *, now_ms: int) -> list[str]:
    """The runs of a batch that are out with somebody."""
    found = batches.get_batch(store, batch)
    runs = [
        run
        for day in store.days(found, before=None, limit=100)
        for run in store.day_runs(day, state="out", provider=None, after=0, limit=100)[0]
    ]
    return sorted(f"{run.record}@{run.date}" for run in runs if (run.until_ms or 0) > now_ms)


def purged(store: Store, *, keep_ms: int, dead_keep_ms: int, now_ms: int) -> tuple[int, int]:
    """How many runs and records went."""
    walk = purge.PurgeWalk()
    for _ in range(100):
        walk = purge.purge_calls(store, walk, keep_ms=keep_ms, dead_keep_ms=dead_keep_ms, now_ms=now_ms)
        if walk.over:
            break
    assert walk.over
    return walk.runs_deleted, walk.records_deleted

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline.core.batches import day_plan
from paceline.core.batches.batch import Batch, BatchSpec, window_of
from paceline.ports import Store
from paceline.steps.batches.plan import plan_day, preview
from tests.contract.support.batch_stage import DATE, put_batch, put_provider, put_records
from tests.contract.support.stage import LEASE_MS, T0_MS

START_MS = window_of(BatchSpec(), DATE).start_ms


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty records make six pages."""
    monkeypatch.setattr(day_plan, "PAGE_RUNS", 7)


def test_a_preview_is_the_plan_and_writes_nothing(store: Store, batch: Batch) -> None:
    shown = preview(store, batch, DATE, now_ms=T0_MS)
    assert store.days(batch, before=None, limit=1) == []
    plan_day(store, batch, DATE, now_ms=T0_MS)
    assert (shown.records, shown.already) == (40, 0)
    assert sum(window.runs for window in shown.histogram) == 40
    assert len(shown.histogram) == 96
    assert shown.evenness.ratio <= 1.05
    assert [(provider.provider, provider.records) for provider in shown.providers] == [("a", 14), ("b", 13), ("c", 13)]
    assert all(provider.max_gap_ms < 2 * provider.gap_ms for provider in shown.providers)
    assert preview(store, batch, DATE, now_ms=T0_MS).already == 40


def test_preview_warns_of_more_calls_than_a_provider_can_do_in_the_window(store: Store) -> None:
    put_provider(store, "slow", timeout="10s")
    put_provider(store, "quick", timeout="10s", max_in_flight=3)
    put_provider(store, "strict", timeout="100ms", rate="1/1m")
    put_provider(store, "asleep", timeout="100ms", paused=True)
    batch = put_batch(store, window="1m")
    names = ("slow", "quick", "strict", "asleep")
    put_records(store, {f"r{number}": names[number % 4] for number in range(40)})
    shown = preview(store, batch, DATE, now_ms=T0_MS)
    found = {(warning.provider, warning.kind): warning.fit for warning in shown.warnings}
    assert found == {("slow", "time_out"): 6, ("strict", "rate"): 1, ("asleep", "paused"): 0}


def test_a_preview_expects_the_latency_that_results_show(store: Store) -> None:
    from paceline.core.batches.calls import CallSettlement

    number = put_provider(store, "a", timeout="10s")
    batch = put_batch(store, window="1m")
    put_records(store, {f"r{index}": "a" for index in range(10)})
    plan_day(store, batch, DATE, now_ms=T0_MS)
    for turn, latency_ms in enumerate((1_000.0, 3_000.0)):
        now_ms = START_MS + turn * 6_000
        (call,) = store.claim_calls(now_ms=now_ms, runs_max=1, lease_ms=LEASE_MS)
        done = CallSettlement(call.handle, call.attempt, "done", now_ms, now_ms, latency_ms=latency_ms, verdict="good")
        assert store.settle_calls([done]) == [True]
    assert store.latencies_ms([number], runs_max=10) == {number: 2_000.0}
    shown = preview(store, batch, DATE + timedelta(days=1), now_ms=T0_MS)
    assert shown.providers[0].latency_ms == 2_000.0
    assert shown.warnings == [], "ten of two seconds each fit into a minute"

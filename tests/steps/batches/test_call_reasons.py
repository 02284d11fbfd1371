"""A batch's run that waits always says why."""

from __future__ import annotations

from paceline.core.batches.batch import Batch
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import PutProvider
from paceline.core.ids import call_run_id
from paceline.ports import Store
from paceline.steps.views.days import show_call_run
from tests.contract.support.batch_stage import DATE, due_runs, plan
from tests.contract.support.stage import T0_MS


def test_a_run_that_waits_has_a_reason_before_it_is_due_and_behind_a_paused_provider(
    store: Store, batch: Batch
) -> None:
    plan(store, batch)
    due_ms, record = due_runs(store)[0]
    run = call_run_id("daily", record, DATE.isoformat())
    assert show_call_run(store, run, now_ms=T0_MS).reason.startswith("it is due at ")
    assert show_call_run(store, run, now_ms=due_ms).reason == "waits for its turn at its provider"
    provider = show_call_run(store, run, now_ms=T0_MS).provider
    paused = ProviderSpec(base_url="http://example.org", paused=True)
    assert store.put_provider(PutProvider(provider, paused), now_ms=T0_MS).provider is not None
    for now_ms in (T0_MS, due_ms):
        assert show_call_run(store, run, now_ms=now_ms).reason == "its provider is paused"

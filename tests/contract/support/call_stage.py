"""Providers, a batch and a day of planned runs, with calls made by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.core.batches.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.provider import ProviderSpec, RetrySpec
from paceline.core.batches.values import CallRun, ClaimedCall, Placements, PutProvider
from paceline.ports import Store
from tests.contract.support.stage import DAY_MS, T0_MS

DATE = "2026-09-21"
LEASE_MS = 5_000
TIMEOUT_MS = 1_000
SECOND_MS = 1_000
SPEC = ProviderSpec(base_url="http://example.org", timeout="1s", retry=RetrySpec(max_attempts=3))
NONE = Placements(array("q"), array("q"), array("q"))


def provide(store: Store, name: str, **changes: Any) -> int:
    """Puts a provider. Returns its number."""
    put = PutProvider(name, msgspec.structs.replace(SPEC, **changes))
    provider = store.put_provider(put, now_ms=T0_MS).provider
    assert provider is not None
    return provider.number


def make_batch(store: Store, name: str = "daily", **changes: Any) -> Batch:
    batch = store.put_batch(name, BatchSpec(**changes), expected_revision=None, now_ms=T0_MS).batch
    assert batch is not None
    return batch


def plan(
    store: Store, batch: Batch, dues_ms: dict[str, int], *, provider: str = "a", end_ms: int = T0_MS + DAY_MS
) -> Day:
    """Plans a day with a record for each name, due at its time."""
    records = [RecordSpec(name, provider, f"/{name}") for name in dues_ms]
    store.put_records(batch, records, now_ms=T0_MS)
    day = store.open_day(batch, DATE, start_ms=end_ms - DAY_MS, end_ms=end_ms)
    order = store.plan_order(batch, None)
    names = store.record_names(order.records)
    numbers = [number for number, count in order.providers for _ in range(count)]
    rows = sorted(
        (numbers[index], dues_ms[names[record]], record)
        for index, record in enumerate(order.records)
        if names[record] in dues_ms
    )
    page = Placements(
        array("q", [row[2] for row in rows]), array("q", [row[0] for row in rows]), array("q", [row[1] for row in rows])
    )
    assert store.plan_page(day, page, cursor=(rows[-1][0], rows[-1][2]), skipped=NONE, now_ms=T0_MS).won
    there = store.day(batch, DATE)
    assert there is not None
    return there


def every(gap_ms: int, count: int, *, first_ms: int = T0_MS) -> dict[str, int]:
    """Returns due times of r0, r1, ... with this gap between them."""
    return {f"r{index}": first_ms + index * gap_ms for index in range(count)}


def claim(store: Store, now_ms: int = T0_MS, *, runs_max: int = 100) -> list[ClaimedCall]:
    return store.claim_calls(now_ms=now_ms, runs_max=runs_max, lease_ms=LEASE_MS)


def settlement(call: ClaimedCall, state: str = "done", *, now_ms: int = T0_MS, **more: Any) -> CallSettlement:
    verdict = {"done": "good", "retry": "bad"}.get(state, "none")
    values = {"reason": f"it is {state}", "verdict": verdict} | more
    return CallSettlement(call.handle, call.attempt, state, now_ms, now_ms, **values)  # type: ignore[arg-type]


def settle(store: Store, call: ClaimedCall, state: str = "done", *, now_ms: int = T0_MS, **more: Any) -> bool:
    return store.settle_calls([settlement(call, state, now_ms=now_ms, **more)]) == [True]


def names(calls: Sequence[ClaimedCall]) -> list[str]:
    return [call.record for call in calls]


def run_of(store: Store, record: str, *, batch: str = "daily") -> CallRun:
    run = store.find_call_run(batch, record, DATE)
    assert run is not None
    return run

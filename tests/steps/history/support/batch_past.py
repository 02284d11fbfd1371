"""Two days of a batch with three providers; one of them is paused for hours and has a backlog then."""

from __future__ import annotations

from datetime import timedelta

from paceline.core.batches.batch import Batch
from paceline.ports import Store
from tests.contract.support.batch_stage import DATE, plan, put_provider, put_records
from tests.contract.support.call_stage import claim, settle
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS

PROVIDERS = {"a": 120, "b": 36, "c": 12}
TOOK_MS = 200
ROUNDS_MAX = 4_000


def live_two_days(store: Store) -> int:
    """Plans and makes all calls. Returns the time at the end."""
    for name in PROVIDERS:
        put_provider(store, name)
    records = {f"{name}{number}": name for name, count in PROVIDERS.items() for number in range(count)}
    batch = put_records(store, records)
    now_ms = T0_MS
    for offset in range(2):
        plan(store, batch, day=DATE + timedelta(days=offset), now_ms=now_ms)
        now_ms = _work_off(store, batch, now_ms=now_ms, closed_ms=(offset + 1) * DAY_MS + T0_MS)
    return now_ms


def _work_off(store: Store, batch: Batch, *, now_ms: int, closed_ms: int) -> int:
    """Claims whenever there may be something; for some hours nobody is there to do it."""
    del batch
    for _ in range(ROUNDS_MAX):
        next_ms = store.next_call_ms()
        if next_ms is None or next_ms > now_ms + 2 * DAY_MS:
            return now_ms
        now_ms = max(now_ms + 1, next_ms)
        if closed_ms <= now_ms < closed_ms + 6 * HOUR_MS:
            now_ms = closed_ms + 6 * HOUR_MS
        for number, call in enumerate(claim(store, now_ms)):
            state = "failed" if (number + call.handle) % 11 == 0 else "done"
            assert settle(store, call, state, now_ms=now_ms)
        now_ms += TOOK_MS
    raise AssertionError("the calls never end")

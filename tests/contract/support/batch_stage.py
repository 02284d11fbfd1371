"""The few moves that scenes of batches are made of, in the words of the port and the steps."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from datetime import date
from typing import Any

from paceline.core.batches.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import Placements, PutProvider
from paceline.ports import Store
from paceline.steps.batches.plan import PlanReport, plan_day
from tests.contract.support.stage import T0_MS

DATE = date(2026, 9, 22)
"""The planned date; its window, in UTC, begins after T0_MS."""


def put_provider(store: Store, name: str, **fields: Any) -> int:
    spec = ProviderSpec(base_url="http://example.org", **fields)
    result = store.put_provider(PutProvider(name, spec), now_ms=T0_MS)
    assert result.provider is not None
    return result.provider.number


def put_batch(store: Store, batch_id: str = "daily", *, now_ms: int = T0_MS, **fields: Any) -> Batch:
    result = store.put_batch(batch_id, BatchSpec(**fields), expected_revision=None, now_ms=now_ms)
    assert result.batch is not None
    return result.batch


def put_records(store: Store, providers: Mapping[str, str], *, batch: str = "daily", now_ms: int = T0_MS) -> Batch:
    """Records by name, each with its provider."""
    there = store.batch(batch) or put_batch(store, batch)
    records = [RecordSpec(name, provider, f"/{name}") for name, provider in providers.items()]
    assert "no_provider" not in store.put_records(there, records, now_ms=now_ms)
    return there


def plan(store: Store, batch: Batch, *, day: date = DATE, now_ms: int = T0_MS) -> PlanReport:
    return plan_day(store, batch, day, now_ms=now_ms)


def day_of(store: Store, batch: Batch, day: date = DATE) -> Day:
    there = store.day(batch, day.isoformat())
    assert there is not None
    return there


def placements(*rows: tuple[int, int, int]) -> Placements:
    """Makes placements from (record, provider, due time)."""
    records, providers, dues_ms = zip(*rows, strict=True) if rows else ((), (), ())
    return Placements(array("q", records), array("q", providers), array("q", dues_ms))


def due_runs(store: Store, batch: str = "daily", day: date = DATE) -> list[tuple[int, str]]:
    """The day's runs as (due time, record), in due order."""
    there = store.batch(batch)
    assert there is not None
    runs, following = store.day_runs(day_of(store, there, day), state=None, provider=None, after=0, limit=10_000)
    assert following is None
    return sorted((run.due_ms, run.record) for run in runs)

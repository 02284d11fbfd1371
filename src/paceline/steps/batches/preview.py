"""Preview of a day's plan, and whether its providers can keep up with it. Nothing is written."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import date
from typing import Literal

import msgspec

from paceline.core.batches.batch import Batch, Day, Window
from paceline.core.batches.day_plan import DayPlan, plan_window
from paceline.core.batches.provider import Policy, ProviderDefinition, policy_of
from paceline.core.batches.spread import evenness
from paceline.core.batches.values import Placements
from paceline.core.durations import format_duration, parse_duration_ms
from paceline.core.instants import to_text
from paceline.core.schema import Date, Instant
from paceline.ports import BatchStore
from paceline.steps.views.days import EvennessView, WindowView, evenness_view, histogram

LATENCY_RUNS = 100
"""Number of a provider's newest results from which its expected latency is averaged, over those that were done."""


class ProviderPreview(msgspec.Struct, frozen=True):
    """Planned calls to one provider on the day.

    ``gap_ms``: ideal time between two calls. ``latency_ms``: mean latency of the last calls; null if there were none.
    """

    provider: str
    records: int
    gap_ms: float
    max_gap_ms: int
    max_in_flight: int
    rate: str | None
    latency_ms: float | None
    paused: bool


class PlanWarning(msgspec.Struct, frozen=True):
    """A warning that a provider may not be able to take all of its records in the window, and why.

    ``fit``: how many of its ``records`` can be called in the window.
    """

    provider: str
    kind: Literal["rate", "latency", "time_out", "paused"]
    records: int
    fit: int
    detail: str


class Preview(msgspec.Struct, frozen=True):
    """The plan of a batch's day as it would be made now; nothing is written.

    ``already``: number of runs that are planned for the date already; planning would add the others.
    """

    batch: str
    date: Date
    start: Instant
    end: Instant
    records: int
    already: int
    evenness: EvennessView
    histogram: list[WindowView]
    providers: list[ProviderPreview]
    warnings: list[PlanWarning]


def preview(store: BatchStore, batch: Batch, day: date, *, now_ms: int) -> Preview:
    """Return the plan as it would be made now, by the same function that makes it."""
    on_date = day.isoformat()
    there = store.day(batch, on_date)
    window = Window(there.start_ms, there.end_ms) if there else plan_window(batch.spec, day, now_ms=now_ms)
    blank = Day(0, batch.id, on_date, window.start_ms, window.end_ms, "planning", None, 0, 0)
    dues_ms = _dues_ms(store, *read_plan(store, batch, blank))
    latencies_ms = store.latencies_ms(list(dues_ms), runs_max=LATENCY_RUNS)
    providers: list[ProviderPreview] = []
    warnings: list[PlanWarning] = []
    for number, mine in dues_ms.items():
        provider = store.provider(number)
        assert provider is not None
        shown = _provider_preview(provider, mine, window, latencies_ms.get(number))
        providers.append(shown)
        warnings += _warnings(shown, policy_of(provider.spec), window)
    whole_ms = sorted(due_ms for mine in dues_ms.values() for due_ms in mine)
    return Preview(
        batch=batch.id,
        date=on_date,
        start=to_text(window.start_ms),
        end=to_text(window.end_ms),
        records=len(whole_ms),
        already=there.enqueued + there.skipped if there else 0,
        evenness=evenness_view(evenness(whole_ms, start_ms=window.start_ms, end_ms=window.end_ms)),
        histogram=histogram(whole_ms, start_ms=window.start_ms, end_ms=window.end_ms),
        providers=providers,
        warnings=warnings,
    )


def read_plan(store: BatchStore, batch: Batch, day: Day) -> tuple[DayPlan, int]:
    """Return a day's plan from its records, and where its next page begins."""
    order = store.plan_order(batch, day.cursor)
    window, jitter_ms_max = Window(day.start_ms, day.end_ms), parse_duration_ms(batch.spec.jitter) or 0
    return DayPlan(order, window, batch=batch.id, jitter_ms_max=jitter_ms_max), order.begin


def read_page(store: BatchStore, plan: DayPlan, begin: int) -> Placements:
    """Return the runs of a page; names of records are read only for their jitter."""
    names = store.record_names(plan.page_records(begin)) if plan.has_jitter else {}
    return plan.page(begin, names)


def _dues_ms(store: BatchStore, plan: DayPlan, begin: int) -> dict[int, array[int]]:
    found: dict[int, array[int]] = {number: array("q") for number, _ in plan.providers}
    while begin < plan.records:
        page = read_page(store, plan, begin)
        for provider, due_ms in zip(page.providers, page.dues_ms, strict=True):
            found[provider].append(due_ms)
        begin += len(page.records)
    return {provider: array("q", sorted(mine)) for provider, mine in found.items()}


def _provider_preview(
    provider: ProviderDefinition, dues_ms: array[int], window: Window, latency_ms: float | None
) -> ProviderPreview:
    even = evenness(dues_ms, start_ms=window.start_ms, end_ms=window.end_ms)
    return ProviderPreview(
        provider=provider.id,
        records=len(dues_ms),
        gap_ms=round(even.ideal_gap_ms, 3),
        max_gap_ms=even.max_gap_ms,
        max_in_flight=provider.spec.max_in_flight,
        rate=provider.spec.rate,
        latency_ms=None if latency_ms is None else round(latency_ms, 3),
        paused=provider.spec.paused,
    )


def _warnings(shown: ProviderPreview, policy: Policy, window: Window) -> Iterator[PlanWarning]:
    window_ms = window.end_ms - window.start_ms
    if shown.paused:
        yield PlanWarning(shown.provider, "paused", shown.records, 0, "it is paused: nothing of it starts")
    if policy.rate_gap_us and (fit := window_ms * 1_000 // policy.rate_gap_us) < shown.records:
        detail = f"its rate of {shown.rate} lets {fit} of {shown.records} records into the window"
        yield PlanWarning(shown.provider, "rate", shown.records, fit, detail)
    if shown.latency_ms is None and policy.kind == "outgoing":
        return  # nobody knows how long its workers take
    each_ms = policy.timeout_ms if shown.latency_ms is None else max(shown.latency_ms, 0.001)
    fit = int(window_ms * policy.max_in_flight / each_ms)
    if fit >= shown.records:
        return
    beside = f"{policy.max_in_flight} at a time, {fit} of {shown.records} records fit into the window"
    if shown.latency_ms is not None:
        detail = f"its calls take {shown.latency_ms:.0f} ms (the mean of its last results); {beside}"
        yield PlanWarning(shown.provider, "latency", shown.records, fit, detail)
    else:
        detail = (
            f"without results yet; if each call took its time-out of {format_duration(policy.timeout_ms)}, {beside}"
        )
        yield PlanWarning(shown.provider, "time_out", shown.records, fit, detail)

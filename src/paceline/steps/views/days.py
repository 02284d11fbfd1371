"""Report of a batch's day: totals, evenness, the histogram, and its runs."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import get_args

import msgspec

from paceline.core.batches.batch import DATE_RULE, Batch, Day, DayState, parse_date
from paceline.core.batches.calls import CallState
from paceline.core.batches.outgoing import WAITS_FOR_WORKER
from paceline.core.batches.reruns import MARK, split_round
from paceline.core.batches.spread import Evenness, evenness, report_width_ms, windows
from paceline.core.batches.values import CallRun, DayCount
from paceline.core.durations import format_duration
from paceline.core.ids import call_run_id, parse_call_run_id
from paceline.core.instants import to_text
from paceline.core.schema import Date, Duration, Instant
from paceline.errors import FieldProblem, InvalidInput, NotFound
from paceline.ports import BatchStore
from paceline.steps.views.to_view import to_view

PROVIDERS_MAX = 100
"""Maximum number of providers in a day's report; the others come by page."""
CALL_STATES: tuple[CallState, ...] = get_args(CallState)


class DaySummary(msgspec.Struct, frozen=True):
    """One day of a batch, or a rerun of it.

    ``rerun``: number of the rerun; 0 for the day itself. ``enqueued`` and ``skipped``: how many runs were queued when
    the day was planned, and how many were skipped because their time had passed.
    """

    batch: str
    date: Date
    rerun: int
    state: DayState
    start: Instant
    end: Instant
    enqueued: int
    skipped: int


class EvennessView(msgspec.Struct, frozen=True):
    """How evenly runs are spread. ``ratio``: largest gap divided by the ideal gap; 1 is perfect, 0 means no runs."""

    runs: int
    ideal_gap_ms: float
    max_gap_ms: int
    ratio: float
    worst_minute_runs: int


class ProviderDay(msgspec.Struct, frozen=True):
    provider: str
    runs: int
    totals: dict[CallState, int]
    evenness: EvennessView


class WindowView(msgspec.Struct, frozen=True):
    start: Instant
    runs: int


class DayReport(DaySummary, frozen=True):
    """Report of a batch's day: runs by state and provider, evenness, and a histogram of the due times.

    ``outside``: number of runs that are due outside the day's window, for example because they were redriven later.
    ``providers``: the first page of providers; ``next_cursor`` leads to the next page in the day's list of providers.
    """

    runs: int
    totals: dict[CallState, int]
    evenness: EvennessView
    histogram: list[WindowView]
    histogram_window: Duration
    outside: int
    providers: list[ProviderDay]
    next_cursor: str | None


class CallRunView(msgspec.Struct, frozen=True):
    run: str
    batch: str
    record: str
    date: Date
    rerun: int
    provider: str
    due: Instant
    state: CallState
    attempt: int
    reason: str
    latency_ms: float | None
    status_code: int | None
    started_at: Instant | None
    ended_at: Instant | None
    until: Instant | None
    payload: str | None
    dead: bool


def day_summary(day: Day) -> DaySummary:
    date, rerun = split_round(day.date)
    return to_view(day, DaySummary, date=date, rerun=rerun)


def get_day(store: BatchStore, batch: Batch, text: str) -> Day:
    """Return the batch's day of this date, or, as "2026-11-15~1", one of its reruns; NotFound if it is not planned."""
    date, _, number = text.partition(MARK)
    day = store.day(batch, f"{check_date(date).isoformat()}{MARK if number else ''}{number[:9]}")
    if day is None:
        raise NotFound(f"Batch {batch.id!r} has no day {text}. It is there once it is planned.")
    return day


def check_date(text: str, pointer: str = "/date") -> date:
    """Return the date of a text; raise InvalidInput if it is none."""
    day = parse_date(text)
    if day is None:
        raise InvalidInput.of(FieldProblem(pointer, DATE_RULE))
    return day


def day_report(store: BatchStore, day: Day) -> DayReport:
    """Return the report of a day. It reads the day's part of the ledger twice, a few bytes for each run."""
    counts = store.day_counts(day)
    dues_ms, numbers = store.day_dues(day)
    inside = _inside(dues_ms, start_ms=day.start_ms, end_ms=day.end_ms)
    providers, following = _providers(
        store, day, counts, _by_provider(dues_ms, numbers, inside), after="", limit=PROVIDERS_MAX
    )
    whole_ms = dues_ms[inside.start : inside.stop]
    width_ms = report_width_ms(start_ms=day.start_ms, end_ms=day.end_ms)
    return DayReport(
        **msgspec.structs.asdict(day_summary(day)),
        runs=sum(count.runs for count in counts),
        totals=totals_of(counts),
        evenness=evenness_view(evenness(whole_ms, start_ms=day.start_ms, end_ms=day.end_ms)),
        histogram=histogram(whole_ms, start_ms=day.start_ms, end_ms=day.end_ms),
        histogram_window=format_duration(width_ms),
        outside=len(dues_ms) - len(whole_ms),
        providers=providers,
        next_cursor=following,
    )


def day_providers(store: BatchStore, day: Day, *, after: str, limit: int) -> tuple[list[ProviderDay], str | None]:
    """Return a page of a day's providers in order of id, and after which one the next page begins."""
    dues_ms, numbers = store.day_dues(day)
    mine = _by_provider(dues_ms, numbers, _inside(dues_ms, start_ms=day.start_ms, end_ms=day.end_ms))
    return _providers(store, day, store.day_counts(day), mine, after=after, limit=limit)


def histogram(dues_ms: Iterable[int], *, start_ms: int, end_ms: int) -> list[WindowView]:
    """Return how many runs are due in each of the windows that fit the day's length."""
    width_ms = report_width_ms(start_ms=start_ms, end_ms=end_ms)
    counted = windows(dues_ms, start_ms=start_ms, end_ms=end_ms, width_ms=width_ms)
    return [WindowView(to_text(start_ms + index * width_ms), runs) for index, runs in enumerate(counted)]


def evenness_view(figures: Evenness) -> EvennessView:
    ideal_gap_ms, ratio = round(figures.ideal_gap_ms, 3), round(figures.ratio, 4)
    return to_view(figures, EvennessView, ideal_gap_ms=ideal_gap_ms, ratio=ratio)


def day_runs(
    store: BatchStore, day: Day, *, state: str | None, provider: str | None, after: int, limit: int
) -> tuple[list[CallRunView], int | None]:
    """Return a page of a day's runs, and where the next page begins."""
    runs, following = store.day_runs(
        day, state=_state(state) if state else None, provider=provider, after=after, limit=limit
    )
    return [call_run_view(run) for run in runs], following


def find_call_run(store: BatchStore, run: str) -> CallRun:
    """Return a run of a batch by its id."""
    name = parse_call_run_id(run)
    found = store.find_call_run(name.batch, name.record, name.date) if name is not None else None
    if found is None:
        raise NotFound(f"There is no run {run[:300]!r}. Ids of a batch's runs look like batch/record@2026-11-15.")
    return found


def show_call_run(store: BatchStore, run: str, *, now_ms: int) -> CallRunView:
    """Return a run. A run that waits always has a reason, with the outcome of its last try behind it."""
    found = find_call_run(store, run)
    if found.state == "waiting":
        why = _why_waiting(store, found, now_ms=now_ms)
        last = f"; its last try: {found.reason}" if found.reason else ""
        found = msgspec.structs.replace(found, reason=f"{why}{last}")
    return call_run_view(found)


def call_run_view(run: CallRun) -> CallRunView:
    name, (date, rerun) = call_run_id(run.batch, run.record, run.date), split_round(run.date)
    return to_view(run, CallRunView, run=name, date=date, rerun=rerun, status_code=run.code)


def _inside(dues_ms: Sequence[int], *, start_ms: int, end_ms: int) -> range:
    """Return the positions of the sorted due times that lie in the window."""
    return range(bisect_left(dues_ms, start_ms), bisect_left(dues_ms, end_ms))


def _by_provider(dues_ms: array[int], numbers: array[int], inside: range) -> dict[int, array[int]]:
    mine: dict[int, array[int]] = {}
    for index in inside:
        number = numbers[index]
        if number not in mine:
            mine[number] = array("q")
        mine[number].append(dues_ms[index])
    return mine


def _providers(
    store: BatchStore,
    day: Day,
    counts: Iterable[DayCount],
    dues_ms: Mapping[int, Sequence[int]],
    *,
    after: str,
    limit: int,
) -> tuple[list[ProviderDay], str | None]:
    by_provider: dict[str, list[DayCount]] = {}
    for count in counts:
        by_provider.setdefault(count.provider, []).append(count)
    names = sorted(name for name in by_provider if name > after)
    numbers = {found.id: number for number in dues_ms if (found := store.provider(number))}
    page = [
        ProviderDay(
            provider=name,
            runs=sum(count.runs for count in by_provider[name]),
            totals=totals_of(by_provider[name]),
            evenness=evenness_view(
                evenness(dues_ms.get(numbers.get(name, -1), ()), start_ms=day.start_ms, end_ms=day.end_ms)
            ),
        )
        for name in names[:limit]
    ]
    return page, page[-1].provider if len(names) > limit else None


def totals_of(counts: Iterable[DayCount]) -> dict[CallState, int]:
    """Return how many runs are in each state, including states without runs."""
    found: Counter[CallState] = Counter()
    for count in counts:
        found[count.state] += count.runs
    return {state: found[state] for state in CALL_STATES}


def _state(text: str) -> CallState:
    for state in CALL_STATES:
        if state == text:
            return state
    raise InvalidInput.of(FieldProblem("/query/state", f"one of {', '.join(CALL_STATES)}"))


def _why_waiting(store: BatchStore, run: CallRun, *, now_ms: int) -> str:
    batch, provider = store.batch(run.batch), store.provider(run.provider)
    if batch is not None and batch.spec.paused:
        return "its batch is paused"
    if provider is None:
        return "its provider is gone"
    if provider.spec.paused:
        return "its provider is paused"
    standing = store.provider_standing(provider.number, now_ms=now_ms)
    if standing.pace.closed_until_ms > now_ms:
        return f"its provider takes nothing until {to_text(standing.pace.closed_until_ms)}"
    if run.due_ms > now_ms:
        return f"it is due at {to_text(run.due_ms)}"
    if provider.spec.kind == "outgoing" and standing.in_flight < provider.spec.max_in_flight:
        return WAITS_FOR_WORKER
    return "waits for its turn at its provider"

"""Planning of a batch's day: its runs are made page by page and once, however many processes plan it or restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

import msgspec

from paceline.core.batches.batch import DATES_FROM, DATES_TO, Batch, Day, Window, day_at, window_of
from paceline.core.batches.day_plan import plan_window, without_missed
from paceline.core.batches.reruns import RERUNS_MAX, is_round
from paceline.core.batches.run_keys import NEVER_MS
from paceline.ports import BatchStore, Store
from paceline.steps.ahead.day_providers import keep_day_providers
from paceline.steps.batches.late_records import plan_late_records
from paceline.steps.batches.preview import preview, read_page, read_plan
from paceline.steps.walk import walk

__all__ = [
    "DueReport",
    "PlanReport",
    "PlannedDay",
    "plan_day",
    "plan_due",
    "plan_late_records",
    "plan_window",
    "preview",
]

MISSED_DAYS_MAX = 7
BATCHES_PAGE = 1_000
PAGES_MAX = 1_000_000

Progress = Callable[["PlanReport"], None]


class PlanReport(msgspec.Struct, frozen=True):
    """Counts of a plan. ``enqueued`` and ``skipped`` are this call's own.

    ``already`` counts runs planned by others or by earlier calls.
    """

    enqueued: int
    already: int
    skipped: int
    finished: bool = True
    records: int = 0
    """Number of records in the day's plan, for a progress bar."""


class PlannedDay(NamedTuple):
    batch: str
    date: str
    report: PlanReport


class DueReport(msgspec.Struct, frozen=True):
    """Result of a planning pass. ``next_ms``: when the next window begins; None if there is none."""

    days: list[PlannedDay]
    newcomers: int
    next_ms: int | None


def plan_day(
    store: Store,
    batch: Batch,
    day: date,
    *,
    now_ms: int,
    progress: Progress = lambda _report: None,
    keep_on: Callable[[], bool] = lambda: True,
) -> PlanReport:
    """Plan a day to its end, or go on where an earlier plan of it stopped. It may be stopped after each page."""
    there = store.day(batch, day.isoformat())
    if there is None:
        window = plan_window(batch.spec, day, now_ms=now_ms)
        there = store.open_day(batch, day.isoformat(), start_ms=window.start_ms, end_ms=window.end_ms)
    mine = PlanReport(0, 0, 0)
    if there.state == "planning":
        for mine in plan_pages(store, batch, there, now_ms=now_ms):
            progress(mine)
            if not (mine.finished or keep_on()):
                return _with_already(store, batch, day, mine)
    late = plan_late_records(store, batch, now_ms=now_ms).get(there.date, 0)
    return _with_already(store, batch, day, msgspec.structs.replace(mine, enqueued=mine.enqueued + late))


def plan_pages(store: Store, batch: Batch, day: Day, *, now_ms: int) -> Iterator[PlanReport]:
    """Plan page by page, each in one bounded act.

    Yield what this planner has made so far, and at the end that it is finished.
    """
    plan, begin = read_plan(store, batch, day)
    enqueued = skipped = 0
    for _ in range(PAGES_MAX):
        ending = begin >= plan.records
        if ending:
            won = store.close_day(day)
            keep_day_providers(store, batch, day, plan.providers)
        else:
            cursor, planned = plan.cursor_after(begin), read_page(store, plan, begin)
            page, missed = without_missed(planned, batch.spec, Window(day.start_ms, day.end_ms), now_ms=now_ms)
            made = store.plan_page(day, page, cursor=cursor, skipped=missed, now_ms=now_ms)
            won, enqueued, skipped = made.won, enqueued + made.enqueued, skipped + made.skipped
        if won and ending:
            break
        if won:
            day, begin = msgspec.structs.replace(day, cursor=cursor), begin + len(planned.records)
            yield PlanReport(enqueued, 0, skipped, finished=False, records=plan.records)
        elif (there := store.day(batch, day.date)) is None or there.state == "planned":
            break
        else:  # another planner was faster: go on from where it is now
            day = there
            plan, begin = read_plan(store, batch, day)
    yield PlanReport(enqueued, 0, skipped, records=plan.records)


def plan_due(store: Store, *, now_ms: int, keep_on: Callable[[], bool] = lambda: True) -> DueReport:
    """Plan what the daemon plans by itself: windows that have begun, plans that were cut short, and late records."""
    days: list[PlannedDay] = []
    newcomers, next_ms = 0, NEVER_MS
    for batch in all_batches(store):
        if not keep_on():
            next_ms = now_ms
            break
        if batch.spec.paused:
            continue
        today = day_at(batch.spec, now_ms)
        for day in due_dates(store, batch, today):
            report = plan_day(store, batch, day, now_ms=now_ms, keep_on=keep_on)
            days.append(PlannedDay(batch.id, day.isoformat(), report))
        newcomers += sum(plan_late_records(store, batch, now_ms=now_ms).values())
        if today < DATES_TO:
            next_ms = min(next_ms, window_of(batch.spec, today + timedelta(days=1)).start_ms)
    return DueReport(days, newcomers, next_ms if next_ms < NEVER_MS else None)


def due_dates(store: BatchStore, batch: Batch, today: date) -> list[date]:
    """Return the dates to plan, oldest first.

    These are today if it began after the batch was made, days left half planned, and days that ``all`` makes up for.
    Days that began before the batch's last edit are not made up for: a person looked at it, and may have paused it.
    """
    days = store.days(batch, before=None, limit=2 * MISSED_DAYS_MAX + RERUNS_MAX)
    known = {day.date: day.state for day in days if not is_round(day.date)}
    dates = {date.fromisoformat(text) for text, state in known.items() if state == "planning"}
    for back in range(MISSED_DAYS_MAX + 1 if batch.spec.missed == "all" else 1):
        day = today - timedelta(days=back)
        since_ms = batch.updated_ms if back else batch.created_ms
        if not DATES_FROM <= day <= DATES_TO or window_of(batch.spec, day).start_ms < since_ms:
            break
        if day.isoformat() not in known:
            dates.add(day)
    return sorted(dates)


def all_batches(store: BatchStore) -> Iterator[Batch]:
    return walk(store.batches, page=BATCHES_PAGE)


def _with_already(store: BatchStore, batch: Batch, day: date, mine: PlanReport) -> PlanReport:
    """Return the report with ``already``: the day's runs less those that this call made."""
    there = store.day(batch, day.isoformat())
    assert there is not None
    already = there.enqueued + there.skipped - mine.enqueued - mine.skipped
    return msgspec.structs.replace(mine, already=max(0, already))

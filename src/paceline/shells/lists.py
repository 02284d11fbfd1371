"""Lists that REST and the command line show: each is a page of views, and the cursor of the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from paceline.core.batches.batch import Batch, Day, RecordSpec
from paceline.core.batches.values import DeadChoice
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.lists.query import MonitorQuery, read_mark, write_mark
from paceline.shells.cursors import Position, make_cursor, next_cursor, position_of
from paceline.steps.batches import redrive
from paceline.steps.monitors.find import find_monitors
from paceline.steps.views import alert_report, days, job_report, report

if TYPE_CHECKING:
    from paceline.wiring import System

T = TypeVar("T")
Row = TypeVar("Row")


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list. ``next_cursor`` leads to the next page; null on the last page."""

    items: Sequence[T]
    next_cursor: str | None


class PageRange(Protocol):
    """Says which page of a list to read: how many items, and after which cursor."""

    @property
    def limit(self) -> int: ...
    @property
    def cursor(self) -> str | None: ...


def first_of(
    found: Sequence[Row], page: PageRange, scope: str, *, at: Callable[[Row], Position], view: Callable[[Row], T]
) -> ListPage[T]:
    """Returns a page of the rows, of which the caller read one more. ``at`` returns a row's position."""
    cursor = make_cursor(scope, at(found[page.limit - 1])) if len(found) > page.limit else None
    return ListPage([view(one) for one in found[: page.limit]], cursor)


def list_monitors(system: System, query: MonitorQuery, page: PageRange) -> ListPage[report.MonitorView]:
    """Returns a page of monitors. A page may have few views, or none, although there is a next page."""
    scope = f"monitors {query.scope}"
    mark = read_mark(position_of(page.cursor, scope, ""))
    found = find_monitors(system.store, query, mark, limit=page.limit, now_ms=system.clock.now_ms())
    cursor = None if found.following is None else make_cursor(scope, write_mark(found.following))
    return ListPage(found.views, cursor)


def list_monitor_runs(system: System, monitor: Monitor, page: PageRange) -> ListPage[report.RunView]:
    """Returns a page of the monitor's runs, newest first."""
    scope = f"runs {monitor.generation}"
    before, now_ms = position_of(page.cursor, scope, 0) or None, system.clock.now_ms()
    views, following = report.monitor_runs(system.store, monitor, before=before, limit=page.limit, now_ms=now_ms)
    return ListPage(views, next_cursor(scope, following))


def list_alerts(system: System, owner: str, page: PageRange) -> ListPage[alert_report.AlertView]:
    """Returns a page of the user's alerts, newest first."""
    scope = f"alerts {owner}"
    before = position_of(page.cursor, scope, "")
    views, following = alert_report.alert_views(system.store, owner, before=before, limit=page.limit)
    return ListPage(views, next_cursor(scope, following))


def list_providers(system: System, page: PageRange) -> ListPage[report.ProviderView]:
    """Returns a page of providers in order of id."""
    now_ms = system.clock.now_ms()
    found = system.store.providers(after=position_of(page.cursor, "providers", ""), limit=page.limit + 1)
    return first_of(
        found,
        page,
        "providers",
        at=lambda one: one.id,
        view=lambda one: report.provider_view(system.store, one, now_ms=now_ms),
    )


def list_batches(system: System, page: PageRange) -> ListPage[report.BatchView]:
    """Returns a page of batches in order of id."""
    now_ms = system.clock.now_ms()
    found = system.store.batches(after=position_of(page.cursor, "batches", ""), limit=page.limit + 1)
    return first_of(
        found, page, "batches", at=lambda one: one.id, view=lambda one: report.batch_view(one, now_ms=now_ms)
    )


def list_records(
    system: System, batch: Batch, provider: str | None, page: PageRange, *, active: bool | None
) -> ListPage[RecordSpec]:
    """Returns a page of the batch's records in order of id."""
    scope = f"records {batch.number} {provider} {active}"
    after = position_of(page.cursor, scope, "")
    found, following = system.store.find_records(batch, provider=provider, active=active, after=after, limit=page.limit)
    return ListPage(found, next_cursor(scope, following))


def list_days(system: System, batch: Batch, page: PageRange) -> ListPage[days.DaySummary]:
    """Returns a page of the batch's days, newest first."""
    scope = f"days {batch.number}"
    found = system.store.days(batch, before=position_of(page.cursor, scope, "") or None, limit=page.limit + 1)
    return first_of(found, page, scope, at=lambda day: day.date, view=days.day_summary)


def show_day(system: System, day: Day) -> days.DayReport:
    """Returns the day with its first providers, and the cursor of the list of the other providers."""
    shown = days.day_report(system.store, day)
    return msgspec.structs.replace(shown, next_cursor=next_cursor(_providers_of(day), shown.next_cursor))


def list_day_providers(system: System, day: Day, page: PageRange) -> ListPage[days.ProviderDay]:
    """Returns a page of the day's providers in order of id."""
    after = position_of(page.cursor, _providers_of(day), "")
    views, following = days.day_providers(system.store, day, after=after, limit=page.limit)
    return ListPage(views, next_cursor(_providers_of(day), following))


def list_day_runs(
    system: System, day: Day, page: PageRange, *, state: str | None, provider: str | None
) -> ListPage[days.CallRunView]:
    scope = f"day runs {day.number} {state} {provider}"
    after = position_of(page.cursor, scope, 0)
    views, following = days.day_runs(system.store, day, state=state, provider=provider, after=after, limit=page.limit)
    return ListPage(views, next_cursor(scope, following))


def list_dead_letters(system: System, choice: DeadChoice, page: PageRange) -> ListPage[days.CallRunView]:
    """Returns a page of dead letters, by provider and due time."""
    scope = f"dead {choice.provider} {choice.batch} {choice.date}"
    runs, following = redrive.list_dead(
        system.store, choice, after=position_of(page.cursor, scope, 0), limit=page.limit
    )
    return ListPage([days.call_run_view(run) for run in runs], next_cursor(scope, following))


def list_jobs(system: System, owner: str | None, page: PageRange) -> ListPage[job_report.JobSummary]:
    """Returns a page of a user's jobs, or of everybody's, newest first."""
    scope = "jobs" if owner is None else f"jobs {owner}"
    before = position_of(page.cursor, scope, 0) or None
    views, following = job_report.job_summaries(
        system.store, owner, before=before, limit=page.limit, now_ms=system.clock.now_ms()
    )
    return ListPage(views, next_cursor(scope, following))


def _providers_of(day: Day) -> str:
    return f"day providers {day.number}"

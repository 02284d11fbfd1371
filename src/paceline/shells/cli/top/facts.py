"""Facts for ``paceline top``, from the store or over REST, by reads that cost the same in a large store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from paceline.core.monitors.lists.query import START, parse_query
from paceline.ports import Store
from paceline.shells.cli.options import PageOptions
from paceline.shells.cli.output import RemoteError
from paceline.shells.lists import ListPage
from paceline.steps.ahead.facts import PlaceSettings
from paceline.steps.ahead.report import AheadView, ahead
from paceline.steps.monitors.find import find_monitors
from paceline.steps.views import job_report, report
from paceline.steps.views.account_report import AccountView, account_views
from paceline.steps.views.job_report import JobSummary
from paceline.steps.views.report import MonitorView, ProviderView, RunView, provider_view
from paceline.steps.views.running_days import RunningDay, running_days
from paceline.steps.views.service_report import ServiceStatus, service_status

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote

T = TypeVar("T")
MONITORS_SHOWN = 10
PROVIDERS_LOOKED_AT = 100
DAYS_SHOWN = 10
JOBS_LOOKED_AT = 20
SHARE = 9
"""Pause after reading a part, as a multiple of the time that it took: at most a tenth of the time goes into reading."""


class Wrong(msgspec.Struct, frozen=True):
    """A monitor that fails or is late, with the reason from its newest run."""

    monitor: MonitorView
    reason: str


class NextHour(msgspec.Struct, frozen=True):
    """How much is due in the next hour, from cadences and plans: checks, calls of batches, sends to RIPE."""

    checks: int
    calls: int
    sends: int


class TopFacts(msgspec.Struct, frozen=True):
    """``status``, ``providers``, ``days`` and ``accounts`` are for admins, and empty for others."""

    wrong: list[Wrong]
    more_wrong: bool
    """True if more monitors fail or are late than were read."""
    jobs: Sequence[JobSummary]
    next_hour: NextHour
    status: ServiceStatus | None = None
    providers: Sequence[ProviderView] = []
    more_providers: bool = False
    days: Sequence[RunningDay] = []
    accounts: list[AccountView] = []


class CachedRead(Generic[T]):
    """One part of the facts. It is read again only if that does not take too much of the time."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._again_s = float("-inf")
        self._value: T

    def get(self) -> T:
        began_s = time.monotonic()
        if began_s >= self._again_s:
            self._value = self._read()
            ended_s = time.monotonic()
            self._again_s = ended_s + SHARE * (ended_s - began_s)
        return self._value


class StoreFacts:
    """Facts from the store, of all users."""

    def __init__(self, store: Store, store_url: str, places: PlaceSettings, read_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = read_ms
        self._wrong = CachedRead(self._read_wrong)
        self._jobs = CachedRead(
            lambda: job_report.job_summaries(store, None, before=None, limit=JOBS_LOOKED_AT, now_ms=read_ms())[0]
        )
        self._ahead = CachedRead(lambda: _next_hour(ahead(store, places, user=None, hours=1, now_ms=read_ms())))
        self._status = CachedRead(lambda: service_status(store, store_url, now_ms=read_ms()))
        self._providers = CachedRead(self._read_providers)
        self._days = CachedRead(self._read_days)
        self._accounts = CachedRead(lambda: account_views(store, now_ms=read_ms()))

    def read(self) -> TopFacts:
        (wrong, more), (providers, more_providers) = self._wrong.get(), self._providers.get()
        return TopFacts(
            wrong,
            more,
            self._jobs.get(),
            self._ahead.get(),
            self._status.get(),
            providers,
            more_providers,
            self._days.get(),
            self._accounts.get(),
        )

    def _read_wrong(self) -> tuple[list[Wrong], bool]:
        found, more = list[MonitorView](), False
        for health in ("failing", "late"):
            query = parse_query(owner=None, tag=None, health=health, kind=None, q=None, sort=None)
            page = find_monitors(self._store, query, START, limit=MONITORS_SHOWN, now_ms=self._now_ms())
            found, more = [*found, *page.views], more or page.following is not None
        return [Wrong(one, _reason(self._runs(one))) for one in found[:MONITORS_SHOWN]], more

    def _runs(self, view: MonitorView) -> list[RunView]:
        monitor = self._store.monitor(view.user, view.id)
        if monitor is None:
            return []
        return report.monitor_runs(self._store, monitor, before=None, limit=5, now_ms=self._now_ms())[0]

    def _read_providers(self) -> tuple[list[ProviderView], bool]:
        store = self._store
        found = store.providers(after="", limit=PROVIDERS_LOOKED_AT + 1)
        views = [provider_view(store, one, now_ms=self._now_ms()) for one in found[:PROVIDERS_LOOKED_AT]]
        return views, len(found) > PROVIDERS_LOOKED_AT

    def _read_days(self) -> list[RunningDay]:
        store = self._store
        return running_days(store, store.batches(after="", limit=DAYS_SHOWN), now_ms=self._now_ms())


class RemoteFacts:
    """Facts from another Paceline: of all users for an admin, else of one user."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._is_admin = True
        self._wrong = CachedRead(self._read_wrong)
        self._jobs = CachedRead(lambda: self._page("/v1/jobs", JobSummary, JOBS_LOOKED_AT).items)
        self._ahead = CachedRead(lambda: _next_hour(remote.get("/v1/ahead", AheadView, query={"hours": 1})))
        self._status = CachedRead(lambda: remote.get("/v1/status", ServiceStatus))
        self._providers = CachedRead(lambda: self._page("/v1/providers", ProviderView, PROVIDERS_LOOKED_AT))
        self._days = CachedRead(lambda: self._page("/v1/days", RunningDay, DAYS_SHOWN).items)
        self._accounts = CachedRead(lambda: remote.every("/v1/accounts", AccountView))

    def read(self) -> TopFacts:
        if self._is_admin:
            try:
                self._status.get()
            except RemoteError as error:
                if error.code != "forbidden":
                    raise
                self._is_admin = False
        (wrong, more), jobs, following_hour = self._wrong.get(), self._jobs.get(), self._ahead.get()
        if not self._is_admin:
            return TopFacts(wrong, more, jobs, following_hour)
        providers = self._providers.get()
        accounts, days = self._accounts.get(), self._days.get()
        found = wrong, more, jobs, following_hour, self._status.get()
        return TopFacts(*found, providers.items, providers.next_cursor is not None, days, accounts)

    def _page(self, path: str, type_: type[T], limit: int, **query: str) -> ListPage[T]:
        return self._remote.page(path, type_, PageOptions(limit), query=query)

    def _read_wrong(self) -> tuple[list[Wrong], bool]:
        path = "/v1/monitors" if self._is_admin else "/v1/users/me/monitors"
        pages = [self._page(path, MonitorView, MONITORS_SHOWN, health=health) for health in ("failing", "late")]
        found = [view for one in pages for view in one.items][:MONITORS_SHOWN]
        wrong = [Wrong(one, _reason(self._runs(one))) for one in found]
        return wrong, any(one.next_cursor is not None for one in pages)

    def _runs(self, view: MonitorView) -> Sequence[RunView]:
        names: dict[str, Any] = {"user": view.user, "id": view.id}
        path = "/v1/users/{user}/monitors/{id}/runs"
        return self._remote.page(path, RunView, PageOptions(5), **names).items


def _next_hour(view: AheadView) -> NextHour:
    sums = (sum(getattr(one, kind) for one in view.windows) for kind in ("monitors", "batches", "jobs"))
    return NextHour(*sums)


def _reason(runs: Sequence[RunView]) -> str:
    """Returns why the newest ended run failed, or why the newest run waits."""
    ended = [run for run in runs if run.outcome]
    return next((run.reason for run in ended or runs), "")

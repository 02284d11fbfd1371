"""Status of the whole service: the store, its monitors, batches, jobs, accounts and daemons."""

from __future__ import annotations

import msgspec

from paceline.core.instants import to_text
from paceline.core.schema import Instant
from paceline.ports import Store
from paceline.steps.views import account_report
from paceline.steps.views.account_report import AccountState
from paceline.steps.views.report import StatusView, status_view


class AccountAside(msgspec.Struct, frozen=True):
    """An account that sends nothing now, and why."""

    id: str
    state: AccountState
    reason: str


class AtlasPause(msgspec.Struct, frozen=True):
    """RIPE asked to wait: no account sends before this time."""

    until: Instant
    reason: str


class ServiceStatus(StatusView, frozen=True):
    """Counts and delays of the whole service.

    ``job_age_s``: age of the oldest job with a measurement that waits to be sent. ``alerts_open``: alerts that are
    still to be sent, or that a silence holds back. ``alerts_failed``: ended alerts that at least one channel did not
    accept. ``store``: storage engine and location of the data.
    """

    jobs_open: int
    measurements: dict[str, int]
    job_age_s: float
    accounts: int
    accounts_aside: list[AccountAside]
    atlas_pause: AtlasPause | None
    alerts_open: int
    alerts_failed: int
    store: str


def service_status(store: Store, store_url: str, *, now_ms: int) -> ServiceStatus:
    counts = store.send_counts()._asdict()
    oldest_ms, open_jobs = counts.pop("oldest_ms"), counts.pop("open_jobs")
    accounts = account_report.account_views(store, now_ms=now_ms)
    paused, _ = store.gates(())
    alerts = store.alert_counts()
    waits = paused is not None and paused.until_ms > now_ms
    return ServiceStatus(
        **msgspec.structs.asdict(status_view(store, now_ms=now_ms)),
        jobs_open=open_jobs,
        measurements=counts,
        job_age_s=0.0 if oldest_ms is None else max(now_ms - oldest_ms, 0) / 1_000,
        accounts=len(accounts),
        accounts_aside=[AccountAside(one.id, one.state, one.reason) for one in accounts if one.state != "ready"],
        atlas_pause=AtlasPause(to_text(paused.until_ms), paused.reason) if paused and waits else None,
        alerts_open=alerts.open,
        alerts_failed=alerts.failed,
        store=store_url,
    )

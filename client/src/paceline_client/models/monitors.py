"""Monitors and their runs, and the claims and reports of checkers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import msgspec

from paceline_client.answers import Model
from paceline_client.durations import Date, Duration, DurationLike
from paceline_client.models.checks import Check, CheckLike
from paceline_client.models.states import (
    BulkDisposition,
    CheckKind,
    Health,
    Missed,
    MonitorSort,
    OutcomeDisposition,
    OutcomeStatus,
    Overlap,
    RunOutcome,
    RunState,
    SettledState,
    UpcomingReason,
)
from paceline_client.problems import ProblemDocument


class Schedule(Model, frozen=True):
    """A monitor's entry: its generation and counter name its runs."""

    key: str
    generation: int
    counter: int
    next_due: datetime | None


class Skipped(Model, frozen=True):
    """Firings that made no run because an earlier run has not ended. ``since``: when that run was due."""

    count: int
    since: datetime
    reason: str


class AlertPolicy(Model, frozen=True):
    """How many failures or successes in a row turn a monitor failing or ok again, and which channels get its alerts."""

    after: int
    recover: int
    channels: tuple[str, ...]


class AlertDocument(TypedDict, total=False):
    """When a monitor counts as failing or recovered, and which channels get its alerts.

    ``channels`` empty: the user's default channels.
    """

    after: int
    recover: int
    channels: Sequence[str]


class MonitorFigures(Model, frozen=True):
    """Uptime over 30 days as a share from 0 to 1, and the 95th percentile of latency over 90 days.

    ``days`` and ``p50_days``: the uptime and the median latency of each of the last 30 days, oldest first. None:
    nothing is known.
    """

    uptime_30d: float | None
    p95_ms: float | None
    days: list[float | None]
    p50_days: list[float | None]


class Monitor(Model, frozen=True):
    """A monitor as it is stored, with its schedule and health. ``etag`` is None in lists."""

    id: str
    user: str
    check: Check
    jitter: Duration
    missed: Missed
    overlap: Overlap
    paused: bool
    tags: list[str]
    alert: AlertPolicy
    attempts: int
    schedule: Schedule
    revision: int
    health: Health
    failures: int
    created_at: datetime
    updated_at: datetime
    every: Duration | None = None
    cron: str | None = None
    timezone: str | None = None
    initial_delay: Duration | None = None
    skipped: Skipped | None = None
    failing_since: datetime | None = None
    figures: MonitorFigures | None = None
    etag: str | None = None


class _MonitorOptions(TypedDict, total=False):
    every: DurationLike | None
    cron: str | None
    timezone: str | None
    initial_delay: DurationLike | None
    jitter: DurationLike
    missed: Missed
    overlap: Overlap
    paused: bool
    tags: Sequence[str]
    alert: AlertDocument
    attempts: int


class MonitorDefinition(_MonitorOptions):
    """A monitor to put: ``check``, and ``every`` or ``cron``."""

    check: CheckLike


class MonitorItem(MonitorDefinition):
    """One of many monitors that are put together."""

    id: str


class MonitorFilters(TypedDict, total=False):
    """Filters and order of a list of monitors. ``q``: part of the id or of the address; case does not matter.

    ``figures``: adds ``Monitor.figures``, which says how good each monitor was.
    """

    tag: str | None
    health: Health | None
    kind: CheckKind | None
    q: str | None
    sort: MonitorSort | None
    figures: bool | None


class MonitorChanges(_MonitorOptions, total=False):
    """Fields that an edit or a patch changes. None removes a field."""

    check: CheckLike


class BulkResult(Model, frozen=True):
    """Result of one item; ``error`` says why it was refused."""

    id: str | None
    disposition: BulkDisposition
    error: ProblemDocument | None = None


class BulkAnswer(Model, frozen=True):
    """Results in the order of the request."""

    items: list[BulkResult]


class Run(Model, frozen=True):
    """A run of a monitor. ``detail`` is what the checker reported."""

    run: str
    user: str
    monitor: str
    due: datetime
    state: RunState
    outcome: RunOutcome | None
    attempt: int
    reason: str
    latency_ms: float | None
    status_code: int | None
    started_at: datetime | None
    ended_at: datetime | None
    until: datetime | None
    detail: dict[str, Any]


class RunNow(Model, frozen=True):
    """The id of the run that was started; of the monitor's open run, if it had one already."""

    run: str


class Upcoming(Model, frozen=True):
    """Next times at which a monitor fires. ``reason``: why there are none: it is paused, or its user is disabled."""

    items: list[datetime]
    reason: UpcomingReason | None = None


class Latency(Model, frozen=True):
    """Percentiles of the latency of good runs, in milliseconds, accurate to 2.5 %. None: no run has a latency."""

    p50: float | None
    p95: float | None
    p99: float | None


class Incident(Model, frozen=True):
    """Time from the first failed run to the next good one. ``ended`` None: the incident is not over."""

    began: datetime
    ended: datetime | None
    reason: str


class UptimeDay(Model, frozen=True):
    """One UTC day of a monitor. ``share``: ``good_s`` divided by ``known_s``, from 0 to 1; None if nothing is known."""

    date: Date
    share: float | None
    good_s: float
    known_s: float
    ok: int
    failed: int
    incidents: int
    p50: float | None
    p95: float | None
    p99: float | None


class SharesSince(Model, frozen=True):
    """Start of the period of each share. Each period lasts until now."""

    since_1d: datetime = msgspec.field(name="1d")
    since_7d: datetime = msgspec.field(name="7d")
    since_30d: datetime = msgspec.field(name="30d")
    since_90d: datetime = msgspec.field(name="90d")


class Uptime(Model, frozen=True):
    """Uptime of a monitor, as shares of good time from 0 to 1; None: nothing is known.

    The shares cover the last 1, 7, 30 and 90 whole UTC days and the current day. ``since``: where each period begins.
    """

    share_1d: float | None = msgspec.field(name="1d")
    share_7d: float | None = msgspec.field(name="7d")
    share_30d: float | None = msgspec.field(name="30d")
    share_90d: float | None = msgspec.field(name="90d")
    since: SharesSince
    latency_ms: Latency
    incidents: list[Incident]
    days: list[UptimeDay]


class ClaimedRun(Model, frozen=True):
    """A run of an outgoing monitor that is yours until ``lease_until``. ``check`` is the monitor's, as it was put."""

    run: str
    lease: str
    check: dict[str, Any]
    due: datetime
    attempt: int
    monitor: str
    user: str
    lease_until: datetime


class ClaimAnswer(Model, frozen=True):
    """Runs that were leased together."""

    items: list[ClaimedRun]


class OutcomeItem(TypedDict):
    """One of many outcomes that are reported together."""

    run: str
    lease: str
    status: OutcomeStatus
    detail: NotRequired[dict[str, Any]]
    after: NotRequired[DurationLike]


class OutcomeResult(Model, frozen=True):
    """Result of one report: ``state`` says how the run ended, ``error`` why the report does not count."""

    run: str | None
    disposition: OutcomeDisposition
    state: SettledState | None = None
    error: ProblemDocument | None = None


class OutcomesAnswer(Model, frozen=True):
    """Results in the order of the request."""

    items: list[OutcomeResult]


class ExtendAnswer(Model, frozen=True):
    """New end of the lease."""

    lease_until: datetime

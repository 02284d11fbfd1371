"""Batches, records, days and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import msgspec

from paceline_client.answers import Model
from paceline_client.durations import Date, Duration, DurationLike
from paceline_client.models.monitors import BulkResult
from paceline_client.models.providers import Expect, ExpectDocument
from paceline_client.models.states import (
    BatchRunState,
    DayState,
    HttpMethod,
    Missed,
    PlanWarningKind,
)


class Deleting(Model, frozen=True):
    """Progress of the deletion of a batch: when it began, and how many runs and records are deleted so far."""

    since: datetime
    runs: int
    records: int


class Batch(Model, frozen=True):
    """A batch as it is stored, with its next start. ``etag`` is None in lists."""

    id: str
    start: str
    window: Duration
    timezone: str
    jitter: Duration
    missed: Missed
    paused: bool
    channels: list[str]
    next_start: datetime
    revision: int
    created_at: datetime
    updated_at: datetime
    deleting: Deleting | None = None
    etag: str | None = None


class BatchDefinition(TypedDict, total=False):
    """A batch to put, or the fields that an edit changes."""

    start: str
    window: DurationLike
    timezone: str
    jitter: DurationLike
    missed: Missed
    paused: bool
    channels: list[str]


class RecordDocument(TypedDict):
    """A record to put: what is asked of which provider, once a day."""

    id: str
    provider: str
    endpoint: NotRequired[str]
    body: NotRequired[Any]
    active: NotRequired[bool]
    method: NotRequired[HttpMethod | None]
    headers: NotRequired[Mapping[str, str]]
    timeout: NotRequired[DurationLike | None]
    expect: NotRequired[ExpectDocument | None]
    priority: NotRequired[int]
    after: NotRequired[str | None]


class Record(Model, frozen=True):
    """A record as it is stored.

    ``body`` is JSON; None: no body. Fields that the provider decides have their defaults.
    """

    id: str
    provider: str
    endpoint: str
    body: Any
    active: bool
    method: HttpMethod | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout: Duration | None = None
    expect: Expect | None = None
    priority: int = 0
    after: str | None = None


class RefusedLine(Model, frozen=True):
    """A refused line, and why."""

    line: int
    id: str | None
    code: str
    detail: str


class RecordsPut(Model, frozen=True):
    """Counts of records by disposition.

    ``items`` has a disposition for each record after ``put``; ``refusals`` has the refused ones after ``load``.
    """

    created: int
    replaced: int
    unchanged: int
    refused: int
    items: tuple[BulkResult, ...] = ()
    refusals: tuple[RefusedLine, ...] = ()


class Planned(Model, frozen=True):
    """Result of a plan. ``already``: planned before. ``skipped``: ended at once, because their time has passed."""

    enqueued: int
    already: int
    skipped: int


class Rerun(Model, frozen=True):
    """Result of a rerun.

    ``rerun`` is its number: its runs are `batch/record@date~rerun`. 0: nothing was to run again.
    """

    enqueued: int
    rerun: int


class Evenness(Model, frozen=True):
    """How evenly runs are spread: gaps between neighbours, and the fullest minute."""

    runs: int
    ideal_gap_ms: float
    max_gap_ms: int
    ratio: float
    worst_minute_runs: int


class Window(Model, frozen=True):
    """Runs that are due in one window of the histogram."""

    start: datetime
    runs: int


class PlanWarning(Model, frozen=True):
    """A warning that a provider may not take all of its records in the window. ``fit``: how many it can take."""

    provider: str
    kind: PlanWarningKind
    records: int
    fit: int
    detail: str


class ProviderPreview(Model, frozen=True):
    """Planned calls to one provider on the day.

    ``gap_ms``: ideal time between two calls. ``latency_ms``: mean latency of the last calls; None if there were none.
    """

    provider: str
    records: int
    gap_ms: float
    max_gap_ms: int
    max_in_flight: int
    rate: str | None
    latency_ms: float | None
    paused: bool


class Preview(Model, frozen=True):
    """The plan of a batch's day as it would be made now. ``already``: how many runs are planned already."""

    batch: str
    date: Date
    start: datetime
    end: datetime
    records: int
    already: int
    evenness: Evenness
    histogram: list[Window]
    providers: list[ProviderPreview]
    warnings: list[PlanWarning]


class DaySummary(Model, frozen=True):
    """One day of a batch, or a rerun of it. ``rerun``: number of the rerun; 0 for the day itself."""

    batch: str
    date: Date
    rerun: int
    state: DayState
    start: datetime
    end: datetime
    enqueued: int
    skipped: int


class DayEnds(Model, frozen=True, rename={"from_": "from"}):
    """Earliest and latest expected end of the day's last run."""

    from_: datetime
    to: datetime


class RunningDay(Model, frozen=True):
    """Progress of a batch's current day, which is the day whose window began last.

    ``planned``: number of runs that should have started by now. ``behind``: how many of them have not ended. ``eta``
    None: all runs have ended, or the batch is paused.
    """

    batch: str
    date: Date
    rerun: int
    state: DayState
    start: datetime
    end: datetime
    enqueued: int
    skipped: int
    runs: int
    totals: dict[str, int]
    planned: int
    behind: int
    paused: bool
    eta: DayEnds | None


class ProviderDay(Model, frozen=True):
    """One provider's part of a day."""

    provider: str
    runs: int
    totals: dict[str, int]
    evenness: Evenness


class Day(Model, frozen=True):
    """The report of a day: totals by state and provider, evenness, histogram. ``providers`` are the first hundred."""

    batch: str
    date: Date
    rerun: int
    state: DayState
    start: datetime
    end: datetime
    enqueued: int
    skipped: int
    runs: int
    totals: dict[str, int]
    evenness: Evenness
    histogram: list[Window]
    histogram_window: Duration
    outside: int
    providers: list[ProviderDay]
    next_cursor: str | None
    etag: str | None = None


class BatchRun(Model, frozen=True):
    """A run of a batch. ``payload`` is the beginning of the provider's answer."""

    run: str
    batch: str
    record: str
    date: Date
    rerun: int
    provider: str
    due: datetime
    state: BatchRunState
    attempt: int
    reason: str
    latency_ms: float | None
    status_code: int | None
    started_at: datetime | None
    ended_at: datetime | None
    until: datetime | None
    payload: str | None
    dead: bool


class RecordWork(Model, frozen=True):
    """The record of a claimed run. ``body`` is JSON; None: no body."""

    id: str
    provider: str
    endpoint: str
    body: Any


class ClaimedRecord(Model, frozen=True):
    """A run of an outgoing provider that is yours until ``lease_until``, and its record."""

    run: str
    lease: str
    record: RecordWork
    due: datetime
    attempt: int
    batch: str
    date: Date
    lease_until: datetime

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def provider(self) -> str:
        return self.record.provider

    @property
    def endpoint(self) -> str:
        return self.record.endpoint

    @property
    def body(self) -> Any:
        return self.record.body


class RecordClaimAnswer(Model, frozen=True):
    """Runs that were leased together, in the order in which they must start."""

    items: list[ClaimedRecord]


class Redriven(Model, frozen=True):
    """How many dead letters were redriven."""

    redriven: int


class Replayed(Model, frozen=True):
    """Counts of messages in dead queues: sent again, deleted because they are stale, and left because unreadable."""

    redriven: int
    dropped: int
    left: int
    queues: dict[str, int]


class Discarded(Model, frozen=True):
    """How many dead letters were discarded."""

    discarded: int

"""Jobs as the service shows them, and their results."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from paceline_client.answers import Model
from paceline_client.models.states import JobState, MeasurementState
from paceline_client.models.why import WhyEta


class JobQuote(Model, frozen=True):
    """Highest cost of a job, and whether it ``fits`` into what is left. Nothing was changed."""

    cost: int
    credits_left: int
    measurements: int
    fits: bool
    resets_at: datetime


class JobAccepted(Model, frozen=True):
    """A job that was accepted.

    ``cost`` is its highest possible cost, which is reserved. ``again``: it was submitted before, with the same key.
    """

    job: str
    cost: int
    credits_left: int
    measurements: int
    again: bool


class Counts(Model, frozen=True):
    """Number of a job's measurements in each state."""

    queued: int = 0
    parked: int = 0
    sending: int = 0
    unknown: int = 0
    ongoing: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled

    @property
    def total(self) -> int:
        return self.ended + self.queued + self.parked + self.sending + self.unknown + self.ongoing


class Cost(Model, frozen=True):
    """Credits of a job."""

    reserved: int
    settled: int
    refunded: int


class AccountReason(Model, frozen=True):
    """Why one account cannot send the measurement now."""

    account: str
    reason: str


class Waiting(Model, frozen=True):
    """Why a measurement of the job is not sent yet. ``accounts``: None for users who are not admins."""

    reason: str
    next_try: datetime | None
    expected_room_at: datetime | None
    accounts: list[AccountReason] | None


class Measurement(Model, frozen=True):
    """One measurement of a job."""

    index: int
    state: MeasurementState
    types: list[str]
    targets: list[str]
    probes: int
    atlas_id: int | None
    atlas_ids: list[int]
    account: str | None
    reason: str
    next_try: datetime | None
    stopping: bool
    cost: int
    settled: int | None
    results: int
    sent_at: datetime | None
    ended_at: datetime | None


class JobStatus(Model, frozen=True):
    """A job and its progress. ``finished``: all measurements have ended. ``success``: all of them are done.

    ``place``: number of sends before the job's next one; None if none of its measurements waits to be sent. ``eta``:
    when the first measurement is sent, or, if one was sent already, when the last one ends; None if that is not known.
    ``reason``: what the job waits for.
    """

    job: str
    title: str
    user: str
    state: JobState
    finished: bool
    success: bool
    webhook: str | None
    created_at: datetime
    started_at: datetime | None
    cancelled_at: datetime | None
    finished_at: datetime | None
    counts: Counts
    cost: Cost
    waiting: Waiting | None
    place: int | None
    eta: WhyEta | None
    reason: str
    measurements: tuple[Measurement, ...] = ()


class JobSummary(Model, frozen=True):
    """A job in a list. ``place``, ``eta`` and ``reason`` mean the same as in ``JobStatus``."""

    job: str
    title: str
    user: str
    state: JobState
    finished: bool
    success: bool
    created_at: datetime
    finished_at: datetime | None
    measurements: int
    open: int
    done: int
    failed: int
    cancelled: int
    counts: Counts
    cost: Cost
    place: int | None
    eta: WhyEta | None
    reason: str


class Result(Model, frozen=True):
    """One result as RIPE has it, or the ``error`` in its place."""

    measurement: int
    definition: int
    atlas_id: int | None = None
    target: str | None = None
    result: dict[str, Any] | None = None
    error: str | None = None


class ResultPlace(Model, frozen=True):
    """A measurement at RIPE; in ``errors``, with what went wrong."""

    measurement: int
    definition: int
    atlas_id: int | None = None
    target: str | None = None
    error: str | None = None


class TargetResults(Model, frozen=True):
    """All results of one target."""

    target: str | None
    measurements: list[ResultPlace]
    results: list[dict[str, Any]]
    errors: tuple[ResultPlace, ...] = ()

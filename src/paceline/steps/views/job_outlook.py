"""Outlook of a job: what it waits for, its place in the queue, and when it is expected to begin or to end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.names import handle_of
from paceline.core.jobs.pool import Pool
from paceline.core.jobs.values import StoredJob, StoredMeasurement
from paceline.core.why.chain import Eta
from paceline.core.why.job_eta import begin_eta, end_eta, kinds_of_sends, sent_eta
from paceline.core.why.send_eta import SendForecast
from paceline.core.why.send_line import PLACES_MAX, SendLine, place_of, waiting_of
from paceline.ports import Store
from paceline.steps.jobs.gates import read_gates
from paceline.steps.jobs.send_line import read_line
from paceline.steps.upkeep.daemons import count_daemons

_WAITING: tuple[MeasurementState, ...] = ("queued", "parked")
_OPEN: tuple[MeasurementState, ...] = (*_WAITING, "sending", "unknown", "ongoing")


class JobOutlook(NamedTuple):
    """``place``: how many sends come before the job's next one; None: nothing of it waits to be sent.

    ``eta``: when its first measurement is sent, if nothing was sent yet; else when its last one ends.
    """

    place: int | None = None
    eta: Eta | None = None


class OpenJob(NamedTuple):
    """A job that is not finished. ``waiting``: one of its waiting measurements; ``items``: all, if they were read.

    ``counts``: how many are in each state.
    """

    job: StoredJob
    counts: dict[MeasurementState, int]
    waiting: StoredMeasurement | None
    items: Sequence[StoredMeasurement] | None


class JobOutlooks:
    """Outlooks of many jobs: the line of sends is read once."""

    def __init__(self, store: Store, *, now_ms: int) -> None:
        self._store, self._now_ms = store, now_ms
        self._disabled: dict[str, bool] = {}

    @property
    def pool(self) -> Pool:
        return self._line.pool

    def of(self, one: OpenJob) -> JobOutlook:
        """Return the place of the job and its ETA, as far as they are known."""
        job = one.job
        queued = job.open and job.cancelled_ms is None and any(one.counts.get(state) for state in _WAITING)
        before = self._before(job) if queued else 0
        place = place_of(self._line, job.owner, before) if queued else None
        if not job.open or job.cancelled_ms is not None:
            return JobOutlook()
        if job.started_ms is None:
            return JobOutlook(place, self._begin_eta(one, before))
        return JobOutlook(place, self._end_eta(one, before))

    def is_disabled(self, owner: str) -> bool:
        if owner not in self._disabled:
            user = self._store.user(owner) if owner else None
            self._disabled[owner] = user is None or user.disabled
        return self._disabled[owner]

    def _before(self, job: StoredJob) -> int:
        return self._store.queued_before(job.owner, handle_of(job.number, 0), limit=PLACES_MAX)

    def _send_eta(self, item: StoredMeasurement, before: int, *, stops: bool = True) -> Eta | None:
        """Return when it is sent; ``stops`` False: as if it had no stop time, because others are sent after it."""
        if self.is_disabled(item.owner) or not self._daemons:
            return None
        targets = read_gates(self._store, [item]).of_targets(item.measurement)
        one = waiting_of(item, before, targets, now_ms=self._now_ms)
        return self._forecast.eta(one if stops else one._replace(stop_ms=None))

    def _begin_eta(self, one: OpenJob, before: int) -> Eta | None:
        if one.items is None:
            return None if one.waiting is None else self._send_eta(one.waiting, before)
        kinds = kinds_of_sends(one.items)
        if kinds is None:
            return None
        return begin_eta(self._send_eta(each.item, before + each.own, stops=False) for each in kinds.first)

    def _end_eta(self, one: OpenJob, before: int) -> Eta | None:
        if one.items is None or not self._daemons:
            return None
        kinds = kinds_of_sends(one.items)
        if kinds is None:
            return None
        sends = [sent_eta(each.item, self._send_eta(each.item, before + each.own)) for each in kinds.last]
        running = [item for item in one.items if item.state in _OPEN and item.state not in _WAITING]
        return end_eta(running, sends, now_ms=self._now_ms)

    @cached_property
    def _line(self) -> SendLine:
        return read_line(self._store, now_ms=self._now_ms)

    @cached_property
    def _forecast(self) -> SendForecast:
        return SendForecast(self._line, now_ms=self._now_ms)

    @cached_property
    def _daemons(self) -> int:
        return count_daemons(self._store, now_ms=self._now_ms)

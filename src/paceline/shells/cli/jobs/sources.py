"""Sources of ``--watch``: a job in the store, or in another Paceline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from paceline.shells.cli.upkeep import running_daemons
from paceline.steps.views import job_report
from paceline.steps.views.job_report import JobView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

JOB_PATH = "/v1/jobs/{job}"


class JobSource(Protocol):
    def progress(self, job_id: str) -> JobView:
        """Returns the job without its measurements."""

    def failures(self, job_id: str) -> Iterator[tuple[int, str]]:
        """Yields index and reason of each measurement that failed."""

    def is_worked_on(self) -> bool:
        """True if a daemon runs."""


class StoreJobs:
    """Jobs of a store."""

    def __init__(self, system: System) -> None:
        self._system = system

    def progress(self, job_id: str) -> JobView:
        store, now_ms = self._system.store, self._system.clock.now_ms()
        return job_report.job_progress(store, job_report.find_job(store, None, job_id), now_ms=now_ms)

    def failures(self, job_id: str) -> Iterator[tuple[int, str]]:
        store = self._system.store
        found = job_report.job_measurements(store, job_report.find_job(store, None, job_id))
        return ((one.index, one.reason) for one in found if one.state == "failed")

    def is_worked_on(self) -> bool:
        return bool(running_daemons(self._system.store, now_ms=self._system.clock.now_ms()))


class RemoteJobs:
    """Jobs of another Paceline."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def progress(self, job_id: str) -> JobView:
        return self._remote.get(JOB_PATH, JobView, query={"measurements": "false"}, job=job_id)

    def failures(self, job_id: str) -> Iterator[tuple[int, str]]:
        view = self._remote.get(JOB_PATH, JobView, job=job_id)
        return ((one.index, one.reason) for one in view.measurements or () if one.state == "failed")

    def is_worked_on(self) -> bool:
        """Returns True: a Paceline that answers is running."""
        return True

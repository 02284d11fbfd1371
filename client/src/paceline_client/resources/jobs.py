"""Jobs of RIPE Atlas measurements, and the handle of one job."""

from __future__ import annotations

import time
import uuid
from typing import TypeAlias

from paceline_client.answers import Json, Opened, Page, decode
from paceline_client.calls import Call, Pages, Plan, Resource, Sleep, Stream, Transport, listing, operation
from paceline_client.durations import DurationLike, seconds
from paceline_client.models.job_documents import JobDocument
from paceline_client.models.jobs import JobAccepted, JobQuote, JobStatus, JobSummary, Result, TargetResults
from paceline_client.models.why import Why
from paceline_client.progress import ProgressLike, progress_of
from paceline_client.transport import AsyncTransport, SyncTransport

RESULTS_S = 600.0
"""Longest wait for the next line from RIPE."""
LOOK_S_MIN, LOOK_S_MAX = 0.5, 10.0
_JOB = "/v1/jobs/{job}"


class Jobs(Resource[Transport]):
    """Jobs: your own, or for admins those of all users."""

    @operation
    def submit(
        self, document: JobDocument, *, user: str | None = None, idempotency_key: str | None = None
    ) -> Plan[JobHandle[Transport]]:
        """Prices the job, reserves its highest cost and submits it, completely or not at all.

        Without an ``idempotency_key`` a random one is used, so that the request can be sent again after a lost answer
        without submitting twice. Give your own key to be safe across restarts of your program. ``user``: the owner, for
        admins.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        accepted = yield from Call(
            "POST",
            "/v1/jobs",
            Json(JobAccepted),
            query={"user": user},
            headers=headers,
            body=document,
            repeatable=True,
        )
        return JobHandle(self._transport, accepted.job, accepted)

    @operation
    def quote(self, document: JobDocument, *, user: str | None = None) -> Call[JobQuote]:
        """Returns the highest cost of the job, and whether it fits; changes nothing."""
        query = {"dry_run": "true", "user": user}
        return Call("POST", "/v1/jobs", Json(JobQuote), query=query, body=document, repeatable=True)

    @listing
    def list(self, *, user: str | None = None, limit: int | None = None) -> Pages[JobSummary]:
        """Lists jobs, newest first."""
        return Pages(Call("GET", "/v1/jobs", Json(Page[JobSummary]), query={"user": user}), limit)

    @operation
    def get(self, job: str, *, measurements: bool = True) -> Call[JobStatus]:
        """Returns the job as it is now. ``measurements=False`` leaves them out, for programs that look often."""
        return _get(job, measurements=measurements)

    @operation
    def why(self, job: str) -> Call[Why]:
        """Explains why the job is not done, by its first measurement that waits or runs."""
        return Call("GET", "/v1/jobs/{job}/why", Json(Why), {"job": job})

    @operation
    def cancel(self, job: str) -> Call[JobStatus]:
        """Cancels the job: measurements that were not sent are refunded, running ones are stopped soon."""
        return _cancel(job)

    @listing
    def results(self, job: str) -> Stream[Result]:
        """Streams the results as RIPE has them now."""
        return _results(job)

    @listing
    def results_by_target(self, job: str) -> Stream[TargetResults]:
        """Streams one item for each target. All results of one target are in memory together."""
        return _results_by_target(job)

    def open(self, job: str) -> JobHandle[Transport]:
        """Returns the handle of a job that was submitted before; sends no request."""
        return JobHandle(self._transport, job)


class JobHandle(Resource[Transport]):
    """One job. ``accepted`` is the answer to its submission; None if it was opened by its id."""

    def __init__(self, transport: Transport, job: str, accepted: JobAccepted | None = None) -> None:
        super().__init__(transport)
        self.id = job
        self.accepted = accepted

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @operation
    def status(self, *, measurements: bool = True) -> Call[JobStatus]:
        """Returns the job as it is now."""
        return _get(self.id, measurements=measurements)

    @operation
    def wait(self, *, timeout: DurationLike | float | None = None, progress: ProgressLike = None) -> Plan[JobStatus]:
        """Waits until every measurement has ended; returns the job with its measurements.

        ``timeout``: raises TimeoutError after this time; the job goes on. ``progress``: None shows a bar in a terminal
        or a notebook, False none, and a function is called with a JobStatus after each look.
        """
        deadline_s = None if timeout is None else time.monotonic() + seconds(timeout)
        look_s = LOOK_S_MIN
        with progress_of(progress, self.id) as show:
            while True:
                status = yield from _get(self.id, measurements=False)
                show(status)
                if status.finished:
                    return (yield from _get(self.id, measurements=True))
                left_s = look_s if deadline_s is None else deadline_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"job {self.id}: {status.counts.ended} of {status.counts.total} have ended")
                yield from Sleep(min(look_s, left_s))
                look_s = min(LOOK_S_MAX, look_s * 1.5)

    @operation
    def cancel(self) -> Call[JobStatus]:
        """Cancels all measurements that have not ended."""
        return _cancel(self.id)

    @listing
    def results(self) -> Stream[Result]:
        """Streams the results as RIPE has them now. ``.to_pandas()`` turns them into a data frame."""
        return _results(self.id)

    @listing
    def results_by_target(self) -> Stream[TargetResults]:
        """Streams one item for each target."""
        return _results_by_target(self.id)


Job: TypeAlias = JobHandle[SyncTransport]
AsyncJob: TypeAlias = JobHandle[AsyncTransport]


def _get(job: str, *, measurements: bool) -> Call[JobStatus]:
    return Call("GET", _JOB, Json(JobStatus), {"job": job}, {"measurements": None if measurements else "false"})


def _cancel(job: str) -> Call[JobStatus]:
    return Call("DELETE", _JOB, Json(JobStatus), {"job": job})


def _results(job: str) -> Stream[Result]:
    call = Call("GET", f"{_JOB}/results", Opened(Result), {"job": job}, streamed=True, wait_s=RESULTS_S)
    return Stream(call, lambda line: decode(Result, line))


def _results_by_target(job: str) -> Stream[TargetResults]:
    places, query = {"job": job}, {"merged": "target"}
    call = Call("GET", f"{_JOB}/results", Opened(TargetResults), places, query, streamed=True, wait_s=RESULTS_S)
    return Stream(call, lambda line: decode(TargetResults, line))

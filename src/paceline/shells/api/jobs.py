"""Routes of jobs: price, submit, list, show, cancel, read results; and of the user's credits that are left today."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from paceline.core.instants import to_text
from paceline.core.jobs.values import StoredJob
from paceline.errors import AlreadyExists, FieldProblem, InvalidInput, JobFinished, NotFound, OverDailyCredits
from paceline.shells import lists
from paceline.shells.api.documents import JobAccepted, JobQuote, WebhookSecret
from paceline.shells.api.http.answers import ApiAnswer, Header, Stream, json_answer, stream_answer
from paceline.shells.api.http.auth import owner_of, viewer_of
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.pages import query, truth
from paceline.shells.api.http.route import RouteGroup
from paceline.steps.access import get_user
from paceline.steps.jobs import submit
from paceline.steps.jobs.results import write_merged, write_results
from paceline.steps.jobs.webhook import webhook_secret
from paceline.steps.views import job_report

_MEDIA = "application/x-ndjson"
_AGAIN: Header = (b"idempotent-replay", b"true")
BUDGETS = RouteGroup("Users")
JOBS = RouteGroup("Jobs")
_JOB = "/v1/jobs/{job}"


@JOBS.post(
    "/v1/jobs",
    {200: JobQuote, 202: JobAccepted},
    document="JobBody",
    body_bytes_max=sys.maxsize,
    query=("dry_run", "user"),
    headers=("Idempotency-Key",),
    problems=(OverDailyCredits, AlreadyExists, NotFound),
)
async def submit_job(call: ApiCall) -> ApiAnswer:
    """Prices the job, reserves its highest cost and submits it, completely or not at all."""
    asked = query(call.query_string, "dry_run", "user")
    asker = owner_of(call.user, asked.get("user", "me"))
    owner = (await call.api.read(get_user, call.api.store, asker)).id
    if truth(asked, "dry_run", default=False):
        return await _quote(call, owner)
    api = call.api
    submitted = await api.heavy_work(
        submit.submit_job,
        api.store,
        owner,
        call.body,
        limits=api.system.job_limits,
        idempotency_key=_idempotency_key(call.headers),
        now_ms=api.now_ms(),
    )
    api.hooks.wake_jobs()
    return _accepted(submitted)


@JOBS.get_page("/v1/jobs", job_report.JobSummary, query=("user",), problems=(NotFound,))
async def list_jobs(call: ApiCall) -> ApiAnswer:
    """Jobs, newest first."""
    api = call.api
    asked = call.page("user")
    owner = viewer_of(call.user)
    if "user" in asked.given:
        owner = (await api.read(get_user, api.store, owner_of(call.user, asked.given["user"]))).id
    return json_answer(200, await api.listed(asked, lists.list_jobs, owner))


@JOBS.get(_JOB, job_report.JobView, query=("measurements",))
async def show_job(call: ApiCall) -> ApiAnswer:
    """The job with its counts, its cost, why it waits, and its measurements."""
    asked = query(call.query_string, "measurements")
    whole = truth(asked, "measurements", default=True)
    job = await _job(call)
    api, viewer = call.api, viewer_of(call.user)
    if not whole:
        view = await api.work(job_report.job_progress, api.store, job, now_ms=api.now_ms(), viewer=viewer)
        return json_answer(200, view)
    view = await api.heavy_work(job_report.job_view, api.store, job, now_ms=api.now_ms(), viewer=viewer)
    return json_answer(200, view)


@JOBS.delete(_JOB, {202: job_report.JobView}, problems=(JobFinished,))
async def cancel_job(call: ApiCall) -> ApiAnswer:
    """Cancels the job: measurements that were not sent are refunded, running ones are stopped.

    The loops stop running measurements at RIPE, so the answer may come before the end.
    """
    api, job = call.api, await _job(call)
    after = await api.work(job_report.cancel_job, api.store, job, now_ms=api.now_ms())
    api.hooks.wake_jobs()
    viewer = viewer_of(call.user)
    view = await api.work(job_report.job_progress, api.store, after, now_ms=api.now_ms(), viewer=viewer)
    return json_answer(202, view)


@JOBS.get(f"{_JOB}/results", _MEDIA, query=("merged",), waits=True)
async def stream_job_results(call: ApiCall) -> Stream:
    """The results as RIPE has them now, one per line, streamed."""
    api = call.api
    merged = query(call.query_string, "merged").get("merged")
    if merged not in (None, "target"):
        raise InvalidInput.of(FieldProblem("/query/merged", "target, or leave it out"))
    job = await _job(call)
    write = write_results if merged is None else write_merged
    pages = api.reads.stream(call.user.id, lambda atlas, take: write(api.store, atlas, api.system.vault, job, take))
    name = f'attachment; filename="{job.id}.ndjson"'
    disposition = (b"content-disposition", name.encode())
    return stream_answer(pages, _MEDIA, disposition, threads=api.reads.threads, close=pages.close)


@BUDGETS.get("/v1/users/{user}/budget", job_report.BudgetView)
async def show_budget(call: ApiCall) -> ApiAnswer:
    """The user's credits of the day."""
    api = call.api
    view = await api.read(job_report.budget_view, api.store, call.owner, now_ms=api.now_ms())
    return json_answer(200, view)


@BUDGETS.get("/v1/users/{user}/webhook-secret", WebhookSecret)
async def show_webhook_secret(call: ApiCall) -> ApiAnswer:
    """The secret that signs the user's webhooks."""
    owner = (await call.api.read(get_user, call.api.store, call.owner)).id
    return json_answer(200, WebhookSecret(webhook_secret(call.api.system.secret_key, owner)))


async def _quote(call: ApiCall, owner: str) -> ApiAnswer:
    api = call.api
    quote = await api.heavy_work(
        submit.quote_job, api.store, owner, call.body, limits=api.system.job_limits, now_ms=api.now_ms()
    )
    resets_at = to_text(quote.budget.resets_ms)
    return json_answer(200, JobQuote(quote.cost, quote.budget.left, quote.measurements, quote.fits, resets_at))


def _accepted(submitted: submit.SubmittedJob) -> ApiAnswer:
    job = submitted.job
    location: Header = (b"location", f"/v1/jobs/{job.id}".encode())
    accepted = JobAccepted(job.id, job.reserved, submitted.budget.left, job.measurements, submitted.again)
    return json_answer(202, accepted, location, *([_AGAIN] if submitted.again else []))


def _idempotency_key(headers: Mapping[bytes, bytes]) -> str | None:
    given = headers.get(b"idempotency-key")
    return None if given is None else given.decode("latin-1")


async def _job(call: ApiCall) -> StoredJob:
    api = call.api
    return await api.read(job_report.find_job, api.store, viewer_of(call.user), call.params["job"])

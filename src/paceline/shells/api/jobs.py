"""Jobs: priced, submitted, listed, shown, cancelled; and what is left of a user's day."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from paceline.core.instants import to_text
from paceline.errors import FieldProblem, InvalidInput
from paceline.ports import StoredJob
from paceline.shells.api.answers import Answer, Header, json_answer
from paceline.shells.api.auth import owner_of, viewer_of
from paceline.shells.api.documents import JobAccepted, JobQuote, WebhookSecret
from paceline.shells.api.pages import Page, make_cursor, page_query, position_of, query
from paceline.shells.api.parts import Call
from paceline.steps import job_report, submit
from paceline.steps.access import get_user
from paceline.steps.webhook import webhook_secret

NUMBER_MAX = 1 << 62
_TRUTH = {"true": True, "false": False}
_AGAIN: Header = (b"idempotent-replay", b"true")


async def submit_job(call: Call) -> Answer:
    asked = query(call.query_string, "dry_run", "user")
    owner = get_user(call.parts.store, owner_of(call.user, asked.get("user", "me"))).id
    if truth(asked, "dry_run", default=False):
        return await _quote(call, owner)
    parts = call.parts
    async with parts.heavy:
        submitted = await asyncio.to_thread(
            submit.submit_job,
            parts.store,
            owner,
            call.body,
            limits=parts.system.job_limits,
            idempotency_key=_idempotency_key(call.headers),
            now_ms=parts.now_ms(),
        )
    parts.hooks.wake_jobs()
    return _accepted(submitted)


async def list_jobs(call: Call) -> Answer:
    parts = call.parts
    asked = page_query(call.query_string, "user", limit_max=parts.system.settings.page_max)
    owner = viewer_of(call.user)
    if "user" in asked.given:
        owner = get_user(parts.store, owner_of(call.user, asked.given["user"])).id
    scope = "jobs" if owner is None else f"jobs {owner}"
    before = int(position_of(asked.cursor, scope, NUMBER_MAX))
    views, following = await asyncio.to_thread(
        job_report.job_summaries, parts.store, owner, before=before, limit=asked.limit
    )
    return json_answer(200, Page(views, None if following is None else make_cursor(scope, following)))


async def show_job(call: Call) -> Answer:
    asked = query(call.query_string, "measurements")
    whole = truth(asked, "measurements", default=True)
    job = _job(call)
    parts, viewer = call.parts, viewer_of(call.user)
    if not whole:
        view = await asyncio.to_thread(job_report.job_progress, parts.store, job, now_ms=parts.now_ms(), viewer=viewer)
        return json_answer(200, view)
    async with parts.heavy:
        view = await asyncio.to_thread(job_report.job_view, parts.store, job, now_ms=parts.now_ms(), viewer=viewer)
    return json_answer(200, view)


async def cancel_job(call: Call) -> Answer:
    """What runs at RIPE is stopped by the loops, so the answer may come before the end."""
    parts, job = call.parts, _job(call)
    after = await asyncio.to_thread(job_report.cancel_job, parts.store, job, now_ms=parts.now_ms())
    parts.hooks.wake_jobs()
    viewer = viewer_of(call.user)
    view = await asyncio.to_thread(job_report.job_progress, parts.store, after, now_ms=parts.now_ms(), viewer=viewer)
    return json_answer(202, view)


async def show_budget(call: Call) -> Answer:
    return json_answer(200, job_report.budget_view(call.parts.store, call.owner, now_ms=call.parts.now_ms()))


async def show_webhook_secret(call: Call) -> Answer:
    owner = get_user(call.parts.store, call.owner).id
    return json_answer(200, WebhookSecret(webhook_secret(call.parts.system.secret_key, owner)))


def truth(asked: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A query parameter that is true or false."""
    if name not in asked:
        return default
    if asked[name] not in _TRUTH:
        raise InvalidInput.of(FieldProblem(f"/query/{name}", "true or false"))
    return _TRUTH[asked[name]]


async def _quote(call: Call, owner: str) -> Answer:
    parts = call.parts
    async with parts.heavy:
        quote = await asyncio.to_thread(
            submit.quote_job, parts.store, owner, call.body, limits=parts.system.job_limits, now_ms=parts.now_ms()
        )
    resets_at = to_text(quote.budget.resets_ms)
    return json_answer(200, JobQuote(quote.cost, quote.budget.left, quote.measurements, quote.fits, resets_at))


def _accepted(submitted: submit.Submitted) -> Answer:
    job = submitted.job
    location: Header = (b"location", f"/v1/jobs/{job.id}".encode())
    accepted = JobAccepted(job.id, job.reserved, submitted.budget.left, job.measurements, submitted.again)
    return json_answer(202, accepted, location, *([_AGAIN] if submitted.again else []))


def _idempotency_key(headers: Mapping[bytes, bytes]) -> str | None:
    given = headers.get(b"idempotency-key")
    return None if given is None else given.decode("latin-1")


def _job(call: Call) -> StoredJob:
    return job_report.find_job(call.parts.store, viewer_of(call.user), call.params["job"])

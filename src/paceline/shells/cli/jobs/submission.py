"""Prices and submits a job, on the store or over REST, and prints the result."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import msgspec

from paceline.core.instants import to_text
from paceline.core.jobs.cost import Cost, add_costs, price
from paceline.core.jobs.job import Job, JobLimits, parse_job
from paceline.core.jobs.measurement import kind_of
from paceline.shells.cli.call import CliCall, owner_id
from paceline.shells.cli.output import Columns, TextFields, TextNote, emit, table
from paceline.steps.jobs import submit
from paceline.steps.views.job_report import BudgetView

if TYPE_CHECKING:
    from paceline.shells.api.documents import JobAccepted
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

JOBS_PATH = "/v1/jobs"
PRICE_COLUMNS: Columns = {"TYPE": "type", "DEFINITIONS": "definitions", "RESULTS": "results", "CREDITS": "credits"}


class JobPrice(msgspec.Struct, frozen=True):
    """Highest cost of a job, in all and by type, and whether the user's credits suffice."""

    cost: int
    credits_left: int
    measurements: int
    fits: bool
    resets_at: str
    types: list[KindPrice] = []
    user: str = ""


class KindPrice(msgspec.Struct, frozen=True):
    """Highest cost of all definitions of one type together."""

    type: str
    definitions: int
    results: int
    credits: int


def kind_prices(job: Job, *, now_ms: int) -> list[KindPrice]:
    """Returns the prices of a job by type of measurement, the highest first."""
    costs: dict[str, list[Cost]] = {}
    for one in job.measurements:
        for definition in one.definitions:
            alone = msgspec.structs.replace(one, definitions=(definition,))
            costs.setdefault(kind_of(definition), []).append(price(alone, now_ms=now_ms))
    sums = [(kind, len(each), add_costs(each)) for kind, each in costs.items()]
    return sorted((KindPrice(kind, count, one.results, one.credits) for kind, count, one in sums), key=_dearest_first)


def _dearest_first(one: KindPrice) -> tuple[int, str]:
    return -one.credits, one.type


def quote_on_store(system: System, user: str | None, body: bytes) -> tuple[JobPrice, int]:
    """Returns the price of the job, and the user's daily credits."""
    owner, now_ms, limits = owner_id(system, user), system.clock.now_ms(), system.job_limits
    quote = submit.quote_job(system.store, owner, body, limits=limits, now_ms=now_ms)
    budget = quote.budget
    kinds = kind_prices(parse_job(body, limits, now_ms=now_ms), now_ms=now_ms)
    view = JobPrice(
        quote.cost, budget.left, quote.measurements, quote.fits, to_text(budget.resets_ms), types=kinds, user=owner
    )
    return view, budget.limit


def quote_over_rest(remote: Remote, user: str | None, body: bytes) -> tuple[JobPrice, int]:
    """Like ``quote_on_store``, over REST.

    The prices by type are computed here, from a job that the service found valid.
    """
    owner = remote.owner(user)
    query = {"dry_run": "true", "user": owner}
    quoted = remote.ask("POST", JOBS_PATH, JobPrice, body=body, query=query)
    budget = remote.get("/v1/users/{user}/budget", BudgetView, user=owner)
    no_limits = JobLimits(sys.maxsize, sys.maxsize, sys.maxsize, sys.maxsize)
    now_ms = time.time_ns() // 1_000_000
    kinds = kind_prices(parse_job(body, no_limits, now_ms=now_ms), now_ms=now_ms)
    return msgspec.structs.replace(quoted, types=kinds, user=owner), budget.limit


def submit_on_store(system: System, user: str | None, body: bytes, *, idempotency_key: str | None) -> JobAccepted:
    from paceline.shells.api.documents import JobAccepted

    done = submit.submit_job(
        system.store,
        owner_id(system, user),
        body,
        limits=system.job_limits,
        idempotency_key=idempotency_key,
        now_ms=system.clock.now_ms(),
    )
    return JobAccepted(done.job.id, done.job.reserved, done.budget.left, done.job.measurements, done.again)


def submit_over_rest(remote: Remote, user: str | None, body: bytes, *, idempotency_key: str | None) -> JobAccepted:
    from paceline.shells.api.documents import JobAccepted

    query, headers = {"user": remote.owner(user)}, {"Idempotency-Key": idempotency_key}
    return remote.ask("POST", JOBS_PATH, JobAccepted, body=body, query=query, headers=headers)


def emit_quote(call: CliCall, quoted: tuple[JobPrice, int]) -> None:
    quote, limit = quoted
    left = quote.credits_left
    after = f"yes, {left - quote.cost} would be left" if quote.fits else f"no, {quote.cost - left} too many"
    fields = [
        ("measurements", quote.measurements),
        ("cost", f"{quote.cost} credits at most"),
        ("credits left", f"{left} of {limit} for {quote.user} until {quote.resets_at}"),
        ("fits", after),
    ]
    emit(call, quote, table(PRICE_COLUMNS, quote.types), "", TextFields(fields))


def emit_submitted(call: CliCall, done: JobAccepted) -> None:
    summary = f"{done.measurements} measurements, {done.cost} credits reserved, {done.credits_left} left today"
    note = TextNote("It was submitted before with this idempotency key; nothing was added.") if done.again else None
    emit(call, done, note, f"{done.job} submitted: {summary}.")

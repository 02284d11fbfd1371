"""Submission of a job: validated, priced, and admitted against the credits of the day in one act."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from paceline.core.instants import to_text
from paceline.core.jobs.cost import price
from paceline.core.jobs.job import Job, JobLimits, job_digest, parse_job
from paceline.core.jobs.values import Admitted, Already, Budget, OverCredits, StoredJob, Submission
from paceline.core.why.refusals import JobRefusal
from paceline.errors import AlreadyExists, FieldProblem, InvalidInput, NotFound, OverDailyCredits
from paceline.ports import JobStore, Store
from paceline.steps.jobs.refusals import note_refusal

IDEMPOTENCY_KEY_CHARS_MAX = 255


class CostQuote(NamedTuple):
    """Maximum cost of a job, beside its user's credits. Nothing was changed."""

    cost: int
    budget: Budget
    measurements: int

    @property
    def fits(self) -> bool:
        return self.cost <= self.budget.left


class SubmittedJob(NamedTuple):
    """``again``: the job was submitted before, under the same idempotency key."""

    job: StoredJob
    budget: Budget
    again: bool = False


def quote_job(store: JobStore, owner: str, body: bytes, *, limits: JobLimits, now_ms: int) -> CostQuote:
    """Make a dry run: as ``submit_job`` up to the price, and no further."""
    job = parse_job(body, limits, now_ms=now_ms)
    budget = store.budget(owner, now_ms=now_ms)
    if budget is None:
        raise _no_user(owner)
    cost = sum(price(one, now_ms=now_ms).credits for one in job.measurements)
    return CostQuote(cost, budget, len(job.measurements))


def submit_job(
    store: Store, owner: str, body: bytes, *, limits: JobLimits, idempotency_key: str | None = None, now_ms: int
) -> SubmittedJob:
    """Submit a job from JSON. With an idempotency key it is submitted once, however often it is sent."""
    as_of_ms = submitted_ms(store, owner, idempotency_key, now_ms=now_ms)
    job = parse_job(body, limits, now_ms=as_of_ms)
    return submit_parsed(store, owner, job, idempotency_key=idempotency_key, now_ms=now_ms)


def submitted_ms(store: JobStore, owner: str, idempotency_key: str | None, *, now_ms: int) -> int:
    """Return the time as of which a body is judged.

    A start or stop that has passed since the first try is not a fault of the retry.
    """
    if idempotency_key is None:
        return now_ms
    if detail := _key_problem(idempotency_key):
        raise InvalidInput.of(FieldProblem("/header/Idempotency-Key", detail))
    before = store.submitted_as(owner, idempotency_key)
    return now_ms if before is None else before.created_ms


def submit_parsed(
    store: Store, owner: str, job: Job, *, idempotency_key: str | None = None, now_ms: int
) -> SubmittedJob:
    """Submit a valid job, also one that was written in RIPE's own format."""
    costs = tuple([price(one, now_ms=now_ms) for one in job.measurements])
    # Jobs are compared only under an idempotency key.
    digest = "" if idempotency_key is None else job_digest(job)
    found = store.submit(Submission(owner, job, costs, digest, idempotency_key), now_ms=now_ms)
    match found:
        case Admitted():
            return SubmittedJob(found.job, found.budget)
        case Already(same=True):
            return SubmittedJob(found.job, found.budget, again=True)
        case Already():
            raise AlreadyExists(
                f"This Idempotency-Key was used for another job, {found.job.id}. Use a new one for each job."
            )
        case OverCredits():
            raise _over(found, note_refusal(store, owner, _refusal(job, found, now_ms=now_ms)))
        case None:
            raise _no_user(owner)
        case _:
            assert_never(found)


def _refusal(job: Job, found: OverCredits, *, now_ms: int) -> JobRefusal:
    budget = found.budget
    return JobRefusal(
        number=0,
        at_ms=now_ms,
        title=job.title,
        code=OverDailyCredits.code,
        cost=found.cost,
        left=budget.left,
        limit=budget.limit,
        resets_ms=budget.resets_ms,
        measurements=len(job.measurements),
    )


def _over(found: OverCredits, refusal: str | None) -> OverDailyCredits:
    left, resets_ms = found.budget.left, found.budget.resets_ms
    return OverDailyCredits(
        f"The job costs up to {found.cost} credits and {left} of {found.budget.limit} are left today."
        f" Submit less, or wait until {to_text(resets_ms)}.",
        cost=found.cost,
        credits_left=left,
        resets_ms=resets_ms,
        refusal=refusal,
    )


def _key_problem(text: str) -> str | None:
    good = text.isascii() and text.isprintable() and 1 <= len(text) <= IDEMPOTENCY_KEY_CHARS_MAX
    return None if good else f"1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"


def _no_user(owner: str) -> NotFound:
    return NotFound(f"There is no user {owner!r}, or it is disabled.")

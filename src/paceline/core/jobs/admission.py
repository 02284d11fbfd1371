"""Admission of a job: within the rest of its user's daily credits, and once for each idempotency key."""

from __future__ import annotations

from paceline.core.jobs.meters import Meter, resets_ms, room
from paceline.core.jobs.values import Already, Budget, OverCredits, StoredJob, Submission


def budget_of(limit: int, *, spent: int, held: int, now_ms: int) -> Budget:
    """Return a user's budget of the day. ``limit`` is the user's current one: an edit counts at once."""
    left = room(Meter("", limit, "day", spent, held))
    return Budget(limit, spent, held, left, resets_ms(now_ms))


def reserved_of(submission: Submission) -> int:
    """Return how much the job holds of its user's day: the most that it can cost."""
    return sum(cost.credits for cost in submission.costs)


def refuse_submission(
    digest: str, reserved: int, budget: Budget, before: StoredJob | None
) -> Already | OverCredits | None:
    """Return why the job is not admitted; None: it is. ``before``: the job under the same idempotency key."""
    if before is not None:
        return Already(before, budget, same=before.digest == digest)
    return OverCredits(reserved, budget) if reserved > budget.left else None


def after_admission(budget: Budget, reserved: int) -> Budget:
    """Return the user's budget once ``reserved`` more is held."""
    return budget._replace(held=budget.held + reserved, left=budget.left - reserved)

"""Single-item forms of the steps for outgoing runs; they raise instead of returning an error."""

from __future__ import annotations

from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.values import Run
from paceline.errors import PacelineError
from paceline.ports import Store
from paceline.steps.monitors.outgoing import OutcomeReport, OutgoingItem, RunClaim, claim_runs, record_outcomes


def claim_run(store: Store, ask: RunClaim, *, now_ms: int, policy: RetryPolicy) -> OutgoingItem:
    (answer,) = claim_runs(store, [ask], now_ms=now_ms, policy=policy)
    if isinstance(answer, PacelineError):
        raise answer
    return answer


def record_outcome(store: Store, report: OutcomeReport, *, now_ms: int, policy: RetryPolicy) -> Run:
    (answer,) = record_outcomes(store, [report], now_ms=now_ms, policy=policy)
    if isinstance(answer, PacelineError):
        raise answer
    return answer

"""Runs that a user's workers carry out: whether a claimed one is handed out, and what follows from a report."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.batches.calls import RETRY_AFTER_MS_MAX, CallRefusal, CallSettlement, decide_call, retry_pause_ms
from paceline.core.batches.provider import Policy, ProviderSpec, policy_of
from paceline.core.batches.values import OutCall

WAITS_FOR_WORKER = "waits for your worker"
FAILED = "the worker reported a failure"
RETRY = "the worker asked for a retry"
AFTER_MS_MAX = RETRY_AFTER_MS_MAX


class WorkReport(msgspec.Struct, frozen=True, gc=False):
    """Report of a worker on a run. ``payload`` is kept with the result."""

    status: Literal["ok", "failed", "retry"]
    reason: str = ""
    latency_ms: float | None = None
    payload: str | None = None
    after_ms: int | None = None
    """Shortest pause before a retry of this run. It does not close the provider."""


def refuse_to_hand_out(policy: Policy, *, attempt: int, lost: bool) -> CallRefusal | None:
    """Return how a claimed run ends without a worker; None: it is handed out.

    It is treated as a call that is not safe to repeat: only the worker knows whether its work is safe.
    """
    decision = decide_call("POST", policy, attempt=attempt, lost=lost)
    return decision if isinstance(decision, CallRefusal) else None


def why_not_moved(
    spec: ProviderSpec, *, attempt: int, until_ms: int | None, now_ms: int
) -> Literal["out", "unreported"] | None:
    """Returns why a run that is out at ``attempt`` keeps its store from being moved, or None.

    ``out``: it may still be reported, or Paceline itself must find out what became of its call. ``unreported``: its
    worker's lease has ended, and the next claim makes it a dead letter. None: it is handed out again, here or there.
    """
    if spec.kind != "outgoing" or until_ms is None or until_ms > now_ms:
        return "out"
    refusal = refuse_to_hand_out(policy_of(spec), attempt=attempt + 1, lost=True)
    return None if refusal is None else "unreported"


def settle_report(run: OutCall, report: WorkReport, policy: Policy, *, ended_ms: int, chance: float) -> CallSettlement:
    """Return the settlement that follows from a report. ``chance`` in [0, 1) spreads retries.

    A retry counts against the provider, as an answer of 5xx does; a failure is the record's own, as one of 4xx.
    """
    latency_ms = float(ended_ms - run.started_ms) if report.latency_ms is None else report.latency_ms
    settlement = CallSettlement(
        run.handle,
        run.attempt,
        "done",
        run.started_ms,
        ended_ms,
        report.reason,
        latency_ms,
        payload=report.payload,
        verdict="good",
    )
    if report.status == "ok":
        return settlement
    if report.status == "failed":
        return msgspec.structs.replace(settlement, state="failed", reason=report.reason or FAILED)
    reason = report.reason or RETRY
    if run.attempt >= policy.attempts_max:
        reason = f"{reason}; given up after {run.attempt} attempts"
        return msgspec.structs.replace(settlement, state="failed", reason=reason, verdict="bad")
    pause_ms = max(retry_pause_ms(run.attempt, policy, chance=chance), report.after_ms or 0)
    not_before_ms = ended_ms + pause_ms
    return msgspec.structs.replace(settlement, state="retry", reason=reason, verdict="bad", not_before_ms=not_before_ms)

"""Outcomes of calls to a provider, and what follows for the run and for the provider.

waiting ──► out ──► done                        2xx; what statuses mean: core.batches.records.expect
  ▲  │       │
  │  │       ├──► retry ──► out                 5xx, 429, time-out, network error: the same run, its place kept
  │  │       ├──► failed                        other answers, or the last attempt: a dead letter
  │  │       ├──► unknown                       may have arrived, and is not to be repeated: a dead letter
  │  └───────┴──► skipped                       its record or batch no longer wants it, or its time was missed
  └ aside         its batch is paused
"""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core import backoff
from paceline.core.batches.provider import SAFE_METHODS, Method, Policy
from paceline.core.batches.records.expect import TOO_MANY, ExpectSpec, Meaning, meaning_of

PAYLOAD_BYTES_MAX = 16_384
RETRY_AFTER_MS_MAX = 86_400_000
UNAVAILABLE = 503
NOT_FOUND = frozenset({404, 410})
MISSED_SHARE = 96
"""Divisor of a window's length: a run that is later than this part of it is skipped if the batch skips missed runs."""

CallState = Literal["waiting", "out", "retry", "aside", "done", "failed", "unknown", "skipped"]
EndState = Literal["done", "failed", "unknown", "skipped"]
Fault = Literal["time_out", "network", "refused"]
"""``refused``: the guard refused the request, or it could not be sent at all; nothing left the machine."""
Verdict = Literal["good", "bad", "none"]
"""Effect of a call on its provider's health; the breaker counts bad calls in a row."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """A call to be made. ``looks_up``: the call asks whether an earlier attempt has arrived."""

    handle: int
    attempt: int
    run_id: str
    method: Method
    url: str
    headers: dict[str, str]
    body: str | None
    """JSON text; a JSON string is sent as the text it holds."""
    timeout_ms: int
    looks_up: bool = False
    verify_tls: bool = True
    expect: ExpectSpec | None = None
    """Expected statuses of the record."""


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """Answer of the provider, or the reason why there is none."""

    handle: int
    attempt: int
    started_ms: int
    ended_ms: int
    latency_ms: float | None = None
    code: int | None = None
    fault: Fault | None = None
    arrived: bool = True
    """True if the request may have reached the provider; false if no connection was made."""
    reason: str = ""
    payload: str | None = None
    retry_after_ms: int | None = None
    """Pause from the answer's ``Retry-After``, counted from ``ended_ms``."""


class CallRefusal(msgspec.Struct, frozen=True):
    """Decision not to send; this state and reason are recorded instead."""

    state: Literal["failed", "unknown"]
    reason: str


class CallSettlement(msgspec.Struct, frozen=True, gc=False):
    """New state of a claimed run; it counts only if the run is still out at this attempt."""

    handle: int
    attempt: int
    state: Literal["done", "failed", "unknown", "skipped", "retry"]
    started_ms: int
    ended_ms: int
    reason: str = ""
    latency_ms: float | None = None
    code: int | None = None
    payload: str | None = None
    not_before_ms: int = 0
    """Earliest time of the next attempt, for a retry."""
    lost: bool = False
    """True for a retry of a call that may have arrived."""
    verdict: Verdict = "none"
    closed_until_ms: int = 0
    """Time before which the provider takes no call; 0: unchanged."""


def decide_call(
    method: Method, policy: Policy, *, attempt: int, lost: bool
) -> Literal["send", "look_up"] | CallRefusal:
    """Decide what to do with a claimed run. ``lost``: an earlier attempt may have arrived."""
    unsure = lost and method not in SAFE_METHODS
    if unsure and policy.unknown == "hold":
        return CallRefusal("unknown", "an earlier attempt was cut short and may have arrived; it is held for a person")
    # A look-up does no harm, so it is made even after the last attempt.
    if unsure and policy.unknown == "look_up" and attempt <= policy.attempts_max + 1:
        return "look_up"
    if attempt > policy.attempts_max:
        reason = f"given up after {policy.attempts_max} attempts, the last of them cut short"
        return CallRefusal("unknown" if unsure else "failed", reason)
    return "send"


def settle_call(call: Call, result: CallResult, policy: Policy, *, chance: float) -> CallSettlement:
    """Return the settlement that follows from a result. ``chance`` in [0, 1) spreads retries."""
    if call.looks_up:
        return _settle_look_up(call, result, policy, chance)
    meaning = _meaning(result, call.expect, policy.expect)
    if meaning == "done":
        return _done(result)
    if meaning == "failed":
        return _settlement(result, "failed", reason=_reason(result), verdict="none" if result.fault else "good")
    unsure = result.fault is not None and result.arrived and call.method not in SAFE_METHODS
    if unsure and policy.unknown == "hold":
        reason = f"{result.reason}; it may have arrived, so it is held for a person to look at"
        return _settlement(result, "unknown", reason=reason, verdict="bad")
    return _settle_retry(call, result, policy, chance, lost=unsure)


def _settle_look_up(call: Call, result: CallResult, policy: Policy, chance: float) -> CallSettlement:
    if result.code is not None and 200 <= result.code < 300:
        return _settlement(result, "done", reason="found at the provider by a look-up", verdict="good")
    if result.code in NOT_FOUND:
        reason = "the provider has not seen it"
        if call.attempt >= policy.attempts_max:
            reason = f"{reason}; given up after {call.attempt} attempts"
            return _settlement(result, "failed", reason=reason, verdict="good")
        return _settlement(result, "retry", reason=reason, verdict="good", not_before_ms=result.ended_ms)
    if _meaning(result) == "failed":
        reason = f"the look-up was refused: {result.reason}"
        return _settlement(result, "unknown", reason=reason, verdict="good")
    return _settle_retry(call, result, policy, chance, lost=True)


def _settle_retry(call: Call, result: CallResult, policy: Policy, chance: float, *, lost: bool) -> CallSettlement:
    """Return the settlement for a call that failed for now: a retry, or the end after the last attempt.

    429, 503 and any Retry-After close the provider for the pause, not only this run.
    """
    pause_ms = retry_pause_ms(call.attempt, policy, chance=chance)
    closed_until_ms = 0
    if result.retry_after_ms is not None:
        pause_ms = max(pause_ms, min(result.retry_after_ms, RETRY_AFTER_MS_MAX))
    if result.retry_after_ms is not None or result.code in (TOO_MANY, UNAVAILABLE):
        closed_until_ms = result.ended_ms + pause_ms
    asks_first = lost and policy.unknown == "look_up" and not call.looks_up
    if call.attempt >= policy.attempts_max and not asks_first:
        state: EndState = "unknown" if lost else "failed"
        reason = f"{_reason(result)}; given up after {call.attempt} attempts"
        return _settlement(result, state, reason=reason, verdict="bad", closed_until_ms=closed_until_ms)
    return _settlement(
        result,
        "retry",
        reason=_reason(result),
        verdict="bad",
        not_before_ms=result.ended_ms + pause_ms,
        lost=lost,
        closed_until_ms=closed_until_ms,
    )


def _meaning(result: CallResult, *expected: ExpectSpec | None) -> Meaning:
    if result.fault is not None:
        return "failed" if result.fault == "refused" else "retry"
    assert result.code is not None
    return meaning_of(result.code, *expected)


def _reason(result: CallResult) -> str:
    """Return the reason of the result; a good status that is not expected has none, so the status is named."""
    return result.reason or f"status {result.code}"


def retry_pause_ms(attempt: int, policy: Policy, *, chance: float) -> int:
    """Return how long to wait after this attempt failed; ``chance`` lies in [0, 1)."""
    return backoff.pause_ms(
        attempt, base_ms=policy.retry_base_ms, cap_ms=policy.retry_cap_ms, jitter="full", chance=chance
    )


def _done(result: CallResult) -> CallSettlement:
    """Return the settlement of a good call.

    Arguments are given by position: this is made for nearly every call, and keywords would double its cost.
    """
    return CallSettlement(
        result.handle,
        result.attempt,
        "done",
        result.started_ms,
        result.ended_ms,
        "",
        result.latency_ms,
        result.code,
        result.payload,
        verdict="good",
    )


def _settlement(
    result: CallResult,
    state: Literal["done", "failed", "unknown", "skipped", "retry"],
    *,
    verdict: Verdict,
    reason: str = "",
    not_before_ms: int = 0,
    lost: bool = False,
    closed_until_ms: int = 0,
) -> CallSettlement:
    return CallSettlement(
        handle=result.handle,
        attempt=result.attempt,
        state=state,
        started_ms=result.started_ms,
        ended_ms=result.ended_ms,
        reason=reason,
        latency_ms=result.latency_ms,
        code=result.code,
        payload=result.payload,
        not_before_ms=not_before_ms,
        lost=lost,
        verdict=verdict,
        closed_until_ms=closed_until_ms,
    )


def is_missed(due_ms: int, start_ms: int, end_ms: int, *, now_ms: int) -> bool:
    """Return whether a run is too late, for a batch that skips missed runs. Start and end are its day's window."""
    return now_ms > missed_after_ms(due_ms, start_ms, end_ms)


def missed_after_ms(due_ms: int, start_ms: int, end_ms: int) -> int:
    """Return the latest time at which such a run may start."""
    return due_ms + (end_ms - start_ms) // MISSED_SHARE

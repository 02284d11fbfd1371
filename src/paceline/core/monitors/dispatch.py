"""Decision whether a claimed run is sent, and when a failed attempt is tried again."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from paceline.core.backoff import pause_ms
from paceline.core.monitors.checks import Check, repeatable
from paceline.core.monitors.outcome import REASON_CHARS_MAX, Dead, Done, Retry, Unknown

ATTEMPT_PAUSE_MS = 1_000
"""Pause after a failed attempt of a check, if its monitor asks for several."""


class RetryPolicy(msgspec.Struct, frozen=True):
    attempts_max: int = 5
    base_ms: int = 1_000
    cap_ms: int = 300_000


class MakeCheck(msgspec.Struct, frozen=True):
    """Decision to make the check."""

    check: Check


class RefuseCheck(msgspec.Struct, frozen=True):
    """Decision not to send; this outcome is recorded instead."""

    outcome: Dead | Unknown


def decide(check: Check | None, *, attempt: int, lost: bool, policy: RetryPolicy) -> MakeCheck | RefuseCheck:
    """Decide whether a run is sent.

    ``lost``: an earlier attempt was out when its lease ran out, with unknown effect.
    """
    if check is None:
        return RefuseCheck(Dead("the monitor was deleted before this run started", edited=True))
    if lost and not repeatable(check):
        return RefuseCheck(Unknown("the call was cut short and may have reached its target; it is not safe to repeat"))
    if attempt > policy.attempts_max:
        return RefuseCheck(Dead(f"given up after {policy.attempts_max} attempts"))
    return MakeCheck(check)


def after_attempt(done: Done, *, attempt: int, attempts: int, ended_ms: int, policy: RetryPolicy) -> Done | Retry:
    """Return the outcome of a finished check: a failure with attempts left is a retry, and the last one says how many.

    ``attempts``: how many its monitor asks for; the operator's limit counts if it is lower.
    """
    if done.ok:
        return done
    last = min(attempts, policy.attempts_max)
    if attempt < last:
        reason = f"attempt {attempt} of {last} failed: {done.reason}"
        return Retry(reason[:REASON_CHARS_MAX], ended_ms + ATTEMPT_PAUSE_MS)
    if attempts == 1 or attempt == 1:
        return done
    suffix = f" (attempt {attempt} of {max(attempt, last)})"
    return replace(done, reason=done.reason[: REASON_CHARS_MAX - len(suffix)] + suffix)


def retry_delay_ms(attempt: int, *, policy: RetryPolicy, chance: float) -> int:
    """Return how long to wait after this attempt failed; ``chance`` lies in [0, 1)."""
    return pause_ms(attempt, base_ms=policy.base_ms, cap_ms=policy.cap_ms, jitter="full", chance=chance)

"""Runs that are out: who may settle, extend or release them, how they end, and what else ends or moves them.

A fence is the handle and the attempt that a claim returned. A store may write it as the condition of its write; that is
then equivalent to ``holds``.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import msgspec

from paceline.core.monitors.outcome import Done, Retry, RunState, TerminalState, terminal_state
from paceline.core.monitors.values import Settlement

TERMINAL: frozenset[str] = frozenset(get_args(TerminalState))
GIVEN_BACK = "given back before it started"
EXPIRED = "expired: nobody claimed it in time"
_encode = msgspec.json.Encoder().encode
_run_end = tuple.__new__
"""Makes a RunEnd of its values in half the time."""


class Lease(NamedTuple):
    """Lease of a run that is out."""

    attempt: int
    until_ms: int


def holds(lease: Lease | None, *, attempt: int, at_ms: int) -> bool:
    """Return whether the run is out at this attempt, and its lease had not run out at that time.

    None: it is not out.
    """
    return lease is not None and lease.attempt == attempt and at_ms <= lease.until_ms


class RunEnd(NamedTuple):
    """End of a run, as it is stored."""

    handle: int
    state: TerminalState
    attempt: int
    started_ms: int
    ended_ms: int
    latency_ms: float | None
    code: int | None
    reason: str
    detail: str
    """Details of the outcome as JSON."""


def ended(item: Settlement) -> RunEnd:
    """Return the end of a run by a settlement that is no retry."""
    outcome, attempt, started_ms, ended_ms = item.outcome, item.attempt, item.started_ms, item.ended_ms
    if isinstance(outcome, Done):  # nearly always the case, for every check
        detail = _encode(outcome.detail).decode() if outcome.detail else "{}"
        state: TerminalState = "ok" if outcome.ok else "failed"
        latency_ms, code, reason = outcome.latency_ms, outcome.code, outcome.reason
        return _run_end(RunEnd, (item.handle, state, attempt, started_ms, ended_ms, latency_ms, code, reason, detail))
    assert not isinstance(outcome, Retry)
    return RunEnd(item.handle, terminal_state(outcome), attempt, started_ms, ended_ms, None, None, outcome.reason, "{}")


def given_up(handle: int, reason: str, *, now_ms: int, attempt: int = 0) -> RunEnd:
    """Return the end of a run that nobody sent. ``attempt``: its last claim, which was given back or abandoned."""
    return RunEnd(handle, "dead", attempt, now_ms, now_ms, None, None, reason, "{}")


def has_expired(*, due_ms: int, state: RunState, at_ms: int, outgoing: bool, due_before_ms: int) -> bool:
    """Return whether a run that was due before that time is ended, because nobody claimed it.

    A run that is out stays, except one that a user's own checker took and abandoned: its lease ran out before that
    time, too. ``at_ms`` counts for runs that are out.
    """
    return due_ms < due_before_ms and (state != "out" or (outgoing and at_ms < due_before_ms))


class LongestRunWaits(NamedTuple):
    """Longest waits of a retry and of a run that is ``later``, by a clock that is right."""

    retry_ms_max: int
    later_ms_max: int


def waits(*, wait_ms_max: int, later_ms_max: int) -> LongestRunWaits:
    return LongestRunWaits(wait_ms_max, max(wait_ms_max, later_ms_max))


class LeaseTimes(NamedTuple):
    """End of a lease or a pause, and the start of the lease."""

    at_ms: int
    started_ms: int | None


def pulled_back(state: RunState, moment: LeaseTimes, *, now_ms: int, waits: LongestRunWaits) -> LeaseTimes | None:
    """Return the times of a run after the clock was set back; None: they stay.

    A lease that began after now begins now and lasts as long. No other run waits longer than it ever would, and a run
    that only waits for its turn does not wait for the clock.
    """
    at_ms, started_ms = moment
    if state == "out":
        if started_ms is None or started_ms <= now_ms:
            return None
        return LeaseTimes(now_ms + at_ms - started_ms, now_ms)
    latest_ms = now_ms + _wait_ms_max(state, waits)
    return LeaseTimes(latest_ms, started_ms) if at_ms > latest_ms else None


def _wait_ms_max(state: RunState, waits: LongestRunWaits) -> int:
    match state:
        case "waiting":
            return 0
        case "later" | "parked":
            return waits.later_ms_max
        case _:
            return waits.retry_ms_max

"""Runs that are out: who may still settle, extend or release them, how they end, and what ends or moves them otherwise.

A fence is the handle and the attempt that a claim returned. A store may write it as the condition of its write; it then
says the same as ``holds``.
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


class Lease(NamedTuple):
    """Of a run that is out."""

    attempt: int
    until_ms: int


def holds(lease: Lease | None, *, attempt: int, at_ms: int) -> bool:
    """True if the run is out at this attempt, and its lease had not run out at that time. None: it is not out."""
    return lease is not None and lease.attempt == attempt and at_ms <= lease.until_ms


class Ended(NamedTuple):
    """How a run ended, as it is stored."""

    state: TerminalState
    attempt: int
    started_ms: int
    ended_ms: int
    latency_ms: float | None
    code: int | None
    reason: str
    detail: str
    """JSON."""


def ended(item: Settlement) -> Ended:
    """How the run of a settlement that is no retry ends."""
    outcome, attempt, started_ms, ended_ms = item.outcome, item.attempt, item.started_ms, item.ended_ms
    if isinstance(outcome, Done):  # nearly always, and on the way of every check
        detail = _encode(outcome.detail).decode() if outcome.detail else "{}"
        state: TerminalState = "ok" if outcome.ok else "failed"
        return Ended(state, attempt, started_ms, ended_ms, outcome.latency_ms, outcome.code, outcome.reason, detail)
    assert not isinstance(outcome, Retry)
    return Ended(terminal_state(outcome), attempt, started_ms, ended_ms, None, None, outcome.reason, "{}")


def given_up(reason: str, *, now_ms: int, attempt: int = 0) -> Ended:
    """How a run ends that nobody sent. ``attempt``: the last claim of it, which was given back or left."""
    return Ended("dead", attempt, now_ms, now_ms, None, None, reason, "{}")


def has_expired(*, due_ms: int, state: RunState, at_ms: int, outgoing: bool, due_before_ms: int) -> bool:
    """True if a run that was due before that time is ended, because nobody claimed it.

    A run that is out stays, but for one that a checker of a user's own took and left: its lease ran out before that
    time, too. ``at_ms`` counts for runs that are out.
    """
    return due_ms < due_before_ms and (state != "out" or (outgoing and at_ms < due_before_ms))


class Waits(NamedTuple):
    """By a clock that is right no retry waits longer than the one, and no run that is ``later`` than the other."""

    retry_ms_max: int
    later_ms_max: int


def waits(*, wait_ms_max: int, later_ms_max: int) -> Waits:
    return Waits(wait_ms_max, max(wait_ms_max, later_ms_max))


class Moment(NamedTuple):
    """When a lease or a pause ends, and when the lease began."""

    at_ms: int
    started_ms: int | None


def pulled_back(state: RunState, moment: Moment, *, now_ms: int, waits: Waits) -> Moment | None:
    """Where a run stands after the clock was set back; None: where it does.

    A lease that began after now begins now and lasts as long. No other run waits longer than it ever would, and one
    that only waits for its turn does not wait for the clock.
    """
    at_ms, started_ms = moment
    if state == "out":
        if started_ms is None or started_ms <= now_ms:
            return None
        return Moment(now_ms + at_ms - started_ms, now_ms)
    latest_ms = now_ms + _wait_ms_max(state, waits)
    return Moment(latest_ms, started_ms) if at_ms > latest_ms else None


def _wait_ms_max(state: RunState, waits: Waits) -> int:
    match state:
        case "waiting":
            return 0
        case "later" | "parked":
            return waits.later_ms_max
        case _:
            return waits.retry_ms_max

"""Starts of a provider's next runs: order, concurrency, rate, breaker, and the pace of a catch-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from paceline.core.batches.calls import Verdict
from paceline.core.batches.provider import BURST_US, Policy
from paceline.core.batches.run_keys import NEVER_MS

SPEED_MAX = 4
"""Limit on the pace of a catch-up, as a multiple of the usual one; runs that then do not fit start after the window."""
LATE_MS = 250
LATE_GAPS = 2
"""A run is late, and is paced, when it is late by more than ``LATE_MS`` and by more than this many usual gaps."""
IDLE_MS = 2_000
"""Time without a start, although one was possible, after which a provider's next start is staggered."""
SLACK_MS = 20
"""Time by which paced starts may bunch, so that a pace faster than the claims is still kept."""


class Pace(msgspec.Struct, frozen=True, gc=False):
    """A provider's state between calls; it survives restarts."""

    rate_us: int = 0
    """Time of the next token, in microseconds."""
    paced_ms: int = 0
    """Earliest start of the next late run; no earlier than the last call's end."""
    closed_until_ms: int = 0
    failures: int = 0
    """Number of bad calls in a row."""
    staggered: bool = False
    """True if ``paced_ms`` was set to stagger this provider against others; it is staggered only once."""


class FirstRun(NamedTuple):
    """One of a provider's first runs, in due order. ``at_ms``: its due time, its next try, or its lease's end."""

    handle: int
    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int


class Backlog(NamedTuple):
    """Facts for the pace of a catch-up: the usual gap of this provider's runs, and the end of the head's window."""

    gap_ms: int
    end_ms: int


class StartDecision(NamedTuple):
    """The runs that may start now, when to look again, and the pace afterwards."""

    starts: list[FirstRun]
    ready_ms: int
    pace: Pace


def decide_starts(
    policy: Policy,
    pace: Pace,
    front: Sequence[FirstRun],
    *,
    now_ms: int,
    runs_max: int,
    backlog: Backlog | None,
    phase: float,
) -> StartDecision:
    """Decide which of a provider's first runs start now.

    ``front`` holds, in due order, all runs out or in back-off, and the first waiting ones: as many as have a place. A
    run in back-off keeps its place: it counts as in flight, so with one at a time nothing overtakes it. ``backlog`` is
    given if one of the front is late. ``phase`` in [0, 1) keeps providers that begin to catch up at the same moment
    from starting at the same moment. ``ready_ms`` ignores the leases of the runs that start now.
    """
    if policy.paused or not front:
        return StartDecision([], NEVER_MS, pace)
    head = front[0]
    if (
        len(front) == 1
        and head.state == "waiting"
        and runs_max > 0
        and starts_at_once(policy, head.at_ms, pace.closed_until_ms, now_ms, staggered=pace.staggered)
    ):
        return StartDecision([head], NEVER_MS, pace)  # the general case below would decide the same
    return _Lookout(policy, pace, now_ms, backlog, phase).open(front, runs_max)


def starts_at_once(policy: Policy, due_ms: int, closed_until_ms: int, now_ms: int, *, staggered: bool) -> bool:
    """Return whether a provider's only run may start now, in the common case.

    The common case is decided often, so it has its own function: one run at a time, none out, the run on time, no rate.
    """
    return (
        0 <= now_ms - due_ms <= LATE_MS
        and closed_until_ms <= now_ms
        and policy.max_in_flight == 1
        and not staggered
        and not policy.rate_gap_us
        and not policy.paused
    )


class _Lookout:
    """One pass over a provider's first runs that starts each run which passes every gate."""

    def __init__(self, policy: Policy, pace: Pace, now_ms: int, backlog: Backlog | None, phase: float) -> None:
        self._policy = policy
        self._pace = pace
        self._now_ms = now_ms
        self._backlog = backlog
        self._phase = phase

    def open(self, front: Sequence[FirstRun], runs_max: int) -> StartDecision:
        policy, now_ms = self._policy, self._now_ms
        held = sum(run.state != "waiting" for run in front)
        flying = sum(run.state == "out" and run.at_ms > now_ms for run in front)
        # After this many bad calls a single call shows whether the provider is back.
        flying_max = 1 if self._pace.failures >= policy.breaker_failures else policy.max_in_flight
        starts: list[FirstRun] = []
        ready_ms = NEVER_MS
        in_line = True
        for run in front:
            fresh = run.state == "waiting"
            if fresh and not (in_line and held < policy.max_in_flight):
                continue
            at_ms = self._opens_ms(run)
            if at_ms <= now_ms and flying + len(starts) >= flying_max:
                continue  # a settlement or the end of a lease changes that
            if at_ms <= now_ms and len(starts) >= runs_max:
                at_ms = now_ms
            elif at_ms <= now_ms:
                starts.append(run)
                held += fresh
                self._count(run)
                continue
            ready_ms = min(ready_ms, at_ms)
            in_line = in_line and not fresh  # first starts keep their order
        if len(starts) >= runs_max and held < policy.max_in_flight:
            ready_ms = now_ms  # more may wait behind the front that was asked for
        return StartDecision(starts, ready_ms, self._pace)

    def _opens_ms(self, run: FirstRun) -> int:
        """Return when this run may start by its own time, the closure, the rate and the pace."""
        pace, now_ms = self._pace, self._now_ms
        at_ms = max(run.at_ms, pace.closed_until_ms)
        if self._policy.rate_gap_us:
            at_ms = max(at_ms, -(-pace.rate_us // 1_000))
        if self._backlog is None or at_ms > now_ms or now_ms - run.at_ms <= LATE_MS:
            return at_ms
        idle_ms = now_ms - max(at_ms, pace.paced_ms)
        if idle_ms > IDLE_MS and not pace.staggered:
            spread_ms = min(self._gap_ms(run), idle_ms // SPEED_MAX)
            self._pace = pace = msgspec.structs.replace(
                pace, paced_ms=now_ms + int(spread_ms * self._phase), staggered=True
            )
        return max(at_ms, pace.paced_ms)

    def _count(self, run: FirstRun) -> None:
        """Move the pace on by one start."""
        pace, now_ms = self._pace, self._now_ms
        rate_us, paced_ms = pace.rate_us, pace.paced_ms
        if self._policy.rate_gap_us:
            rate_us = max(rate_us, now_ms * 1_000 - BURST_US) + self._policy.rate_gap_us
        if self._backlog is not None and is_late(run.at_ms, self._backlog.gap_ms, now_ms=now_ms):
            gap_ms = max(self._gap_ms(run), 1)
            paced_ms = max(paced_ms, now_ms - max(gap_ms // 2, SLACK_MS)) + gap_ms
        if (rate_us, paced_ms, False) != (pace.rate_us, pace.paced_ms, pace.staggered):
            self._pace = msgspec.structs.replace(pace, rate_us=rate_us, paced_ms=paced_ms, staggered=False)

    def _gap_ms(self, run: FirstRun) -> int:
        assert self._backlog is not None
        return catch_up_gap_ms(self._backlog, due_ms=run.due_ms, now_ms=self._now_ms)


def is_late(due_ms: int, gap_ms: int, *, now_ms: int) -> bool:
    return now_ms - due_ms > max(LATE_MS, LATE_GAPS * gap_ms)


def catch_up_gap_ms(backlog: Backlog, *, due_ms: int, now_ms: int) -> int:
    """Return the gap that spreads the remaining runs, from the head's due time on, evenly over the remaining time."""
    usual_ms = max(backlog.end_ms - due_ms, 1)
    left_ms = backlog.end_ms - now_ms
    if left_ms * SPEED_MAX <= usual_ms:
        return backlog.gap_ms // SPEED_MAX
    return backlog.gap_ms * min(left_ms, usual_ms) // usual_ms


def pace_after(pace: Pace, policy: Policy, *, verdict: Verdict, closed_until_ms: int, now_ms: int) -> Pace:
    """Return the pace after a call.

    The breaker opens after ``breaker_failures`` bad calls in a row; one good call closes it.
    """
    failures = pace.failures + (verdict == "bad")
    if verdict == "good":
        failures = 0
    elif verdict == "bad" and failures >= policy.breaker_failures:
        closed_until_ms = max(closed_until_ms, now_ms + policy.breaker_open_ms)
    return Pace(
        rate_us=pace.rate_us,
        paced_ms=max(pace.paced_ms, now_ms),  # time spent waiting for this call is not idle time
        closed_until_ms=max(pace.closed_until_ms, closed_until_ms),
        failures=failures,
        staggered=pace.staggered,
    )


def ends_well(verdict: Verdict, closed_until_ms: int) -> bool:
    """Return whether a call is the common case of ``pace_after``: good, and closes nothing.

    Then the pace need not be known: no bad call counts any more, the pace is no earlier than the call's end, and all
    else stays as it was. The common case has its own function because it is so frequent.
    """
    return verdict == "good" and not closed_until_ms


def pace_pulled_back(pace: Pace, policy: Policy, *, now_ms: int, wait_ms_max: int) -> Pace:
    """Return the pace after the clock was set back: none of its times lies further ahead than it can have meant."""
    return msgspec.structs.replace(
        pace,
        rate_us=min(pace.rate_us, now_ms * 1_000 + policy.rate_gap_us),
        paced_ms=min(pace.paced_ms, now_ms),
        closed_until_ms=min(pace.closed_until_ms, now_ms + wait_ms_max),
    )

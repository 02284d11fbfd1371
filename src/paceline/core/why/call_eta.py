"""Start time of a batch's waiting run: its provider's queue is played forward by the rules of the claim.

It is played once as if every call before it were answered at once, and once as if every one took all the time that it
has. Both suppose that nothing new comes, that nobody changes anything, and that no call has to be repeated: a repeated
call, or a pause that the provider asks for, moves the runs behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from paceline.core.batches.claim import GAPS_MAX, backlog, backlog_until_ms, first_late
from paceline.core.batches.pace import LATE_MS, Backlog, FirstRun, Pace, decide_starts, pace_after
from paceline.core.batches.provider import Policy
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.why.chain import Eta
from paceline.core.why.queued import ProviderQueue, QueuedCall

STEPS_PER_CALL = 8
"""Maximum number of looks at a provider for each run while its queue is played forward."""


class ProviderRules(NamedTuple):
    """A provider's limits. ``phase`` is ``core.batches.provider.KnownPolicy.phase``."""

    policy: Policy
    phase: float


def call_eta(queue: ProviderQueue, run: int, rules: ProviderRules, *, now_ms: int) -> Eta | None:
    """Return when the run starts. None: it is not among the runs that were read, or does not start by itself."""
    if all(call.run != run for call in queue.calls):
        return None
    sure = [call for call in queue.calls if call.run == run or call.sure]
    found = [
        _start_ms(queue.pace, queue.calls, run, rules, _slowest, now_ms=now_ms),
        _start_ms(queue.pace, sure, run, rules, _at_once, now_ms=now_ms),
    ]
    if len(sure) < len(queue.calls):
        # Which of the others end without a call is known when their turn comes: then the pace of the rest changes, too.
        found.append(_start_ms(queue.pace, sure, run, rules, _slowest, now_ms=now_ms))
        found.append(_earliest_ms(queue, run, rules, now_ms=now_ms))
    times = [at_ms for at_ms in found if at_ms is not None]
    if len(times) < len(found):
        return None
    soon_ms, late_ms = min(times), max(times)
    slack_ms = _slack_ms(queue, run, late_ms)
    if len(sure) < len(queue.calls) and any(call.run == run and call.state == "retry" for call in sure):
        late_ms += -(-rules.policy.rate_gap_us // 1_000)  # one behind it may start before it, and use up the rate
    return Eta(max(soon_ms - slack_ms, _earliest_ms(queue, run, rules, now_ms=now_ms)), late_ms + slack_ms)


def _earliest_ms(queue: ProviderQueue, run: int, rules: ProviderRules, *, now_ms: int) -> int:
    """Return when the run starts if nothing is before it."""
    mine = next(call for call in queue.calls if call.run == run)
    rate_ms = -(-queue.pace.rate_us // 1_000) if rules.policy.rate_gap_us else 0
    return max(mine.at_ms, queue.pace.closed_until_ms, rate_ms, now_ms)


def _slack_ms(queue: ProviderQueue, run: int, late_ms: int) -> int:
    """Return how much sooner or later a run may start that catches up behind others: by one of their gaps.

    While a provider catches up, each start and each end moves its pace a little, so calls answered in between count.
    """
    calls = queue.calls
    mine = next(index for index, call in enumerate(calls) if call.run == run)
    if len(calls) == 1 or (mine == 0 and calls[mine].state == "waiting") or late_ms - calls[mine].at_ms <= LATE_MS:
        return 0  # a run in back-off may be passed by those behind it
    return max(backlog([call.due_ms for call in calls[: GAPS_MAX + 1]], end_ms=calls[mine].due_ms).gap_ms, 1)


_EndOf = Callable[[QueuedCall, int], int]


def _at_once(_: QueuedCall, start_ms: int) -> int:
    return start_ms


def _slowest(call: QueuedCall, start_ms: int) -> int:
    return start_ms + call.timeout_ms


def _start_ms(
    pace: Pace, calls: list[QueuedCall], run: int, rules: ProviderRules, end_of: _EndOf, *, now_ms: int
) -> int | None:
    """Return when the run starts if calls end as ``end_of`` says."""
    played, left = _Playing(pace, calls, rules, end_of, now_ms), STEPS_PER_CALL * (len(calls) + 1)
    while not (started := run in played.start()) and left and played.go_on():
        left -= 1
    return played.now_ms if started else None


class _Playing:
    """A queue at a moment that moves on from start to start and from end to end."""

    def __init__(self, pace: Pace, calls: list[QueuedCall], rules: ProviderRules, end_of: _EndOf, now_ms: int) -> None:
        self.now_ms = now_ms
        self._pace = pace
        self._rules = rules
        self._end_of = end_of
        self._held = {call.run: call for call in calls if call.state != "waiting"}
        self._waiting = [call for call in calls if call.state == "waiting"]
        self._first = 0
        """Index of the first waiting run that has not started."""
        self._dues = [call.due_ms for call in self._waiting]
        self._ends: dict[int, int] = {}
        self._ready_ms = NEVER_MS
        if end_of is _at_once and any(call.state == "out" for call in self._held.values()):
            # These calls may have ended a while ago, and are about to be reported.
            self._held = {run: call for run, call in self._held.items() if call.state != "out"}
            self._pace = msgspec.structs.replace(pace, failures=0, staggered=True)

    def start(self) -> set[int]:
        """Start the runs that may start now, by the rules of a claim, and return them."""
        policy, now_ms = self._rules.policy, self.now_ms
        places = max(policy.max_in_flight - len(self._held), 0)
        first = self._first
        calls = sorted([*self._held.values(), *self._waiting[first : first + places]], key=_due_ms)
        front = [FirstRun(index, call.state, call.due_ms, call.at_ms) for index, call in enumerate(calls)]
        decision = decide_starts(
            policy,
            self._pace,
            front,
            now_ms=now_ms,
            runs_max=len(front) + 1,
            backlog=self._backlog(calls, front),
            phase=self._rules.phase,
        )
        self._pace, self._ready_ms = decision.pace, decision.ready_ms
        started = [calls[start.handle] for start in decision.starts]
        for call in started:
            self._first += call.state == "waiting"
            self._ends[call.run] = self._end_of(call, now_ms)
            self._held[call.run] = call._replace(state="out", at_ms=NEVER_MS)
        return {call.run for call in started}

    def go_on(self) -> bool:
        """Move to the next moment at which something ends or may start. False: there is none."""
        next_ms = min([self._ready_ms, *self._ends.values(), *self._leases()])
        if next_ms >= NEVER_MS:
            return False
        self.now_ms = max(self.now_ms, next_ms)
        self._end()
        return True

    def _leases(self) -> list[int]:
        """Return the ends of the leases that were running at the beginning: unreported runs come back then."""
        return [call.at_ms for call in self._held.values() if call.state == "out" and call.at_ms > self.now_ms]

    def _end(self) -> None:
        for run in [run for run, end_ms in self._ends.items() if end_ms <= self.now_ms]:
            del self._ends[run]
            del self._held[run]
            self._pace = pace_after(
                self._pace, self._rules.policy, verdict="good", closed_until_ms=0, now_ms=self.now_ms
            )

    def _backlog(self, calls: list[QueuedCall], front: list[FirstRun]) -> Backlog | None:
        late = first_late(front, now_ms=self.now_ms)
        if late is None:
            return None
        call = calls[late]
        until_ms = backlog_until_ms(call.due_ms, end_ms=call.end_ms)
        at = bisect_left(self._dues, call.due_ms, lo=self._first)
        dues = [*(held.due_ms for held in self._held.values()), *self._dues[at : at + GAPS_MAX + 1]]
        return backlog(sorted(due for due in dues if call.due_ms <= due < until_ms)[: GAPS_MAX + 1], end_ms=call.end_ms)


def _due_ms(call: QueuedCall) -> int:
    return call.due_ms

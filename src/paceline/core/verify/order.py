"""Promise "in order": the runs of one monitor or provider start in the order of their due times."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise

from paceline.core.verify.calls import CALL_ENDED, DayAndProviderFacts, call_name
from paceline.core.verify.facts import CallFact, ProviderFact, RunFact
from paceline.core.verify.life import ENDED, Life, run_name
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding


def judge_life(life: Life, rules: Rules) -> JudgeFinding:
    """Judge the runs of a monitor: each by itself, and each with the one after it."""
    runs = [run for run in life.runs if run.due_ms >= rules.since_ms]
    broken: list[Counterexample] = []
    for run in runs:
        broken += _times(life, run, rules)
    for first, second in pairwise(runs):
        broken += _pair(life, first, second, rules)
    return JudgeFinding("in order", len(runs), broken)


def _times(life: Life, run: RunFact, rules: Rules) -> Iterator[Counterexample]:
    if run.started_ms is None:
        return
    if run.ended_ms is not None and rules.clock.is_before(run.ended_ms, run.started_ms):
        yield Counterexample(f"{run_name(life, run)} ended before it started", (run,))
    if rules.clock.is_before(run.started_ms, run.due_ms):
        yield Counterexample(f"{run_name(life, run)} started before it was due", (run,))
    latest_ms = max(run.started_ms, run.ended_ms or 0)
    if latest_ms > rules.now_ms + rules.clock.tolerance_ms and not rules.clock.touches(rules.now_ms, latest_ms):
        yield Counterexample(f"{run_name(life, run)} has a time that has not come yet", (run,))


def _pair(life: Life, first: RunFact, second: RunFact, rules: Rules) -> Iterator[Counterexample]:
    names = f"{run_name(life, first)} and {run_name(life, second)}"
    if first.counter == second.counter:
        return
    # An extra run is due when somebody asks for it, which may be in the middle of a step of the raster.
    slack_ms = rules.clock.tolerance_ms if first.extra or second.extra else 0
    backwards = second.due_ms + slack_ms < first.due_ms
    if backwards and not rules.clock.excuses(first.due_ms, second.due_ms):
        yield Counterexample(f"{names} were made in another order than they were due", (first, second))
    started_ms = second.started_ms if second.state in ENDED or second.state == "out" else None
    if second.attempt == 0 or started_ms is None:
        return
    if first.state not in ENDED:
        yield Counterexample(f"{run_name(life, second)} started and the run before it has not ended", (first, second))
    elif first.ended_ms is not None and _overlap(started_ms, first.ended_ms, rules):
        yield Counterexample(f"{run_name(life, second)} started before the run before it had ended", (first, second))


def _overlap(started_ms: int, ended_ms: int, rules: Rules) -> bool:
    """Return whether one run started before the other had ended.

    An end is computed from how long a check took, so it may lie beyond the time from which the clock was set back
    meanwhile.
    """
    return rules.clock.is_before(started_ms, ended_ms) and not rules.clock.touches(started_ms, ended_ms)


class CallOrderJudge:
    """Judges the runs of one provider: none starts before it is due, and no more are out at once than are allowed.

    With one place, the runs of a day start in due order. A run of a record that comes after another may be passed, and
    so may one that was tried again, or that came late from another provider: the days on which that happened are told
    from the others by their grid (``evenly``).
    """

    def __init__(self, provider: ProviderFact, books: DayAndProviderFacts, rules: Rules) -> None:
        self._provider, self._books, self._rules = provider, books, rules
        self._judged = 0
        self._broken: list[Counterexample] = []
        self._starts, self._ends = array("q"), array("q")
        self._latest: dict[int, CallFact] = {}
        self.suspects: list[tuple[int, Counterexample]] = []
        """Pairs of runs that started in the wrong order, unless one of them came late from another provider."""

    def see(self, call: CallFact) -> None:
        started_ms = call.started_ms
        if started_ms is None or call.attempt == 0 or call.due_ms < self._rules.since_ms:
            return
        self._judged += 1
        self._judge_times(call, started_ms)
        if call.state in CALL_ENDED and call.ended_ms is not None and started_ms > self._provider.updated_ms:
            self._starts.append(started_ms)
            self._ends.append(max(call.ended_ms, started_ms))
            if self._provider.max_in_flight == 1 and call.attempt == 1 and not call.follows:
                self._judge_order(call, started_ms)

    def _judge_times(self, call: CallFact, started_ms: int) -> None:
        clock, name = self._rules.clock, call_name(self._books, call)
        if clock.is_before(started_ms, call.due_ms):
            self._broken.append(Counterexample(f"{name} started before it was due", (call,)))
        if call.state in CALL_ENDED and call.ended_ms is not None and clock.is_before(call.ended_ms, started_ms):
            self._broken.append(Counterexample(f"{name} ended before it started", (call,)))
        latest_ms = max(started_ms, call.ended_ms or 0)
        if latest_ms > self._rules.now_ms + clock.tolerance_ms and not clock.touches(self._rules.now_ms, latest_ms):
            self._broken.append(Counterexample(f"{name} has a time that has not come yet", (call,)))

    def _judge_order(self, call: CallFact, started_ms: int) -> None:
        before, clock = self._latest.get(call.day), self._rules.clock
        if before is None or before.started_ms is None or started_ms >= before.started_ms:
            self._latest[call.day] = call
            return
        late = started_ms > call.due_ms + clock.tolerance_ms
        if late and clock.is_before(started_ms, before.started_ms):
            names = f"{call_name(self._books, call)} and {call_name(self._books, before)}"
            says = f"{names} started in another order than they were due"
            self.suspects.append((call.day, Counterexample(says, (before, call))))

    def finding(self) -> JudgeFinding:
        return JudgeFinding("in order", self._judged, [*self._broken, *self._crowd()])

    def _crowd(self) -> Iterator[Counterexample]:
        """Walk along the starts and count calls that had not ended; yield the first time that they were too many."""
        allowed, clock = self._provider.max_in_flight, self._rules.clock
        if not allowed:
            return
        out: list[int] = []
        for start_ms, end_ms in sorted(zip(self._starts, self._ends, strict=True)):
            while out and out[0] <= start_ms + clock.tolerance_ms:
                heappop(out)
            heappush(out, end_ms)
            if len(out) > allowed and not clock.touches(start_ms, max(out)):
                says = f"{len(out)} calls of {self._provider.id} were out at once, where {allowed} are allowed"
                yield Counterexample(says, (self._provider,))
                return

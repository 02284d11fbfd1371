"""Promise "fair" for checks: nobody waits for a first place while others start one check after another.

A user who has a run waiting and nothing out is served before anybody who has a check out, and users take turns. So
while such a run waits, no other user can have more than a few checks started: one for each process that claims, and one
more for each that starts again. First attempts are judged, of monitors that skip missed and overlapping firings: such
runs wait for nothing but a place, as long as their target has one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from paceline.core.verify.absences import Absences
from paceline.core.verify.facts import MonitorFact, RunFact
from paceline.core.verify.life import ENDED, Life, run_name
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding

PASSES_MAX = 20
"""Maximum number of checks of one other user that may start meanwhile: more than there are processes that claim."""
UNSURE_MS = 5_000
"""Time between the moment by which a run was surely made and a claim that has surely seen it."""
MADE_LATE_MS_MAX = 900_000
"""Time after its due time at which a run counts as made, if the order in which runs were made is not known."""
WAITS_MAX = 100_000


class _Wait(NamedTuple):
    """A run that waited long. ``made``: its place in the order of making."""

    made: int
    ready_ms: int
    started_ms: int
    owner: int
    target: int
    monitor: MonitorFact
    run: RunFact


class CheckJudge:
    """Takes the monitors one by one and keeps 32 bytes for each run that was started."""

    def __init__(self, rules: Rules, absences: Absences) -> None:
        self._rules, self._absences = rules, absences
        self._judged = 0
        self._owners: dict[str, int] = {}
        self._targets: dict[str, int] = {"": 0}
        self._starts, self._ends, self._made = array("q"), array("q"), array("q")
        self._by, self._at = array("i"), array("i")
        self._waits: list[_Wait] = []

    def see(self, life: Life) -> None:
        monitor = life.monitor
        if not monitor.owner or monitor.outgoing:
            return
        owner = self._owners.setdefault(monitor.owner, len(self._owners))
        target = self._targets.setdefault(monitor.target, len(self._targets))
        for run in life.runs:
            if run.attempt and run.started_ms is not None and (run.state in ENDED or run.state == "out"):
                self._starts.append(run.started_ms)
                self._ends.append(run.ended_ms if run.ended_ms is not None else self._rules.now_ms)
                self._made.append(run.made or run.due_ms)
                self._by.append(owner)
                self._at.append(target)
        if len(life.entries) == 1 and (life.entries[0].missed, life.entries[0].overlap) == ("skip", "skip"):
            self._note_waits(life, owner, target)

    def finding(self) -> JudgeFinding:
        if not self._waits:
            return JudgeFinding("fair", self._judged)
        starts = _Starts(self._starts, self._ends, self._made, self._by, self._at)
        names = list(self._owners)
        broken = [found for wait in self._waits if (found := self._judge(wait, starts, names)) is not None]
        return JudgeFinding("fair", self._judged, broken)

    def _note_waits(self, life: Life, owner: int, target: int) -> None:
        """Note the runs that waited longer than a process may be held up between a claim and a start."""
        monitor, rules, free_ms = life.monitor, self._rules, 0
        for run in life.runs:
            ready_ms, free_ms = max(run.due_ms, free_ms), max(free_ms, run.ended_ms or 0)
            if run.due_ms < max(rules.since_ms, monitor.edited_ms + rules.clock.tolerance_ms):
                continue
            started_ms = run.started_ms if run.state in ("ok", "failed") and run.attempt == 1 else None
            if run.state == "waiting":
                started_ms = rules.now_ms + rules.lease_ms
            if started_ms is None:
                continue
            self._judged += 1
            if started_ms - ready_ms > rules.lease_ms + UNSURE_MS and len(self._waits) < WAITS_MAX:
                made = run.made or run.due_ms
                self._waits.append(_Wait(made, ready_ms, started_ms, owner, target, monitor, run))

    def _judge(self, wait: _Wait, starts: _Starts, names: Sequence[str]) -> Counterexample | None:
        seen_ms = starts.known_ms(wait.made) if wait.run.made else wait.run.due_ms + MADE_LATE_MS_MAX
        if seen_ms is None:
            return None
        first_ms, last_ms = max(wait.ready_ms, seen_ms) + UNSURE_MS, wait.started_ms - self._rules.lease_ms
        if first_ms >= last_ms or self._rules.clock.touches(wait.monitor.edited_ms, wait.started_ms):
            return None
        if self._absences.touches(wait.monitor.owner, wait.ready_ms, wait.started_ms):
            return None
        passed = starts.passed(wait, first_ms, last_ms)
        if passed is None:
            return None
        by, times = passed
        life = Life(wait.monitor, (), [wait.run])
        says = f"{run_name(life, wait.run)} waited, its owner had nothing out, and {names[by]} started {times} checks"
        return Counterexample(says, (wait.monitor, wait.run))


class _Starts:
    """All starts, in order of time and in order of making."""

    def __init__(self, starts: array[int], ends: array[int], made: array[int], by: array[int], at: array[int]) -> None:
        self._starts, self._ends, self._made, self._by, self._at = starts, ends, made, by, at
        self._order = array("q", sorted(range(len(starts)), key=starts.__getitem__))
        self._times = array("q", (starts[index] for index in self._order))
        oldest_last = sorted(range(len(made)), key=made.__getitem__, reverse=True)
        self._newest_first = array("q", (-made[index] for index in oldest_last))
        self._earliest = array("q", accumulate((starts[index] for index in oldest_last), min))
        self._of_owner: dict[int, list[int]] = {}
        self._of_target: dict[int, list[int]] = {}
        for index in range(len(starts)):
            self._of_owner.setdefault(by[index], []).append(index)
            self._of_target.setdefault(at[index], []).append(index)

    def known_ms(self, made: int) -> int | None:
        """Return by when a run was surely made: the first start of a run that was made after it.

        None: there is none.
        """
        newer = bisect_left(self._newest_first, -made)
        return self._earliest[newer - 1] if newer else None

    def passed(self, wait: _Wait, first_ms: int, last_ms: int) -> tuple[int, int] | None:
        """Return the user that passed the run too often, and how often; None: nobody did, or there was a reason."""
        if self._is_out(self._of_owner.get(wait.owner, ()), first_ms, last_ms):
            return None
        free = not wait.target or not self._is_out(self._of_target.get(wait.target, ()), first_ms, last_ms)
        counts = Counter(self._passing(wait, first_ms, last_ms, free=free))
        by, times = max(counts.items(), key=lambda one: one[1], default=(0, 0))
        return (by, times) if times > PASSES_MAX else None

    def _passing(self, wait: _Wait, first_ms: int, last_ms: int, *, free: bool) -> Iterator[int]:
        """Yield the users who started checks meanwhile.

        Only those at the same target count if that may have been full, and only runs that were due later if the order
        of making is not known.
        """
        begin, end = bisect_left(self._times, first_ms), bisect_right(self._times, last_ms)
        for position in range(begin, end):
            index = self._order[position]
            if (free or self._at[index] == wait.target) and (wait.run.made or self._made[index] > wait.made):
                yield self._by[index]

    def _is_out(self, indexes: Sequence[int], first_ms: int, last_ms: int) -> bool:
        return any(self._starts[index] <= last_ms and self._ends[index] >= first_ms for index in indexes)

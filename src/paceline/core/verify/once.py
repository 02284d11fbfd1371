"""Promise "once": a firing makes one run, a run has one outcome, an entry has one next firing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from paceline.core.verify.calls import DayAndProviderFacts, call_name
from paceline.core.verify.facts import CallFact, RunFact
from paceline.core.verify.life import ENDED, Life, run_name
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding

LEASE_MS_MIN = 1_000
"""Shortest possible lease: a run whose lease ends at once is handed out twice at a time."""


def judge_life(life: Life, rules: Rules) -> JudgeFinding:
    """Judge the entry and the runs of a monitor."""
    broken = [*_entry(life), *_twins(life, rules), *_each(life, rules)]
    return JudgeFinding("once", len(life.entries) + len(life.runs), broken)


def _entry(life: Life) -> Iterator[Counterexample]:
    if len(life.entries) > 1:
        yield Counterexample(f"{life.name} has two next firings", life.entries[:2])
        return
    for entry in life.entries:
        beyond = [run for run in life.runs if run.counter >= entry.counter]
        if beyond:
            yield Counterexample(
                f"{run_name(life, beyond[0])} is there, and the entry will make it again", (entry, beyond[0])
            )
        if life.monitor.folded >= entry.counter:
            yield Counterexample(f"the roll-up of {life.name} has a run that was never made", (life.monitor, entry))


def _twins(life: Life, rules: Rules) -> Iterator[Counterexample]:
    """Judge that no two runs have one counter, and no two firings one due time.

    A time that the clock has shown twice is left out.
    """
    for first, second in pairwise(life.runs):
        if first.counter == second.counter:
            yield Counterexample(f"{run_name(life, first)} was made twice", (first, second))
    seen: dict[int, RunFact] = {}
    for run in life.runs:
        if run.extra or run.due_ms < rules.since_ms:
            continue
        before = seen.setdefault(run.due_ms, run)
        if before.counter != run.counter and not rules.clock.excuses(run.due_ms):
            yield Counterexample(f"{life.name} fired twice for one due time", (before, run))


def _each(life: Life, rules: Rules) -> Iterator[Counterexample]:
    for run in life.runs:
        if run.open_too:
            yield Counterexample(f"{run_name(life, run)} has ended and may be started again", (run,))
        if run.state in ENDED and run.attempt == 0 and run.state != "dead":
            yield Counterexample(f"{run_name(life, run)} has an outcome and nobody ever claimed it", (run,))
        if run.state == "out" and run.until_ms is not None and run.started_ms is not None:
            lease_ms = run.until_ms - run.started_ms
            if lease_ms < LEASE_MS_MIN and not rules.clock.touches(run.started_ms, run.until_ms):
                yield Counterexample(f"{run_name(life, run)} is out under a lease of {lease_ms} ms", (run,))
        if run.claimed_ms is not None:
            yield from _later_attempt(life, run, rules)


def _later_attempt(life: Life, run: RunFact, rules: Rules) -> Iterator[Counterexample]:
    """Judge an outcome of a second or later attempt: that attempt reported it, and it was allowed to begin."""
    assert run.claimed_ms is not None
    if run.started_ms is not None and rules.clock.is_before(run.started_ms, run.claimed_ms):
        says = f"{run_name(life, run)} started before attempt {run.attempt} was claimed: an earlier one reported it"
        yield Counterexample(says, (run,))
    if not run.lost or life.monitor.repeatable or run.state not in ("ok", "failed"):
        return
    edited_ms = life.monitor.edited_ms  # nobody knows what the check was before
    if rules.clock.is_before(edited_ms, run.claimed_ms) and not rules.clock.touches(edited_ms, run.claimed_ms):
        says = f"{run_name(life, run)} was carried out again, and an earlier attempt may have reached its target"
        yield Counterexample(says, (life.monitor, run))


class CallOnceJudge:
    """Judges the runs of one provider: each is at one place, which is the one that the ledger has."""

    def __init__(self, books: DayAndProviderFacts, rules: Rules) -> None:
        self._books, self._rules = books, rules
        self._judged = 0
        self._broken: list[Counterexample] = []
        self._before: CallFact | None = None

    def see(self, call: CallFact) -> None:
        self._judged += 1
        name, before = call_name(self._books, call), self._before
        if call.state and not call.in_ledger:
            self._broken.append(Counterexample(f"{name} stands where the ledger does not have it", (call,)))
        if before is not None and before.due_ms == call.due_ms:
            self._broken.append(Counterexample(f"{name} shares its place with another run", (before, call)))
        if call.state == "done" and call.attempt == 0:
            self._broken.append(Counterexample(f"{name} has an outcome and nobody ever claimed it", (call,)))
        if call.state == "out" and call.until_ms is not None and call.started_ms is not None:
            lease_ms = call.until_ms - call.started_ms
            if lease_ms < LEASE_MS_MIN and not self._rules.clock.touches(call.started_ms, call.until_ms):
                self._broken.append(Counterexample(f"{name} is out under a lease of {lease_ms} ms", (call,)))
        self._before = call

    def finding(self) -> JudgeFinding:
        return JudgeFinding("once", self._judged, self._broken)

"""Passes the facts of each group to the judges."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core.verify import fair_checks, grid, lost, once, order
from paceline.core.verify.absences import Absences
from paceline.core.verify.budget import BudgetJudge
from paceline.core.verify.call_judges import CallJudges
from paceline.core.verify.completion import CompletionJudge
from paceline.core.verify.facts import (
    CallFact,
    DayFact,
    DisabledFact,
    EntryFact,
    Fact,
    MonitorFact,
    ProviderFact,
    RunFact,
)
from paceline.core.verify.fair_sends import SendJudge
from paceline.core.verify.life import Life
from paceline.core.verify.rules import Rules
from paceline.core.verify.submissions import SubmissionJudge
from paceline.core.verify.verdict import JudgeFinding

_LIFE_JUDGES = (once.judge_life, order.judge_life, grid.judge_life, lost.judge_life)


class LifeJudges:
    """Collects the facts of a generation of a monitor, and judges them when the next generation begins."""

    def __init__(self, rules: Rules, absences: Absences) -> None:
        self._rules = rules
        self._fair = fair_checks.CheckJudge(rules, absences)
        self._monitor: MonitorFact | None = None
        self._entries: list[EntryFact] = []
        self._runs: list[RunFact] = []

    def see(self, fact: Fact) -> Iterable[JudgeFinding]:
        if isinstance(fact, RunFact):  # nearly all facts are runs
            self._runs.append(fact)
        elif isinstance(fact, EntryFact):
            self._entries.append(fact)
        elif isinstance(fact, MonitorFact):
            findings = self._end_life()
            self._monitor = fact
            return findings
        return ()

    def end(self) -> Iterable[JudgeFinding]:
        return [*self._end_life(), self._fair.finding()]

    def _end_life(self) -> Iterable[JudgeFinding]:
        if self._monitor is None:
            return ()
        life = Life(self._monitor, tuple(self._entries), self._runs)
        self._monitor, self._entries, self._runs = None, [], []
        self._fair.see(life)
        return [judge(life, self._rules) for judge in _LIFE_JUDGES]


class JobJudges:
    """The judges of jobs: they keep sums and return their findings at the end."""

    def __init__(self, rules: Rules, absences: Absences) -> None:
        self._judges = (BudgetJudge(), CompletionJudge(), SubmissionJudge(), SendJudge(rules, absences))

    def see(self, fact: Fact) -> Iterable[JudgeFinding]:
        for judge in self._judges:
            judge.see(fact)
        return ()

    def end(self) -> Iterable[JudgeFinding]:
        return [judge.finding() for judge in self._judges]


class Judges:
    """All judges. They take facts one by one, and return findings whenever a group is over."""

    def __init__(self, rules: Rules) -> None:
        self._absences = Absences()
        self._lives, self._calls = LifeJudges(rules, self._absences), CallJudges(rules)
        self._jobs = JobJudges(rules, self._absences)

    def see(self, fact: Fact) -> Iterable[JudgeFinding]:
        if isinstance(fact, RunFact | EntryFact | MonitorFact):
            return self._lives.see(fact)
        if isinstance(fact, CallFact | DayFact | ProviderFact):
            return self._calls.see(fact)
        if isinstance(fact, DisabledFact):
            self._absences.note(fact)
            return ()
        return self._jobs.see(fact)

    def end(self) -> Iterable[JudgeFinding]:
        return [*self._lives.end(), *self._calls.end(), *self._jobs.end()]

"""Brings the facts of each group before the judges."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.core.verify import grid, lost, once, order
from paceline.core.verify.budget import BudgetJudge
from paceline.core.verify.call_judges import CallJudges
from paceline.core.verify.completion import CompletionJudge
from paceline.core.verify.facts import EntryFact, Fact, MonitorFact, RunFact
from paceline.core.verify.life import Life
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Finding

_LIFE_JUDGES = (once.judge_life, order.judge_life, grid.judge_life, lost.judge_life)


class LifeJudges:
    """Collects the facts of a generation of a monitor, and judges them when the next generation begins."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._monitor: MonitorFact | None = None
        self._entries: list[EntryFact] = []
        self._runs: list[RunFact] = []

    def see(self, fact: Fact) -> Iterator[Finding]:
        match fact:
            case RunFact():
                self._runs.append(fact)
            case EntryFact():
                self._entries.append(fact)
            case MonitorFact():
                yield from self.end()
                self._monitor = fact
            case _:
                pass

    def end(self) -> Iterator[Finding]:
        if self._monitor is not None:
            life = Life(self._monitor, tuple(self._entries), self._runs)
            yield from (judge(life, self._rules) for judge in _LIFE_JUDGES)
        self._monitor, self._entries, self._runs = None, [], []


class JobJudges:
    """The judges of jobs: they hold sums and speak at the end."""

    def __init__(self) -> None:
        self._judges = (BudgetJudge(), CompletionJudge())

    def see(self, fact: Fact) -> Iterator[Finding]:
        for judge in self._judges:
            judge.see(fact)
        return iter(())

    def end(self) -> Iterator[Finding]:
        return (judge.finding() for judge in self._judges)


class Judges:
    """All judges. Facts are given to them one by one, and findings come whenever a group is over."""

    def __init__(self, rules: Rules) -> None:
        self._all = (LifeJudges(rules), CallJudges(rules), JobJudges())

    def see(self, fact: Fact) -> Iterator[Finding]:
        for judges in self._all:
            yield from judges.see(fact)

    def end(self) -> Iterator[Finding]:
        for judges in self._all:
            yield from judges.end()

"""Brings the facts of each group before the judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.core.verify import grid, lost, once, order
from paceline.core.verify.facts import EntryFact, Fact, MonitorFact, RunFact
from paceline.core.verify.life import Life
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Finding

_JUDGES = (once.judge_life, order.judge_life, grid.judge_life, lost.judge_life)


def lives(facts: Iterable[Fact]) -> Iterator[Life]:
    """Yields the facts of each generation together, in the order in which they come."""
    monitor: MonitorFact | None = None
    entries: list[EntryFact] = []
    runs: list[RunFact] = []
    for fact in facts:
        match fact:
            case RunFact():
                runs.append(fact)
            case EntryFact():
                entries.append(fact)
            case MonitorFact():
                if monitor is not None:
                    yield Life(monitor, tuple(entries), runs)
                monitor, entries, runs = fact, [], []
            case _:
                pass
    if monitor is not None:
        yield Life(monitor, tuple(entries), runs)


def judge_life(life: Life, rules: Rules) -> Iterator[Finding]:
    """Yields what each judge finds in a generation of a monitor."""
    return (judge(life, rules) for judge in _JUDGES)

"""Verdicts: for each promise how many facts were judged, and the smallest counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from paceline.core.verify.facts import Fact

Promise = Literal["once", "in order", "evenly", "on the grid", "within budget", "nothing lost", "fair"]
PROMISES: tuple[Promise, ...] = (
    *("once", "in order", "evenly", "on the grid", "within budget", "nothing lost", "fair"),
)
LINES_MAX = 3
"""Maximum number of ledger lines of a counterexample."""


class Counterexample(NamedTuple):
    """Facts that cannot all be true while the promise holds, and why not."""

    says: str
    lines: tuple[Fact, ...]


class JudgeFinding(NamedTuple):
    """Result of one judge for one group of facts. ``judged``: how many facts it looked at."""

    promise: Promise
    judged: int
    broken: Sequence[Counterexample] = ()


class Verdict(NamedTuple):
    """Result of all facts together for a promise."""

    promise: Promise
    judged: int = 0
    broken: int = 0
    smallest: Counterexample | None = None

    @property
    def passed(self) -> bool:
        return not self.broken


class Court:
    """Adds findings up. Of the counterexamples it keeps the one with the fewest lines, of equals the first."""

    def __init__(self) -> None:
        self._verdicts = {promise: Verdict(promise) for promise in PROMISES}

    def hear(self, findings: Iterable[JudgeFinding]) -> None:
        for finding in findings:
            before = self._verdicts[finding.promise]
            smallest = before.smallest
            for one in finding.broken:
                assert 0 < len(one.lines) <= LINES_MAX
                if smallest is None or len(one.lines) < len(smallest.lines):
                    smallest = one
            self._verdicts[finding.promise] = Verdict(
                finding.promise, before.judged + finding.judged, before.broken + len(finding.broken), smallest
            )

    def verdicts(self) -> list[Verdict]:
        return list(self._verdicts.values())

"""Facts of a ledger brought before all judges, and what they say of each promise."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core.verify.facts import Fact
from paceline.core.verify.judge import Judges
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import PROMISES, Promise


def judged(facts: Iterable[Fact], rules: Rules) -> dict[Promise, list[str]]:
    """Returns what is broken, by promise; a promise that was kept is left out."""
    judges = Judges(rules)
    findings = [finding for fact in facts for finding in judges.see(fact)]
    findings += judges.end()
    broken: dict[Promise, list[str]] = {promise: [] for promise in PROMISES}
    for finding in findings:
        assert finding.judged >= 0
        broken[finding.promise] += [one.says for one in finding.broken]
    return {promise: says for promise, says in broken.items() if says}


def count_judged(facts: Iterable[Fact], rules: Rules) -> dict[Promise, int]:
    judges = Judges(rules)
    findings = [finding for fact in facts for finding in judges.see(fact)]
    counts: dict[Promise, int] = {}
    for finding in [*findings, *judges.end()]:
        counts[finding.promise] = counts.get(finding.promise, 0) + finding.judged
    return counts

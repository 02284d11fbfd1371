"""Verdicts: findings add up, and the smallest counterexample is kept."""

from __future__ import annotations

from paceline.core.verify.facts import RunFact, SetBackFact
from paceline.core.verify.rules import RepeatedSpans
from paceline.core.verify.verdict import PROMISES, Counterexample, Court, JudgeFinding, Verdict

RUN = RunFact(1, 0, 0, "ok")


def test_verdict_adds_up_findings_and_keeps_the_first_smallest_counterexample() -> None:
    court = Court()
    court.hear([JudgeFinding("once", 3, [Counterexample("large", (RUN, RUN)), Counterexample("small", (RUN,))])])
    court.hear([JudgeFinding("once", 4, [Counterexample("as small", (RUN,))]), JudgeFinding("fair", 2)])
    verdicts = {verdict.promise: verdict for verdict in court.verdicts()}
    assert list(verdicts) == list(PROMISES)
    assert verdicts["once"] == Verdict("once", 7, 3, Counterexample("small", (RUN,)))
    assert verdicts["fair"].passed
    assert not verdicts["once"].passed


def test_times_repeated_by_a_clock_set_back_are_excused() -> None:
    clock = RepeatedSpans([SetBackFact(50_000, 20_000), SetBackFact(30_000, 10_000), SetBackFact(200_000, 100_000)])
    assert clock.excuses(12_000, 48_000)
    assert not clock.excuses(12_000, 60_000)
    assert clock.touches(60_000, 120_000)
    assert not clock.touches(60_000, 90_000)
    assert clock.is_before(60_000, 90_000)
    assert not clock.is_before(60_000, 60_500)
    assert not clock.is_before(110_000, 190_000)

"""Passes the facts of batches to their judges, one provider after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.core.verify import evenly, lost, once, order
from paceline.core.verify.calls import DayAndProviderFacts
from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding


class CallJudges:
    """Takes facts one by one; returns findings when a provider, or the whole ledger, is over."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._books = DayAndProviderFacts()
        self._lost = lost.LostCallJudge(self._books, rules)
        self._evenly = evenly.CallSpreadJudge(self._books, rules)
        self._provider: tuple[once.CallOnceJudge, order.CallOrderJudge, evenly.RateJudge] | None = None
        self._suspects: list[tuple[int, Counterexample]] = []

    def see(self, fact: Fact) -> Iterable[JudgeFinding]:
        if isinstance(fact, CallFact):
            for judge in (*(self._provider or ()), self._lost, self._evenly):
                judge.see(fact)
        elif isinstance(fact, DayFact):
            self._books.days[fact.number] = fact
        elif isinstance(fact, ProviderFact):
            findings = list(self._end_provider())
            self._books.providers[fact.number] = fact
            self._provider = (
                once.CallOnceJudge(self._books, self._rules),
                order.CallOrderJudge(fact, self._books, self._rules),
                evenly.RateJudge(fact, self._rules),
            )
            return findings
        return ()

    def end(self) -> Iterator[JudgeFinding]:
        yield from self._end_provider()
        yield self._lost.finding()
        yield self._evenly.finding()
        yield JudgeFinding("in order", 0, [one for day, one in self._suspects if day in self._evenly.plain])

    def _end_provider(self) -> Iterator[JudgeFinding]:
        if self._provider is None:
            return
        once_judge, order_judge, rate_judge = self._provider
        yield once_judge.finding()
        yield order_judge.finding()
        yield rate_judge.finding()
        self._suspects += order_judge.suspects
        self._provider = None

"""Passes the facts of batches to their judges, one provider after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.core.verify import evenly, lost, once, order
from paceline.core.verify.calls import Books
from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, Finding


class CallJudges:
    """Takes facts one by one; returns findings when a provider, or the whole ledger, is over."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._books = Books()
        self._lost = lost.CallJudge(self._books, rules)
        self._evenly = evenly.CallJudge(self._books, rules)
        self._provider: tuple[once.CallJudge, order.CallJudge, evenly.RateJudge] | None = None
        self._suspects: list[tuple[int, Counterexample]] = []

    def see(self, fact: Fact) -> Iterable[Finding]:
        if isinstance(fact, CallFact):
            for judge in (*(self._provider or ()), self._lost, self._evenly):
                judge.see(fact)
        elif isinstance(fact, DayFact):
            self._books.days[fact.number] = fact
        elif isinstance(fact, ProviderFact):
            findings = list(self._end_provider())
            self._books.providers[fact.number] = fact
            self._provider = (
                once.CallJudge(self._books, self._rules),
                order.CallJudge(fact, self._books, self._rules),
                evenly.RateJudge(fact, self._rules),
            )
            return findings
        return ()

    def end(self) -> Iterator[Finding]:
        yield from self._end_provider()
        yield self._lost.finding()
        yield self._evenly.finding()
        yield Finding("in order", 0, [one for day, one in self._suspects if day in self._evenly.plain])

    def _end_provider(self) -> Iterator[Finding]:
        if self._provider is None:
            return
        once_judge, order_judge, rate_judge = self._provider
        yield once_judge.finding()
        yield order_judge.finding()
        yield rate_judge.finding()
        self._suspects += order_judge.suspects
        self._provider = None

"""Judgement of history: the facts of a store are streamed past the judges of core, one group in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec

from paceline.core.verify.facts import (
    AccountLimitFact,
    CallFact,
    DisabledFact,
    Fact,
    LimitFact,
    MeasurementFact,
    RetentionFact,
    RunFact,
    SetBackFact,
)
from paceline.core.verify.judge import Judges
from paceline.core.verify.rules import RepeatedSpans, Rules
from paceline.core.verify.verdict import Court, Verdict
from paceline.errors import MalformedBody
from paceline.ports import Store
from paceline.steps.history.notes import ACCOUNT_LIMITS, DISABLED, LIMITS, RETENTION, SET_BACKS, SHORTEST, STRAYS
from paceline.steps.move.stream import Head, HistoryLine, Tail, read_line

REPORT_EVERY = 10_000
Progress = Callable[[int, int | None], None]


class VerifyReport(msgspec.Struct, frozen=True):
    """Verdict on each promise, and the number of runs."""

    verdicts: list[Verdict]
    runs: int

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)


def note_facts(store: Store) -> Iterator[Fact]:
    """Yield the notes that come before everything else: set-backs of the clock, the retention, disabled users."""
    yield from (found.value for found in SET_BACKS.walk(store) if found.value is not None)
    retention = RETENTION.get(store, SHORTEST)
    if retention is not None:
        yield retention
    for one in DISABLED.walk(store):
        yield from (DisabledFact(one.key, *span) for span in (one.value.spans if one.value else ()))


def job_notes(store: Store) -> Iterator[Fact]:
    """Yield the notes that come before the meters: earlier limits of users and accounts, and strays at RIPE."""
    for found in LIMITS.walk(store):
        for daily_credits, until_ms in found.value.before if found.value else ():
            yield LimitFact(found.key, daily_credits, until_ms)
    for one in ACCOUNT_LIMITS.walk(store):
        for limits in one.value.declared if one.value else ():
            yield AccountLimitFact(one.key, *limits)
    yield from (stray.value for stray in STRAYS.walk(store) if stray.value is not None)


def store_facts(store: Store) -> Iterator[Fact]:
    """Yield all facts of a store, the notes first."""
    return chain(note_facts(store), store.monitor_facts(), store.call_facts(), job_notes(store), store.job_facts())


Select = Callable[[Iterable[Fact]], Iterable[Fact]]


def verify(store: Store, rules: Rules, *, progress: Progress, select: Select = iter) -> VerifyReport:
    """Judge the history in the store; ``select`` chooses among the facts.

    An engine that is read while others write is read twice if something seems wrong, and only what was wrong both times
    is reported.
    """
    report = judge(select(store_facts(store)), rules, apart_ms=store.traits.apart_ms, progress=progress)
    if report.passed or not store.traits.remote:
        return report
    again = judge(select(store_facts(store)), rules, apart_ms=store.traits.apart_ms, progress=progress)
    return again if again.passed else report


def judge(facts: Iterable[Fact], rules: Rules, *, apart_ms: int = 0, progress: Progress) -> VerifyReport:
    """Judge a stream of facts. Set-backs and the retention, if there are any, come before the rest."""
    notes, rest = _split(iter(facts))
    rules = _with_notes(rules, notes, apart_ms=apart_ms)
    court, counted = Court(), _Counted(progress)
    judges = Judges(rules)
    for fact in counted.count(rest):
        court.hear(judges.see(fact))
    court.hear(judges.end())
    return VerifyReport(court.verdicts(), counted.runs)


def _with_notes(rules: Rules, notes: list[Fact], *, apart_ms: int) -> Rules:
    """Return the rules with the notes: runs were kept as long as the settings say now, unless a note says less."""
    set_backs = [note for note in notes if isinstance(note, SetBackFact)]
    shortest = [note for note in notes if isinstance(note, RetentionFact)]
    return rules._replace(
        clock=RepeatedSpans(set_backs, apart_ms=apart_ms),
        keep_ms=min([rules.keep_ms, *(note.keep_ms for note in shortest)]),
        expire_ms=min([rules.expire_ms, *(note.expire_ms for note in shortest)]),
    )


def _split(facts: Iterator[Fact]) -> tuple[list[Fact], Iterator[Fact]]:
    notes: list[Fact] = []
    for fact in facts:
        if not isinstance(fact, SetBackFact | RetentionFact):
            return notes, chain((fact,), facts)
        notes.append(fact)
    return notes, iter(())


class _Counted:
    """Counts runs as they pass, and reports progress now and then."""

    def __init__(self, progress: Progress) -> None:
        self.runs = 0
        self._progress = progress

    def count(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        for fact in facts:
            if isinstance(fact, RunFact | CallFact | MeasurementFact):
                self.runs += 1
                if self.runs % REPORT_EVERY == 0:
                    self._progress(self.runs, None)
            yield fact


def export_facts(lines: Iterable[bytes]) -> Iterator[Fact]:
    """Yield the facts in an export. MalformedBody: it is none, or it is not complete."""
    number, tail = 0, None
    for number, text in enumerate(lines, start=1):
        line = read_line(text, number=number)
        if number == 1 and not isinstance(line, Head):
            raise MalformedBody("The first line is not that of an export: give what paceline export wrote.")
        if isinstance(line, HistoryLine):
            yield line.fact
        tail = line if isinstance(line, Tail) else None
    if tail is None or tail.lines != number - 1:
        raise MalformedBody(f"The export is not whole: it ends with line {number}, which is not its last.")

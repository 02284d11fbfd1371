"""Promise "nothing lost": every run ended or waits, nothing was deleted before its time, every monitor can fire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from paceline.core.monitors.leases import EXPIRED
from paceline.core.verify.calls import CALL_ENDED, CALL_WAITING, DayAndProviderFacts, call_name
from paceline.core.verify.facts import CallFact, Fact, RunFact
from paceline.core.verify.life import ENDED, Life, run_name
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding

WAITING = frozenset({"waiting", "later", "parked", "held", "retry", "out"})


def judge_life(life: Life, rules: Rules) -> JudgeFinding:
    """Judge the definition, the entry and the runs of a monitor."""
    broken = [*_definition(life), *_gaps(life, rules), *_each(life, rules), *_health(life)]
    return JudgeFinding("nothing lost", 1 + len(life.runs), broken)


def _definition(life: Life) -> Iterator[Counterexample]:
    monitor = life.monitor
    if monitor.changed or monitor.defined == bool(life.entries):
        return
    if monitor.defined:
        yield Counterexample(f"{life.name} has no entry and no recorded change: it will never fire", (monitor,))
    else:
        yield Counterexample(f"{life.name} is deleted and its entry would fire again", (monitor, life.entries[0]))


def _gaps(life: Life, rules: Rules) -> Iterator[Counterexample]:
    """Judge that a run is gone only if it is in the roll-up: a purge folds outcomes before it deletes."""
    monitor = life.monitor
    if not monitor.defined or len(life.entries) != 1:
        return
    [entry] = life.entries
    last, before = monitor.folded, None
    for run in life.runs:
        if run.counter > last + 1:
            facts: tuple[Fact, ...] = (before, run) if before else (monitor, run)
            yield Counterexample(f"{life.name}@{run.counter - 1} is gone and in no roll-up", facts)
        last, before = max(last, run.counter), run
    if entry.counter > last + 1:
        facts = (before, entry) if before else (monitor, entry)
        yield Counterexample(f"{life.name}@{entry.counter - 1} is gone and in no roll-up", facts)
    kept = bool(life.runs) and life.runs[0].counter <= monitor.folded
    young = monitor.folded_ms > rules.now_ms - rules.keep_ms + rules.clock.tolerance_ms
    if not kept and young and not rules.clock.touches(monitor.folded_ms, rules.now_ms):
        yield Counterexample(f"{life.name}@{monitor.folded} ended a moment ago and was deleted", (monitor,))


def _each(life: Life, rules: Rules) -> Iterator[Counterexample]:
    for run in life.runs:
        if run.due_ms < rules.since_ms:
            continue
        name = run_name(life, run)
        if run.state not in ENDED:
            if run.state not in WAITING:
                yield Counterexample(f"{name} has neither ended nor waits", (run,))
            continue
        if run.ended_ms is None:
            yield Counterexample(f"{name} has ended and nobody knows when", (run,))
        if run.state != "ok" and not run.reason:
            yield Counterexample(f"{name} is {run.state} for no reason", (run,))
        if _expired_early(run, rules):
            yield Counterexample(f"{name} was ended as expired before its time", (run,))


def _expired_early(run: RunFact, rules: Rules) -> bool:
    if run.reason != EXPIRED or run.ended_ms is None:
        return False
    waited_ms = run.ended_ms - run.due_ms
    return waited_ms + rules.clock.tolerance_ms < rules.expire_ms and not rules.clock.touches(
        run.ended_ms, run.due_ms + rules.expire_ms
    )


def _health(life: Life) -> Iterator[Counterexample]:
    """Judge that health agrees with the newest outcome: a failure is counted, and after a success there is none."""
    if life.monitor.failures is None or not life.monitor.defined:
        return
    ended = [run for run in life.runs if run.state in ENDED and run.attempt]
    newest = ended[-1] if ended else None
    if newest is None or newest.state not in ("ok", "failed") or newest.counter < life.monitor.folded:
        return
    facts: tuple[Fact, ...] = (life.monitor, newest)
    if newest.state == "failed" and not life.monitor.failures:
        yield Counterexample(f"{run_name(life, newest)} failed, and nothing of it is remembered", facts)
    if newest.state == "ok" and life.monitor.failures:
        yield Counterexample(f"{run_name(life, newest)} went well, and is remembered as a failure", facts)


class LostCallJudge:
    """Judges the runs of all providers: each is at a place, and a day has as many as were made for it."""

    def __init__(self, books: DayAndProviderFacts, rules: Rules) -> None:
        self._books, self._rules = books, rules
        self._judged = 0
        self._counts: Counter[int] = Counter()
        self._broken: list[Counterexample] = []

    def see(self, call: CallFact) -> None:
        self._judged += 1
        if call.in_ledger:
            self._counts[call.day] += 1
        name = call_name(self._books, call)
        if call.state not in CALL_ENDED:
            if call.state not in CALL_WAITING:
                self._broken.append(Counterexample(f"{name} has neither ended nor waits", (call,)))
            return
        if call.ended_ms is None:
            self._broken.append(Counterexample(f"{name} has ended and nobody knows when", (call,)))
        if call.state in ("failed", "unknown") and not call.reason:
            self._broken.append(Counterexample(f"{name} is {call.state} for no reason", (call,)))
        if call.dead and call.state not in ("failed", "unknown"):
            self._broken.append(Counterexample(f"{name} is {call.state} and a dead letter", (call,)))

    def finding(self) -> JudgeFinding:
        return JudgeFinding("nothing lost", self._judged + len(self._books.days), [*self._broken, *self._days()])

    def _days(self) -> Iterator[Counterexample]:
        """Judge that no run of a day is gone before its day is over and the run ended long enough ago."""
        kept_ms = self._rules.now_ms - self._rules.keep_ms
        for day in self._books.days.values():
            young = day.end_ms > kept_ms and not self._rules.clock.touches(day.start_ms, self._rules.now_ms)
            if day.runs is not None and young and not day.deleting and self._counts[day.number] != day.runs:
                gone = day.runs - self._counts[day.number]
                says = f"{gone} runs of {day.batch}@{day.date} are gone" if gone > 0 else f"{-gone} runs are too many"
                yield Counterexample(says, (day,))

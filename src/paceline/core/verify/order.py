"""In order: the runs of one group start in the order of their due times, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from paceline.core.verify.facts import RunFact
from paceline.core.verify.life import ENDED, Life, run_name
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, Finding


def judge_life(life: Life, rules: Rules) -> Finding:
    """Judges the runs of a monitor: each by itself, and each with the one after it."""
    runs = [run for run in life.runs if run.due_ms >= rules.since_ms]
    broken: list[Counterexample] = []
    for run in runs:
        broken += _times(life, run, rules)
    for first, second in pairwise(runs):
        broken += _pair(life, first, second, rules)
    return Finding("in order", len(runs), broken)


def _times(life: Life, run: RunFact, rules: Rules) -> Iterator[Counterexample]:
    if run.started_ms is None:
        return
    if run.ended_ms is not None and rules.clock.is_before(run.ended_ms, run.started_ms):
        yield Counterexample(f"{run_name(life, run)} ended before it started", (run,))
    if rules.clock.is_before(run.started_ms, run.due_ms):
        yield Counterexample(f"{run_name(life, run)} started before it was due", (run,))
    latest_ms = max(run.started_ms, run.ended_ms or 0)
    if latest_ms > rules.now_ms + rules.clock.tolerance_ms and not rules.clock.touches(rules.now_ms, latest_ms):
        yield Counterexample(f"{run_name(life, run)} has a time that has not come yet", (run,))


def _pair(life: Life, first: RunFact, second: RunFact, rules: Rules) -> Iterator[Counterexample]:
    names = f"{run_name(life, first)} and {run_name(life, second)}"
    if first.counter == second.counter:
        return
    # An extra run is due when somebody asks for it, which may be in the middle of a step of the raster.
    slack_ms = rules.clock.tolerance_ms if first.extra or second.extra else 0
    backwards = second.due_ms + slack_ms < first.due_ms
    if backwards and not rules.clock.excuses(first.due_ms, second.due_ms):
        yield Counterexample(f"{names} were made in another order than they were due", (first, second))
    started_ms = second.started_ms if second.state in ENDED or second.state == "out" else None
    if second.attempt == 0 or started_ms is None:
        return
    if first.state not in ENDED:
        yield Counterexample(f"{run_name(life, second)} started and the run before it has not ended", (first, second))
    elif first.ended_ms is not None and rules.clock.is_before(started_ms, first.ended_ms):
        yield Counterexample(f"{run_name(life, second)} started before the run before it had ended", (first, second))

"""Promise "on the grid": due times follow from one another, never from when they were handled, so nothing drifts.

A run does not say which cadence made it. So only the runs are judged that the entry made since it was last armed: the
newest ones back to the due time it was armed for.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.core.ids import stable_fraction
from paceline.core.verify.cron_times import is_cron_time
from paceline.core.verify.facts import EntryFact, RunFact
from paceline.core.verify.life import Life, run_name
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding

RASTER_MS = 50


def judge_life(life: Life, rules: Rules) -> JudgeFinding:
    """Judge the due times of a monitor's firings, and of its next one."""
    if len(life.entries) != 1:
        return JudgeFinding("on the grid", 0)
    [entry] = life.entries
    firings = [run for run in life.runs if not run.extra and run.due_ms >= rules.since_ms]
    broken = [
        Counterexample(f"{run_name(life, run)} is due between two points of the raster", (run,))
        for run in firings
        if run.due_ms % RASTER_MS
    ]
    newest = list(_since_armed(entry, life.runs, rules))
    judged = len(newest)
    broken += [
        Counterexample(f"{run_name(life, run)} is not due on the grid of its entry", (entry, run))
        for run in newest
        if not _fits(entry, run.due_ms)
    ]
    if entry.due_ms is not None and entry.base_ms is not None:
        judged += 1
        if not _fits(entry, entry.due_ms):
            broken.append(Counterexample(f"the next firing of {life.name} has left its grid", (entry,)))
    return JudgeFinding("on the grid", judged, broken)


def _since_armed(entry: EntryFact, runs: list[RunFact], rules: Rules) -> Iterator[RunFact]:
    """Yield the newest firings back to the due time that the entry was armed for.

    A due time that is later than the one after it was made before the clock was set back, and so was all before it. If
    a run is gone, or the clock showed the due time twice, nobody can tell on which side of that a run was made.
    """
    if entry.base_ms is None:
        return
    counter, later_ms = entry.counter, entry.due_ms
    for run in reversed(runs):
        passed = later_ms is not None and run.due_ms >= later_ms and not run.extra
        if passed or run.counter != counter - 1 or run.due_ms < max(entry.base_ms, rules.since_ms):
            return
        counter = run.counter
        if not run.extra and not rules.clock.excuses(run.due_ms):
            later_ms = run.due_ms
            yield run


def _fits(entry: EntryFact, due_ms: int) -> bool:
    """Return whether a due time is on the entry's grid.

    An entry may be armed for a firing that was owed at an edit: that keeps its due time, whatever the new grid is.
    """
    assert entry.base_ms is not None
    if due_ms == entry.base_ms:
        return True
    if entry.every_ms:
        return (due_ms - entry.base_ms - entry.lead_ms) % entry.every_ms == 0
    # By definition the jitter of an entry is a fixed share of the longest that is allowed.
    share = stable_fraction(f"jitter:{entry.generation}") if entry.jitter_ms else 0
    return is_cron_time(entry.cron, entry.timezone, due_ms - int(share * entry.jitter_ms) // RASTER_MS * RASTER_MS)

"""Start time of a monitor's waiting run or next firing: its open runs are played forward, one after the other.

It is played once as if every check before it ended at once, and once as if each took all the time that it has, or was
out until its lease ends. It supposes that nobody edits anything, that places are free, and that no check is tried
twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.durations import parse_duration_ms
from paceline.core.monitors.checks import Check, OutgoingCheck, PolledCheck
from paceline.core.monitors.overlap import follow_ms
from paceline.core.monitors.schedule import Cadence, Entry, next_due_ms
from paceline.core.monitors.values import Run
from paceline.core.why.chain import Eta

HANDLED_MS = 30_000
"""Delay after which a firing that made no run may be missed: then the monitor's policy decides."""


def run_eta(runs: Sequence[Run], check: Check, cadence: Cadence | None, *, now_ms: int) -> Eta | None:
    """Return when the last of a monitor's open runs starts; ``runs`` are all up to it, the oldest first.

    None: a checker of its owner takes it.
    """
    return None if isinstance(check, OutgoingCheck) else _play(runs, check, cadence, now_ms=now_ms)[0]


def firing_eta(entry: Entry, open_runs: Sequence[Run], check: Check, *, now_ms: int) -> Eta | None:
    """Return when the run of a monitor's next firing starts. ``open_runs``: its runs that have not ended."""
    due_ms, cadence = entry.due_ms, entry.cadence
    if due_ms is None or isinstance(check, OutgoingCheck):
        return None
    grid_ms = due_ms + (entry.lead_ms or 0)
    following_ms = next_due_ms(cadence, after_ms=due_ms, due_ms=grid_ms, generation=entry.generation)
    soon_ms = first_ms = max(due_ms, now_ms)
    if now_ms - due_ms > HANDLED_MS or following_ms <= now_ms:
        if cadence.missed == "all":
            return None  # its moment depends on what all other monitors have missed
        # It may be missed: then it starts at a moment of its own before its next due time, or at that time.
        first_ms = next_due_ms(cadence, after_ms=now_ms, due_ms=grid_ms, generation=entry.generation)
    if not open_runs:
        return Eta(soon_ms, first_ms)
    started, ends_ms = _play(open_runs, check, cadence, now_ms=now_ms)
    if ends_ms < due_ms:
        return Eta(soon_ms, first_ms)
    if cadence.overlap == "skip":
        last_ms = next_due_ms(cadence, after_ms=ends_ms, due_ms=grid_ms, generation=entry.generation)
        return Eta(soon_ms, max(first_ms, last_ms))
    gap_ms = max(following_ms - due_ms, 0)
    return Eta(soon_ms, max(first_ms, ends_ms, started.to_ms + gap_ms))


def _play(runs: Sequence[Run], check: PolledCheck, cadence: Cadence | None, *, now_ms: int) -> tuple[Eta, int]:
    """Return when the last run starts, and when it ends at the latest."""
    timeout_ms = parse_duration_ms(check.timeout) or 0
    soon_end, late_end, late_start, soon_start, due_ms = now_ms, now_ms, now_ms, now_ms, 0
    for run in runs:
        if run.state == "out" and run.until_ms is not None and run.until_ms > now_ms:
            soon_start = late_start = run.started_ms or now_ms
            soon_end, late_end = now_ms, run.until_ms
        else:
            ready_ms = max(run.until_ms or now_ms, now_ms)
            paced_ms = late_start if run is runs[0] else _paced_ms(cadence, late_start, due_ms, run)
            soon_start, late_start = max(ready_ms, soon_end), max(ready_ms, late_end, paced_ms)
            soon_end, late_end = soon_start, late_start + timeout_ms
        due_ms = run.due_ms
    return Eta(max(soon_start, now_ms), max(late_start, now_ms)), late_end


def _paced_ms(cadence: Cadence | None, started_ms: int, previous_due_ms: int, run: Run) -> int:
    return follow_ms(
        cadence, started_ms=started_ms, previous_due_ms=previous_due_ms, due_ms=run.due_ms, generation=run.generation
    )

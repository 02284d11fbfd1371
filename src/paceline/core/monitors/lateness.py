"""How late runs of monitors are: since when they wait, and since when they could have started.

A status asks it of each monitor's first run that has not ended, and of the one behind it if the first is out. Those
further behind wait for these, and were due later.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.monitors.outcome import RunState


class OpenTimes(NamedTuple):
    """State and times of a run that has not ended."""

    state: RunState
    due_ms: int
    at_ms: int
    """When its lease or its pause ends, or the moment comes at which it is made up for. Counts in these states only."""


def waiting_since_ms(run: OpenTimes) -> int | None:
    """Returns since when the run waits, which may lie ahead: since it was due, or since the moment to make up for it.

    None: it is out.
    """
    if run.state == "out":
        return None
    return run.at_ms if run.state == "later" else run.due_ms


def could_start_ms(run: OpenTimes, *, disabled: bool) -> int | None:
    """Returns since when a monitor's first open run could have started; it may lie ahead. None: its owner is disabled.

    A run that is out could start again when its lease has ended.
    """
    if disabled:
        return None
    return run.at_ms if run.state in ("out", "retry", "later") else run.due_ms

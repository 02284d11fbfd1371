"""Waiting runs: why they wait, in words for people, and since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.values import Run

HELD = "its owner is disabled"
_REASONS = {
    "waiting": "waiting for a place: it starts when it is its turn and a place for its check is free",
    "parked": "waits for an earlier run of this monitor",
    "later": "missed its time: it is made up for at a moment of its own, since all at once would be a spike",
    "held": HELD,
}
UNCLAIMED = "waiting for a checker that claims it"


def wait_reason(state: str, *, outgoing: bool) -> str:
    """Return why a run in this state has not started; empty: it has.

    A place is what Paceline's own checks need; ``outgoing`` runs are for checkers that users run themselves.
    """
    if outgoing and state == "waiting":
        return UNCLAIMED
    return _REASONS.get(state, "")


class OpenRun(NamedTuple):
    """A run that has not ended, as a store finds it. Its stored state may be out of date: see ``show_open``."""

    state: RunState
    behind: bool
    """True if an earlier run of its monitor has not ended."""
    at_ms: int | None = None
    """End of its lease or its pause, or its moment in a catch-up; None: it has no such time."""
    started_ms: int | None = None
    reason: str = ""


def show_open(
    run: Run, found: OpenRun, *, disabled: bool, outgoing: bool, place_reason: Callable[[], str], now_ms: int
) -> Run:
    """Return the run with its state and the reason why it waits.

    ``retry`` and ``later`` are over when their time has come: the run then waits for an earlier run of its monitor
    (``parked``), or for nothing but a place or a checker (``waiting``). A store need not have looked at it since.
    ``place_reason`` says why checks like this one lack a place, if the claiming process has noted it; it is called only
    for checks that wait for a place.
    """
    timed = replace(run, until_ms=found.at_ms, started_ms=found.started_ms)
    if found.state == "out":
        return replace(timed, state="out", reason=found.reason)
    if disabled:
        return replace(run, state="held", reason=HELD)
    if found.state in ("retry", "later") and found.at_ms is not None and found.at_ms > now_ms:
        return replace(timed, state=found.state, reason=found.reason or wait_reason(found.state, outgoing=outgoing))
    if found.behind:
        return replace(run, state="parked", reason=found.reason or wait_reason("parked", outgoing=outgoing))
    noted = "" if outgoing else place_reason()
    return replace(run, state="waiting", reason=noted or wait_reason("waiting", outgoing=outgoing))


class OpenTimes(NamedTuple):
    """State and times of a run that has not ended.

    A status needs only each monitor's first open run, and the one behind it if the first is out. Those further behind
    wait for these, and were due later.
    """

    state: RunState
    due_ms: int
    at_ms: int
    """End of its lease or its pause, or its moment in a catch-up. Valid in these states only."""


def waiting_since_ms(run: OpenTimes) -> int | None:
    """Return since when the run waits, which may lie ahead; None: it is out.

    It waits since it was due, or since its moment in a catch-up.
    """
    if run.state == "out":
        return None
    return run.at_ms if run.state == "later" else run.due_ms


def could_start_ms(run: OpenTimes, *, disabled: bool) -> int | None:
    """Return since when a monitor's first open run could have started; it may lie ahead. None: its owner is disabled.

    A run that is out could start again when its lease has ended.
    """
    if disabled:
        return None
    return run.at_ms if run.state in ("out", "retry", "later") else run.due_ms

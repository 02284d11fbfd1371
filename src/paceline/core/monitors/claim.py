"""May a run start: leased, held because its owner is disabled, or parked behind an earlier run of its monitor."""

from __future__ import annotations

from typing import Literal, NamedTuple, assert_never

from paceline.core.monitors.outcome import RunState

HOLD_MS = 30_000
"""A disabled owner's runs are looked at again after this time; enabling the owner ends it at once."""

Start = Literal["lease", "hold", "park"]


def may_start(*, clear: bool, disabled: bool) -> Start:
    """Judges a run whose time has come.

    ``clear``: no earlier run of its monitor is open. ``disabled``: its owner is; the runs of a monitor that is gone
    have no owner, and start, to end at once.
    """
    if not clear:
        return "park"
    return "hold" if disabled else "lease"


def is_lost(state: RunState, *, lost: bool) -> bool:
    """True if an attempt was out when its lease ran out: the one before a new lease, or an earlier one (``lost``)."""
    return lost or state == "out"


class TakeFacts(NamedTuple):
    """A run of an outgoing queue that a checker asks for by its name."""

    state: RunState
    at_ms: int
    """Until when its lease, its pause or its moment in a catch-up lasts; 0: it has none."""
    attempt: int
    """How many were made."""
    clear: bool
    disabled: bool
    defined: bool
    """Its monitor is still there."""


def may_take(run: TakeFacts, *, attempt: int | None, now_ms: int) -> Literal["take", "early", "refuse"]:
    """Judges a take as this attempt; None: as whichever it would be. ``early``: it may be taken at ``at_ms``.

    A run that only waits may start whatever its time: the clock of the process that made it may be ahead of ours.
    """
    if not (run.clear and run.defined) or run.disabled or attempt not in (None, run.attempt + 1):
        return "refuse"
    match run.state:
        case "waiting" | "held":
            return "take"
        case "retry" | "later" | "parked":
            return "early" if run.at_ms > now_ms else "take"
        case "out":
            return "refuse" if run.at_ms > now_ms else "take"
        case "ok" | "failed" | "dead" | "unknown":
            return "refuse"
        case _:
            assert_never(run.state)

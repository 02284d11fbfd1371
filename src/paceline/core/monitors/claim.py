"""Decision whether a run may start: leased, held because its owner is disabled, or parked behind an earlier run."""

from __future__ import annotations

from typing import Literal, NamedTuple, assert_never

from paceline.core.monitors.outcome import RunState

HOLD_MS = 30_000
"""Time after which a disabled owner's runs are looked at again; enabling the owner ends it at once."""

Start = Literal["lease", "hold", "park"]


def may_start(*, clear: bool, disabled: bool) -> Start:
    """Judge a run whose time has come.

    ``clear``: no earlier run of its monitor is open. ``disabled``: its owner is. Runs of a deleted monitor have no
    owner; they start, and end at once.
    """
    if not clear:
        return "park"
    return "hold" if disabled else "lease"


def is_lost(state: RunState, *, lost: bool) -> bool:
    """Return whether an attempt was out when its lease ran out: the newest one, or an earlier one (``lost``)."""
    return lost or state == "out"


class TakeFacts(NamedTuple):
    """A run of an outgoing queue that a checker asks for by its id."""

    state: RunState
    at_ms: int
    """End of its lease, its pause or its wait in a catch-up; 0: it has none."""
    attempt: int
    """Number of attempts so far."""
    clear: bool
    disabled: bool
    defined: bool
    """True if its monitor still exists."""


def may_take(run: TakeFacts, *, attempt: int | None, now_ms: int) -> Literal["take", "early", "refuse"]:
    """Judge a take of the run as this attempt; None: as the next one. ``early``: it may be taken at ``at_ms``.

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

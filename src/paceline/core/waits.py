"""Why a run waits, in words for people, where the store has nothing more exact to say."""

from __future__ import annotations

HELD = "its owner is disabled"
_REASONS = {
    "waiting": "waiting for a place: it starts when it is its turn and a place for its check is free",
    "parked": "waits for an earlier run of this monitor",
    "later": "missed its time: it is made up for at a moment of its own, since all at once would be a spike",
    "held": HELD,
}
UNCLAIMED = "waiting for a checker that claims it"


def wait_reason(state: str, *, outgoing: bool) -> str:
    """Why a run in this state has not started. Empty: it has.

    A place is what Paceline's own checks need; ``outgoing`` runs are for checkers that people run themselves.
    """
    if outgoing and state == "waiting":
        return UNCLAIMED
    return _REASONS.get(state, "")

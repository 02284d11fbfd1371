"""Gates that keep measurements from being sent whichever account is free: RIPE's pause, and full targets."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core.jobs.answers import Gates
from paceline.core.jobs.measurement import targets_of
from paceline.core.jobs.values import StoredMeasurement
from paceline.ports import JobStore


def read_gates(store: JobStore, items: Iterable[StoredMeasurement]) -> Gates:
    """Return RIPE's newest pause for everybody, and the full ones among the targets of these measurements."""
    wanted = sorted(frozenset().union(*(targets_of(item.measurement) for item in items)))
    paused, full = store.gates(wanted)
    return Gates(paused, {one.target: one for one in full})

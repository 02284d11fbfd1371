"""Retention of alerts, and their times after the clock was set back."""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.alerts.telling import pulled_back
from paceline.ports.alerts import AlertStore

ALERTS_MAX = 1_000
PULLED_MAX = 100_000


def purge_alerts(store: AlertStore, *, keep_ms: int, now_ms: int, limit: int = ALERTS_MAX) -> int:
    """Make one bounded pass over alerts that are over. Return how many were deleted."""
    return store.purge_alerts(at_before_ms=now_ms - keep_ms, limit=limit)


def pull_back_alerts(store: AlertStore, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
    """Move alerts that wait longer than they can by a clock that is right. Return how many were moved.

    An alert that a silence holds back is looked at again at once, and held back again.
    """
    moved = 0
    while moved < PULLED_MAX:
        latest_ms = read_ms() + wait_ms_max
        page = store.open_alerts_after(latest_ms, limit=ALERTS_MAX)
        if not page:
            break
        won = store.write_alerts([pulled_back(record, latest_ms=latest_ms) for record in page])
        moved += sum(won)
        if not any(won):
            break
    return moved

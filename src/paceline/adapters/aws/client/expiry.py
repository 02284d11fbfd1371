"""When DynamoDB's time to live deletes items that have ended, if no purge has deleted them before."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.alerts.silence import FOR_MS_MAX
from paceline.core.monitors.uptime.rollup import DAYS_MAX

DAY_MS = 86_400_000
MARGIN_MS = DAYS_MAX * DAY_MS
"""How long an item waits for a purge after its retention. Roll-ups have no older days: folding it changes no figure."""


class Retention(NamedTuple):
    """How long items are kept that have ended, by the settings of the process that writes them."""

    runs_ms: int = 7 * DAY_MS
    dead_ms: int = 90 * DAY_MS
    alerts_ms: int = 90 * DAY_MS

    def run_s(self, ended_ms: int) -> int:
        """Return the expiry of a monitor's run."""
        return to_s(ended_ms + self.runs_ms + MARGIN_MS)

    def call_s(self, ended_ms: int, *, dead: bool) -> int:
        """Return the expiry of a batch's run; a dead letter has a retention of its own."""
        return to_s(ended_ms + (max(self.runs_ms, self.dead_ms) if dead else self.runs_ms) + MARGIN_MS)

    def may_be_gone(self, day_start_ms: int, *, now_ms: int) -> bool:
        """Return whether runs of a batch's day may have expired, so that their rows in the ledger stand alone."""
        return day_start_ms + self.runs_ms + MARGIN_MS < now_ms

    def alert_s(self, at_ms: int) -> int:
        """Return the expiry of an alert that is over."""
        return to_s(at_ms + self.alerts_ms + MARGIN_MS)

    def alert_line_s(self, at_ms: int) -> int:
        """Return the expiry of an alert's line in its user's list.

        The line is written once, while the alert is open; so it outlives an alert that the longest silence covers.
        """
        return to_s(at_ms + FOR_MS_MAX + self.alerts_ms + MARGIN_MS)


def to_s(ms: int) -> int:
    """Return the time in seconds, rounded up: an item is never deleted before its time."""
    return -(-ms // 1_000)

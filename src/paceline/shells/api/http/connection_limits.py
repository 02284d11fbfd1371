"""Limits on open connections, in total and per address. Further connections are refused with a reason."""

from __future__ import annotations

import time
from collections import Counter

import structlog

log = structlog.get_logger("paceline.api")

SAID_S = 10.0
"""Refusals are logged at most once in this time, so that a flood of connections does not flood the log."""


class ConnectionLimits:
    """Counts of open connections. Belongs to one event loop."""

    def __init__(self, *, connections_max: int, per_address_max: int) -> None:
        self.connections_max = connections_max
        self._per_address_max = per_address_max
        self._open: Counter[str] = Counter()
        self._total = 0
        self._refused = 0
        self._said_s = -SAID_S

    def enter(self, address: str) -> str | None:
        """Counts a new connection and returns None, or returns the reason why it is refused.

        ``leave`` undoes the count.
        """
        if self._total >= self.connections_max:
            return self._refuse("Too many connections are open (connections_max).", address)
        if self._open[address] >= self._per_address_max:
            return self._refuse("Too many connections from your address (connections_per_address_max).", address)
        self._open[address] += 1
        self._total += 1
        return None

    def leave(self, address: str) -> None:
        self._total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _refuse(self, reason: str, address: str) -> str:
        self._refused += 1
        if not self._open[address]:
            del self._open[address]  # reading the Counter above made the key
        if time.monotonic() - self._said_s >= SAID_S:
            log.warning("connections_refused", count=self._refused, open=self._total, reason=reason, address=address)
            self._said_s, self._refused = time.monotonic(), 0
        return reason

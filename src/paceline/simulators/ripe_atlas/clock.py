"""The simulator's clock: at real speed, faster, or moved by hand only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SPEED_MAX = 1_000_000.0


class SimulatorClock:
    """A clock that starts at ``start_ms`` (default: now) and runs ``speed`` times as fast as its source; 0 stops it.

    The source is the machine's own clock, or that of a simulation in which this server is a part.
    """

    def __init__(
        self, *, start_ms: int | None = None, speed: float = 1.0, source: Callable[[], int] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._source = source or _monotonic_ms
        self._speed = _checked(speed)
        self._from_ms = self._source()
        first = source() if source else time.time_ns() // 1_000_000
        self._at_ms = first if start_ms is None else start_ms

    @property
    def speed(self) -> float:
        return self._speed

    def now_ms(self) -> int:
        with self._lock:
            return self._now_ms()

    def advance(self, ms: int) -> int:
        """Move the clock forward at once and return the new time."""
        if ms < 0:
            raise ValueError("The clock does not go back.")
        with self._lock:
            self._at_ms += ms
            return self._now_ms()

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on; the time that has passed stays as it was."""
        checked = _checked(speed)
        with self._lock:
            self._at_ms = self._now_ms()
            self._from_ms = self._source()
            self._speed = checked

    def _now_ms(self) -> int:
        return self._at_ms + int((self._source() - self._from_ms) * self._speed)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _checked(speed: float) -> float:
    if not 0 <= speed <= SPEED_MAX:
        raise ValueError(f"The speed is from 0 to {SPEED_MAX:,.0f}.")
    return speed

"""Decides when a loop looks into the store: each look costs something, and others may have written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from paceline.wiring import System

T = TypeVar("T")


class PollTimer:
    """Says when a loop should look into the store: if others have written, if it was woken, and now and then anyway."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._woken = threading.Event()
        self._version: int | None = None
        self._looked_ms = 0

    def wake(self) -> None:
        self._woken.set()

    def is_time(self) -> bool:
        """True if it is time to look.

        Changes nothing, because a look that fails must be repeated; ``looked`` notes the look.
        """
        if abs(self._system.clock.now_ms() - self._looked_ms) >= self._system.traits.rest_ms or self._woken.is_set():
            return True
        return self._system.store.version() != self._version

    def looked(self, look: Callable[[], T]) -> T:
        """Looks, and returns what was found. Writes and hints that come meanwhile count for the next look."""
        now_ms = self._system.clock.now_ms()
        self._woken.clear()
        try:
            version = self._system.store.version() if self._system.traits.rest_ms else None
            found = look()
        except BaseException:
            self._woken.set()
            raise
        self._version, self._looked_ms = version, now_ms
        return found

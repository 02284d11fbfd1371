"""A thread of the daemon that does one thing again and again, and sleeps in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

from paceline.errors import StoreDamaged, StoreUnavailable
from paceline.shells.daemon.metrics import Metrics

log = structlog.get_logger("paceline")

STUCK_S = 30.0
"""A loop whose last turn ended longer ago than this counts as stuck."""
JOIN_S = 15.0
"""How long an ending process waits for the last turn of a loop."""
FAULT_PAUSE_S = 1.0
"""How long a loop sleeps after a turn that failed."""


class LoopTurn(NamedTuple):
    """The result of one turn of a loop: how long the loop may sleep before the next one."""

    sleep_ms: int


class Loop:
    """A thread that turns until it is stopped. An error is logged and counted, and the loop goes on."""

    def __init__(self, name: str, turn: Callable[[], LoopTurn], metrics: Metrics) -> None:
        self.name = name
        self._turn = turn
        self._metrics = metrics
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._turned_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"paceline-{name}", daemon=True)

    @property
    def age_s(self) -> float:
        """Seconds since the last turn ended, or since ``beat`` was called."""
        return max(0.0, time.monotonic() - self._turned_s)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def turning(self) -> bool:
        return self.alive and self.age_s < STUCK_S

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def beat(self) -> bool:
        """Says, from within a long turn, that the loop is alive. Returns False if the loop shall stop."""
        self._turned_s = time.monotonic()
        return not self.stopping

    def beat_for(self, seconds: float) -> None:
        """Called before a request with its own deadline: the loop does not count as stuck until then."""
        self._turned_s = time.monotonic() + seconds

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self.stopping:
            try:
                sleep_s = self._turn().sleep_ms / 1000
            except StoreDamaged:
                self._metrics.count_loop_error(self.name)  # the watcher logs it, once
                sleep_s = FAULT_PAUSE_S
            except StoreUnavailable as error:
                self._metrics.count_loop_error(self.name)
                log.warning("store_unavailable", loop=self.name, detail=error.detail)
                sleep_s = FAULT_PAUSE_S
            except Exception:
                # A loop must survive a failed turn: work that was not committed comes up again.
                self._metrics.count_loop_error(self.name)
                log.exception("turn_failed", loop=self.name)
                sleep_s = FAULT_PAUSE_S
            self._turned_s = time.monotonic()
            self._metrics.count_turn(self.name)
            if sleep_s > 0:
                self._wake.wait(sleep_s)
            self._wake.clear()

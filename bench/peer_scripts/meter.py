"""The task of a peer, and its measurement. Standard library only: it runs in each peer's own environment."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

OVERDUE_EVERY_S = 7_200.0
GRACE_S = 1.0
"""A firing that is overdue by less than this at the end is not counted as missing."""


@dataclass(frozen=True)
class Task:
    """What a peer must do.

    ``saturation``: every schedule is overdue, fire each once. ``load``: evenly spread firings, stay on time.
    """

    mode: Literal["saturation", "load"]
    schedules: int
    seconds: float
    file: str
    rate_per_s: float = 1_000.0
    variant: str = ""
    setup_s: float = 5.0
    """For a load: time from the start to the first firing; the schedules must be stored by then."""

    @property
    def every_s(self) -> float:
        return OVERDUE_EVERY_S if self.mode == "saturation" else self.schedules / self.rate_per_s


def read_task() -> Task:
    return Task(**json.loads(sys.argv[1]))


def encode_task(task: Task) -> str:
    return json.dumps(asdict(task))


class Meter:
    """Compares every firing with its due time; ``fired`` may be called from any thread."""

    def __init__(self, task: Task) -> None:
        self.task = task
        chance = random.Random(7)
        begin_s = time.time() + (-task.every_s / 2 if task.mode == "saturation" else task.setup_s)
        # Overdue by less than the interval even at the end, so that each schedule owes exactly one firing.
        spread_s = task.every_s / 2 if task.mode == "saturation" else task.every_s
        self.first_due_s = [begin_s + chance.random() * spread_s for _ in range(task.schedules)]
        self.start_s = begin_s
        self._counts = [0] * task.schedules
        self._late_s: list[float] = []
        self._last_s = self.start_s
        self._cpu_s = 0.0
        self._done = threading.Event()

    def release(self) -> None:
        """Called when all schedules are stored, just before the peer starts: the measurement begins here."""
        if self.task.mode == "saturation":
            self.start_s = time.time()
        elif (spare_s := self.start_s - time.time()) < 0:
            raise SystemExit(f"the schedules were stored {-spare_s:.1f} s too late; give more setup_s")
        else:
            time.sleep(spare_s)
        self._last_s = self.start_s
        self._cpu_s = time.process_time()

    def due_s(self, index: int) -> float:
        """Returns when the schedule's next firing is due."""
        return self.first_due_s[index] + self._counts[index] * self.task.every_s

    def fired(self, index: int) -> None:
        now_s = time.time()
        self._late_s.append(now_s - self.due_s(index))
        self._counts[index] += 1
        self._note(now_s)

    def fired_for(self, index: int, due_s: float) -> None:
        """Notes a firing of a peer that chooses due times itself."""
        now_s = time.time()
        if due_s < self.start_s:
            return
        self._late_s.append(now_s - due_s)
        self.first_due_s[index] = due_s + self.task.every_s
        self._note(now_s)

    def _note(self, now_s: float) -> None:
        self._last_s = now_s
        if self.task.mode == "saturation" and len(self._late_s) >= self.task.schedules:
            self._done.set()

    def wait(self) -> None:
        self._done.wait(self.task.seconds)

    def report(self, **more: Any) -> dict[str, Any]:
        now_s = time.time()
        elapsed_s = (self._last_s if self._done.is_set() else now_s) - self.start_s
        fired = len(self._late_s)
        report: dict[str, Any] = {
            "fired": fired,
            "seconds": round(elapsed_s, 2),
            "per_s": round(fired / elapsed_s, 1),
            "cpu_share": round((time.process_time() - self._cpu_s) / (now_s - self.start_s), 2),
            "rss_mb": round(_rss_bytes() / 1e6),
        }
        if self.task.mode == "saturation":
            report["doubled"] = sum(count - 1 for count in self._counts if count > 1)
        return report | (self._lateness(now_s) if self.task.mode == "load" else {}) | more

    def _lateness(self, end_s: float) -> dict[str, Any]:
        """Returns the lateness. A due firing that never came counts with the time that it has been waiting."""
        owed_s = [end_s - due_s for i in range(self.task.schedules) for due_s in self._owed(i, end_s)]
        late_ms = sorted(1_000 * late_s for late_s in self._late_s + owed_s)
        if not late_ms:
            return {"missing": 0, "p50_ms": None, "p99_ms": None, "max_ms": None}
        return {
            "missing": len(owed_s),
            "p50_ms": round(late_ms[len(late_ms) // 2], 1),
            "p99_ms": round(late_ms[int(len(late_ms) * 0.99)], 1),
            "max_ms": round(late_ms[-1], 1),
        }

    def _owed(self, index: int, end_s: float) -> list[float]:
        owed: list[float] = []
        due_s = self.due_s(index)
        while due_s < end_s - GRACE_S:
            owed.append(due_s)
            due_s += self.task.every_s
        return owed


def _rss_bytes() -> int:
    """Returns the resident memory now, as the kernel counts it; 0 if there is no /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1_024


def answer(report: dict[str, Any]) -> None:
    """Prints the result as the last line of the output; lines that a peer's threads print before it do not matter."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()

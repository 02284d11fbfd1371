"""The real daemon with many monitors of kind ``outgoing``, and checkers that claim all runs and settle none.

First nobody claims; then two checkers claim 1,000 runs at a time and never settle one, so that soon every monitor has a
run out. The due firings must be made all the same, and nothing may be behind at the end. Afterwards the store is asked
for its status, and old runs are deleted, in the same file.
"""

from __future__ import annotations

import random
import threading
import time
from typing import NamedTuple

import msgspec

from bench.harness import Context, Result, judged
from bench.real_daemon import Daemon, add_user, daemon, late_ms
from bench.seed import BATCH, MONITORS_MAX, add_owners
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import OutgoingCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.ports import Store
from paceline.steps.monitors import define

OWNERS = 9
CHECKERS = 2
QUICK, FULL = (60_000, 15, 5), (1_000_000, 60, 30)
"""Monitors, their interval, and how long each of the phases is measured, in seconds."""
P99_MS_MAX = 1_000.0
STATUS_MS_MAX = 50.0
LEAD_S, SETUP_PER_S = 8.0, 8_000


class Reading(NamedTuple):
    at_s: float
    cpu_s: float
    made: float
    below: list[float]


def run(context: Context) -> list[Result]:
    size, every_s, phase_s = FULL if context.full else QUICK
    file = context.file("scale.db")
    store = SqliteStore(file, synchronous="full")
    base_ms = _fill(store, size, every_s=every_s)
    store.close()
    token = add_user(file, "admin", role="admin")
    results: list[Result] = []
    with daemon(file, monitors_max=str(MONITORS_MAX)) as running:
        time.sleep(max(0.0, base_ms / 1_000 - time.time()))
        results += [_phase(running, "nobody claims", size, every_s, phase_s)]
        checkers = [Checker(running, token) for _ in range(CHECKERS)]
        for checker in checkers:
            checker.start()
        results += [_phase(running, "claimed and not settled", size, every_s, phase_s)]
        time.sleep(every_s)  # until every monitor has a run out
        results += [_phase(running, "every monitor has a run out", size, every_s, phase_s)]
        for checker in checkers:
            checker.stop()
    store = SqliteStore(file, synchronous="full")
    results += [_status(store, size), _purge(store, due_per_s=size / every_s)]
    store.close()
    return results


def _fill(store: Store, size: int, *, every_s: int) -> int:
    """Fills the store with phases that are random over the interval. Returns when that interval begins."""
    add_owners(store, [f"owner{index}" for index in range(OWNERS)])
    chance = random.Random(7)
    base_ms = time.time_ns() // 1_000_000 + int(1_000 * (LEAD_S + size / SETUP_PER_S))
    check = OutgoingCheck({"kind": "outgoing", "task": "look"})
    for first in range(0, size, BATCH):
        now_ms = time.time_ns() // 1_000_000
        puts = [
            PutMonitor(
                owner=f"owner{index % OWNERS}",
                id=f"monitor-{index:07d}",
                spec=MonitorSpec(
                    check=check,
                    every=f"{every_s}s",
                    initial_delay=f"{base_ms - now_ms + chance.randrange(every_s * 1_000)}ms",
                ),
            )
            for index in range(first, min(first + BATCH, size))
        ]
        define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=now_ms)
    return base_ms


class Checker:
    """Claims 1,000 at a time over REST, and settles none."""

    def __init__(self, running: Daemon, token: str) -> None:
        self._running = running
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._claim)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _claim(self) -> None:
        connection = self._running.connect()
        body = msgspec.json.encode({"max": 1_000, "lease": "10m", "wait": "1s"})
        while not self._stop.is_set():
            connection.request("POST", "/v1/outgoing/claim", body, self._headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        connection.close()


def _phase(running: Daemon, subject: str, size: int, every_s: int, seconds: int) -> Result:
    before = _read(running)
    time.sleep(seconds)
    after = _read(running)
    passed_s = after.at_s - before.at_s
    due_per_s, made_per_s = size / every_s, (after.made - before.made) / passed_s
    p99_ms = late_ms(before.below, after.below, 0.99)
    return {
        "subject": f"firing, {subject}",
        "size": size,
        "per_s": round(made_per_s, 1),
        "due_per_s": round(due_per_s, 1),
        "p99_ms": p99_ms,
        "cores": round((after.cpu_s - before.cpu_s) / passed_s, 2),
    } | judged(p99_ms, at_most=P99_MS_MAX)


def _read(running: Daemon) -> Reading:
    below = running.lateness("paceline_lateness_seconds")
    return Reading(time.monotonic(), running.cpu_s(), running.metric("paceline_entries_advanced_total"), below)


def _status(store: Store, size: int) -> Result:
    store.status()
    took_ms = []
    for _ in range(5):
        start_s = time.perf_counter()
        status = store.status()
        took_ms.append(1_000 * (time.perf_counter() - start_s))
    took_ms.sort()
    return {
        "subject": "status",
        "size": size,
        "p50_ms": round(took_ms[2], 2),
        "out": status.runs_out,
        "waiting": status.runs_waiting,
    } | judged(took_ms[2], at_most=STATUS_MS_MAX)


def _purge(store: Store, *, due_per_s: float) -> Result:
    """Expires and deletes everything, with a pause after each pass that is as long as the pass, as the keeper does."""
    later_ms = time.time_ns() // 1_000_000 + 10**9
    deleted, longest_s, start_s, more = 0, 0.0, time.perf_counter(), True
    while more:
        pass_s = time.perf_counter()
        done = store.purge(settled_before_ms=later_ms + 1, due_before_ms=later_ms, now_ms=later_ms, limit=2_000)
        pass_s = time.perf_counter() - pass_s
        deleted, longest_s, more = deleted + done.runs_deleted, max(longest_s, pass_s), done.more
        time.sleep(pass_s)
    per_s = deleted / (time.perf_counter() - start_s)
    return {
        "subject": "purge: expired and deleted",
        "size": deleted,
        "per_s": round(per_s, 1),
        "due_per_s": round(due_per_s, 1),
        "longest_ms": round(1_000 * longest_s, 1),
    } | judged(per_s, at_least=2 * due_per_s)

"""Paceline's side of the comparison with its peers."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from bench import lateness
from bench.harness import Context, Result, collect_seldom
from bench.seed import BATCH, MONITORS_MAX, START_MS, add_owners, owner_name
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import Finished, PutMonitor
from paceline.steps.monitors import define
from paceline.steps.monitors.send import claim_orders, settle
from paceline.steps.monitors.tick import tick

MADE = "Paceline, due to claimable"
SETTLED = "Paceline, due to settled"
CLAIM = 500
OVERDUE_MS = 20_000
"""All schedules became due within this time: late, but not missed."""


def saturation(context: Context, sizes: Sequence[int]) -> list[Result]:
    """Fires every overdue schedule once, through the steps that the daemon's loops call."""
    collect_seldom()
    rows = []
    for size in sizes:
        store = SqliteStore(context.file(f"paceline-{size}.db"), synchronous="full")
        _fill(store, size)
        context.say(f"peers: Paceline, saturation, {size:,} schedules")
        rows += [_row(MADE, size, _make(store)), _row(SETTLED, size, _settle(store, size))]
        store.close()
    made = {row["size"]: row["seconds"] for row in rows if row["subject"] == MADE}
    for row in rows:
        if row["subject"] == SETTLED:  # settling includes the time for making the runs
            row["seconds"] += made[row["size"]]
            row["per_s"] = round(row["size"] / row["seconds"], 1)
    return rows


def load(context: Context, size: int, per_s: int) -> list[Result]:
    """Runs the real daemon, with a checker that claims everything over REST."""
    seconds = min(10, size // per_s)
    figures = {row["subject"]: row for row in lateness.measure(context, size=size, per_s=per_s, seconds=seconds)}
    shared = {
        "size": size,
        "work": f"load of {per_s:,}/s",
        "cpu_share": figures[lateness.CPU]["value"],
        "rss_mb": figures[lateness.MEMORY]["value"],
        "missing": figures[lateness.LOST]["value"],
    }
    rows = []
    for subject, name in ((lateness.CLAIMABLE, MADE), (lateness.CLAIMED, "Paceline, due to claimed over REST")):
        figure = figures[subject]
        late = {key: figure[key] for key in ("per_s", "p50_ms", "p99_ms", "max_ms")}
        rows.append({"subject": name, **shared, **late, "on_time": late["p99_ms"] <= 1_000})
    return rows


def _row(subject: str, size: int, seconds: float) -> Result:
    return {
        "subject": subject,
        "size": size,
        "work": "saturation",
        "seconds": round(seconds, 4),
        "per_s": round(size / seconds, 1),
    }


def _fill(store: SqliteStore, size: int) -> None:
    add_owners(store)
    chance = random.Random(2)
    for first in range(0, size, BATCH):
        puts = [
            PutMonitor(
                owner=owner_name(index),
                id=f"monitor-{index}",
                spec=MonitorSpec(
                    check=HttpCheck(url="https://example.org/"),
                    every="1h",
                    initial_delay=f"{chance.randrange(OVERDUE_MS)}ms",
                ),
            )
            for index in range(first, min(first + BATCH, size))
        ]
        define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=START_MS)


def _make(store: SqliteStore) -> float:
    now_ms = START_MS + OVERDUE_MS
    start_s = time.perf_counter()
    while tick(store, now_ms=now_ms, catch_up=CatchUp()).more:
        pass
    return time.perf_counter() - start_s


def _settle(store: SqliteStore, size: int) -> float:
    """Claims each run, records a good outcome at once, and returns the seconds."""
    now_ms = START_MS + OVERDUE_MS
    policy = RetryPolicy(attempts_max=5, base_ms=1_000, cap_ms=300_000)
    settled = 0
    start_s = time.perf_counter()
    while orders := claim_orders(store, now_ms=now_ms, runs_max=CLAIM, lease_ms=180_000, policy=policy):
        good = Done(ok=True, latency_ms=1.0, code=200)
        finished = [Finished(order.handle, order.attempt, good, now_ms, now_ms + 1) for order in orders]
        settled += len(settle(store, finished).settled)
    assert settled == size, settled
    return time.perf_counter() - start_s

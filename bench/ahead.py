"""The next 24 hours of all users' monitors, in a small and a large store. Both should cost about the same."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from bench.harness import Context, Result, judged
from bench.seed import BATCH, MONITORS_MAX, START_MS, add_owners, monitors
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.values import PutMonitor
from paceline.steps.ahead.facts import PlaceSettings
from paceline.steps.ahead.report import AheadView, ahead
from paceline.steps.monitors import define

SMALL, LARGE = 1_000, 1_000_000
COST_MAX = 3.0
HOURS = (1, 24, 48)
PLACES = PlaceSettings(checks=500, checks_of_one=400, sends=1)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
CRONS = tuple(f"{minute} {hour} * * *" for hour in (0, 3, 6, 9, 12, 18) for minute in (0, 15, 30))
INTERVALS = ("10s", "60s", "90s", "300s", "600s", "3600s", "6h", "1d")


def run(context: Context) -> list[Result]:
    rounds = 41 if context.full else 15
    stores: dict[int, SqliteStore] = {}
    for size in (SMALL, LARGE):
        started_s = time.perf_counter()
        stores[size] = SqliteStore(context.file(f"ahead-{size}.db"), synchronous="normal")
        _fill(stores[size], size)
        context.say(f"ahead: {size:,} monitors set up in {time.perf_counter() - started_s:.1f} s")
    return [_measured(stores, hours, rounds) for hours in HOURS]


def _measured(stores: dict[int, SqliteStore], hours: int, rounds: int) -> Result:
    """Returns the least CPU time at each size, measured in turns, so that other work on the machine does not count."""
    times: dict[int, list[float]] = {size: [] for size in stores}
    views: dict[int, AheadView] = {}
    for _ in range(rounds):
        for size, store in stores.items():
            start_s = time.thread_time()
            views[size] = ahead(store, PLACES, user=None, hours=hours, now_ms=START_MS)
            times[size].append((time.thread_time() - start_s) * 1_000)
    small_ms, large_ms = min(times[SMALL]), min(times[LARGE])
    ratio = large_ms / small_ms
    values: Result = {
        "subject": f"the next {hours} h" if hours > 1 else "the next hour",
        "size": LARGE,
        "page_ms": round(large_ms, 2),
        "found": sum(window.monitors for window in views[LARGE].windows),
        "page_ms_small": round(small_ms, 2),
        "found_small": sum(window.monitors for window in views[SMALL].windows),
        "cost_ratio": round(ratio, 2),
    }
    return values | judged(ratio, at_most=COST_MAX)


def _fill(store: SqliteStore, size: int) -> None:
    add_owners(store)
    left = _mixed(size)
    while batch := list(islice(left, BATCH)):
        define.put_monitors(store, batch, monitors_max=MONITORS_MAX, now_ms=START_MS)


def _mixed(size: int) -> Iterator[PutMonitor]:
    """Yields monitors: most have an interval with an allotted phase, one in ten a cron time, one in ten a delay."""
    chance = random.Random(5)
    for put in monitors(size):
        kind = chance.randrange(10)
        if kind == 0:
            cron, zone = chance.choice(CRONS), chance.choice(ZONES)
            yield replace(put, spec=replace(put.spec, every=None, cron=cron, timezone=zone, initial_delay=None))
        elif kind == 1:
            yield put
        else:
            yield replace(put, spec=replace(put.spec, every=chance.choice(INTERVALS), initial_delay=None))

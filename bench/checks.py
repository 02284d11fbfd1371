"""HTTP checks per CPU-second of the whole daemon, against a bare loop of the same library with the same requests.

In waves: all monitors are due within the same second, so the daemon works with all its checks in flight, as the bare
loop does, and rests until the next wave. Everything it does counts: ticking, claiming, sending, settling, the API's
loop, the keeper, and the cost of being idle. If the monitors are spread evenly, the daemon is never busy and each
commit carries few runs: that costs more for each check, and is shown beside. A few times a second the daemon is stopped
for a moment and the bare loop runs, so that both meet the same machine. The HTTP server is a separate process and does
not count. It has the last core to itself: on the sender's core it would interrupt the sender at every third request, as
the scheduler likes, which is up to a third of the figure and changes from run to run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.harness import Context, Result, median, result
from bench.real_daemon import Daemon, daemon, late_ms
from bench.seed import MONITORS_MAX, add_owners
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.steps.monitors import define

IN_FLIGHT = 500
SETTLED = 'paceline_runs_total{kind="http",outcome="ok"}'
STARTS = ("paceline_start_lateness_seconds", 'kind="http",')
OWNERS = 10
LEAD_MS = 6_000
REST_MS = 500
SLICE_S = 0.3
SLICE_REQUESTS = 2_000

Bare = Callable[[int], float]


class Load(NamedTuple):
    """A load: ``monitors`` fire once a period, within ``spread_ms``; the bare loop runs during ``busy_ms`` of it."""

    subject: str
    monitors: int
    period_s: int
    spread_ms: int
    busy_ms: int
    bare_in_flight: int
    ratio_min: float | None = None


WAVES = Load("checks in waves", 15_000, 8, spread_ms=1_000, busy_ms=3_000, bare_in_flight=IN_FLIGHT, ratio_min=0.4)
EVENLY = Load("checks evenly spread", 8_000, period_s=8, spread_ms=8_000, busy_ms=7_000, bare_in_flight=10)


def run(context: Context) -> list[Result]:
    rounds = 7 if context.full else 3
    with quick_server() as url:
        return [_measure(context, load, url, rounds) for load in (WAVES, EVENLY)]


def _measure(context: Context, load: Load, url: str, rounds: int) -> Result:
    file = context.file(f"checks-{load.spread_ms}.db")
    base_ms = _fill(file, load, url)
    context.say(f"checks: {load.subject}, {rounds} rounds of {load.monitors:,} in {load.period_s} s each")
    settings = {
        "outbound_allow": "127.0.0.0/8",
        "checks_in_flight_max": str(IN_FLIGHT),
        "monitors_max": str(MONITORS_MAX),
    }
    with daemon(file, **settings) as running, bare_loop(url, load.bare_in_flight) as bare:
        # The first wave opens connections and fills caches; it is not measured.
        _sleep_until(base_ms + load.period_s * 1_000 - REST_MS)
        late = running.lateness(*STARTS)
        pairs = [
            _round(running, bare, load, base_ms + number * load.period_s * 1_000) for number in range(1, rounds + 1)
        ]
        p99_ms = late_ms(late, running.lateness(*STARTS), 0.99)
    rates, floor = [rate for rate, _ in pairs], [bare_rate for _, bare_rate in pairs]
    more = {"p99_ms": p99_ms, "unit": "per CPU-second"}
    return result(load.subject, load.monitors, rates=rates, floor=floor, target=load.ratio_min, **more)


def _round(running: Daemon, bare: Bare, load: Load, wave_ms: int) -> tuple[float, float]:
    """Returns checks per CPU-second over one whole period, and the bare loop's figure from moments within it."""
    settled, cpu_s = running.metric(SETTLED), running.cpu_s()
    _sleep_until(wave_ms)
    slices = []
    while time.time() * 1_000 < wave_ms + load.busy_ms:
        time.sleep(SLICE_S)
        with running.stopped():
            slices.append(bare(SLICE_REQUESTS))
    _sleep_until(wave_ms + load.period_s * 1_000 - REST_MS)
    return (running.metric(SETTLED) - settled) / (running.cpu_s() - cpu_s), median(slices)


def _fill(file: str, load: Load, url: str) -> int:
    """Fills the store. Returns when the first wave begins."""
    store = SqliteStore(file, synchronous="full")
    add_owners(store, [f"owner{index}" for index in range(OWNERS)])
    chance = random.Random(9)
    now_ms = time.time_ns() // 1_000_000
    puts = [
        PutMonitor(
            owner=f"owner{index % OWNERS}",
            id=f"monitor-{index}",
            spec=MonitorSpec(
                check=HttpCheck(url=url),
                every=f"{load.period_s}s",
                initial_delay=f"{LEAD_MS + chance.randrange(load.spread_ms)}ms",
            ),
        )
        for index in range(load.monitors)
    ]
    define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=now_ms)
    store.close()
    return now_ms + LEAD_MS


@contextmanager
def bare_loop(url: str, concurrency: int) -> Iterator[Bare]:
    """Yields a function that makes this many requests and returns requests per CPU-second of the cheaper bare loop."""
    command = [sys.executable, "-m", "bench.bare_curl", url, str(concurrency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        to, back = process.stdin, process.stdout
        assert to is not None
        assert back is not None

        def ask(requests: int) -> float:
            to.write(f"{requests}\n")
            to.flush()
            return float(max(json.loads(back.readline()).values()))

        try:
            yield ask
        finally:
            process.terminate()


def _sleep_until(ms: int) -> None:
    time.sleep(max(0.0, ms / 1_000 - time.time()))


@contextmanager
def quick_server() -> Iterator[str]:
    """Start a server that is cheaper than its clients; with a slower one, both would mostly wait for it.

    The server runs on the last core. This process, and processes that it starts meanwhile, run on the others.
    """
    command = [sys.executable, "-m", "bench.quick_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, _apart(process.pid):
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def _apart(server: int) -> Iterator[None]:
    """Give the server a core of its own, where the system can do so and has more than one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        yield
        return
    os.sched_setaffinity(server, cores[-1:])
    os.sched_setaffinity(0, cores[:-1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)

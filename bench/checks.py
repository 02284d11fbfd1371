"""HTTP checks per CPU-second of the whole daemon, against a bare loop of the same library doing the same requests.

In waves: all monitors are due within the same second, so the daemon works with all its checks in flight, and rests
between the waves while the bare loop takes its turn. Everything it does counts: ticking, claiming, sending, settling,
the API's loop, the keeper, and what it costs to be idle. The HTTP server is a process of its own and does not count.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.harness import Context, Result, result
from bench.real_daemon import daemon
from bench.seed import MONITORS_MAX, add_owners
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.definition import HttpCheck, MonitorSpec
from paceline.ports import PutMonitor
from paceline.steps import define

IN_FLIGHT = 200
RATIO_MIN = 0.4
SETTLED = 'paceline_runs_total{kind="http",outcome="ok"}'
OWNERS = 10
LEAD_MS = 6_000


class Load(NamedTuple):
    """``monitors`` fire once in each period, within ``spread_ms``."""

    subject: str
    monitors: int
    period_s: int
    spread_ms: int
    bare_in_flight: int


WAVES = Load("checks in waves", monitors=10_000, period_s=8, spread_ms=1_000, bare_in_flight=IN_FLIGHT)
EVENLY = Load("checks evenly spread", monitors=10_000, period_s=10, spread_ms=10_000, bare_in_flight=10)


def run(context: Context) -> list[Result]:
    rounds = 7 if context.full else 3
    with model_server() as url:
        return [_measure(context, load, url, rounds) for load in (WAVES, EVENLY)]


def _measure(context: Context, load: Load, url: str, rounds: int) -> Result:
    file = context.file(f"checks-{load.period_s}-{load.spread_ms}.db")
    base_ms = _fill(file, load, url)
    context.say(f"checks: {load.subject}, {rounds} rounds of {load.monitors:,} in {load.period_s} s each")
    rates: list[float] = []
    floor: list[float] = []
    with daemon(
        file, outbound_allow="127.0.0.0/8", checks_in_flight_max=str(IN_FLIGHT), monitors_max=str(MONITORS_MAX)
    ) as running:
        # The first wave opens connections and fills caches; what counts begins with the second.
        _sleep_until(base_ms + load.period_s * 1_000 - 500)
        for number in range(1, rounds + 1):
            before = (running.metric(SETTLED), running.cpu_s())
            end_ms = base_ms + (number + 1) * load.period_s * 1_000 - 500
            busy_ms = 3_000 if load.spread_ms < load.period_s * 1_000 else 0
            _sleep_until(end_ms - busy_ms)
            after = (running.metric(SETTLED), running.cpu_s())
            rates.append((after[0] - before[0]) / (after[1] - before[1]))
            floor.append(_bare(url, load))
            _sleep_until(end_ms)
    return result(load.subject, load.monitors, rates=rates, floor=floor, target=RATIO_MIN, unit="per CPU-second")


def _fill(file: str, load: Load, url: str) -> int:
    """Returns when the first wave begins."""
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


def _bare(url: str, load: Load) -> float:
    """Requests per CPU-second of the cheaper of the two bare loops."""
    command = [sys.executable, "-m", "bench.bare_curl", url, str(load.monitors), str(load.bare_in_flight)]
    answer = subprocess.run(command, capture_output=True, check=True, text=True, timeout=120)
    return float(max(json.loads(answer.stdout).values()))


def _sleep_until(ms: int) -> None:
    time.sleep(max(0.0, ms / 1_000 - time.time()))


@contextmanager
def model_server() -> Iterator[str]:
    """The model HTTP server, and the path on it that answers 200 at once."""
    command = [sys.executable, "-m", "paceline", "--json", "simulator", "http", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"] + "/ok"
        finally:
            process.terminate()

"""The real daemon with one user whose targets hang: how late do the checks of another user start?

Further rows, from ``bench.fair_lists``: how long another user's requests take beside one who reads lists all the time.

Every monitor of the first user fires each second at a server that accepts and never answers, and waits a minute for it.
The second user's monitors fire each second at a server that answers at once. The same without the first user is shown
beside it. A run that was due and did not start counts as late by all the time there was.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import fair_lists
from bench.checks import quick_server
from bench.harness import Context, Result, judged, percentile
from bench.real_daemon import daemon
from bench.seed import MONITORS_MAX, add_owners
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.steps.monitors import define

HANGING = 2_000
QUIET = 20
LEAD_S = 8.0
"""Time from the set-up to the first firing, in which the daemon starts."""
FILL_S = 5.0
"""Time from the first firing to the measurement: by then the hanging checks have all the places they get."""
P99_MS_MAX = 1_000.0
RUNS_MAX = 1_000
BESIDE, ALONE = "starts beside hanging monitors", "starts alone"


def run(context: Context) -> list[Result]:
    seconds = 60 if context.full else 15
    with quick_server() as answering, hanging_server() as hanging:
        return [
            _measure(context, BESIDE, HANGING, seconds, answering=answering, hanging=hanging),
            _measure(context, ALONE, 0, seconds, answering=answering, hanging=hanging),
            *fair_lists.run(context),
        ]


def _measure(context: Context, subject: str, others: int, seconds: int, *, answering: str, hanging: str) -> Result:
    file = context.file(f"fairness-{others}.db")
    base_ms = _fill(file, others, answering=answering, hanging=hanging)
    context.say(f"fairness: {QUIET} monitors beside {others:,} that hang, {seconds} s")
    start_ms = base_ms + int(FILL_S * 1_000)
    end_ms = start_ms + seconds * 1_000
    with daemon(file, outbound_allow="127.0.0.0/8", monitors_max=str(MONITORS_MAX)) as running:
        if time.time() * 1_000 > base_ms:
            raise SystemExit("the daemon started after the first firing was due; the machine is too busy to measure")
        time.sleep(max(0.0, end_ms / 1_000 + 1.0 - time.time()))
        in_flight = running.metric("paceline_in_flight")
    late_ms = _lateness(file, start_ms, end_ms)
    owed = QUIET * seconds
    # Firings that were skipped because a run still waited never started.
    ordered = sorted(late_ms + [float(seconds * 1_000)] * (owed - len(late_ms)))
    p99_ms = percentile(ordered, 0.99)
    return {
        "subject": subject,
        "size": others,
        "per_s": round(len(late_ms) / seconds, 1),
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": p99_ms,
        "max_ms": ordered[-1],
        "owed": owed,
        "in_flight": int(in_flight),
    } | judged(p99_ms, at_most=P99_MS_MAX)


def _fill(file: str, others: int, *, answering: str, hanging: str) -> int:
    """Fills the store. Returns when the first firing is due; firings are spread over the second."""
    store = SqliteStore(file, synchronous="full")
    add_owners(store, ["busy", "quiet"])
    now_ms = time.time_ns() // 1_000_000
    for owner, count, url, timeout in (("busy", others, hanging, "60s"), ("quiet", QUIET, answering, "10s")):
        puts = [
            PutMonitor(
                owner=owner,
                id=f"monitor-{index}",
                spec=MonitorSpec(
                    check=HttpCheck(url=url, timeout=timeout),
                    every="1s",
                    initial_delay=f"{int(LEAD_S * 1_000) + index * 997 % 1_000}ms",
                ),
            )
            for index in range(count)
        ]
        define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=now_ms)
    store.close()
    return now_ms + int(LEAD_S * 1_000)


def _lateness(file: str, start_ms: int, end_ms: int) -> list[float]:
    store = SqliteStore(file)
    late_ms: list[float] = []
    for monitor in store.monitors("quiet", after="", limit=QUIET):
        runs = store.monitor_runs(monitor, before=None, limit=RUNS_MAX, now_ms=end_ms)
        late_ms += [
            float(run.started_ms - run.due_ms)
            for run in runs
            if start_ms <= run.due_ms < end_ms and run.started_ms is not None
        ]
    store.close()
    return late_ms


@contextmanager
def hanging_server() -> Iterator[str]:
    """Opens a port that accepts connections and never answers: the system takes the requests, and nobody reads them."""
    with socket.create_server(("127.0.0.1", 0), backlog=4_096) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"

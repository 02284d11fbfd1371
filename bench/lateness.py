"""The real daemon with many live monitors of kind ``outgoing``: how long after its due time can each run be claimed?

There are two observers. One reads the file every few milliseconds and notes when each run is first visible: that is
when a claim could have taken it, late by at most one reading. The other is a checker: it claims over REST with a long
poll, and so also proves that every run is handed out, and handed out once.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import datetime
from typing import NamedTuple

import msgspec

from bench.harness import Context, Result, connect, judged, percentile
from bench.real_daemon import Daemon, add_user, daemon
from bench.seed import BATCH, MONITORS_MAX, add_owners
from paceline.adapters.sqlite.keys import GENERATION_MASK, LANE_BITS, due_ms_of
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.instants import to_ms
from paceline.core.monitors.checks import OutgoingCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.steps.monitors import define

SIZE = 100_000
RATE_PER_S = 1_000
OWNERS = 10
LOOK_S = 0.004
LEAD_S, SETUP_PER_S = 8.0, 10_000
"""The first firing is due this long after the set-up began, plus the time for the set-up at this rate."""
AFTER_S = 2.0
P99_MS_MAX = 250.0
RSS_MB_MAX = 300.0
CLAIMABLE, CLAIMED = "claimable after due", "claimed over REST after due"
LOST, DOUBLED = "runs lost", "runs doubled"
MEMORY, CPU = "daemon's memory, MB", "daemon's CPU share of one core"
INSIDE = "share made within 250 ms, by the daemon's own histogram"


class Firing(NamedTuple):
    generation: int
    due_ms: int


class Window(NamedTuple):
    start_ms: int
    end_ms: int

    def holds(self, due_ms: int) -> bool:
        return self.start_ms <= due_ms < self.end_ms


def run(context: Context) -> list[Result]:
    seconds = 30 if context.full else 10
    return measure(context, size=SIZE, per_s=RATE_PER_S, seconds=seconds)


def measure(context: Context, *, size: int, per_s: int, seconds: int) -> list[Result]:
    """Measures ``size`` monitors with ``per_s`` firings a second, for ``seconds``, at most their interval."""
    assert seconds <= size // per_s
    file = context.file(f"lateness-{size}-{per_s}.db")
    store = SqliteStore(file, synchronous="full")
    base_ms = _fill(store, size, every_s=size // per_s)
    expected = _first_firings(file)
    store.close()
    token = add_user(file, "admin", role="admin")
    window = Window(base_ms, base_ms + seconds * 1_000)
    with daemon(file, monitors_max=str(MONITORS_MAX)) as running:
        spare_s = base_ms / 1_000 - time.time()
        context.say(f"lateness: {size:,} monitors, first firing in {spare_s:.1f} s, then {seconds} s")
        if spare_s < 0:
            raise SystemExit("the daemon started after the first firing was due; the machine is too busy to measure")
        watcher, checker = Watcher(file), Checker(running, token)
        time.sleep(spare_s)
        cpu_share = _watch(running, watcher, checker, seconds)
        on_time_share = _share_below_250_ms(running)
    return _report(
        size, window, expected, watcher, checker, cpu_share=cpu_share, on_time_share=on_time_share, running=running
    )


def _fill(store: SqliteStore, size: int, *, every_s: int) -> int:
    """Fills the store with phases that are random over the interval. Returns when that interval begins."""
    add_owners(store, [f"owner{index}" for index in range(OWNERS)])
    chance = random.Random(5)
    base_ms = 0
    for first in range(0, size, BATCH):
        now_ms = time.time_ns() // 1_000_000
        base_ms = base_ms or now_ms + int(1_000 * (LEAD_S + size / SETUP_PER_S))
        puts = []
        for index in range(first, min(first + BATCH, size)):
            delay_ms = base_ms - now_ms + chance.randrange(every_s * 1_000)
            spec = MonitorSpec(
                check=OutgoingCheck({"kind": "outgoing", "target": f"host{index}.example.org"}),
                every=f"{every_s}s",
                initial_delay=f"{delay_ms}ms",
            )
            puts.append(PutMonitor(owner=f"owner{index % OWNERS}", id=f"monitor-{index}", spec=spec))
        define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=now_ms)
    return base_ms


def _first_firings(file: str) -> list[Firing]:
    """Returns when each entry is due first, from the due table itself."""
    rows = connect(file).execute("SELECT k FROM due").fetchall()
    return [Firing(k & GENERATION_MASK, due_ms_of(k) or 0) for (k,) in rows]


class Watcher:
    """Reads the run table and notes when each run was seen first."""

    def __init__(self, file: str) -> None:
        self._db = connect(file)
        self._db.execute("PRAGMA query_only = ON")
        self._lanes: dict[int, int] = {}
        self.seen: list[tuple[Firing, int]] = []

    def look(self) -> None:
        if not self._lanes:
            self._lanes = {lane: lane << LANE_BITS for (lane,) in self._db.execute("SELECT id FROM lane")}
        for lane, last in self._lanes.items():
            rows = self._db.execute(
                "SELECT handle, generation, due_ms FROM run WHERE handle > ? AND handle < ? ORDER BY handle",
                (last, (lane + 1) << LANE_BITS),
            ).fetchall()
            if rows:
                now_ms = time.time_ns() // 1_000_000
                self._lanes[lane] = rows[-1][0]
                self.seen += [(Firing(generation, due_ms), now_ms) for _, generation, due_ms in rows]


class ClaimedItem(msgspec.Struct):
    run: str
    due: str


class ClaimAnswer(msgspec.Struct):
    items: list[ClaimedItem]


class Checker:
    """Claims over REST, one long poll after the other."""

    def __init__(self, running: Daemon, token: str) -> None:
        self._running = running
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._claim)
        self.claimed: list[tuple[str, str, int]] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _claim(self) -> None:
        connection = self._running.connect()
        body = b'{"max": 100, "lease": "10m", "wait": "1s"}'
        decoder = msgspec.json.Decoder(ClaimAnswer)
        while not self._stop.is_set():
            connection.request("POST", "/v1/outgoing/claim", body, self._headers)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            now_ms = time.time_ns() // 1_000_000
            self.claimed += [(item.run, item.due, now_ms) for item in decoder.decode(content).items]
        connection.close()


def _watch(running: Daemon, watcher: Watcher, checker: Checker, seconds: int) -> float:
    """Returns the daemon's CPU share over the measured time."""
    checker.start()
    start_s, cpu_s = time.monotonic(), running.cpu_s()
    end_s = start_s + seconds
    note_s = start_s
    while (now_s := time.monotonic()) < end_s:
        watcher.look()
        if now_s >= note_s:
            running.note_memory()
            note_s += 1.0
        time.sleep(LOOK_S)
    cpu_share = (running.cpu_s() - cpu_s) / (time.monotonic() - start_s)
    while time.monotonic() < end_s + AFTER_S:
        watcher.look()
        time.sleep(LOOK_S)
    checker.stop()
    return cpu_share


def _share_below_250_ms(running: Daemon) -> float:
    """Returns the share of runs within 250 ms, from the daemon's own histogram."""
    total = running.metric("paceline_lateness_seconds_count")
    return running.metric('paceline_lateness_seconds_bucket{le="0.25"}') / total if total else 0.0


def _report(
    size: int,
    window: Window,
    expected: list[Firing],
    watcher: Watcher,
    checker: Checker,
    *,
    cpu_share: float,
    on_time_share: float,
    running: Daemon,
) -> list[Result]:
    owed = {firing for firing in expected if window.holds(firing.due_ms)}
    seen = [(firing, seen_ms) for firing, seen_ms in watcher.seen if window.holds(firing.due_ms)]
    claims = [(name, due_ms, at_ms) for name, due, at_ms in checker.claimed if window.holds(due_ms := _ms(due))]
    lost = len(owed - {firing for firing, _ in seen}) + max(0, len(owed) - len(claims))
    doubled = len(seen) - len({firing for firing, _ in seen}) + len(claims) - len({name for name, _, _ in claims})
    rss_mb = running.rss_bytes_max / 1e6
    seconds = (window.end_ms - window.start_ms) / 1_000
    late = _lateness([seen_ms - firing.due_ms for firing, seen_ms in seen])
    return [
        {"subject": CLAIMABLE, "size": size, "per_s": round(len(seen) / seconds, 1), **late}
        | judged(late["p99_ms"], at_most=P99_MS_MAX),
        {"subject": CLAIMED, "size": size, "per_s": round(len(claims) / seconds, 1)}
        | _lateness([at_ms - due_ms for _, due_ms, at_ms in claims]),
        {"subject": LOST, "size": size, "value": lost, "owed": len(owed)} | judged(lost, at_most=0),
        {"subject": DOUBLED, "size": size, "value": doubled} | judged(doubled, at_most=0),
        {"subject": MEMORY, "size": size, "value": round(rss_mb, 1)} | judged(rss_mb, at_most=RSS_MB_MAX),
        {"subject": CPU, "size": size, "value": round(cpu_share, 3)},
        {"subject": INSIDE, "size": size, "value": round(on_time_share, 4)},
    ]


def _ms(text: str) -> int:
    return to_ms(datetime.fromisoformat(text))


def _lateness(late_ms: list[int]) -> dict[str, float]:
    ordered = sorted(late_ms)
    return {
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "max_ms": ordered[-1],
    }

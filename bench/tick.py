"""Turns due entries into committed entries and runs, through step, core and port, in batches of 1,000."""

from __future__ import annotations

import time
from functools import partial

from bench.harness import Context, Result, Round, connect, in_turns, judged, median, result, transaction
from bench.seed import START_MS, fill
from paceline.adapters.sqlite.keys import due_ms_of
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.schedule import SLOT_MS
from paceline.core.monitors.values import CHECKS, RunQueue, Settlement
from paceline.steps.monitors.tick import tick

SIZES = (10_000, 100_000, 1_000_000)
MIXED, MIXED_SIZE = "tick, one in five outgoing, 100 owners", 100_000
BATCH = 1_000
RATIO_MIN = 0.35
FLATNESS_MIN = 0.6
LANE = 1 << 40
LEASE_MS = 60_000
DONE = Done(ok=True, latency_ms=1.0, code=200)


def run(context: Context) -> list[Result]:
    batches, rounds = (20, 15) if context.full else (10, 7)
    contestants: dict[str, Round] = {}
    for size in SIZES:
        started_s = time.perf_counter()
        subject = Ticker(context.file(f"tick-{size}.db"), size)
        floor = Floor(context.file(f"floor-{size}.db"), size)
        context.say(f"tick: {size:,} entries set up in {time.perf_counter() - started_s:.1f} s")
        contestants[f"tick {size}"] = partial(subject.round, batches)
        contestants[f"floor {size}"] = partial(floor.round, batches)
    mixed = Ticker(context.file("tick-mixed.db"), MIXED_SIZE, outgoing_every=5)
    contestants["mixed"] = partial(mixed.round, batches)
    rates = in_turns(rounds, contestants)
    results = [
        result("tick", size, rates=rates[f"tick {size}"], floor=rates[f"floor {size}"], target=RATIO_MIN, batch=BATCH)
        for size in SIZES
    ]
    return [
        *results,
        _flatness(rates),
        result(MIXED, MIXED_SIZE, rates=rates["mixed"], floor=rates[f"floor {MIXED_SIZE}"]),
    ]


def _flatness(rates: dict[str, list[float]]) -> Result:
    few, many = rates[f"tick {SIZES[0]}"], rates[f"tick {SIZES[-1]}"]
    ratio = median(large / small for small, large in zip(few, many, strict=True))
    values: Result = {
        "subject": f"tick, rate against that at {SIZES[0]:,}",
        "size": SIZES[-1],
        "ratio": round(ratio, 3),
    }
    return values | judged(ratio, at_least=FLATNESS_MIN)


class Ticker:
    """Runs the real step on a real file. Virtual time moves on just far enough to make the next full batch due."""

    def __init__(self, file: str, size: int, *, outgoing_every: int = 0) -> None:
        self._store = SqliteStore(file, synchronous="full")
        fill(self._store, size, outgoing_every=outgoing_every)
        self._probe = connect(file)
        self._now_ms = START_MS

    def round(self, batches: int) -> float:
        spent_s, entries = 0.0, 0
        for _ in range(batches):
            now_ms = self._next_now_ms()
            self._settle_all(now_ms)
            start_s = time.perf_counter()
            report = tick(self._store, now_ms=now_ms, catch_up=CatchUp(), limit=BATCH)
            spent_s += time.perf_counter() - start_s
            assert report.entries == report.runs >= BATCH, report
            entries += report.entries  # more entries may be due in the slot of the last one
        return entries / spent_s

    def _settle_all(self, now_ms: int) -> None:
        """Settles the runs of the batch before, as they are when an entry fires again. This is not measured."""
        for queue in (CHECKS, RunQueue(outgoing=True)):
            while out := self._store.claim(queue, now_ms=now_ms, runs_max=10 * BATCH, lease_ms=LEASE_MS):
                self._store.settle([Settlement(one.handle, one.attempt, DONE, now_ms, now_ms) for one in out])

    def _next_now_ms(self) -> int:
        """Returns when the last entry of the next batch is due. This is not measured."""
        key = self._probe.execute("SELECT k FROM due ORDER BY k LIMIT 1 OFFSET ?", (BATCH - 1,)).get
        due_ms = due_ms_of(key)
        assert due_ms is not None
        self._now_ms = max(self._now_ms, due_ms)
        return self._now_ms


class Floor:
    """One transaction per batch: inserts prepared run rows, and moves as many neighbouring rows with one statement."""

    def __init__(self, file: str, size: int) -> None:
        self._size = size
        self._moved = self._made = 0
        self._db = connect(file)
        self._db.execute("CREATE TABLE run (handle INTEGER PRIMARY KEY, generation, counter, due_ms, previous)")
        self._db.execute("CREATE TABLE due (k INTEGER PRIMARY KEY, counter, revision, cadence, lane, last_run)")
        with transaction(self._db):
            rows = ((slot << 28 | slot + 1, 0, 1, 1, 1, 0) for slot in range(size))
            self._db.executemany("INSERT INTO due VALUES (?, ?, ?, ?, ?, ?)", rows)

    def round(self, batches: int) -> float:
        ready = [[self._row(batch * BATCH + index) for index in range(BATCH)] for batch in range(batches)]
        start_s = time.perf_counter()
        for rows in ready:
            self._batch(rows)
        spent_s = time.perf_counter() - start_s
        self._made += batches * BATCH
        return batches * BATCH / spent_s

    def _row(self, index: int) -> tuple[int, int, int, int, int]:
        """Returns a row with as many bytes as a real one."""
        number = self._made + index + 1
        handle = LANE | number
        return handle, number % self._size, 1, START_MS + number * SLOT_MS, handle - 1

    def _batch(self, rows: list[tuple[int, int, int, int, int]]) -> None:
        self._moved += BATCH
        with transaction(self._db):
            self._db.executemany("INSERT INTO run VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute(
                "UPDATE due SET k = k + ?, counter = counter + 1, last_run = ? WHERE k < ?",
                (self._size << 28, rows[-1][0], self._moved << 28),
            )
        assert self._db.changes() == BATCH

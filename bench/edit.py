"""Put, replace and delete of one monitor through the step, beside few and beside many; and bulk put."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from itertools import count

import msgspec

from bench.harness import Context, Result, Round, connect, in_turns, judged, median, rate, result, transaction
from bench.seed import BATCH, MONITORS_MAX, OWNERS, START_MS, add_owners, fill, monitors
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import encode_spec
from paceline.core.monitors.values import PutMonitor
from paceline.steps.monitors import define

SMALL, LARGE = 1_000, 1_000_000
COST_MAX = 1.5
BULK_RATIO_MIN = 0.2
ACTS = ("put", "replace", "delete")

Rows = tuple[tuple[object, ...], tuple[object, ...], tuple[object, ...]]


def run(context: Context) -> list[Result]:
    edits, rounds = (500, 11) if context.full else (250, 7)
    contestants: dict[str, Round] = {}
    for size in (SMALL, LARGE):
        started_s = time.perf_counter()
        editor = Editor(context.file(f"edit-{size}.db"), size)
        context.say(f"edit: {size:,} entries set up in {time.perf_counter() - started_s:.1f} s")
        contestants |= {f"{act} {size}": partial(editor.act, act, edits) for act in ACTS}
    floor = Floor(context.file("floor.db"))
    contestants |= {f"{act} floor": partial(floor.act, act, edits) for act in ACTS}
    bulk = Bulk(context.file("bulk.db"))
    contestants |= {"bulk": bulk.put, "bulk floor": floor.bulk}
    rates = in_turns(rounds, contestants)
    singles = [
        result(act, size, rates=rates[f"{act} {size}"], floor=rates[f"{act} floor"])
        for act in ACTS
        for size in (SMALL, LARGE)
    ]
    return [
        *singles,
        *(_cost(act, rates[f"{act} {SMALL}"], rates[f"{act} {LARGE}"]) for act in ACTS),
        result("bulk put", BATCH, rates=rates["bulk"], floor=rates["bulk floor"], target=BULK_RATIO_MIN),
    ]


def _cost(act: str, small: list[float], large: list[float]) -> Result:
    cost = median(few / many for few, many in zip(small, large, strict=True))
    values: Result = {"subject": f"{act}, cost against that at {SMALL:,}", "size": LARGE, "cost_ratio": round(cost, 3)}
    return values | judged(cost, at_most=COST_MAX)


class Editor:
    """Edits its own monitors, which come and go, in a store that holds ``size`` others."""

    def __init__(self, file: str, size: int) -> None:
        self._store = SqliteStore(file, synchronous="full")
        fill(self._store, size)
        self._fresh = monitors(10**9, first=size)
        self._kept: list[PutMonitor] = []

    def act(self, act: str, edits: int) -> float:
        """Does an act and returns its rate.

        If put comes last in a round, the others work on the monitors of the round before.
        """
        while act == "put" and len(self._kept) >= edits:
            self._delete(self._kept.pop())
        while act != "put" and len(self._kept) < edits:
            self._kept.append(self._put(next(self._fresh)))
        match act:
            case "put":
                puts = [next(self._fresh) for _ in range(edits)]
                measured = rate(lambda: self._kept.extend([self._put(put) for put in puts]), units=edits)
            case "replace":
                puts = [_slower(put) for put in self._kept[:edits]]
                self._kept[:edits] = puts
                measured = rate(lambda: [self._put(put) for put in puts], units=edits)
            case _:
                gone, self._kept = self._kept[:edits], self._kept[edits:]
                measured = rate(lambda: self._delete(*gone), units=edits)
        return measured

    def _put(self, put: PutMonitor) -> PutMonitor:
        define.put_monitor(self._store, put, monitors_max=MONITORS_MAX, now_ms=START_MS)
        return put

    def _delete(self, *puts: PutMonitor) -> None:
        for put in puts:
            define.remove_monitor(self._store, put.owner, put.id, now_ms=START_MS)


def _slower(put: PutMonitor) -> PutMonitor:
    """Returns the monitor with another interval, so that its entry has to move."""
    assert put.spec.every is not None
    every = f"{int(put.spec.every.removesuffix('s')) + 1}s"
    return msgspec.structs.replace(put, spec=msgspec.structs.replace(put.spec, every=every))


class Bulk:
    """Puts ten thousand new monitors in one call."""

    def __init__(self, file: str) -> None:
        self._store = SqliteStore(file, synchronous="full")
        add_owners(self._store)
        self._fresh = monitors(10**9)

    def put(self) -> float:
        puts = [next(self._fresh) for _ in range(BATCH)]
        start_s = time.perf_counter()
        results = define.put_monitors(self._store, puts, monitors_max=MONITORS_MAX, now_ms=START_MS)
        spent_s = time.perf_counter() - start_s
        assert all(answer.disposition == "created" for answer in results)
        return BATCH / spent_s


class Floor:
    """Inserts, updates or deletes by rowid exactly the rows that the work leaves behind: one commit for each act."""

    def __init__(self, file: str) -> None:
        self._db = connect(file)
        self._db.execute(
            "CREATE TABLE monitor (generation INTEGER PRIMARY KEY, owner, name, revision, spec, created_ms, updated_ms)"
        )
        self._db.execute("CREATE TABLE entry (generation INTEGER PRIMARY KEY, cadence, base_ms)")
        self._db.execute("CREATE TABLE due (k INTEGER PRIMARY KEY, counter, revision, cadence, lane, last_run)")
        self._rows = _ready_rows()
        self._kept: list[Rows] = []

    def act(self, act: str, edits: int) -> float:
        while len(self._kept) < edits * 2:
            with transaction(self._db):
                self._insert(row := next(self._rows))
            self._kept.append(row)
        if act == "put":
            rows = [next(self._rows) for _ in range(edits)]
            self._kept += rows
        elif act == "replace":
            rows = self._kept[:edits]
        else:
            rows, self._kept = self._kept[:edits], self._kept[edits:]
        write = {"put": self._insert, "replace": self._update, "delete": self._delete}[act]
        start_s = time.perf_counter()
        for row in rows:
            with transaction(self._db):
                write(row)
        return edits / (time.perf_counter() - start_s)

    def bulk(self) -> float:
        rows = [next(self._rows) for _ in range(BATCH)]
        tables = list(zip(*rows, strict=True))
        start_s = time.perf_counter()
        with transaction(self._db):
            self._db.executemany("INSERT INTO monitor VALUES (?, ?, ?, ?, ?, ?, ?)", tables[0])
            self._db.executemany("INSERT INTO entry VALUES (?, ?, ?)", tables[1])
            self._db.executemany("INSERT INTO due VALUES (?, ?, ?, ?, ?, ?)", tables[2])
        return BATCH / (time.perf_counter() - start_s)

    def _insert(self, row: Rows) -> None:
        self._db.execute("INSERT INTO monitor VALUES (?, ?, ?, ?, ?, ?, ?)", row[0])
        self._db.execute("INSERT INTO entry VALUES (?, ?, ?)", row[1])
        self._db.execute("INSERT INTO due VALUES (?, ?, ?, ?, ?, ?)", row[2])

    def _update(self, row: Rows) -> None:
        monitor, entry, due = row
        self._db.execute(
            "UPDATE monitor SET revision = revision + 1, spec = ?, updated_ms = ? WHERE generation = ?",
            (monitor[4], monitor[6], monitor[0]),
        )
        self._db.execute("UPDATE entry SET cadence = 2, base_ms = base_ms + 1 WHERE generation = ?", (entry[0],))
        self._db.execute("UPDATE due SET revision = revision + 1, cadence = 2 WHERE k = ?", (due[0],))

    def _delete(self, row: Rows) -> None:
        self._db.execute("DELETE FROM monitor WHERE generation = ?", (row[0][0],))
        self._db.execute("DELETE FROM entry WHERE generation = ?", (row[1][0],))
        self._db.execute("DELETE FROM due WHERE k = ?", (row[2][0],))


def _ready_rows() -> Iterator[Rows]:
    """Yields rows with as many bytes as the store's own."""
    chance = random.Random(3)
    for generation, put in zip(count(1), monitors(10**9), strict=False):
        owner = chance.randrange(OWNERS) + 1
        text = encode_spec(put.spec).decode()
        monitor = (generation, owner, put.id, 1, text, START_MS, START_MS)
        key = (chance.randrange(72_000) + (1 << 30)) << 28 | generation
        yield monitor, (generation, 1, START_MS + generation), (key, 0, 1, 1, owner + 1, 0)

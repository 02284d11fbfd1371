"""Plans a day of a million records over a thousand providers into ledger and queue; and imports the records first."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from pathlib import Path

from bench.harness import Context, Result, connect, in_turns, judged, result, transaction
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import Batch, BatchSpec, window_of
from paceline.core.batches.day_plan import PAGE_RUNS
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.run_keys import queue_key, run_key
from paceline.core.batches.spread import place_of
from paceline.core.batches.values import PutProvider
from paceline.steps.batches.batches import PAGE_RECORDS, judge_record, put_parsed_records
from paceline.steps.batches.plan import plan_day

RECORDS = 1_000_000
PROVIDERS = 1_000
PLAN_RATIO_MIN = 0.25
IMPORT_RATIO_MIN = 0.2
MEMORY_MB_MAX = 300
FIRST_DATE = date(2027, 3, 1)
NOW_MS = window_of(BatchSpec(), FIRST_DATE).start_ms - 60_000


def run(context: Context) -> list[Result]:
    rounds = 3 if context.full else 1
    return [
        *_measure_import(context, "in order of names", _names(), rounds, target=IMPORT_RATIO_MIN),
        # The cost of this order is the unique index of names, so the bare table beside it has that index, too.
        *_measure_import(context, "in no order", _shuffled(_names()), rounds, target=None),
        *_measure_plan(context, 3 if context.full else 2),
    ]


def _measure_import(
    context: Context, order: str, names: list[str], rounds: int, *, target: float | None
) -> Iterator[Result]:
    """Measures the import. Each round imports its share of the million, so the tables grow as in one import."""
    key = order.replace(" ", "-")
    lot = len(names) // (rounds + 1)
    contestants: dict[str, Importer | BareRecords] = {
        "import": Importer(context.file(f"{key}.db")),
        "floor": BareRecords(context.file(f"{key}-floor.db")),
        "unique": BareUniqueRecords(context.file(f"{key}-unique.db")),
    }
    shares = {name: _lots(names, lot) for name in contestants}
    rates = in_turns(rounds, {name: partial(_next_lot, one, shares[name]) for name, one in contestants.items()})
    context.say(f"plan: imported {len(names):,} records {order}")
    yield result(
        f"import, {order}",
        len(names),
        rates=rates["import"],
        floor=rates["floor"],
        target=target,
        batch=PAGE_RECORDS,
    )
    beside = f"import, {order}, beside a table with the same unique index"
    yield result(beside, len(names), rates=rates["import"], floor=rates["unique"], batch=PAGE_RECORDS)


def _next_lot(importer: Importer | BareRecords, lots: Iterator[list[str]]) -> float:
    return importer.round(next(lots))


def _measure_plan(context: Context, rounds: int) -> list[Result]:
    file = context.file("in-order-of-names.db")
    subject, floor = Planner(file), BareRuns(context.file("plan-floor.db"))
    rates = in_turns(rounds, {"plan": subject.round, "floor": floor.round})
    memory_mb = _memory_mb(file, FIRST_DATE + timedelta(days=subject.days))
    page_ms = sorted(subject.pages_ms)
    return [
        result(
            "plan",
            RECORDS,
            rates=rates["plan"],
            floor=rates["floor"],
            target=PLAN_RATIO_MIN,
            batch=PAGE_RUNS,
            page_ms=round(page_ms[len(page_ms) // 2]),
        ),
        {"subject": "memory of a process that plans (MB)", "size": RECORDS, "value": memory_mb}
        | judged(memory_mb, at_most=MEMORY_MB_MAX),
    ]


def _memory_mb(file: str, day: date) -> float:
    """Returns the most memory that a separate process needs to plan one more day."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.plan", file, day.isoformat()], check=True, capture_output=True, text=True
    )
    return round(float(done.stdout), 1)


def _names() -> list[str]:
    return [f"customer-{number:07d}" for number in range(RECORDS)]


def _shuffled(names: list[str]) -> list[str]:
    random.Random(1).shuffle(names)
    return names


def _lots(names: list[str], lot: int) -> Iterator[list[str]]:
    return (names[first : first + lot] for first in range(0, len(names), lot))


def _provider_of(name: str) -> int:
    return int(name[-7:]) * 7_919 % PROVIDERS


def _body_of(name: str) -> str:
    return f'{{"question":"{name}","depth":3}}'


class Importer:
    """The real step on a real file, from the text of each record."""

    def __init__(self, file: str) -> None:
        self._store = SqliteStore(file, synchronous="full")
        for number in range(PROVIDERS):
            put = PutProvider(f"provider-{number:04d}", ProviderSpec(base_url="http://example.org"))
            self._store.put_provider(put, now_ms=NOW_MS)
        self._batch = _batch(self._store)

    def round(self, names: list[str]) -> float:
        lines = [
            f'{{"id":"{name}","provider":"provider-{_provider_of(name):04d}","endpoint":"/items/{name}",'
            f'"body":{_body_of(name)}}}'.encode()
            for name in names
        ]
        start_s = time.perf_counter()
        for first in range(0, len(lines), PAGE_RECORDS):
            page = [judge_record(line) for line in lines[first : first + PAGE_RECORDS]]
            puts = put_parsed_records(self._store, self._batch, page, now_ms=NOW_MS)
            assert puts[-1].disposition == "created"
        return len(names) / (time.perf_counter() - start_s)


class BareRecords:
    """Inserts the same rows, prepared, into a table without any index."""

    def __init__(self, file: str) -> None:
        self._db = connect(file)
        self._made = 0
        self._db.execute(
            """CREATE TABLE record
               (id INTEGER PRIMARY KEY, batch, name, provider, place, active, deleted, endpoint, body)"""
        )

    def round(self, names: list[str]) -> float:
        rows = [
            (
                self._made + index,
                1,
                name,
                _provider_of(name) + 1,
                place_of("b", name),
                1,
                0,
                f"/items/{name}",
                _body_of(name),
            )
            for index, name in enumerate(names)
        ]
        self._made += len(rows)
        start_s = time.perf_counter()
        for first in range(0, len(rows), PAGE_RECORDS):
            with transaction(self._db):
                self._db.executemany(
                    "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows[first : first + PAGE_RECORDS]
                )
        return len(names) / (time.perf_counter() - start_s)


class BareUniqueRecords(BareRecords):
    """Like ``BareRecords``, with a unique index of names."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._db.execute("CREATE UNIQUE INDEX record_name ON record (batch, name)")


class Planner:
    """Plans one more day in each round, from the definitions to its last run."""

    def __init__(self, file: str) -> None:
        self._store = SqliteStore(file, synchronous="full")
        self._batch = _batch(self._store)
        self.days = 0
        self.pages_ms: list[float] = []

    def round(self) -> float:
        start_s = self._page_s = time.perf_counter()
        report = plan_day(
            self._store,
            self._batch,
            FIRST_DATE + timedelta(days=self.days),
            now_ms=NOW_MS,
            progress=lambda _report: self._note(),
        )
        assert report.enqueued == RECORDS, report
        self.days += 1
        return RECORDS / (time.perf_counter() - start_s)

    def _note(self) -> None:
        now_s = time.perf_counter()
        self.pages_ms.append((now_s - self._page_s) * 1_000)
        self._page_s = now_s


class BareRuns:
    """Inserts the same rows, prepared, each table in the order of its keys: the least cost of writing them."""

    def __init__(self, file: str) -> None:
        self._db = connect(file)
        self._days = 0
        self._db.execute("CREATE TABLE planned (run INTEGER PRIMARY KEY, k)")
        self._db.execute(
            "CREATE TABLE queue (k INTEGER PRIMARY KEY, run, state, at_ms, attempt, lost, started_ms, reason)"
        )

    def round(self) -> float:
        self._days += 1
        start_ms = NOW_MS + self._days * 86_400_000
        share = RECORDS // PROVIDERS
        keys = [
            queue_key(provider, start_ms + turn * 86_400_000 // share + provider)
            for provider in range(1, PROVIDERS + 1)
            for turn in range(share)
        ]
        runs = [run_key(self._days, record) for record in range(1, RECORDS + 1)]
        spent_s = 0.0
        for first in range(0, RECORDS, PAGE_RUNS):
            page = slice(first, first + PAGE_RUNS)
            queue = [(k, run, "waiting", 0, 0, 0, None, "") for k, run in zip(keys[page], runs[page], strict=True)]
            ledger = list(zip(runs[page], keys[page], strict=True))
            start_s = time.perf_counter()
            with transaction(self._db):
                self._db.executemany("INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?)", queue)
                self._db.executemany("INSERT INTO planned VALUES (?, ?)", ledger)
            spent_s += time.perf_counter() - start_s
        return RECORDS / spent_s


def _batch(store: SqliteStore) -> Batch:
    store.put_batch("b", BatchSpec(), expected_revision=None, now_ms=NOW_MS)
    batch = store.batch("b")
    assert batch is not None
    return batch


def plan_alone(file: str, day: date) -> None:
    """Plans a day in a separate process and prints the most memory it took, in MB."""
    store = SqliteStore(file, synchronous="full")
    report = plan_day(store, _batch(store), day, now_ms=NOW_MS)
    assert report.enqueued == RECORDS, report
    # Not getrusage(): its maximum also counts the process that started this one.
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    print(int(line.split()[1]) / 1_024)


if __name__ == "__main__":
    plan_alone(sys.argv[1], date.fromisoformat(sys.argv[2]))

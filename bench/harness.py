"""Measures floor and subject in turns in one run, with the same driver, disk, durability and batch size."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import apsw
import psutil  # type: ignore[import-untyped]  # it has no types of its own

from paceline.adapters.sqlite.database import Connection

HERE = Path(__file__).parent
FLOOR_CACHE_KIB = 65_536
"""Page cache of the store's writing connection; a floor gets no less."""
PACKAGES = ("paceline", "apsw", "pycurl", "msgspec", "starlette", "uvicorn")
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})

Result = dict[str, Any]
Round = Callable[[], float]


@dataclass(frozen=True)
class Context:
    """Options and folder of a benchmark run.

    ``full``: larger sizes, more rounds. ``folder`` is on a real disk and is removed afterwards.
    """

    full: bool
    folder: Path
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr, flush=True))

    def file(self, name: str) -> str:
        return str(self.folder / name)


@contextmanager
def work_folder() -> Iterator[Path]:
    """Makes a temporary folder beside this file, or under PACELINE_BENCH_DIR.

    Refuses one that is in memory, not on a disk.
    """
    root = Path(os.environ.get("PACELINE_BENCH_DIR", HERE / ".tmp"))
    root.mkdir(parents=True, exist_ok=True)
    if (kind := file_system(root)) in MEMORY_FILE_SYSTEMS:
        raise SystemExit(f"{root} is on {kind}; set PACELINE_BENCH_DIR to a folder on a disk.")
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connect(file: str) -> Connection:
    """Opens a connection for a floor, with the store's driver and settings, and nothing else."""
    connection = apsw.Connection(file)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{FLOOR_CACHE_KIB}")
    return cast("Connection", connection)


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("COMMIT")


def rate(work: Callable[[], object], *, units: int) -> float:
    """Returns units per second of wall time."""
    start_s = time.perf_counter()
    work()
    return units / (time.perf_counter() - start_s)


def in_turns(rounds: int, contestants: Mapping[str, Round]) -> dict[str, list[float]]:
    """Returns the rates of each contestant, round by round, without the first.

    Every other round runs in reverse order.
    """
    collect_seldom()
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        names: Iterable[str] = contestants if number % 2 else reversed(list(contestants))
        for name in names:
            measured = contestants[name]()
            if number:
                rates[name].append(measured)
    return rates


def collect_seldom() -> None:
    """Sets the garbage collector as the daemon does when it starts."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def result(
    subject: str, size: int, *, rates: Sequence[float], floor: Sequence[float], target: float | None = None, **more: Any
) -> Result:
    """Returns the result of a subject and its floor.

    The ratio is the median over the rounds, each against the floor of the same round.
    """
    ratio = statistics.median(mine / bare for mine, bare in zip(rates, floor, strict=True))
    values: Result = {
        "subject": subject,
        "size": size,
        "per_s": round(statistics.median(rates), 1),
        "floor_per_s": round(statistics.median(floor), 1),
        "ratio_to_floor": round(ratio, 3),
    }
    return values | (judged(ratio, at_least=target) if target is not None else {}) | more


def judged(value: float, *, at_least: float | None = None, at_most: float | None = None) -> Result:
    """Returns the target, and whether it was met."""
    if at_least is not None:
        return {"target": f">= {at_least:g}", "met": value >= at_least}
    assert at_most is not None
    return {"target": f"<= {at_most:g}", "met": value <= at_most}


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the value below which this share of an ordered sequence lies."""
    assert ordered
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def machine(folder: Path) -> dict[str, Any]:
    """Returns where and when the figures were measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": file_system(folder),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
    }


def file_system(folder: Path) -> str:
    """Returns the kind of file system that holds the folder."""
    path = folder.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

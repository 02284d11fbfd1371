"""The same firing work on other schedulers, each with SQLite, in its own environment under ``bench/.peers``.

*Saturation*: all schedules are overdue; how many fire in a second, each firing moved on durably? *Load*: the firings of
all schedules are evenly spread; how late are they? A peer that cannot do it says so, with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

from bench import paceline_firing
from bench.harness import HERE, Context, Result, judged
from bench.peer_scripts.meter import Task, encode_task

HOME = HERE / ".peers"
INSTALL_S_MAX = 600
ON_TIME_MS = 1_000.0
"""A peer is on time if 99 of 100 firings come within a second; firings that never came are included."""
TIMES_MIN = 20.0
SIZES = (1_000, 10_000, 100_000)
LOADS = ((10_000, 1_000), (100_000, 1_000), (100_000, 5_000))
"""Schedules, and firings a second."""


class Peer(NamedTuple):
    """A peer. ``stores_per_s`` is its least speed of adding schedules: the first firing of a load waits for that."""

    name: str
    module: str
    requirements: tuple[str, ...]
    variant: str = ""
    sizes_max: int = 100_000
    too_large: str = ""
    stores_per_s: int = 4_000
    loads: bool = True
    durable: bool = True
    seconds_min: float = 0.0

    @property
    def folder(self) -> Path:
        return HOME / "-".join((self.module, *(text.partition("==")[2] for text in self.requirements[:1])))


APSCHEDULER_3 = ("apscheduler==3.11.3", "sqlalchemy==2.1.8")
APSCHEDULER_4 = ("apscheduler==4.0.0a6", "sqlalchemy==2.1.8", "sniffio==1.3.1", "greenlet==3.5.6")
HUEY = ("huey==3.5.4",)
DBOS = ("dbos==3.3.0", "sqlalchemy==2.1.8")
PEERS = (
    Peer("APScheduler 3, WAL", "apscheduler3", APSCHEDULER_3),
    Peer("APScheduler 3, as it comes", "apscheduler3", APSCHEDULER_3, variant="default", sizes_max=10_000, loads=False),
    Peer("APScheduler 4 alpha, WAL", "apscheduler4", APSCHEDULER_4, stores_per_s=2_000),
    Peer("Huey", "huey_sqlite", HUEY),
    Peer("Huey, without fsync", "huey_sqlite", HUEY, variant="no fsync", sizes_max=10_000, loads=False, durable=False),
    Peer("DBOS, delayed queue", "dbos_sqlite", DBOS, "queue", stores_per_s=2_000),
    Peer(
        "DBOS, cron schedules",
        "dbos_sqlite",
        DBOS,
        "",
        1_000,
        "not tried: each schedule is a thread",
        stores_per_s=100,
        loads=False,
        seconds_min=20.0,  # its threads begin slowly
    ),
)


def run(context: Context) -> list[Result]:
    seconds = 20.0 if context.full else 8.0
    results = paceline_firing.saturation(context, SIZES)
    for peer in PEERS:
        problem = install(peer, context)
        for size in SIZES:
            if size <= peer.sizes_max or peer.too_large:
                results.append(_saturation(context, peer, size, seconds, problem))
    results += [row for subject in (paceline_firing.MADE, paceline_firing.SETTLED) for row in _times(results, subject)]
    results += [row for size, per_s in LOADS for row in paceline_firing.load(context, size, per_s)]
    for peer in PEERS:
        if peer.loads:
            results += [_load(context, peer, size, per_s, seconds) for size, per_s in LOADS]
    return results


def install(peer: Peer, context: Context) -> str:
    """Makes an environment with the pinned versions, once. Returns the error, or an empty text."""
    marker = peer.folder / "installed.txt"
    wanted = "\n".join(peer.requirements)
    if marker.exists() and marker.read_text() == wanted:
        return ""
    context.say(f"peers: installing {' '.join(peer.requirements)}")
    venv.create(peer.folder, with_pip=True, clear=True)
    command = [str(peer.folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *peer.requirements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    if done.returncode:
        return f"cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    marker.write_text(wanted)
    return ""


def _saturation(context: Context, peer: Peer, size: int, seconds: float, problem: str) -> Result:
    row: Result = {"subject": peer.name, "size": size, "work": "saturation"}
    if problem or size > peer.sizes_max:
        return row | {"cannot": problem or peer.too_large}
    seconds = max(seconds, peer.seconds_min)
    task = Task(
        "saturation", size, seconds, context.file(f"{peer.module}-{peer.variant}-{size}.db"), variant=peer.variant
    )
    return row | _ask(context, peer, task)


def _load(context: Context, peer: Peer, size: int, per_s: int, seconds: float) -> Result:
    row: Result = {"subject": peer.name, "size": size, "work": f"load of {per_s:,}/s"}
    if size > peer.sizes_max:
        return row | {"cannot": peer.too_large}
    answer = _ask(
        context,
        peer,
        Task(
            "load",
            size,
            seconds,
            context.file(f"{peer.module}-load-{size}-{per_s}.db"),
            rate_per_s=per_s,
            variant=peer.variant,
            setup_s=5.0 + size / peer.stores_per_s,
        ),
    )
    if answer.get("p99_ms") is not None:
        answer["on_time"] = answer["p99_ms"] <= ON_TIME_MS
    return row | answer


def _ask(context: Context, peer: Peer, task: Task) -> Result:
    """Runs the peer's script; its last line of output is the answer."""
    context.say(f"peers: {peer.name}, {task.mode}, {task.schedules:,} schedules")
    command = [str(peer.folder / "bin" / "python"), "-m", f"bench.peer_scripts.{peer.module}", encode_task(task)]
    limit_s = task.seconds + 2 * task.setup_s + 2 * task.schedules / peer.stores_per_s + 30
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, cwd=HERE.parent, check=False, env={"TZ": "UTC"}
        )
    except subprocess.TimeoutExpired:
        return {"cannot": f"no end within {limit_s:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"cannot": _reason(done.stderr)}
    answer: Result = json.loads(lines[-1])
    return answer


def _reason(stderr: str) -> str:
    """Returns the last line that names an error, without the frame that tracebacks of grouped errors draw."""
    lines = [line.strip(" |+-") for line in stderr.splitlines()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    return "ended with: " + ((errors or lines or ["no answer"])[-1][:200])


def _times(results: list[Result], subject: str) -> list[Result]:
    """Compares with the best peer at each size, and with the best durable peer.

    Returns the worst ratio and its size.
    """
    unsafe = {peer.name for peer in PEERS if not peer.durable}
    rows: list[Result] = []
    for text, left_out in (("the best peer", set[str]()), ("the best peer that syncs", unsafe)):
        times: list[tuple[float, int]] = []
        for size in SIZES:
            rates = {row["subject"]: row["per_s"] for row in results if row["size"] == size and "per_s" in row}
            rivals = [rate for name, rate in rates.items() if not name.startswith("Paceline") and name not in left_out]
            times.append((rates[subject] / max(rivals), size))
        ratio, worst = min(times)
        rows.append({"subject": f"{subject}: times {text}", "size": worst, "ratio": round(ratio, 1)})
    return [rows[0] | judged(rows[0]["ratio"], at_least=TIMES_MIN), rows[1]]


if __name__ == "__main__":
    sys.exit("run it as: python -m bench peers --full")

"""Phases of interval monitors that Paceline allots, beside random and hashed ones: the second part of ``spread``."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import msgspec
from matplotlib.figure import Figure

from bench.harness import Context, Result
from paceline.core.batches.spread import place_of
from paceline.core.monitors.phases.allot import allot_one, allot_together, notes_after
from paceline.core.monitors.phases.circle import Circle, CirclePosition, after_moves, fullest_second
from paceline.core.monitors.phases.hosts import HostNote

EVERY_MS, SECOND_MS, SLOT_MS = 60_000, 1_000, 50
SIZES = {600: 20, 10_000: 500}
LARGE = 1_000_000
CHURN = 4_000
REQUEST = 1_000
HOST_MAX, CHURN_MAX = 2.0, 4.0
SEED, NOW_MS = 20_261_118, 1_790_000_000_000
PLOT = "phases.svg"
IMPORTED, CHURNED, COST = "monitors every 60 s, imported", "monitors every 60 s, added and removed", "cost of a phase"

Method = Callable[[Sequence[str]], list[int]]


def run(context: Context) -> list[Result]:
    rows = [_imported(name, size, hosts) for size, hosts in SIZES.items() for name in METHODS]
    rows += [_churned(name, size) for size in (60, 600) for name in CHURNED_METHODS]
    sizes = (1_000, LARGE) if context.full else (1_000, 100_000)
    return [*rows, *(_cost(size) for size in sizes)]


def hosts_of(size: int, hosts: int) -> list[str]:
    """Returns hosts of monitors, unevenly: some hosts have many, in random places of the file."""
    chance = random.Random(SEED)
    return [f"host{int(hosts * chance.random() ** 2)}.example" for _ in range(size)]


def by_paceline(hosts: Sequence[str]) -> list[int]:
    return [phase.ms for phase in allot_together(None, {}, EVERY_MS, hosts, now_ms=NOW_MS)]


def by_paceline_in_requests(hosts: Sequence[str]) -> list[int]:
    """Returns phases of monitors that come in bulk puts of 1,000 each."""
    circle: Circle | None = None
    notes: dict[str, HostNote] = {}
    found: list[int] = []
    for start in range(0, len(hosts), REQUEST):
        mine = hosts[start : start + REQUEST]
        phases = [phase.ms for phase in allot_together(circle, notes, EVERY_MS, mine, now_ms=NOW_MS)]
        come = [CirclePosition(host, phase_ms) for host, phase_ms in zip(mine, phases, strict=True)]
        new = len(set(mine) - notes.keys())
        notes |= notes_after(circle, notes, EVERY_MS, come)
        circle = after_moves(circle, EVERY_MS, come=come, hosts=new)
        found += phases
    return found


def at_random(hosts: Sequence[str]) -> list[int]:
    chance = random.Random(SEED)
    return [chance.randrange(EVERY_MS // SLOT_MS) * SLOT_MS for _ in hosts]


def by_hash(hosts: Sequence[str]) -> list[int]:
    return [
        place_of(host, f"monitor-{index}") * (EVERY_MS // SLOT_MS) // 2**32 * SLOT_MS
        for index, host in enumerate(hosts)
    ]


METHODS: dict[str, Method] = {
    "Paceline": by_paceline,
    "Paceline, in requests of 1,000": by_paceline_in_requests,
    "random phases": at_random,
    "phase = hash of the name": by_hash,
}
CHURNED_METHODS = [name for name in METHODS if METHODS[name] is not by_paceline_in_requests]


def _imported(name: str, size: int, hosts: int) -> Result:
    names = hosts_of(size, hosts)
    phases = METHODS[name](names)
    fullest, ideal = fullest_second(phases, EVERY_MS), size * SECOND_MS / EVERY_MS
    worst = max(_ratio([ms for ms, host in zip(phases, names, strict=True) if host == one]) for one in set(names))
    values: Result = {
        "work": IMPORTED,
        "subject": name,
        "size": size,
        "hosts": len(set(names)),
        "worst_second": fullest,
        "ideal_second": round(ideal, 2),
        "host_ratio": round(worst, 3),
    }
    if METHODS[name] not in (by_paceline, by_paceline_in_requests):
        return values
    return values | {"target": "<= ideal + 1 and < 2", "met": fullest <= ideal + 1 and worst < HOST_MAX}


def _ratio(phases: Sequence[int]) -> float:
    """Returns the ratio of the largest gap to the ideal one, less the 50 ms that the raster may add."""
    rising = sorted(phases)
    gap_ms = max(later - sooner for sooner, later in pairwise([*rising, rising[0] + EVERY_MS]))
    return max(0, gap_ms - SLOT_MS) * len(rising) / EVERY_MS


def _churned(name: str, size: int) -> Result:
    """Removes a random monitor and adds one, thousands of times. Returns the worst second ever seen."""
    chance, added = random.Random(SEED), METHODS[name]([f"host{number}" for number in range(size + CHURN)])
    circle: Circle | None = None
    notes: dict[str, HostNote] = {}
    live: list[int] = []
    worst = 0
    for turn in range(size + CHURN):
        phase_ms = added[turn]
        if METHODS[name] is by_paceline:
            host = f"host{chance.randrange(20)}"
            phase_ms = allot_one(circle, notes.get(host), EVERY_MS, now_ms=NOW_MS + turn * 1_237).ms
            come = [CirclePosition(host, phase_ms)]
            notes |= notes_after(circle, notes, EVERY_MS, come)
            circle = after_moves(circle, EVERY_MS, come=come)
        live.append(phase_ms)
        if turn < size:
            continue
        gone_ms = live.pop(chance.randrange(len(live)))
        circle = after_moves(circle, EVERY_MS, gone=[CirclePosition("", gone_ms)]) if circle else None
        worst = max(worst, fullest_second(live, EVERY_MS))
    ideal = size * SECOND_MS / EVERY_MS
    values: Result = {
        "work": CHURNED,
        "subject": name,
        "size": size,
        "worst_second": worst,
        "ideal_second": round(ideal, 2),
    }
    if METHODS[name] is not by_paceline:
        return values
    return values | {"target": f"<= {CHURN_MAX:g} x ideal", "met": worst <= CHURN_MAX * ideal}


def _cost(size: int) -> Result:
    """Measures CPU time of one more monitor: decodes the circle, chooses and counts a phase, encodes it again."""
    hosts = [f"host{number}" for number in range(size)]
    phases = allot_together(None, {}, EVERY_MS, hosts, now_ms=NOW_MS)
    places = [CirclePosition(host, phase.ms) for host, phase in zip(hosts, phases, strict=True)]
    stored = msgspec.json.encode(after_moves(None, EVERY_MS, come=places))
    decoder, rounds = msgspec.json.Decoder(Circle), 2_000
    start_s = time.process_time()
    for turn in range(rounds):
        circle = decoder.decode(stored)
        phase = allot_one(circle, HostNote(7, turn), EVERY_MS, now_ms=NOW_MS + turn)
        stored = msgspec.json.encode(after_moves(circle, EVERY_MS, come=[CirclePosition("host1", phase.ms)]))
    spent_s = time.process_time() - start_s
    return {
        "work": COST,
        "subject": "one more monitor, bytes of its circle",
        "size": size,
        "per_s": round(rounds / spent_s),
        "value": len(stored),
    }


def plot(folder: Path) -> None:
    """Plots checks in each second of a minute. The same code gives the same bytes."""
    names = hosts_of(600, SIZES[600])
    figure = Figure(figsize=(8, 5), layout="constrained")
    for axes, (name, method) in zip(figure.subplots(len(METHODS), sharex=True), METHODS.items(), strict=True):
        seconds = [0] * (EVERY_MS // SECOND_MS)
        for phase_ms in method(names):
            seconds[phase_ms // SECOND_MS] += 1
        axes.bar(range(len(seconds)), seconds, width=0.9)
        axes.set(ylim=(0, 26), xlim=(-0.5, len(seconds) - 0.5))
        axes.set_title(f"{name}: fullest second {max(seconds)} checks", fontsize="medium")
        axes.grid(visible=True, linewidth=0.4)
    figure.supxlabel("second of the minute")
    figure.supylabel("checks per second, 600 monitors")
    with mpl.rc_context({"svg.hashsalt": "paceline"}):
        figure.savefig(folder / PLOT, metadata={"Date": None})

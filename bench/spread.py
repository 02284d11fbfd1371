"""A batch's day as Paceline plans it, beside random times, hashed times, and windows of 15 minutes with jitter.

Then the phases of interval monitors, beside random and hashed ones: ``bench.phases``.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench import phases
from bench.harness import Context, Result, judged, median
from paceline.core.batches.spread import Evenness, assign_slots, dues_ms, evenness, place_of

DAY_MS = 86_400_000
WINDOW_MS, WINDOW_JITTER_MS = 900_000, 5_000
MINUTE_MS = 60_000
SIZES = {1_000: 10, 10_000: 100}
LARGE, LARGE_PROVIDERS = 1_000_000, 1_000
WHOLE_MAX, PROVIDER_MAX = 1.05, 2.0
SEED = 20_261_115
PLOT = "spread.svg"
PLOTTED = 10_000

Providers = list[Sequence[int]]
Method = Callable[[list[int]], Providers]


def run(context: Context) -> list[Result]:
    sizes = SIZES | ({LARGE: LARGE_PROVIDERS} if context.full else {})
    results = [_compared(name, size, providers) for size, providers in sizes.items() for name in METHODS]
    return [*results, _timed(rounds=7 if context.full else 3), _weighed(), *phases.run(context)]


def counts_of(size: int, providers: int) -> list[int]:
    """Returns uneven counts of records: the largest provider has about twenty times as many as the smallest."""
    chance = random.Random(SEED)
    weights = [chance.uniform(0.1, 2.0) for _ in range(providers)]
    counts = [max(1, int(size * weight / sum(weights))) for weight in weights]
    counts[0] += size - sum(counts)
    return counts


def by_paceline(counts: list[int]) -> Providers:
    return [dues_ms(slots, sum(counts), start_ms=0, end_ms=DAY_MS) for slots in assign_slots(counts)]


def at_random(counts: list[int]) -> Providers:
    chance = random.Random(SEED)
    return [sorted(chance.randrange(DAY_MS) for _ in range(count)) for count in counts]


def by_hash(counts: list[int]) -> Providers:
    return [
        sorted(place_of(f"provider-{provider}", f"record-{index}") * DAY_MS >> 32 for index in range(count))
        for provider, count in enumerate(counts)
    ]


def in_windows(counts: list[int]) -> Providers:
    """Assigns records to the 96 windows in turn; each starts within five seconds of its window's beginning."""
    chance = random.Random(SEED)
    providers: Providers = []
    turn = 0
    for count in counts:
        starts = [(turn + index) * WINDOW_MS % DAY_MS for index in range(count)]
        providers.append(sorted(start_ms + chance.randrange(WINDOW_JITTER_MS) for start_ms in starts))
        turn += count
    return providers


METHODS: dict[str, Method] = {
    "Paceline": by_paceline,
    "random times": at_random,
    "time = hash of the name": by_hash,
    "15-minute windows, 0-5 s jitter": in_windows,
}


def _compared(name: str, size: int, providers: int) -> Result:
    planned = METHODS[name](counts_of(size, providers))
    whole = evenness(_merged(planned), start_ms=0, end_ms=DAY_MS)
    worst = max(_even(dues).ratio for dues in planned)
    values: Result = {
        "subject": name,
        "size": size,
        "providers": providers,
        "whole_ratio": round(whole.ratio, 3),
        "provider_ratio": round(worst, 3),
        "worst_minute": whole.worst_minute_runs,
        "ideal_minute": round(size * MINUTE_MS / DAY_MS, 2),
    }
    if METHODS[name] is not by_paceline:
        return values
    met = whole.ratio <= WHOLE_MAX and worst < PROVIDER_MAX
    return values | {"target": f"<= {WHOLE_MAX:g} and < {PROVIDER_MAX:g}", "met": met}


def _timed(*, rounds: int) -> Result:
    """Measures CPU time: planning waits for nothing."""
    counts = counts_of(LARGE, LARGE_PROVIDERS)
    spent_s = []
    for _ in range(rounds):
        start_s = time.process_time()
        by_paceline(counts)
        spent_s.append(time.process_time() - start_s)
    middle_s = median(spent_s)
    return {
        "subject": "slots and due times, CPU seconds",
        "size": LARGE,
        "providers": LARGE_PROVIDERS,
        "per_s": round(LARGE / middle_s),
        "value": round(middle_s, 3),
    }


def _weighed() -> Result:
    tracemalloc.start()
    slots = assign_slots(counts_of(LARGE, LARGE_PROVIDERS))
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert sum(map(len, slots)) == LARGE
    values: Result = {
        "subject": "slots, peak MB",
        "size": LARGE,
        "providers": LARGE_PROVIDERS,
        "value": round(peak_mb, 1),
    }
    return values | judged(peak_mb, at_most=32)


def _merged(planned: Providers) -> list[int]:
    return sorted(due_ms for dues in planned for due_ms in dues)


def _even(dues: Sequence[int]) -> Evenness:
    return evenness(dues, start_ms=0, end_ms=DAY_MS)


def plot(folder: Path) -> None:
    """Plots runs in each minute of a day. The same code gives the same bytes."""
    counts = counts_of(PLOTTED, SIZES[PLOTTED])
    figure = Figure(figsize=(8, 7), layout="constrained")
    hours = [minute / 60 for minute in range(DAY_MS // MINUTE_MS)]
    for axes, (name, method) in zip(figure.subplots(len(METHODS), sharex=True), METHODS.items(), strict=True):
        dues = _merged(method(counts))
        figures = evenness(dues, start_ms=0, end_ms=DAY_MS)
        minutes = [0] * len(hours)
        for due_ms in dues:
            minutes[due_ms // MINUTE_MS] += 1
        axes.plot(hours, minutes, linewidth=0.7)
        axes.set(ylim=(0, max(20, 1.1 * max(minutes))), xlim=(0, 24), xticks=range(0, 25, 4))
        ratio, worst = figures.ratio, figures.worst_minute_runs
        axes.set_title(f"{name}: largest gap {ratio:.1f} ideal gaps, worst minute {worst} runs", fontsize="medium")
        axes.grid(visible=True, linewidth=0.4)
    figure.supxlabel("hour of the day")
    figure.supylabel(f"runs per minute, {PLOTTED:,} records of {len(counts)} providers")
    with mpl.rc_context({"svg.hashsalt": "paceline"}):
        figure.savefig(folder / PLOT, metadata={"Date": None})

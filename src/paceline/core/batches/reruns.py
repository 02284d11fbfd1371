"""Reruns: runs that ended on a day run again, as a round of their own beside the day.

The first rerun of ``orders/a@2026-11-15`` is ``orders/a@2026-11-15~1``. A round is kept as a day is, so its runs are
made once, however often somebody asks. While a run of the newest round has not ended, a rerun adds to that round, and
runs that it has already stay single; only when the whole round has ended does a rerun begin another.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from paceline.core.batches.batch import Window
from paceline.core.batches.day_plan import no_placements
from paceline.core.batches.spread import assign_slots, dues_ms
from paceline.core.batches.values import Placements

RERUNS_MAX = 99
GAP_MS = 1_000
"""Time between two runs of one provider; shorter if there are so many that they would not fit."""
ENDED_STATES = ("done", "failed", "unknown", "skipped")
MARK = "~"


class Again(NamedTuple):
    """A run that is to run again: its record and provider by number, and when it was due."""

    provider: int
    due_ms: int
    record: int


def round_name(date: str, number: int) -> str:
    """Return the name of a day's round; 0 is the day itself."""
    return f"{date}{MARK}{number}" if number else date


def split_round(name: str) -> tuple[str, int]:
    """Return the date and the number of the round."""
    date, _, number = name.partition(MARK)
    return date, int(number) if number else 0


def is_round(name: str) -> bool:
    """Return whether the name is that of a rerun, and not of the day itself."""
    return MARK in name


def rerun_window(counts: Sequence[int], rate_gaps_ms: Sequence[int], *, room_ms: int, now_ms: int) -> Window:
    """Return a window that begins now and is as long as the provider with the most runs needs.

    ``counts`` and ``rate_gaps_ms`` are by provider; ``room_ms`` is the time into which many runs are squeezed, as far
    as the rates allow.
    """
    needed_ms = max((count * GAP_MS for count in counts), default=GAP_MS)
    least_ms = max((count * gap_ms for count, gap_ms in zip(counts, rate_gaps_ms, strict=True)), default=1)
    return Window(now_ms, now_ms + max(min(needed_ms, room_ms), least_ms, sum(counts), 1))


def place_again(runs: Sequence[Again], window: Window) -> Placements:
    """Place each provider's runs in their old order, evenly over the window, as a day is."""
    page = no_placements()
    by_provider: dict[int, list[Again]] = {}
    for run in sorted(runs):
        by_provider.setdefault(run.provider, []).append(run)
    slots = assign_slots([len(mine) for mine in by_provider.values()])
    for (provider, mine), own in zip(by_provider.items(), slots, strict=True):
        page.records.extend(run.record for run in mine)
        page.providers.extend(array("q", [provider]) * len(mine))
        page.dues_ms.extend(dues_ms(own, len(runs), start_ms=window.start_ms, end_ms=window.end_ms))
    return page

"""Views of the batches' running days: how far each is, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.core.batches.batch import Batch, Day, day_at
from paceline.core.batches.calls import CallState
from paceline.core.batches.progress import day_progress
from paceline.core.instants import to_text
from paceline.ports import BatchStore
from paceline.steps.views.days import DaySummary, day_summary, totals_of
from paceline.steps.views.eta import EtaView

_LEFT: tuple[CallState, ...] = ("waiting", "out", "retry", "aside")


class RunningDay(DaySummary, frozen=True):
    """Progress of a batch's current day, which is the day whose window began last.

    ``planned``: number of runs that should have started by now. ``behind``: how many of them have not ended. ``eta``:
    when the last run ends, if nothing delays it; null if all runs have ended or the batch is paused.
    """

    runs: int
    totals: dict[CallState, int]
    planned: int
    behind: int
    paused: bool
    eta: EtaView | None


def running_days(store: BatchStore, batches: Sequence[Batch], *, now_ms: int) -> list[RunningDay]:
    """Return the running days of the batches that have one. Each reads the day's part of the ledger once."""
    found = ((batch, store.day(batch, day_at(batch.spec, now_ms).isoformat())) for batch in batches)
    return [_running_day(store, batch, day, now_ms=now_ms) for batch, day in found if day is not None]


def _running_day(store: BatchStore, batch: Batch, day: Day, *, now_ms: int) -> RunningDay:
    totals = totals_of(store.day_counts(day))
    runs, left = sum(totals.values()), sum(totals[state] for state in _LEFT)
    progress = day_progress(runs=runs, left=left, start_ms=day.start_ms, end_ms=day.end_ms, now_ms=now_ms)
    ends = None if batch.spec.paused else progress.ends_ms
    return RunningDay(
        **msgspec.structs.asdict(day_summary(day)),
        runs=runs,
        totals=totals,
        planned=progress.planned,
        behind=progress.behind,
        paused=batch.spec.paused,
        eta=None if ends is None else EtaView(*map(to_text, ends)),
    )

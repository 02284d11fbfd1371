"""Folding: outcomes of monitors are added to roll-ups, which stay when the runs are deleted."""

from __future__ import annotations

from paceline.core.monitors.values import FoldReport
from paceline.ports import Store

RUNS_MAX = 2_000
"""Approximate number of runs in one pass: some 15 ms on a file.

Callers repeat passes with pauses while there is more.
"""


def fold_runs(store: Store, *, limit: int = RUNS_MAX) -> FoldReport:
    """Make one bounded pass. The purge folds outcomes that are left before it deletes their runs."""
    return store.fold_runs(limit=limit)

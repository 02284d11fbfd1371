"""Retention: delete old runs and end runs that were never claimed, so that the store does not grow for ever."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.monitors.values import PurgeReport
from paceline.ports import BatchStore, JobStore, Store

RUNS_MAX = 2_000
"""Maximum number of runs in one pass: some 20 ms on a file. Callers repeat passes with pauses while there is more."""
CALLS_MAX = 5_000
MEASUREMENTS_MAX = 1_000
"""Maximum number of measurements in one pass: fewer, because each has a dozen postings, and other writers wait."""


class PurgeWalk(NamedTuple):
    """Position in the batches' ledger and in removed records, and the numbers deleted so far.

    None: that part is done.
    """

    run: int | None = -1
    record: int | None = -1
    runs_deleted: int = 0
    records_deleted: int = 0

    @property
    def over(self) -> bool:
        return self.run is None and self.record is None


def purge(store: Store, *, keep_ms: int, expire_ms: int, now_ms: int, limit: int = RUNS_MAX) -> PurgeReport:
    """Make one bounded pass; ``keep_ms`` is for settled runs, ``expire_ms`` for waiting ones."""
    return store.purge(settled_before_ms=now_ms - keep_ms, due_before_ms=now_ms - expire_ms, now_ms=now_ms, limit=limit)


def purge_calls(
    store: BatchStore, walk: PurgeWalk, *, keep_ms: int, dead_keep_ms: int, now_ms: int, limit: int = CALLS_MAX
) -> PurgeWalk:
    """Make one bounded pass over the batches' runs, or then over removed records that no run names any more."""
    if walk.run is not None:
        done = store.purge_calls(
            ended_before_ms=now_ms - keep_ms,
            dead_before_ms=now_ms - max(keep_ms, dead_keep_ms),
            after=walk.run,
            limit=limit,
        )
        return walk._replace(run=done.after, runs_deleted=walk.runs_deleted + done.deleted)
    if walk.record is not None:
        done = store.purge_records(after=walk.record)
        return walk._replace(record=done.after, records_deleted=walk.records_deleted + done.deleted)
    return walk


def purge_jobs(store: JobStore, *, keep_ms: int, now_ms: int, limit: int = MEASUREMENTS_MAX) -> int:
    """Make one bounded pass over jobs that finished long ago. Return how many measurements were deleted."""
    return store.purge_jobs(finished_before_ms=now_ms - keep_ms, limit=limit)

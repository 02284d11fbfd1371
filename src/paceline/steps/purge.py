"""Old runs are deleted and runs that nobody claimed are ended, so that the store does not grow for ever."""

from __future__ import annotations

from typing import NamedTuple

from paceline.ports import BatchStore, JobStore, PurgeReport, Store

RUNS_MAX = 2_000
"""At once: some 20 ms on a file. Whoever calls makes one pass after the other while there is more, with pauses."""
CALLS_MAX = 5_000
MEASUREMENTS_MAX = 1_000
"""Each has a dozen postings, and nobody else writes meanwhile."""


class Walk(NamedTuple):
    """How far the walk through the batches' ledger and through removed records has come, and what it deleted so far.

    None: that part has been walked through.
    """

    run: int | None = -1
    record: int | None = -1
    runs_deleted: int = 0
    records_deleted: int = 0

    @property
    def over(self) -> bool:
        return self.run is None and self.record is None


def purge(store: Store, *, keep_ms: int, expire_ms: int, now_ms: int, limit: int = RUNS_MAX) -> PurgeReport:
    """One bounded pass; ``keep_ms`` for settled runs, ``expire_ms`` for waiting ones."""
    return store.purge(settled_before_ms=now_ms - keep_ms, due_before_ms=now_ms - expire_ms, now_ms=now_ms, limit=limit)


def purge_calls(
    store: BatchStore, walk: Walk, *, keep_ms: int, dead_keep_ms: int, now_ms: int, limit: int = CALLS_MAX
) -> Walk:
    """One bounded pass over the batches' runs, and then over removed records that no run names any more."""
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
    """One bounded pass over jobs that finished long ago; how many measurements were deleted."""
    return store.purge_jobs(finished_before_ms=now_ms - keep_ms, limit=limit)

"""Deletion of a batch as a whole: at once for all readers, and pass by pass in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from paceline.core.batches.batch import Batch, Deletion
from paceline.core.batches.deletion import PASS_ROWS, DeletePass
from paceline.errors import NotFound
from paceline.ports import BatchStore
from paceline.steps.batches.plan import all_batches

PASSES_MAX = 1_000_000


class Deleting(NamedTuple):
    """Result of a round over all batches that are being deleted. ``gone``: names of those that no longer exist."""

    runs: int
    records: int
    gone: list[str]
    more: bool
    """True if another round can delete more at once; else the batches that are left wait for runs that are out."""


def delete_batch(store: BatchStore, batch_id: str, *, now_ms: int) -> Batch | None:
    """Mark the batch deleted, so that none of its runs starts, and make the first pass. None: nothing is left."""
    batch = store.mark_batch_deleted(batch_id, now_ms=now_ms)
    if batch is None:
        raise NotFound(f"There is no batch {batch_id!r}.")
    done = store.delete_batch_pass(batch, now_ms=now_ms, limit=PASS_ROWS)
    return None if done.over else store.batch(batch_id)


def delete_all_of(
    store: BatchStore, batch_id: str, *, read_ms: Callable[[], int], progress: Callable[[Deletion], None]
) -> Batch | None:
    """Delete a batch pass by pass, as long as a pass finds something to delete.

    Return the batch if some of it is left.
    """
    batch = delete_batch(store, batch_id, now_ms=read_ms())
    for _ in range(PASSES_MAX):
        if batch is None or batch.deleting is None:
            return None
        progress(batch.deleting)
        done = store.delete_batch_pass(batch, now_ms=read_ms(), limit=PASS_ROWS)
        if done.over:
            return None
        batch = store.batch(batch_id)
        if not done.runs and not done.records:
            break
    return batch


def go_on_deleting(store: BatchStore, *, now_ms: int, limit: int = PASS_ROWS) -> Deleting:
    """Make one bounded pass for each batch that is being deleted."""
    runs, records, more = 0, 0, False
    gone: list[str] = []
    for batch in all_batches(store):
        if batch.deleting is None:
            continue
        done: DeletePass = store.delete_batch_pass(batch, now_ms=now_ms, limit=limit)
        runs, records = runs + done.runs, records + done.records
        if done.over:
            gone.append(batch.id)
        more = more or (not done.over and done.runs + done.records > 0)
    return Deleting(runs, records, gone, more)

"""Deletion of a batch in bounded passes: its runs first, then its records, then the batch itself."""

from __future__ import annotations

from typing import NamedTuple

from paceline.errors import NotFound

PASS_ROWS = 5_000
"""Number of runs and records deleted in one pass, so that other writers come in between."""
GRACE_MS = 60_000
"""Time after the mark until days and records are deleted, for a store whose writers may not have seen the mark.

After this time every writer has seen the mark or has ended.
"""


class DeletePass(NamedTuple):
    """Counts of one pass of a deletion. ``over``: nothing is left, not even the batch."""

    runs: int
    records: int
    over: bool


def no_batch(batch: str) -> NotFound:
    return NotFound(f"There is no batch {batch!r}, or it is being deleted.")


def is_let_finish(state: str, at_ms: int, *, now_ms: int) -> bool:
    """Return whether a run is out with a worker. It stays until it is settled, or its lease has ended at ``at_ms``."""
    return state == "out" and at_ms > now_ms

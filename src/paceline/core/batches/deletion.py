"""A batch is deleted whole, in bounded passes: its runs first, then its records, then the batch itself."""

from __future__ import annotations

from typing import NamedTuple

from paceline.errors import NotFound

PASS_ROWS = 5_000
"""Of runs and records in one pass: other writers come in between."""
GRACE_MS = 60_000
"""Where a page of records and a deletion are no one act: so long after the mark all have seen it, or have ended."""


class DeletePass(NamedTuple):
    """What a pass has deleted. ``over``: nothing is left, not even the batch."""

    runs: int
    records: int
    over: bool


def no_batch(batch: str) -> NotFound:
    return NotFound(f"There is no batch {batch!r}, or it is being deleted.")


def is_let_finish(state: str, at_ms: int, *, now_ms: int) -> bool:
    """Whether a run is out with somebody: it stays until it is settled, or its lease has ended at ``at_ms``."""
    return state == "out" and at_ms > now_ms

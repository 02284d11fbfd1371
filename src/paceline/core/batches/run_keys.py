"""Integers that name a batch's runs: one by provider and due time, its place in the queue; one by day and record.

``queue_key``  22 bits provider, 40 bits milliseconds since 2026: rises with the due time among one provider's runs
``run_key``    31 bits day, 31 bits record: the run's name in the ledger, the same for ever
"""

from __future__ import annotations

EPOCH_MS = 1_767_225_600_000
"""2026-01-01: counted from here, 40 bits of milliseconds last for 34 years."""
TIME_BITS = 40
TIME_MASK = (1 << TIME_BITS) - 1
RECORD_BITS = 31
RECORD_MASK = (1 << RECORD_BITS) - 1
NEVER_MS = 1 << 60
"""Later than every time: nothing is due until somebody writes something."""


def queue_key(provider: int, due_ms: int) -> int:
    """Return a run's place in its queue, also its handle while it is out.

    A time that 40 bits do not cover is moved to their edge.
    """
    return provider << TIME_BITS | min(max(due_ms - EPOCH_MS, 0), TIME_MASK)


def provider_of(key: int) -> int:
    return key >> TIME_BITS


def due_ms_of(key: int) -> int:
    return (key & TIME_MASK) + EPOCH_MS


def provider_bounds(provider: int) -> tuple[int, int]:
    """Return the queue keys of a provider as a range: the first, and the one after the last."""
    return provider << TIME_BITS, (provider + 1) << TIME_BITS


def run_key(day: int, record: int) -> int:
    return day << RECORD_BITS | record


def day_bounds(day: int) -> tuple[int, int]:
    """Return the run keys of a day as a range: the first, and the one after the last."""
    return day << RECORD_BITS, (day + 1) << RECORD_BITS

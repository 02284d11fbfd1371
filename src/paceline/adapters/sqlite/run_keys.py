"""Integer keys of batches' runs: k by provider and due time, and the run's own name in the ledger."""

from __future__ import annotations

from paceline.adapters.sqlite.keys import EPOCH_MS

TIME_BITS = 40
TIME_MASK = (1 << TIME_BITS) - 1
RECORD_BITS = 31
RECORD_MASK = (1 << RECORD_BITS) - 1
NEVER_MS = 1 << 60


def queue_key(provider: int, due_ms: int) -> int:
    """A due time outside the years that keys cover is moved to their edge."""
    return provider << TIME_BITS | min(max(due_ms - EPOCH_MS, 0), TIME_MASK)


def provider_of(k: int) -> int:
    return k >> TIME_BITS


def due_ms_of(k: int) -> int:
    return (k & TIME_MASK) + EPOCH_MS


def provider_bounds(provider: int) -> tuple[int, int]:
    """The keys of a provider: from the first, to before the second."""
    return provider << TIME_BITS, (provider + 1) << TIME_BITS


def run_key(day: int, record: int) -> int:
    return day << RECORD_BITS | record


def day_bounds(day: int) -> tuple[int, int]:
    """The runs of a day in the ledger: from the first, to before the second."""
    return day << RECORD_BITS, (day + 1) << RECORD_BITS

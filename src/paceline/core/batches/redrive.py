"""Redriving of dead letters: the provider each goes to, and how far apart the runs are due."""

from __future__ import annotations

from collections.abc import Container

from paceline.core.batches.provider import Policy
from paceline.core.batches.run_keys import EPOCH_MS

REDRIVEN = "redriven"
CHUNK_ROWS = 1_000
"""Number of dead letters that are read at a time."""
DAYS_MAX = 20_000
"""Bound on a batch's days, more than it can have."""
BEYOND = 1 << 62
"""Key beyond the keys of all providers."""


def redrive_target(*, sent: int, named: int | None, unknown: bool, there: Container[int | None]) -> int | None:
    """Return the provider to which a dead letter goes back; None: it stays a dead letter.

    A run that may have arrived (``unknown``) stays with the provider to which it was ``sent``. Others go to the
    provider that the record names now; ``named`` is None if the record was deleted. Only providers that still exist
    (``there``) can be called.
    """
    wanted = (sent, named, sent) if unknown else (named, sent)
    return next((provider for provider in wanted if provider is not None and provider in there), None)


def redrive_gap_ms(gap_ms: int, policy: Policy) -> int:
    """Return the gap between redriven runs: as asked for, or as the provider's rate allows."""
    return max(gap_ms, -(-policy.rate_gap_us // 1_000), 1)


def redrive_dues_ms(count: int, *, gap_ms: int, redriven_ms: int, now_ms: int) -> list[int]:
    """Return due times from now on, after the runs redriven earlier at this provider, which end at ``redriven_ms``."""
    begin_ms = max(now_ms, redriven_ms, EPOCH_MS)
    return [begin_ms + index * gap_ms for index in range(count)]


def asks_first(policy: Policy, *, unknown: bool) -> bool:
    """Return whether the provider is asked before a run that may have arrived is sent again."""
    return unknown and policy.unknown == "look_up"

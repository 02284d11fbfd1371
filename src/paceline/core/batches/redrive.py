"""Where a dead letter goes when a person sends it again, and how far apart such runs are due."""

from __future__ import annotations

from collections.abc import Container

from paceline.core.batches.provider import Policy
from paceline.core.batches.run_keys import EPOCH_MS

REDRIVEN = "redriven"
CHUNK_ROWS = 1_000
"""Dead letters are read in chunks of so many."""
DAYS_MAX = 20_000
"""More days than a batch can have."""
BEYOND = 1 << 62
"""Beyond the keys of all providers."""


def redrive_target(*, sent: int, named: int | None, unknown: bool, there: Container[int | None]) -> int | None:
    """The provider to which a dead letter goes back; None: it stays a dead letter.

    What may have arrived (``unknown``) stays with the provider to which it was ``sent``. What has not goes to the
    provider that its record names now; ``named`` is None if the record was deleted. Only providers that are ``there``
    still can be called.
    """
    wanted = (sent, named, sent) if unknown else (named, sent)
    return next((provider for provider in wanted if provider is not None and provider in there), None)


def redrive_gap_ms(gap_ms: int, policy: Policy) -> int:
    """As far apart as was asked for, or as the provider's rate allows."""
    return max(gap_ms, -(-policy.rate_gap_us // 1_000), 1)


def redrive_dues_ms(count: int, *, gap_ms: int, redriven_ms: int, now_ms: int) -> list[int]:
    """Due times from now on, behind what was redriven at this provider before, which ends at ``redriven_ms``."""
    begin_ms = max(now_ms, redriven_ms, EPOCH_MS)
    return [begin_ms + index * gap_ms for index in range(count)]


def asks_first(policy: Policy, *, unknown: bool) -> bool:
    """Whether the provider is asked before the run is sent again, as a person has decided: only if it can be asked."""
    return unknown and policy.unknown == "look_up"

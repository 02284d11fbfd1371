"""Replies of RIPE Atlas to questions about measurements, credits and keys."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.jobs.atlas import Lost, Refused

Unanswered = Refused | Lost
"""A refusal, or no readable answer; in the second case the question can be asked again."""


class ListedMeasurement(NamedTuple):
    """A measurement as RIPE's lists show it, some seconds late."""

    id: int
    status: int
    description: str = ""
    tags: tuple[str, ...] = ()
    stop_s: int | None = None
    """Actual or planned end, in seconds since 1970."""
    scheduled: int | None = None
    """Number of probes that take part; None or 0 before it has begun."""
    credits_per_result: int | None = None
    """RIPE's own price. Whether that of a one-off includes the factor 2 is not known."""
    results_per_day: int | None = None


class Credits(NamedTuple):
    """Credits of an account as RIPE tells them.

    RIPE books in batches, hours late, so the real spending is at least what RIPE says.
    """

    balance: int
    spent_day: int
    results_day: int
    limit_day: int | None = None


class Stopped(NamedTuple):
    """RIPE accepted the order to stop."""


class Delivered(NamedTuple):
    """Number of results; ``whole`` is False if there are more than were asked for."""

    results: int
    bytes: int
    whole: bool


class KeyCheck(NamedTuple):
    """Result of testing a key.

    ``problems`` names what the key lacks, and is empty if it can be used. ``words`` are RIPE's own. ``unverified``
    names permissions that it needs and that could not be tested: RIPE shows them only to keys that may list keys.
    """

    problems: tuple[str, ...]
    words: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

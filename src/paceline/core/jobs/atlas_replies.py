"""What RIPE Atlas replies to questions about measurements, credits and keys."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.jobs.atlas import Lost, Refused

Unanswered = Refused | Lost
"""RIPE said no, and whom that concerns; or no answer came that can be read, and the question can be asked again."""


class Listed(NamedTuple):
    """A measurement as RIPE's lists show it, some seconds late."""

    id: int
    status: int
    description: str = ""
    tags: tuple[str, ...] = ()
    stop_s: int | None = None
    """When it ended or is to end, in seconds since 1970."""
    scheduled: int | None = None
    """How many probes were given the work; None or 0 before it has begun."""
    credits_per_result: int | None = None
    """RIPE's own price. Whether a one-off's has the factor 2 in it is not known."""
    results_per_day: int | None = None


class Credits(NamedTuple):
    """RIPE books in batches, hours late: what it says was spent is the least that was."""

    balance: int
    spent_day: int
    results_day: int
    limit_day: int | None = None


class Stopped(NamedTuple):
    """RIPE took the order to stop."""


class Delivered(NamedTuple):
    """How many results there were; ``whole`` is False if there are more than were asked for."""

    results: int
    bytes: int
    whole: bool


class KeyCheck(NamedTuple):
    """``problems`` names what the key lacks, and is empty if it can be used. ``words`` are RIPE's own.

    ``unverified`` names what it needs and could not be tried: RIPE shows it only to keys that may list keys.
    """

    problems: tuple[str, ...]
    words: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

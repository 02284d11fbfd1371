"""How often a monitor fires, counted so that a user's monitors can be added up and compared with a limit."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from paceline.core.monitors.cron import next_cron_ms
from paceline.core.monitors.definition import MonitorSpec, duration_ms

UNIT = 1_000_000
"""Loads are counted in millionths of a firing a second, so that also rare ones count and sums are exact."""
_SINCE_MS = 1_767_571_200_000  # Monday, 5 January 2026: far from the days on which clocks change
_LOOKED_AT = 64


def load_of(spec: MonitorSpec) -> int:
    """Millionths of a firing a second; none while it is paused. Cron counts by the shortest gap it usually has."""
    if spec.paused:
        return 0
    if spec.every is not None:
        return UNIT * 1_000 // duration_ms(spec.every)
    assert spec.cron is not None
    return UNIT * 1_000 // _cron_gap_ms(spec.cron, spec.timezone)


def exceeds(load: int, *, before: int, firings_per_second_max: int) -> bool:
    """Whether a user's load would be more than allowed. What makes it no larger always fits; 0 is no limit."""
    return 0 < firings_per_second_max * UNIT < load and load > before


def firings_text(load: int) -> str:
    """For people: firings a second."""
    return f"{load / UNIT:.10g}"


@lru_cache(maxsize=4_096)
def _cron_gap_ms(cron: str, timezone: str) -> int:
    times = [_SINCE_MS]
    for _ in range(_LOOKED_AT):
        times.append(next_cron_ms(" ".join(cron.split()), timezone, times[-1]))
    return min(later - sooner for sooner, later in pairwise(times[1:]))

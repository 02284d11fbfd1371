"""Load of a monitor: how often it fires. Loads of a user's monitors are added up and compared with a limit."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from paceline.core.monitors.cron import next_cron_ms
from paceline.core.monitors.definition import MonitorSpec, duration_ms

UNIT = 1_000_000
"""Unit of loads: millionths of a firing a second, so that rare firings count, too, and sums are exact."""
_SINCE_MS = 1_767_571_200_000  # Monday, 5 January 2026: far from the days on which clocks change
_LOOKED_AT = 64


def load_of(spec: MonitorSpec) -> int:
    """Return the load; 0 while the monitor is paused. Cron counts by its shortest usual gap."""
    if spec.paused:
        return 0
    if spec.every is not None:
        return UNIT * 1_000 // duration_ms(spec.every)
    assert spec.cron is not None
    return UNIT * 1_000 // _cron_gap_ms(spec.cron, spec.timezone)


def exceeds(load: int, *, before: int, firings_per_second_max: int) -> bool:
    """Return whether a user's load would be more than allowed.

    A change that does not increase the load is always allowed; a limit of 0 is none.
    """
    return 0 < firings_per_second_max * UNIT < load and load > before


def firings_text(load: int) -> str:
    """Return the firings a second, for people."""
    return f"{load / UNIT:.10g}"


@lru_cache(maxsize=4_096)
def _cron_gap_ms(cron: str, timezone: str) -> int:
    times = [_SINCE_MS]
    for _ in range(_LOOKED_AT):
        times.append(next_cron_ms(" ".join(cron.split()), timezone, times[-1]))
    return min(later - sooner for sooner, later in pairwise(times[1:]))

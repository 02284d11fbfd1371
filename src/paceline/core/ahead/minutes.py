"""Computation of starts in each minute: monitors by their cadence, calls by their day, sends by free slots.

A firing is in its minute exactly where buckets of a circle do not lie across the edge of a minute: intervals of whole
seconds up to an hour, and of an even number of seconds up to two. A wider bucket counts at its middle, so a firing may
be reported up to half a bucket away: 12 s for a day, 84 s for a week.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from paceline.core.ahead.cadences import MINUTE_MS, CadenceLoad
from paceline.core.monitors.cron import next_cron_ms
from paceline.core.monitors.phases.circle import bucket_count


class Span(NamedTuple):
    """Consecutive minutes; ``first`` is counted from 1970."""

    first: int
    minutes: int

    @property
    def start_ms(self) -> int:
        return self.first * MINUTE_MS

    @property
    def end_ms(self) -> int:
        return (self.first + self.minutes) * MINUTE_MS


class Room(NamedTuple):
    """Free slots of an account now, and those that are expected to be freed: (when, how many), in order of time."""

    account: str
    free: int
    releases: Sequence[tuple[int, int]] = ()


class Sends(NamedTuple):
    """Expected sends of one account in each minute, and how many it could send."""

    account: str
    starts: list[int]
    capacity: list[int]


def firings(load: CadenceLoad, span: Span) -> list[int]:
    """Return how often monitors of one cadence fire in each minute. The work does not grow with their number."""
    return _interval_firings(load, span) if load.every_ms else _cron_firings(load, span)


def firings_cost(load: CadenceLoad, span: Span) -> int:
    """Return about how many steps ``firings`` takes, so that a reader can bound its work."""
    if not load.every_ms:
        return 20 * span.minutes  # each firing of a cron expression is a search
    return span.minutes + len(load.counts) * _laps(load.every_ms, span)


def even_starts(runs: int, *, start_ms: int, end_ms: int, span: Span) -> list[int]:
    """Return the starts in each minute of runs that are spread evenly over a window, as a day of a batch is."""
    window_ms = max(1, end_ms - start_ms)

    def until(minute: int) -> int:
        passed_ms = min(max(0, (span.first + minute) * MINUTE_MS - start_ms), window_ms)
        return -(-runs * passed_ms // window_ms)  # rounded up: the first run starts with the window

    counts = [until(minute) for minute in range(span.minutes + 1)]
    return [after - before for before, after in pairwise(counts)]


def expected_sends(
    waiting: int, rooms: Sequence[Room], *, per_minute_max: int, from_minute: int, span: Span
) -> list[Sends]:
    """Return when waiting measurements will be sent, if slots are freed as expected and nothing else comes.

    A slot that one of these measurements takes is not counted as free again: nobody knows yet how long it will run.
    """
    found = [Sends(room.account, [0] * span.minutes, [0] * span.minutes) for room in rooms]
    free = [room.free for room in rooms]
    releases = [list(reversed(room.releases)) for room in rooms]
    for minute in range(from_minute, span.minutes):
        left = per_minute_max
        for index, one in enumerate(found):
            while releases[index] and releases[index][-1][0] < (span.first + minute + 1) * MINUTE_MS:
                free[index] += releases[index].pop()[1]
            one.capacity[minute] = min(free[index], per_minute_max)
            sent = min(waiting, free[index], left)
            one.starts[minute] = sent
            free[index], left, waiting = free[index] - sent, left - sent, waiting - sent
    return found


def _interval_firings(load: CadenceLoad, span: Span) -> list[int]:
    every_ms = load.every_ms
    if MINUTE_MS % every_ms == 0:
        return [load.monitors * (MINUTE_MS // every_ms)] * span.minutes
    buckets = bucket_count(every_ms)
    places = [((2 * bucket + 1) * every_ms // (2 * buckets), count) for bucket, count in load.counts.items()]
    period = lcm(every_ms, MINUTE_MS) // MINUTE_MS
    if _is_tiled(every_ms, span):
        pattern = [0] * period
        for at_ms, count in places:
            for time_ms in range(at_ms, period * MINUTE_MS, every_ms):
                pattern[time_ms // MINUTE_MS] += count
        return [pattern[(span.first + minute) % period] for minute in range(span.minutes)]
    found, start_ms = [0] * span.minutes, span.start_ms
    for at_ms, count in places:
        for time_ms in range((at_ms - start_ms) % every_ms, span.minutes * MINUTE_MS, every_ms):
            found[time_ms // MINUTE_MS] += count
    return found


def _is_tiled(every_ms: int, span: Span) -> bool:
    """Return whether counting one period is enough.

    This holds if the minutes repeat within the span, or if each monitor fires once in a period.
    """
    return every_ms % MINUTE_MS == 0 or lcm(every_ms, MINUTE_MS) <= span.minutes * MINUTE_MS


def _laps(every_ms: int, span: Span) -> int:
    if MINUTE_MS % every_ms == 0:
        return 0
    reach_ms = lcm(every_ms, MINUTE_MS) if _is_tiled(every_ms, span) else span.minutes * MINUTE_MS
    return -(-reach_ms // every_ms)


def _cron_firings(load: CadenceLoad, span: Span) -> list[int]:
    found = [0] * span.minutes
    counts = sorted(load.counts.items())
    if not counts:
        return found
    at_ms = (span.first - counts[-1][0]) * MINUTE_MS - 1
    while (at_ms := next_cron_ms(load.cron, load.timezone, at_ms)) < span.end_ms:
        minute = at_ms // MINUTE_MS - span.first
        for shift, count in counts:
            if 0 <= minute + shift < span.minutes:
                found[minute + shift] += count
    return found

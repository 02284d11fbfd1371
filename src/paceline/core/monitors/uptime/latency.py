"""Latencies as counts in fixed buckets, so that the counts of several days add up exactly.

Each bucket is 5 % wider than the one before it. A percentile is given as the middle of its bucket, so it is at most 2.5
% off for latencies between 0.1 ms and an hour.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

GROWTH = 1.05
LEAST_MS = 0.1
BUCKETS = 358
"""Number of buckets; the last begins beyond an hour and holds everything above."""
_BOUNDS_MS = [LEAST_MS * GROWTH**index for index in range(BUCKETS)]


class Percentiles(NamedTuple):
    """Percentiles of latency; None: no latency is known."""

    p50: float | None
    p95: float | None
    p99: float | None


bucket_of: Callable[[float], int] = partial(bisect_left, _BOUNDS_MS[:-1])
"""Return the number of a latency's bucket: that of the first upper bound not below it; the last bucket has none."""


def percentiles(counts: Counter[int]) -> Percentiles:
    total = counts.total()
    if not total:
        return Percentiles(None, None, None)
    ranked = sorted(counts.items())
    return Percentiles(*(_at(ranked, -(-total * percent // 100)) for percent in (50, 95, 99)))


def mean_ms(counts: Counter[int]) -> float | None:
    """Return the mean latency, as exact as the buckets are; None: no latency is known."""
    total = counts.total()
    return sum(_middle_ms(bucket) * count for bucket, count in counts.items()) / total if total else None


def _at(ranked: list[tuple[int, int]], rank: int) -> float:
    """Return the latency of this rank, counted from 1."""
    for bucket, count in ranked:
        rank -= count
        if rank <= 0:
            return round(_middle_ms(bucket), 3)
    raise AssertionError("a rank is at most the number of latencies")


def _middle_ms(bucket: int) -> float:
    return _BOUNDS_MS[bucket] * 2 / (1 + GROWTH)

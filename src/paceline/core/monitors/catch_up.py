"""Calendar of missed runs: how many of all monitors together start in each second of a catch-up.

Each second takes a limited number. A run that finds its second full goes to the next free one, and the runs of one
monitor keep their distance. A run that finds no room within the horizon is not made.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence

import msgspec

HORIZON_S = 6 * 3_600
"""Latest start of a missed run, from now on. It also bounds the size of the calendar."""
COUNT_MAX = 65_535


class Calendar(msgspec.Struct, frozen=True):
    """Number of missed runs that start in each second from ``start_s`` on."""

    start_s: int = 0
    counts: bytes = b""
    """Counts in compressed form: long stretches of them are alike."""


def book(
    calendar: Calendar, wanted: Sequence[Sequence[int]], *, per_second: int, now_ms: int
) -> tuple[list[list[int]], Calendar]:
    """Return the start times of the runs of each entry, near the wanted times, and the calendar with them.

    Entries take turns, run by run. An entry may get fewer times than it wanted.
    """
    now_s = now_ms // 1_000
    seconds = _Seconds(_counts(calendar, now_s), min(per_second, COUNT_MAX))
    placed: list[list[int]] = [[] for _ in wanted]
    for turn in range(max(map(len, wanted), default=0)):
        for times, got in zip(wanted, placed, strict=True):
            if turn < len(times) and len(got) == turn:
                gap_ms = times[turn] - times[turn - 1] if turn else 0
                wish_ms = max(times[turn], got[-1] + gap_ms) if got else times[turn]
                if (ms := seconds.take(wish_ms - now_s * 1_000)) is not None:
                    got.append(now_s * 1_000 + ms)
    return placed, Calendar(now_s, zlib.compress(seconds.counts.tobytes(), 1))


class _Seconds:
    """Seconds from now on; a full second points to the next that may be free."""

    def __init__(self, counts: array[int], per_second: int) -> None:
        self.counts = counts
        self._per_second = per_second
        self._next = list(range(HORIZON_S + 1))

    def take(self, wish_ms: int) -> int | None:
        second = self._free(min(max(wish_ms, 0) // 1_000, HORIZON_S))
        if second == HORIZON_S:
            return None
        taken = self.counts[second]
        self.counts[second] = taken + 1
        return max(second * 1_000 + taken * 1_000 // self._per_second, wish_ms)

    def _free(self, second: int) -> int:
        walked = []
        while second < HORIZON_S:
            if self._next[second] == second:
                if self.counts[second] < self._per_second:
                    break
                self._next[second] = second + 1
            walked.append(second)
            second = self._next[second]
        for one in walked:
            self._next[one] = second
        return second


def _counts(calendar: Calendar, now_s: int) -> array[int]:
    """Return the counts from now on.

    A calendar that begins beyond the horizon was written before the clock was set back, and is ignored.
    """
    counts = array("H")
    if calendar.counts and calendar.start_s - now_s < HORIZON_S:
        counts.frombytes(zlib.decompress(calendar.counts))
        ahead = calendar.start_s - now_s
        counts = array("H", [0] * ahead) + counts if ahead > 0 else counts[-ahead:]
    counts = counts[:HORIZON_S]
    counts.extend([0] * (HORIZON_S - len(counts)))
    return counts

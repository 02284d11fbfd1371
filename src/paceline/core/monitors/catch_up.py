"""Calendar of missed runs: how many of all monitors together start in each second of a catch-up.

Each second takes a limited number. A run that finds its second full goes to the next free one, and the runs of one
monitor keep their distance. A run that finds no room within the horizon is not made.

Some seconds are kept for owners who have few runs ahead. So one owner never fills the calendar alone, and an owner with
few missed runs does not wait behind another's thousands.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

HORIZON_S = 6 * 3_600
"""Latest start of a missed run, from now on. It also bounds the size of the calendar."""
COUNT_MAX = 65_535
PUT_OFF_MS = 1_000
"""A run that starts so much later than it would alone was put off for others."""
KEPT_SECONDS = ((25, 10), (5, 500))
"""Every 25th second is for owners with less ahead than fits into 10 seconds, every 5th for less than into 500."""
OWNERS_MAX = 1_000
"""The calendar knows of so many owners how much they have ahead: of those who have most."""
COUNTS_BYTES = 2 * HORIZON_S


class MissedRuns(NamedTuple):
    """Missed runs of one entry: when each would start if there were no other entries.

    ``before_ms``: a run that would be put off to this time or later is not made, since the next firing comes sooner.
    """

    generation: int
    times: Sequence[int]
    before_ms: int | None = None


Ahead = tuple[int, int]
"""How many runs of an owner were booked, and the second in which the last of them starts."""
NONE_AHEAD: Ahead = (0, 0)


class Calendar(msgspec.Struct, frozen=True):
    """Number of missed runs that start in each second from ``start_s`` on, and how many each owner has ahead."""

    start_s: int = 0
    counts: bytes = b""
    """Counts in compressed form: long stretches of them are alike. Behind the counts are the owners, as JSON."""


def book(
    calendar: Calendar, wanted: Sequence[MissedRuns], owners: Sequence[str], *, per_second: int, now_ms: int
) -> tuple[list[list[int]], Calendar]:
    """Return the start times of the runs of each entry, near the wanted times, and the calendar with them.

    ``owners`` has the owner of each entry. Owners take turns with their entries, and entries run by run. An entry may
    get fewer times than it wanted.
    """
    now_s = now_ms // 1_000
    counts, ahead = _unpack(calendar, now_s)
    seconds = _Seconds(counts, per_second=min(per_second, COUNT_MAX), now_s=now_s)
    placed: list[list[int]] = [[] for _ in wanted]
    order = _in_turns(owners)
    for turn in range(max((len(one.times) for one in wanted), default=0)):
        for position in order:
            (_, times, before_ms), got = wanted[position], placed[position]
            if turn < len(times) and len(got) == turn:
                gap_ms = times[turn] - times[turn - 1] if turn else 0
                wish_ms = max(times[turn], got[-1] + gap_ms) if got else times[turn]
                runs, until_s = ahead.get(owners[position], NONE_AHEAD)
                if (ms := seconds.take(wish_ms, runs_ahead=runs, before_ms=before_ms)) is not None:
                    got.append(ms)
                    ahead[owners[position]] = runs + 1, max(until_s, ms // 1_000)
    return placed, Calendar(now_s, _pack(seconds.counts, ahead))


def owners_of(wanted: Sequence[MissedRuns], known: Mapping[int, int]) -> list[str]:
    """Returns the owner of each entry, by the number that ``known`` has for its generation.

    An entry whose monitor is gone counts as an owner by itself.
    """
    return [str(known.get(one.generation, f"#{one.generation}")) for one in wanted]


def _in_turns(owners: Sequence[str]) -> list[int]:
    """Positions of entries: the first entry of each owner, then the second of each, and so on."""
    seen: dict[str, int] = {}
    ranks: list[int] = []
    for owner in owners:
        ranks.append(seen.get(owner, 0))
        seen[owner] = ranks[-1] + 1
    return sorted(range(len(ranks)), key=ranks.__getitem__)


class _Seconds:
    """Seconds from now on. For each class of owners, a second that is full or kept points to the next."""

    def __init__(self, counts: array[int], *, per_second: int, now_s: int) -> None:
        self.counts = counts
        self._per_second = per_second
        self._now_s = now_s
        self._few = [worth_s * per_second for _, worth_s in KEPT_SECONDS]
        self._next: dict[int, list[int]] = {}

    def take(self, wish_ms: int, *, runs_ahead: int, before_ms: int | None) -> int | None:
        """Takes a place in the first free second from the wish on. Returns when the run starts; None: not at all."""
        wish = min(max(wish_ms // 1_000 - self._now_s, 0), HORIZON_S)
        second = self._free(wish, bisect_right(self._few, runs_ahead))
        if second == HORIZON_S:
            return None
        taken = self.counts[second]
        start_ms = max((self._now_s + second) * 1_000 + taken * 1_000 // self._per_second, wish_ms)
        if before_ms is not None and start_ms >= before_ms and start_ms > wish_ms + PUT_OFF_MS:
            return None
        self.counts[second] = taken + 1
        return start_ms

    def _free(self, second: int, kept: int) -> int:
        """``kept``: how many of ``KEPT_SECONDS`` are not for this owner."""
        following = self._next.get(kept) or self._open_to(kept)
        walked = []
        while second < HORIZON_S:
            if following[second] == second:
                if self.counts[second] < self._per_second:
                    break
                following[second] = second + 1
            walked.append(second)
            second = following[second]
        for one in walked:
            following[one] = second
        return second

    def _open_to(self, kept: int) -> list[int]:
        following = self._next[kept] = list(range(HORIZON_S + 1))
        for every, _ in KEPT_SECONDS[:kept]:
            for second in range(-self._now_s % every, HORIZON_S, every):
                following[second] = second + 1
        return following


def _unpack(calendar: Calendar, now_s: int) -> tuple[array[int], dict[str, Ahead]]:
    """Return the counts from now on, and the owners who have runs ahead.

    A calendar that begins beyond the horizon was written before the clock was set back, and is ignored.
    """
    counts = array("H")
    ahead: dict[str, Ahead] = {}
    if calendar.counts and calendar.start_s - now_s < HORIZON_S:
        data = zlib.decompress(calendar.counts)
        counts.frombytes(data[:COUNTS_BYTES])
        if named := data[COUNTS_BYTES:]:  # a calendar of an older version has none
            known = msgspec.json.decode(named, type=dict[str, Ahead])
            ahead = {owner: one for owner, one in known.items() if one[1] >= now_s}
        before_s = calendar.start_s - now_s
        counts = array("H", [0] * before_s) + counts if before_s > 0 else counts[-before_s:]
    counts = counts[:HORIZON_S]
    counts.extend([0] * (HORIZON_S - len(counts)))
    return counts, ahead


def _pack(counts: array[int], ahead: dict[str, Ahead]) -> bytes:
    most = sorted(ahead, key=lambda owner: -ahead[owner][0])[:OWNERS_MAX]
    named = msgspec.json.encode({owner: ahead[owner] for owner in most})
    # An older version reads numbers of two bytes.
    return zlib.compress(counts.tobytes() + named + b" " * (len(named) % 2), 1)

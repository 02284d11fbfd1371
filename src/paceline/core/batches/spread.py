"""Due times of a batch's records: evenly as a whole, evenly for each provider, and the same tomorrow.

A window with n records is a grid of n equal slots, so the whole is even by construction. A provider with m of them is
given one slot in each m-th part of the window: record k gets a slot s with k·n/m <= s < (k+1)·n/m. From this rule alone
follow the bounds, whichever provider gets which slot:

- two neighbours of a provider, also over midnight, are less than two of its ideal gaps apart;
- a record added or removed elsewhere moves a record by less than one gap of its provider, one of the same provider by
  less than two, because its part of the window keeps its share of the time.

Such slots always exist. Of a provider with the share u = m/n of the grid, at most ceil((L+1)·u) - 1 parts lie wholly
inside L neighbouring slots; that is less than (L+1)·u, the shares add up to 1, so at most L parts compete for L slots.
Giving each slot to the part that ends first finds them. Times are whole milliseconds: rounding adds less than one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heappushpop, heapreplace
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from paceline.core.ids import stable_fraction

REPORT_WINDOWS_MAX = 100
REPORT_WIDTHS_MS = (
    *(10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
)
"""Widths of the windows in which reports count runs.

A report takes the smallest that makes at most ``REPORT_WINDOWS_MAX`` windows: a day has quarters of an hour. Planning
does not use these windows.
"""
LOOK_RUNS = 2_048
"""Approximate number of runs that a late record looks at for its gap, so that its cost does not grow with the day."""
_MINUTE_MS = 60_000
_PLACES = 1 << 32
_MIX = 0x45D9F3B
_STEEPNESS = 4
_WHOLE_WEIGHT = 4  # with equal weights, adds and removes in turn have opened gaps of more than four ideal ones


class Evenness(NamedTuple):
    """Evenness of a day. ``ratio`` is the largest gap over the ideal one: 1 is perfect; 0 if there are no runs."""

    runs: int
    ideal_gap_ms: float
    max_gap_ms: int
    ratio: float
    worst_minute_runs: int


class Gap(NamedTuple):
    """Ideal gaps of a day: of all runs together, and of the runs of one provider."""

    whole_ms: float
    provider_ms: float


def assign_slots(counts: Sequence[int]) -> list[array[int]]:
    """Return the slots of each provider in rising order, by its number of records; each slot is used once.

    Parts that end together are served in the order of the providers, so keep that order the same from day to day.
    """
    total = sum(counts)
    if max(counts, default=0) == total:  # one provider, or none
        return [array("I", range(count)) for count in counts]
    slots = [array("I") for _ in counts]
    give = [mine.append for mine in slots]
    # A part is one number: its end, then its provider. The heap holds the parts that have begun; the others wait for
    # the slot in which they begin, which is where the provider's previous part ends. So both stay small.
    bits = len(counts).bit_length()
    mask = (1 << bits) - 1
    begun = [-(-total // count) << bits | provider for provider, count in enumerate(counts) if count]
    heapify(begun)
    waiting: dict[int, int | list[int]] = {}
    next_ends = [2 * total + count - 1 for count in counts]  # times count, rounded up: the end of the next part
    for slot in range(total):
        new = waiting.pop(slot, None)
        if new is None:
            part = heappop(begun)
        elif isinstance(new, int):
            part = heappushpop(begun, new)
        else:
            for one in new:
                heappush(begun, one)
            part = heappop(begun)
        provider = part & mask
        give[provider](slot)
        next_end = next_ends[provider]
        next_ends[provider] = next_end + total
        _wait(waiting, part >> bits, next_end // counts[provider] << bits | provider)
    return slots


def _wait(waiting: dict[int, int | list[int]], slot: int, part: int) -> None:
    """Let a part wait for its slot. Most slots begin one part: a number alone is cheaper than a list of one."""
    others = waiting.get(slot)
    if others is None:
        waiting[slot] = part
    elif isinstance(others, int):
        waiting[slot] = [others, part]
    else:
        others.append(part)


def dues_ms(slots: Sequence[int], n: int, *, start_ms: int, end_ms: int) -> array[int]:
    """Return the due times of one provider: when its slots begin.

    They are strictly rising if the window has a millisecond for each of the batch's n records. The window's end is slot
    0 of a window that follows directly: midnight is no gap.
    """
    window_ms = end_ms - start_ms
    return array("q", [start_ms + slot * window_ms // n for slot in slots])


def place_of(batch: str, record: str) -> int:
    """Return a record's place among its provider's records: a 32-bit hash of its name.

    Records that come and go do so all over the day, so that m others shift a record by about the square root of m gaps,
    where an order by name would shift it by up to m.
    """
    return places_of(batch, (record,))[0]


def places_of(batch: str, records: Iterable[str]) -> list[int]:
    """Return the places of many records of a batch."""
    begun = crc32(f"{batch}/".encode("utf-8", "surrogatepass"))
    hashes = [crc32(record.encode("utf-8", "surrogatepass"), begun) for record in records]
    # Mix the bits, so that names that differ in one digit get distant places.
    mixed = [(place ^ place >> 16) * _MIX % _PLACES for place in hashes]
    return [place ^ place >> 16 for place in mixed]


def jitter_ms(batch: str, record: str, *, jitter_ms_max: int) -> int:
    """Return the record's own delay, from 0 to less than the maximum: the same every day."""
    return int(stable_fraction(f"jitter:{batch}/{record}") * jitter_ms_max)


def jittered_ms(due_ms: int, next_ms: int, *, batch: str, record: str, jitter_ms_max: int) -> int:
    """Return a run's due time with its jitter, before ``next_ms``: the provider's next run, or the window's end.

    A longer jitter is cut to the distance to ``next_ms``. So no neighbour is overtaken, and no two are three ideal gaps
    apart.
    """
    return due_ms + jitter_ms(batch, record, jitter_ms_max=min(jitter_ms_max, next_ms - due_ms))


def stretch(place: int, *, start_ms: int, end_ms: int, runs: int, look_runs: int = LOOK_RUNS) -> tuple[int, int]:
    """Return the part of the rest of a window, with ``runs`` left in it, in which a late record looks for a gap.

    Places are spread evenly, so all parts of the rest get their share of the additions.
    """
    rest_ms = end_ms - start_ms
    if runs <= look_runs:
        return start_ms, end_ms
    width_ms = max(1, rest_ms * look_runs // runs)
    middle_ms = start_ms + (place * rest_ms >> 32)
    from_ms = min(max(start_ms, middle_ms - width_ms // 2), end_ms - width_ms)
    return from_ms, from_ms + width_ms


def fill_gaps(
    whole_ms: Sequence[int], provider_ms: Sequence[int], *, start_ms: int, end_ms: int, count: int, gap: Gap
) -> list[int]:
    """Return rising due times for ``count`` more records of one provider strictly between start and end.

    No other run moves. ``whole_ms`` are the sorted due times of all runs between start and end, ``provider_ms`` those
    of the provider, and may go beyond: its nearest runs before and after count. Each addition halves the gap of the
    whole where that evens out most, for the whole and for the provider. Fewer than ``count`` come back if there is no
    free millisecond left.
    """
    if not whole_ms:
        count = min(count, end_ms - start_ms - 1)
        return [start_ms + (index + 1) * (end_ms - start_ms) // (count + 1) for index in range(count)]
    mine = _Mine(provider_ms, start_ms=start_ms, end_ms=end_ms, gap=gap)
    offers = [mine.offer(left, right) for left, right in pairwise((start_ms, *whole_ms, end_ms)) if right - left > 1]
    heapify(offers)
    found: list[int] = []
    while offers and len(found) < count:
        left, right = offers[0][2:]
        offer = mine.offer(left, right)
        if offer != offers[0]:  # the provider has a new run close by, which can only make an offer worse
            heapreplace(offers, offer)
            continue
        heappop(offers)
        middle = (left + right) // 2
        found.append(middle)
        mine.add(middle)
        for half in ((left, middle), (middle, right)):
            if half[1] - half[0] > 1:
                heappush(offers, mine.offer(*half))
    return sorted(found)


class _Mine:
    """Runs of one provider, by which the gaps of the whole are judged."""

    def __init__(self, provider_ms: Sequence[int], *, start_ms: int, end_ms: int, gap: Gap) -> None:
        self._dues_ms = list(provider_ms)
        # Runs beyond an edge are not known; one is to be expected half an ideal gap away.
        self._before_ms = start_ms - gap.provider_ms / 2
        self._after_ms = end_ms + gap.provider_ms / 2
        self._gap = gap

    def add(self, due_ms: int) -> None:
        insort(self._dues_ms, due_ms)

    def offer(self, left_ms: int, right_ms: int) -> tuple[float, int, int, int]:
        """Return a sortable offer; the smallest is the best.

        Its first part is by how much halving this gap lowers the sum of all gaps' fourth powers. Gaps are counted in
        ideal ones, those of the whole weighted, beside those of the provider. The power makes the largest gaps go
        first, and a place that serves both win over one that serves one of them.
        """
        middle_ms = (left_ms + right_ms) // 2
        index = bisect_left(self._dues_ms, middle_ms)
        before_ms = self._dues_ms[index - 1] if index else self._before_ms
        after_ms = self._dues_ms[index] if index < len(self._dues_ms) else self._after_ms
        gained = _WHOLE_WEIGHT * _gain(left_ms, middle_ms, right_ms, self._gap.whole_ms)
        gained += _gain(before_ms, middle_ms, after_ms, self._gap.provider_ms)
        # Equal gaps are taken from all over the day, not from its beginning.
        return -gained, left_ms * _MIX % _PLACES, left_ms, right_ms


def _gain(before_ms: float, middle_ms: int, after_ms: float, ideal_ms: float) -> float:
    whole, first = (after_ms - before_ms) / ideal_ms, (middle_ms - before_ms) / ideal_ms
    return whole**_STEEPNESS - first**_STEEPNESS - (whole - first) ** _STEEPNESS


def evenness(dues_ms: Iterable[int], *, start_ms: int, end_ms: int) -> Evenness:
    """Return the figures of sorted due times, in one pass.

    The time from the last run to the first run of a next such window is a gap, too.
    """
    runs = max_gap_ms = worst = in_minute = 0
    first_ms = before_ms = start_ms
    minute = -1
    for due_ms in dues_ms:
        if not runs:
            first_ms = before_ms = due_ms
        runs += 1
        max_gap_ms = max(max_gap_ms, due_ms - before_ms)
        before_ms = due_ms
        if (now := (due_ms - start_ms) // _MINUTE_MS) != minute:
            minute, in_minute = now, 0
        in_minute += 1
        worst = max(worst, in_minute)
    window_ms = end_ms - start_ms
    if not runs:
        return Evenness(0, float(window_ms), window_ms, 0.0, 0)
    max_gap_ms = max(max_gap_ms, first_ms + window_ms - before_ms)
    return Evenness(runs, window_ms / runs, max_gap_ms, max_gap_ms * runs / window_ms, worst)


def report_width_ms(*, start_ms: int, end_ms: int) -> int:
    """Return the width of a report's windows that fits the length of a day."""
    fitting = (width_ms for width_ms in REPORT_WIDTHS_MS if (end_ms - start_ms) <= width_ms * REPORT_WINDOWS_MAX)
    return next(fitting, max(REPORT_WIDTHS_MS[-1], -(-(end_ms - start_ms) // REPORT_WINDOWS_MAX)))


def windows(dues_ms: Iterable[int], *, start_ms: int, end_ms: int, width_ms: int) -> list[int]:
    """Return how many runs are due in each window; runs outside count in the first or the last."""
    counted = [0] * max(1, -(-(end_ms - start_ms) // width_ms))
    last = len(counted) - 1
    for due_ms in dues_ms:
        counted[min(max((due_ms - start_ms) // width_ms, 0), last)] += 1
    return counted

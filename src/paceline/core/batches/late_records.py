"""Due times of late records: they go into the rest of the day, and no other run moves."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from paceline.core.batches.batch import Day, Window
from paceline.core.batches.day_plan import PAGE_RUNS, no_placements
from paceline.core.batches.spread import Gap, assign_slots, dues_ms, fill_gaps, stretch
from paceline.core.batches.values import LateRecord, Placements, PlanOrder

FEW = 64
"""Number of late records up to which each looks for a gap. More are spread evenly over the rest of the day."""
LOOK_MAX = 4_096
"""Maximum number of due times that a late record looks at for its gap."""
GOLDEN = (5**0.5 - 1) / 2
SILVER = 2**0.5 - 1


def rest_of(day: Day, *, now_ms: int) -> Window:
    """Return the rest of a day's window; one millisecond if nothing is left."""
    return Window(max(now_ms, day.start_ms), max(day.end_ms, now_ms + 1))


def part_for(record: LateRecord, day: Day, *, now_ms: int) -> Window:
    """Return the part of the rest of the day in which a late record looks for its gap."""
    rest = rest_of(day, now_ms=now_ms)
    runs = day.enqueued * (rest.end_ms - rest.start_ms) // (day.end_ms - day.start_ms)
    return Window(*stretch(record.place, start_ms=rest.start_ms, end_ms=rest.end_ms, runs=runs))


def around(part: Window, *, cut_ms: int) -> Window:
    """Return the window in which to look for the nearest runs of a provider that has too many in the whole rest.

    ``cut_ms``: where the look along the part ended.
    """
    width_ms = cut_ms - part.start_ms
    return Window(part.start_ms - width_ms, cut_ms + width_ms)


def gap_for(
    record: LateRecord, part: Window, page: Placements, *, taken: Sequence[int], own: Sequence[int], own_in: Window
) -> int:
    """Return when a late record is due: in the middle of the largest gap of its part, earlier late records included.

    ``taken`` are the due times of all runs in the part, ``own`` those of its provider in ``own_in``, and ``page`` has
    the late records that were placed just now. Without a free millisecond the record is due at the end: the store moves
    it on.
    """
    start_ms, end_ms = part.start_ms, part.end_ms
    whole_ms = list(taken)
    if len(whole_ms) == LOOK_MAX:
        end_ms = whole_ms.pop()
    whole_ms = sorted(whole_ms + [due_ms for due_ms in page.dues_ms if start_ms <= due_ms < end_ms])
    own_gap_ms = (own_in.end_ms - own_in.start_ms) / (len(own) + 1)
    placed = [
        due_ms for provider, due_ms in zip(page.providers, page.dues_ms, strict=True) if provider == record.provider
    ]
    gap = Gap((end_ms - start_ms) / (len(whole_ms) + 1), own_gap_ms)
    found = fill_gaps(whole_ms, sorted([*own, *placed]), start_ms=start_ms, end_ms=end_ms, count=1, gap=gap)
    return found[0] if found else end_ms


def spread_late(order: PlanOrder, day: Day, *, now_ms: int) -> Iterator[Placements]:
    """Yield many late records as a plan of their own over the rest of the day, page by page.

    Records often come in many such lots. Each lot turns its grid by a golden share more than the last, and shifts it by
    part of a slot: so lots fill each other's gaps, for the whole and for each provider, where plain grids would meet.
    """
    total = len(order.records)
    lots = day.enqueued / total
    turn = int(total * (lots * GOLDEN % 1))
    rest = _shifted(rest_of(day, now_ms=now_ms), total, lots * SILVER % 1)
    slots = assign_slots([count for _, count in order.providers])
    first = 0
    page = no_placements()
    for (provider, count), mine in zip(order.providers, slots, strict=True):
        turned = sorted((slot + turn) % total for slot in mine)
        page.records.extend(order.records[first : first + count])
        page.providers.extend(array("q", [provider]) * count)
        page.dues_ms.extend(dues_ms(turned, total, start_ms=rest.start_ms, end_ms=rest.end_ms))
        first += count
        if len(page.records) >= PAGE_RUNS:
            yield from _cut(page)
            page = no_placements()
    yield from _cut(page)


def _cut(page: Placements) -> Iterator[Placements]:
    """Cut a page into pages of ``PAGE_RUNS``, because one provider may have very many records."""
    for first in range(0, len(page.records), PAGE_RUNS):
        yield Placements(*(column[first : first + PAGE_RUNS] for column in page))


def _shifted(rest: Window, total: int, share: float) -> Window:
    """Return the rest of a day with its grid moved by a share of a slot."""
    slot_ms = (rest.end_ms - rest.start_ms) / total
    start_ms = rest.start_ms + int(slot_ms * share)
    return Window(start_ms, start_ms + rest.end_ms - rest.start_ms)

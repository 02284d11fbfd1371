"""Records that come while their batch's day is on are planned into the rest of it; nobody else moves."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from paceline.core.batch import Batch, Day, Window
from paceline.core.spread import Gap, assign_slots, dues_ms, fill_gaps, stretch
from paceline.ports import BatchStore, Newcomer, Placements, PlanOrder
from paceline.steps.day_plan import PAGE_RUNS, no_placements

FEW = 64
"""So many at once look for a gap each. More are spread evenly among themselves over the rest of the day."""
DAYS_MAX = 16
LOOK_MAX = 4_096
GOLDEN = (5**0.5 - 1) / 2
SILVER = 2**0.5 - 1


def plan_newcomers(store: BatchStore, batch: Batch, *, now_ms: int) -> dict[str, int]:
    """How many runs were made, by date, on the days of the batch that are not over."""
    few = store.newcomers(batch, limit=FEW + 1)
    if not few:
        return {}
    days = [day for day in store.days(batch, before=None, limit=DAYS_MAX) if day.end_ms > now_ms]
    planned = [day for day in days if day.state == "planned"]
    if len(few) <= FEW:
        records: Sequence[int] = array("q", [newcomer.record for newcomer in few])
        made = {day.date: _fill(store, day, few, now_ms=now_ms) for day in planned}
    else:
        order = store.newcomer_order(batch)
        records = order.records
        made = {day.date: _spread(store, day, order, now_ms=now_ms) for day in planned}
    if len(planned) == len(days):  # a plan that is under way may not come to them any more: they stay newcomers
        for first in range(0, len(records), PAGE_RUNS):
            store.forget_newcomers(records[first : first + PAGE_RUNS])
    return made


def _fill(store: BatchStore, day: Day, newcomers: Sequence[Newcomer], *, now_ms: int) -> int:
    """Each into the largest gap near its place, with those before it counted in."""
    left = store.unplanned(day, [newcomer.record for newcomer in newcomers])
    page = no_placements()
    for newcomer in newcomers:
        if newcomer.record not in left:
            continue
        due_ms = _gap_ms(store, day, newcomer, page, now_ms=now_ms)
        page.records.append(newcomer.record)
        page.providers.append(newcomer.provider)
        page.dues_ms.append(due_ms)
    return store.plan_newcomers(day, page).enqueued if page.records else 0


def _gap_ms(store: BatchStore, day: Day, newcomer: Newcomer, page: Placements, *, now_ms: int) -> int:
    rest = _rest(day, now_ms=now_ms)
    runs = day.enqueued * (rest.end_ms - rest.start_ms) // (day.end_ms - day.start_ms)
    from_ms, to_ms = stretch(newcomer.place, start_ms=rest.start_ms, end_ms=rest.end_ms, runs=runs)
    whole_ms = store.taken_by_all(day, from_ms=from_ms, to_ms=to_ms, limit=LOOK_MAX)
    if len(whole_ms) == LOOK_MAX:
        to_ms = whole_ms.pop()
    whole_ms = sorted(whole_ms + [due_ms for due_ms in page.dues_ms if from_ms <= due_ms < to_ms])
    own_ms, own_gap_ms = _own(store, newcomer.provider, rest, from_ms=from_ms, to_ms=to_ms)
    pairs = zip(page.providers, page.dues_ms, strict=True)
    own_ms = sorted(own_ms + [due_ms for provider, due_ms in pairs if provider == newcomer.provider])
    gap = Gap((to_ms - from_ms) / (len(whole_ms) + 1), own_gap_ms)
    found = fill_gaps(whole_ms, own_ms, start_ms=from_ms, end_ms=to_ms, count=1, gap=gap)
    return found[0] if found else to_ms  # without a free millisecond left, the next free one after


def _own(store: BatchStore, provider: int, rest: Window, *, from_ms: int, to_ms: int) -> tuple[list[int], float]:
    """The provider's runs around the stretch, and its ideal gap with one more run."""
    own_ms = store.taken(provider, from_ms=rest.start_ms, to_ms=rest.end_ms, limit=LOOK_MAX)
    if len(own_ms) < LOOK_MAX:
        return own_ms, (rest.end_ms - rest.start_ms) / (len(own_ms) + 1)
    width_ms = to_ms - from_ms
    own_ms = store.taken(provider, from_ms=from_ms - width_ms, to_ms=to_ms + width_ms, limit=LOOK_MAX)
    return own_ms, 3 * width_ms / (len(own_ms) + 1)


def _spread(store: BatchStore, day: Day, order: PlanOrder, *, now_ms: int) -> int:
    """All newcomers as a plan of their own over the rest of the day.

    Records often come in many such lots. Each turns its grid by a golden share more than the last, and shifts it by
    part of a slot: so lots fill each other's gaps, for the whole and for each provider, where plain grids would meet.
    """
    rest, total = _rest(day, now_ms=now_ms), len(order.records)
    lots = day.enqueued / total
    turn = int(total * (lots * GOLDEN % 1))
    rest = _shifted(rest, total, lots * SILVER % 1)
    slots = assign_slots([count for _, count in order.providers])
    made = first = 0
    page = no_placements()
    for (provider, count), mine in zip(order.providers, slots, strict=True):
        turned = sorted((slot + turn) % total for slot in mine)
        page.records.extend(order.records[first : first + count])
        page.providers.extend(array("q", [provider]) * count)
        page.dues_ms.extend(dues_ms(turned, total, start_ms=rest.start_ms, end_ms=rest.end_ms))
        first += count
        if len(page.records) >= PAGE_RUNS:
            made += _write(store, day, page)
            page = no_placements()
    return made + _write(store, day, page)


def _shifted(rest: Window, total: int, share: float) -> Window:
    """The rest of a day as seen from its end, which stays where it is, with its grid moved by a share of a slot."""
    slot_ms = (rest.end_ms - rest.start_ms) / total
    start_ms = rest.start_ms + int(slot_ms * share)
    return Window(start_ms, start_ms + rest.end_ms - rest.start_ms)


def _write(store: BatchStore, day: Day, page: Placements) -> int:
    """A provider may have very many, so pages are cut by number all the same."""
    made = 0
    for first in range(0, len(page.records), PAGE_RUNS):
        part = Placements(*(column[first : first + PAGE_RUNS] for column in page))
        made += store.plan_newcomers(day, part).enqueued
    return made


def _rest(day: Day, *, now_ms: int) -> Window:
    return Window(max(now_ms, day.start_ms), max(day.end_ms, now_ms + 1))

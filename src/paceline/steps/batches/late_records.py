"""Planning of late records into the rest of their batch's day, at the times that core.batches.late_records chooses."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.day_plan import PAGE_RUNS, no_placements
from paceline.core.batches.late_records import FEW, LOOK_MAX, around, gap_for, part_for, rest_of, spread_late
from paceline.core.batches.reruns import RERUNS_MAX, is_round
from paceline.core.batches.values import LateRecord, Placements
from paceline.ports import BatchStore

DAYS_MAX = 16


def plan_late_records(store: BatchStore, batch: Batch, *, now_ms: int) -> dict[str, int]:
    """Plan the late records of the batch. Return how many runs were made, by date, on the days that are not over."""
    few = store.late_records(batch, limit=FEW + 1)
    if not few:
        return {}
    newest = store.days(batch, before=None, limit=DAYS_MAX + RERUNS_MAX)
    days = [day for day in newest if day.end_ms > now_ms and not is_round(day.date)]
    planned = [day for day in days if day.state == "planned"]
    if len(few) <= FEW:
        records: Sequence[int] = array("q", [late.record for late in few])
        made = {day.date: _fill(store, day, few, now_ms=now_ms) for day in planned}
    else:
        order = store.late_order(batch)
        records = order.records
        made = {
            day.date: sum(
                store.plan_late_records(day, page).enqueued for page in spread_late(order, day, now_ms=now_ms)
            )
            for day in planned
        }
    if len(planned) == len(days):  # a plan in progress may have passed them: they stay late records
        for first in range(0, len(records), PAGE_RUNS):
            store.forget_late_records(records[first : first + PAGE_RUNS])
    return made


def _fill(store: BatchStore, day: Day, records: Sequence[LateRecord], *, now_ms: int) -> int:
    """Plan each record into the largest gap near its place. Return how many runs were made."""
    left = store.unplanned(day, [late.record for late in records])
    page = no_placements()
    for late in records:
        if late.record in left:
            due_ms = _due_ms(store, day, late, page, now_ms=now_ms)
            page.records.append(late.record)
            page.providers.append(late.provider)
            page.dues_ms.append(due_ms)
    return store.plan_late_records(day, page).enqueued if page.records else 0


def _due_ms(store: BatchStore, day: Day, late: LateRecord, page: Placements, *, now_ms: int) -> int:
    part, own_in = part_for(late, day, now_ms=now_ms), rest_of(day, now_ms=now_ms)
    taken = store.taken(day, from_ms=part.start_ms, to_ms=part.end_ms, limit=LOOK_MAX)
    own = store.taken(late.provider, from_ms=own_in.start_ms, to_ms=own_in.end_ms, limit=LOOK_MAX)
    if len(own) == LOOK_MAX:
        own_in = around(part, cut_ms=taken[-1] if len(taken) == LOOK_MAX else part.end_ms)
        own = store.taken(late.provider, from_ms=own_in.start_ms, to_ms=own_in.end_ms, limit=LOOK_MAX)
    return gap_for(late, part, page, taken=taken, own=own, own_in=own_in)

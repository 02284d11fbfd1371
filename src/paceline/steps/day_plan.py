"""A day's plan as it follows from its records alone, and how far it has come."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from datetime import date

import msgspec

from paceline.core.batch import Batch, BatchSpec, Day, Window, window_of
from paceline.core.durations import parse_duration_ms
from paceline.core.spread import assign_slots, dues_ms, jitter_ms
from paceline.ports import BatchStore, Placements

PAGE_RUNS = 10_000
"""One transaction: short enough that claims in between are not held up."""
LATE_SHARE = 4
"""A plan that begins late has at least a quarter of its window's length to spread over."""
PUNCTUAL_MS, PUNCTUAL_SHARE = 1_000, 1_440
"""Begun within a second, or a minute of a day, a plan is not late: else no record would keep its time."""


def no_placements() -> Placements:
    return Placements(array("q"), array("q"), array("q"))


def plan_window(spec: BatchSpec, day: date, *, now_ms: int) -> Window:
    """The day's window; if it began a while ago, the rest of it, or a quarter of its length if less is left.

    With the policy ``skip`` a late plan keeps its times, and what was missed is skipped.
    """
    window = window_of(spec, day)
    length_ms = window.end_ms - window.start_ms
    punctual_ms = min(max(PUNCTUAL_MS, length_ms // PUNCTUAL_SHARE), length_ms // LATE_SHARE)
    if now_ms <= window.start_ms + punctual_ms or spec.missed == "skip":
        return window
    return Window(now_ms, max(window.end_ms, now_ms + length_ms // LATE_SHARE))


class DayPlan:
    """Made anew from the same records it is the same plan, so one that was cut short goes on where it stopped."""

    def __init__(self, store: BatchStore, batch: Batch, day: Day) -> None:
        order = store.plan_order(batch, day.cursor)
        self.day = day
        self.records = len(order.records)
        self.providers = order.providers
        self._store = store
        self._batch = batch
        self._order = order
        self._begin = order.begin
        self._slots = array("I")
        for mine in assign_slots([count for _, count in order.providers]):
            self._slots += mine
        self._providers = array("I")
        for provider, count in order.providers:
            self._providers += array("I", [provider]) * count
        self._jitter_ms_max = parse_duration_ms(batch.spec.jitter) or 0

    @property
    def at_end(self) -> bool:
        return self._begin >= self.records

    def page(self) -> Placements:
        """The next runs."""
        turns, numbers, providers = self._turns(), self._order.records, self._providers
        records = array("q", [numbers[index] for index in turns])
        due_ms = self._dues_ms(turns)
        if self._jitter_ms_max:
            due_ms = self._jittered(turns, records, due_ms)
        return Placements(records, array("q", [providers[index] for index in turns]), due_ms)

    def next_cursor(self) -> tuple[int, int]:
        """Where the cursor stands after this page."""
        last = self._turns()[-1]
        return self._providers[last], self._order.records[last]

    def move_on(self) -> None:
        self.day = msgspec.structs.replace(self.day, cursor=self.next_cursor())
        self._begin += len(self._turns())

    def _turns(self) -> array[int]:
        return self._order.turns[self._begin : self._begin + PAGE_RUNS]

    def _dues_ms(self, turns: Iterable[int]) -> array[int]:
        slots = self._slots
        return dues_ms(
            [slots[index] for index in turns], self.records, start_ms=self.day.start_ms, end_ms=self.day.end_ms
        )

    def _jittered(self, turns: array[int], records: array[int], due_ms: array[int]) -> array[int]:
        """Jitter ends where the provider's next run begins."""
        names = self._store.record_names(records)
        pages = zip(turns, records, due_ms, strict=True)
        found = [
            due
            + jitter_ms(self._batch.id, names[record], jitter_ms_max=min(self._jitter_ms_max, self._room_ms(at, due)))
            for at, record, due in pages
        ]
        return array("q", found)

    def _room_ms(self, at: int, due_ms: int) -> int:
        """The way to the next run of the same provider, or to the window's end."""
        if at + 1 < self.records and self._providers[at + 1] == self._providers[at]:
            return self._dues_ms((at + 1,))[0] - due_ms
        return self.day.end_ms - due_ms

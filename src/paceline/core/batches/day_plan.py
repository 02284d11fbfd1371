"""A day's plan, as it follows from its records alone: planned again from the same records, it is the same plan."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from datetime import date

from paceline.core.batches.batch import BatchSpec, Window, window_of
from paceline.core.batches.calls import is_missed
from paceline.core.batches.order import slot_positions
from paceline.core.batches.run_keys import EPOCH_MS
from paceline.core.batches.spread import assign_slots, dues_ms, jittered_ms
from paceline.core.batches.values import Placements, PlanOrder

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

    With the policy ``skip`` a late plan keeps its times, and what was missed is skipped. Times before those that keys
    can hold are moved there.
    """
    window = window_of(spec, day)
    length_ms = window.end_ms - window.start_ms
    if window.start_ms < EPOCH_MS:
        window = Window(EPOCH_MS, EPOCH_MS + length_ms)
    punctual_ms = min(max(PUNCTUAL_MS, length_ms // PUNCTUAL_SHARE), length_ms // LATE_SHARE)
    if now_ms <= window.start_ms + punctual_ms or spec.missed == "skip":
        return window
    return Window(now_ms, max(window.end_ms, now_ms + length_ms // LATE_SHARE))


class DayPlan:
    """When each record of an order is due in a window. Pages are cut from ``order.turns``, each by where it begins."""

    def __init__(self, order: PlanOrder, window: Window, *, batch: str, jitter_ms_max: int) -> None:
        self.records = len(order.records)
        self.providers = order.providers
        self.has_jitter = jitter_ms_max > 0
        self._order = order
        self._window = window
        self._batch = batch
        self._jitter_ms_max = jitter_ms_max
        self._slots = array("I")
        for mine in assign_slots([count for _, count in order.providers]):
            self._slots += mine
        self._positions = slot_positions(order, self._slots)
        self._providers = array("I")
        for provider, count in order.providers:
            self._providers += array("I", [provider]) * count

    def page_records(self, begin: int) -> array[int]:
        """The numbers of the records of a page."""
        numbers = self._order.records
        return array("q", [numbers[index] for index in self._turns(begin)])

    def page(self, begin: int, names: Mapping[int, str]) -> Placements:
        """The runs of a page. ``names``: of its records, for their jitter; not looked at if the plan has none."""
        turns, providers = self._turns(begin), self._providers
        records, dues = self.page_records(begin), self._dues_ms(turns)
        if self.has_jitter:
            dues = self._jittered(turns, [names[record] for record in records], dues)
        return Placements(records, array("q", [providers[index] for index in turns]), dues)

    def cursor_after(self, begin: int) -> tuple[int, int]:
        """The provider's and the record's number of the last run of a page."""
        last = self._turns(begin)[-1]
        return self._providers[last], self._order.records[last]

    def _turns(self, begin: int) -> array[int]:
        return self._order.turns[begin : begin + PAGE_RUNS]

    def _dues_ms(self, turns: Iterable[int]) -> array[int]:
        slots, window, positions = self._slots, self._window, self._positions
        mine = turns if positions is None else [positions[index] for index in turns]
        return dues_ms([slots[index] for index in mine], self.records, start_ms=window.start_ms, end_ms=window.end_ms)

    def _jittered(self, turns: array[int], names: list[str], dues: array[int]) -> array[int]:
        nexts = [self._next_ms(at) for at in turns]
        return array(
            "q",
            [
                jittered_ms(due_ms, next_ms, batch=self._batch, record=name, jitter_ms_max=self._jitter_ms_max)
                for due_ms, next_ms, name in zip(dues, nexts, names, strict=True)
            ],
        )

    def _next_ms(self, at: int) -> int:
        """When the next run of the same provider is due, or the window ends."""
        slot = (at if self._positions is None else self._positions[at]) + 1
        if slot < self.records and self._providers[slot] == self._providers[at]:
            window = self._window
            return dues_ms(self._slots[slot : slot + 1], self.records, start_ms=window.start_ms, end_ms=window.end_ms)[
                0
            ]
        return self._window.end_ms


def without_missed(page: Placements, spec: BatchSpec, window: Window, *, now_ms: int) -> tuple[Placements, Placements]:
    """(what is to run, what ends at once): with the policy ``skip`` nothing runs that a claim would skip."""
    kept, missed = no_placements(), no_placements()
    if spec.missed != "skip" or min(page.dues_ms) >= now_ms:
        return page, missed
    for record, provider, due_ms in zip(*page, strict=True):
        side = missed if is_missed(due_ms, window.start_ms, window.end_ms, now_ms=now_ms) else kept
        side.records.append(record)
        side.providers.append(provider)
        side.dues_ms.append(due_ms)
    return kept, missed

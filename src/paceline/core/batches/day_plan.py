"""Plan of a day. It follows from the records alone: planning again from the same records gives the same plan."""

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
"""Number of runs planned in one transaction: short enough not to hold up claims in between."""
LATE_SHARE = 4
"""Divisor of a window's length: a late plan is spread over at least a quarter of it."""
PUNCTUAL_MS, PUNCTUAL_SHARE = 1_000, 1_440
"""Delay up to which a plan is not late: a second, or a minute for a whole day.

Otherwise no record would keep its time.
"""


def no_placements() -> Placements:
    return Placements(array("q"), array("q"), array("q"))


def plan_window(spec: BatchSpec, day: date, *, now_ms: int) -> Window:
    """Return the window to plan: the day's, or, if that began a while ago, the rest of it.

    A late plan has at least a quarter of the window's length. With the policy ``skip`` it keeps its times, and missed
    runs are skipped. Times before those that keys can hold are moved there.
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
    """Due times of the records of a plan order in a window.

    A page is a part of ``order.turns``, found by where it begins.
    """

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
        """Return the numbers of the records of a page."""
        numbers = self._order.records
        return array("q", [numbers[index] for index in self._turns(begin)])

    def page(self, begin: int, names: Mapping[int, str]) -> Placements:
        """Return the runs of a page.

        ``names``: names of its records, for their jitter; unused if the plan has no jitter.
        """
        turns, providers = self._turns(begin), self._providers
        records, dues = self.page_records(begin), self._dues_ms(turns)
        if self.has_jitter:
            dues = self._jittered(turns, [names[record] for record in records], dues)
        return Placements(records, array("q", [providers[index] for index in turns]), dues)

    def cursor_after(self, begin: int) -> tuple[int, int]:
        """Return the provider's and the record's number of the last run of a page."""
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
        """Return when the next run of the same provider is due, or when the window ends."""
        slot = (at if self._positions is None else self._positions[at]) + 1
        if slot < self.records and self._providers[slot] == self._providers[at]:
            window = self._window
            return dues_ms(self._slots[slot : slot + 1], self.records, start_ms=window.start_ms, end_ms=window.end_ms)[
                0
            ]
        return self._window.end_ms


def without_missed(page: Placements, spec: BatchSpec, window: Window, *, now_ms: int) -> tuple[Placements, Placements]:
    """Divide a page into (runs to make, runs that end at once): with the policy ``skip`` missed runs are not made."""
    kept, missed = no_placements(), no_placements()
    if spec.missed != "skip" or min(page.dues_ms) >= now_ms:
        return page, missed
    for record, provider, due_ms in zip(*page, strict=True):
        side = missed if is_missed(due_ms, window.start_ms, window.end_ms, now_ms=now_ms) else kept
        side.records.append(record)
        side.providers.append(provider)
        side.dues_ms.append(due_ms)
    return kept, missed

"""Evenly: the runs of a day lie on a grid of as many equal slots, and each provider has one slot in each of its parts.

Late records, redriven dead letters and reruns have times of their own. A day with some of them is judged as far as its
runs still are on the grid: no slot has two.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from paceline.core.verify.calls import Books
from paceline.core.verify.facts import CallFact, DayFact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, Finding

RERUN = "~"
MOST = 0.9
"""A day whose runs lie on the grid for so large a part was planned by it."""


class CallJudge:
    """Collects the due times of each day, 12 bytes a run, and judges the days at the end."""

    def __init__(self, books: Books, rules: Rules) -> None:
        self._books, self._rules = books, rules
        self._dues: dict[int, tuple[array[int], array[int]]] = {}
        self.plain: set[int] = set()
        """Days, once judged, whose runs all are where the plan has put them."""

    def see(self, call: CallFact) -> None:
        if call.in_ledger:
            providers, dues = self._dues.setdefault(call.day, (array("i"), array("q")))
            providers.append(call.provider)
            dues.append(call.due_ms)

    def finding(self) -> Finding:
        judged = 0
        broken: list[Counterexample] = []
        for number, (providers, dues) in self._dues.items():
            day = self._books.days.get(number)
            if day is None or not _is_whole(day, len(dues)) or day.start_ms < self._rules.since_ms:
                continue
            slots = _slots(day, dues)
            on_grid = sum(slot >= 0 for slot in slots)
            if on_grid < MOST * len(slots):
                continue
            judged += on_grid
            broken += _twins(day, slots)
            if on_grid == len(slots):
                uneven = list(_parts(day, providers, slots))
                broken += uneven
                if not uneven:
                    self.plain.add(number)
        return Finding("evenly", judged, broken)


def _is_whole(day: DayFact, runs: int) -> bool:
    """True if the day was planned as one and nothing of it is purged."""
    return day.planned and RERUN not in day.date and day.runs == runs and not day.deleting


def _slots(day: DayFact, dues: array[int]) -> list[int]:
    """Returns the slot of each due time, -1 for one beside the grid. A slot begins at a whole millisecond."""
    window_ms, count = day.end_ms - day.start_ms, len(dues)
    found = []
    for due_ms in dues:
        slot = -(-(due_ms - day.start_ms) * count // window_ms)
        fits = 0 <= slot < count and due_ms == day.start_ms + slot * window_ms // count
        found.append(slot if fits else -1)
    return found


def _twins(day: DayFact, slots: list[int]) -> Iterator[Counterexample]:
    taken = [slot for slot in slots if slot >= 0]
    if len(set(taken)) < len(taken) and day.end_ms - day.start_ms >= len(slots):
        yield Counterexample(f"two runs of {day.batch}@{day.date} are planned for one slot of {len(slots)}", (day,))


def _parts(day: DayFact, providers: array[int], slots: list[int]) -> Iterator[Counterexample]:
    """The k-th run of a provider with m of n runs has a slot s with k·n/m <= s < (k+1)·n/m."""
    n = len(slots)
    mine: dict[int, list[int]] = {}
    for provider, slot in zip(providers, slots, strict=True):
        mine.setdefault(provider, []).append(slot)
    for provider, some in mine.items():
        m = len(some)
        if any(not k * n <= slot * m < (k + 1) * n for k, slot in enumerate(sorted(some))):
            says = f"the {m} runs of provider {provider} on {day.batch}@{day.date} are not spread over the day"
            yield Counterexample(says, (day,))

"""Evenly: the runs of a day lie on a grid of as many equal slots, and those of each provider are spread over the day.

Late records, redriven dead letters and reruns have times of their own. A day with some of them is judged as far as its
runs still are on the grid: no slot has two.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

from paceline.core.verify.calls import Books
from paceline.core.verify.facts import CallFact, DayFact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, Finding

RERUN = "~"
RUNS_MIN = 8
GAPS_MAX = 4
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
                mine = _by_provider(providers, slots)
                broken += _gaps(day, mine, n=len(slots))
                if all(_is_spread(some, n=len(slots)) for some in mine.values()):
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


def _by_provider(providers: array[int], slots: list[int]) -> dict[int, list[int]]:
    mine: dict[int, list[int]] = {}
    for slot, provider in sorted(zip(slots, providers, strict=True)):
        mine.setdefault(provider, []).append(slot)
    return mine


def _is_spread(slots: list[int], *, n: int) -> bool:
    """As it was planned: the k-th of a provider's m runs has a slot s with k·n/m <= s < (k+1)·n/m."""
    m = len(slots)
    return all(k * n <= slot * m < (k + 1) * n for k, slot in enumerate(slots))


def _gaps(day: DayFact, mine: dict[int, list[int]], *, n: int) -> Iterator[Counterexample]:
    """A plan leaves less than two ideal gaps between neighbours; a record that got another provider widens one of them.

    Twice as much is broken, where a provider has enough runs to tell.
    """
    for provider, slots in mine.items():
        m = len(slots)
        widest = max(later - sooner for sooner, later in pairwise([*slots, slots[0] + n]))
        if m >= RUNS_MIN and widest * m > GAPS_MAX * n:
            name = f"provider {provider} on {day.batch}@{day.date}"
            says = f"{m} runs of {name} leave a gap of {widest * m / n:.1f} ideal ones"
            yield Counterexample(says, (day,))

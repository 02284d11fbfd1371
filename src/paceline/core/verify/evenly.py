"""Promise "evenly": the runs of a day lie on a grid of equal slots, and each provider's are spread over the day.

Late records, redriven dead letters and reruns have times of their own. A day with some of them is judged as far as its
runs still are on the grid: no slot has two. Late starts are judged on days that are as they were planned: they are
caught up at a pace, and never in a burst.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from paceline.core.instants import to_text
from paceline.core.verify.calls import CALL_ENDED, DayAndProviderFacts
from paceline.core.verify.facts import CallFact, DayFact, ProviderFact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding

RERUN = "~"
BURST_US = 100_000
"""Time by which a rate lets calls go ahead."""
RUNS_MIN = 8
GAPS_MAX = 4
BURST_MAX = 8
"""Maximum number of a provider's runs planned for one ideal gap: a plan has two at most, and some may have moved."""
SPEED_MAX = 8
"""Limit on the pace of late starts, as a multiple of the planned pace.

It is twice the stated limit, since a usual gap is a mean.
"""
LATE_GAPS = 4
AT_ONCE_MAX = 16
"""Number of late runs that may start together, plus one for each place: a process may be held up before they start."""
MOST = 0.9
"""Share of a day's runs on the grid above which the day was planned by it."""


class CallSpreadJudge:
    """Collects the due times and starts of each day, 20 bytes a run, and judges the days at the end."""

    def __init__(self, books: DayAndProviderFacts, rules: Rules) -> None:
        self._books, self._rules = books, rules
        self._dues: dict[int, tuple[array[int], array[int], array[int]]] = {}
        self.plain: set[int] = set()
        """Judged days whose runs are all where the plan has put them."""

    def see(self, call: CallFact) -> None:
        if call.in_ledger:
            providers, dues, starts = self._dues.setdefault(call.day, (array("i"), array("q"), array("q")))
            providers.append(call.provider)
            dues.append(call.due_ms)
            first = call.attempt == 1 and call.state in CALL_ENDED and not call.follows
            starts.append(call.started_ms or 0 if first else 0)

    def finding(self) -> JudgeFinding:
        judged = 0
        broken: list[Counterexample] = []
        for number, (providers, dues, starts) in self._dues.items():
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
                broken += _bursts(day, mine, n=len(slots))
                if all(_is_spread(some, n=len(slots)) for some in mine.values()):
                    self.plain.add(number)
                    broken += self._catching_up(day, zip(providers, dues, starts, strict=True), mine)
        return JudgeFinding("evenly", judged, broken)

    def _catching_up(
        self, day: DayFact, runs: Iterable[tuple[int, int, int]], mine: dict[int, list[int]]
    ) -> Iterator[Counterexample]:
        """Judge the late starts of each provider: at an even pace, whatever the cause of the delay."""
        window_ms, tolerance_ms = day.end_ms - day.start_ms, self._rules.clock.tolerance_ms
        late: dict[int, list[int]] = {}
        for provider, due_ms, started_ms in runs:
            if started_ms - due_ms > LATE_GAPS * window_ms // len(mine[provider]) + tolerance_ms:
                late.setdefault(provider, []).append(started_ms)
        for number, starts in late.items():
            known = self._books.providers.get(number)
            if known is None or not known.max_in_flight:
                continue
            gap_us = 1_000 * window_ms // len(mine[number]) // SPEED_MAX
            slack_us = (AT_ONCE_MAX + known.max_in_flight) * gap_us + 2_000 * tolerance_ms
            at_ms = first_burst_ms(sorted(starts), gap_us=gap_us, slack_us=slack_us)
            if at_ms is not None and not self._rules.clock.touches(day.start_ms, at_ms):
                says = f"late runs of {known.id} on {day.batch}@{day.date} were caught up in a burst"
                yield Counterexample(says, (known, day))


class RateJudge:
    """Judges the starts of one provider since its policy came into force: no closer than its rate allows."""

    def __init__(self, provider: ProviderFact, rules: Rules) -> None:
        self._provider, self._rules = provider, rules
        self._from_ms = max(provider.updated_ms, rules.since_ms) + rules.clock.tolerance_ms
        self._starts = array("q")

    def see(self, call: CallFact) -> None:
        if not self._provider.rate_gap_us or not call.attempt or call.state not in CALL_ENDED:
            return
        if call.started_ms is not None and call.started_ms > self._from_ms:
            self._starts.append(call.started_ms)

    def finding(self) -> JudgeFinding:
        provider, clock = self._provider, self._rules.clock
        slack_us = (1 + provider.max_in_flight) * provider.rate_gap_us + BURST_US + 2_000 * clock.tolerance_ms
        at_ms = first_burst_ms(sorted(self._starts), gap_us=provider.rate_gap_us, slack_us=slack_us)
        if at_ms is None or clock.touches(provider.updated_ms, at_ms):
            return JudgeFinding("evenly", len(self._starts))
        says = f"calls of {provider.id} started faster than its rate allows, at {to_text(at_ms)}"
        return JudgeFinding("evenly", len(self._starts), [Counterexample(says, (provider,))])


def first_burst_ms(starts: Sequence[int], *, gap_us: int, slack_us: int) -> int | None:
    """Return when rising starts were first ahead of a steady pace by more than the slack; None: they never were."""
    next_us = 0
    for started_ms in starts:
        next_us = max(next_us, 1_000 * started_ms) + gap_us
        if next_us - 1_000 * started_ms > slack_us + gap_us:
            return started_ms
    return None


def _is_whole(day: DayFact, runs: int) -> bool:
    """Return whether the day was planned as one and nothing of it is purged.

    If the runs of a day are not counted, an incomplete day is recognised by its grid, on which few runs then lie.
    """
    return day.planned and RERUN not in day.date and day.runs in (None, runs) and not day.deleting


def _slots(day: DayFact, dues: array[int]) -> list[int]:
    """Return the slot of each due time, -1 for one beside the grid. A slot begins at a whole millisecond."""
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
    """Return whether the k-th of a provider's m runs has a slot s with k·n/m <= s < (k+1)·n/m, as it was planned."""
    m = len(slots)
    return all(k * n <= slot * m < (k + 1) * n for k, slot in enumerate(slots))


def _gaps(day: DayFact, mine: dict[int, list[int]], *, n: int) -> Iterator[Counterexample]:
    """Judge the gaps between neighbours: a plan leaves less than two ideal gaps.

    A record that got another provider widens one of them, so only twice as much breaks the promise, for providers with
    enough runs to tell.
    """
    for provider, slots in mine.items():
        m = len(slots)
        widest = max(later - sooner for sooner, later in pairwise([*slots, slots[0] + n]))
        if m >= RUNS_MIN and widest * m > GAPS_MAX * n:
            name = f"provider {provider} on {day.batch}@{day.date}"
            says = f"{m} runs of {name} leave a gap of {widest * m / n:.1f} ideal ones"
            yield Counterexample(says, (day,))


def _bursts(day: DayFact, mine: dict[int, list[int]], *, n: int) -> Iterator[Counterexample]:
    for provider, slots in mine.items():
        m = len(slots)
        crowded = any((later - sooner) * m < n for sooner, later in zip(slots, slots[BURST_MAX:], strict=False))
        if m >= BURST_MAX * RUNS_MIN and crowded:
            name = f"provider {provider} on {day.batch}@{day.date}"
            yield Counterexample(f"more than {BURST_MAX} runs of {name} are planned for one ideal gap", (day,))

"""Promise "fair" for jobs: users take turns at RIPE.

A user who has a measurement queued is passed by another user at most once before being served, and once more for each
process that sends at the same moment. Why a measurement waited is not kept, so only sends count that could have been
this one: they have the same types and targets, and take as much or more of every meter. If RIPE refused one of its
targets, a measurement may have waited for that, and is not judged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from paceline.core.verify.absences import Absences
from paceline.core.verify.facts import Fact, JobFact, MeasurementFact, PostingFact
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Counterexample, JudgeFinding

PASSES_MAX = 10
SENDS_MAX = 10_000
"""Maximum number of sends of a stretch that are looked at."""
REFUSED_MS = 86_400_000
"""Longest time for which a target that RIPE has refused may be closed."""
Shape = tuple[tuple[str, ...], tuple[str, ...]]
"""Types and targets of a measurement."""


class _Send(NamedTuple):
    at_ms: int
    owner: int
    needs: tuple[int, ...]


class _Wait(NamedTuple):
    """A measurement from its submission until its first send."""

    from_ms: int
    to_ms: int
    job: JobFact
    item: MeasurementFact


class SendJudge:
    """Takes jobs with their measurements and postings, and judges when it has all of them."""

    def __init__(self, rules: Rules, absences: Absences) -> None:
        self._rules, self._absences = rules, absences
        self._judged = 0
        self._job: JobFact | None = None
        self._item: MeasurementFact | None = None
        self._tries: dict[int, int] = {}
        self._sends: dict[Shape, list[_Send]] = {}
        self._own: dict[int, list[int]] = {}
        """Times of each user's sends."""
        self._waits: dict[int, list[_Wait]] = {}
        self._refused: dict[str, list[int]] = {}
        """Times of sends to a target that failed."""

    def see(self, fact: Fact) -> None:
        match fact:
            case JobFact():
                self._end_item()
                self._job = fact
            case MeasurementFact():
                self._end_item()
                self._item = fact
            case PostingFact() if fact.attempt and fact.move == "hold":
                self._tries[fact.attempt] = fact.at_ms
            case _:
                pass

    def finding(self) -> JudgeFinding:
        self._end_item()
        for times in (*self._own.values(), *self._refused.values()):
            times.sort()
        for sends in self._sends.values():
            sends.sort()
        broken = [found for waits in self._waits.values() for found in self._judge_user(waits)]
        return JudgeFinding("fair", self._judged, broken)

    def _end_item(self) -> None:
        job, item, tries = self._job, self._item, self._tries
        self._item, self._tries = None, {}
        if job is None or item is None or not item.needs:
            return
        for attempt, at_ms in tries.items():
            self._sends.setdefault(_shape(item), []).append(_Send(at_ms, job.owner, item.needs))
            self._own.setdefault(job.owner, []).append(at_ms)
            if attempt < item.attempt or not item.statuses:
                for target in item.targets:
                    self._refused.setdefault(target, []).append(at_ms)
        to_ms = tries.get(1, item.ended_ms)
        if item.state == "queued" and not item.attempt and not item.reason:
            to_ms = self._rules.now_ms
        if job.user and to_ms is not None and to_ms >= self._rules.since_ms:
            self._judged += 1
            self._waits.setdefault(job.owner, []).append(_Wait(job.created_ms, to_ms, job, item))

    def _judge_user(self, waits: list[_Wait]) -> Iterator[Counterexample]:
        """Judge the first of the user's measurements at any time, in stretches between two sends of the user."""
        front_ms = 0
        for wait in sorted(waits, key=lambda one: (one.item.job, one.item.index)):
            first_ms, front_ms = max(wait.from_ms, front_ms), max(front_ms, wait.to_ms)
            if first_ms >= wait.to_ms or self._is_excused(wait):
                continue
            own = self._own.get(wait.job.owner, [])
            between = own[bisect_right(own, first_ms) : bisect_left(own, wait.to_ms)]
            edges = [first_ms, *between, wait.to_ms]
            for begin_ms, end_ms in pairwise(edges):
                passes = self._passes(wait, begin_ms, end_ms)
                if passes > PASSES_MAX:
                    name = f"{wait.item.job}/{wait.item.index}"
                    says = f"{name} waited while {passes} of another user were sent that are alike and no smaller"
                    yield Counterexample(says, (wait.job, wait.item))
                    break

    def _is_excused(self, wait: _Wait) -> bool:
        clock, (from_ms, to_ms, job, item) = self._rules.clock, wait
        refused = any(
            from_ms - REFUSED_MS <= at_ms <= to_ms for target in item.targets for at_ms in self._refused.get(target, ())
        )
        return refused or clock.touches(from_ms, to_ms) or self._absences.touches(job.user, from_ms, to_ms)

    def _passes(self, wait: _Wait, begin_ms: int, end_ms: int) -> int:
        """Return how often the measurement was passed by the user who passed it most often."""
        sends = self._sends.get(_shape(wait.item), [])
        begin, end = bisect_right(sends, (begin_ms, 1 << 62)), bisect_left(sends, (end_ms,))
        counts = Counter(
            send.owner
            for send in sends[begin : min(end, begin + SENDS_MAX)]
            if send.owner != wait.job.owner and _covers(send.needs, wait.item.needs)
        )
        return max(counts.values(), default=0)


def _shape(item: MeasurementFact) -> Shape:
    return item.types, item.targets


def _covers(needs: tuple[int, ...], least: tuple[int, ...]) -> bool:
    return all(need >= one for need, one in zip(needs, least, strict=True))

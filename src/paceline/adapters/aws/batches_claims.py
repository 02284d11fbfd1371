"""Claims of batches' runs: for each provider that is ready core.pace decides, and one write of its lane makes it so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.adapters.aws.batches_facts import Facts
from paceline.adapters.aws.batches_keys import NEVER_MS, place_number
from paceline.adapters.aws.batches_lanes import (
    Held,
    LaneItem,
    Looks,
    Run,
    Waiting,
    held_runs,
    lanes_of,
    ready_providers,
    waiting_from,
    write_lane,
)
from paceline.adapters.aws.batches_providers import Known
from paceline.adapters.aws.batches_sidings import Wishes, bring_back, sift
from paceline.adapters.aws.database import Database
from paceline.core.pace import LATE_MS, Backlog, Front, open_lane
from paceline.ports import ClaimedCall

PASSES_MAX = 8
"""A claim that finds too little looks at further providers so often at most."""
LOOKS_MIN = 64
SIFTED_MAX = 90
"""So many of a provider's runs at most are looked through in one pass for those that are not to run."""
GAPS_MAX = 16
"""The usual gap between a provider's runs is the mean of so many."""


class _Look(NamedTuple):
    """What a claim sees of one provider. ``runs``: all that are held, and as many that wait as have a place."""

    lane: LaneItem
    known: Known
    budget: int
    runs: list[Run]
    beyond_ms: int


class _Opened(NamedTuple):
    claimed: list[ClaimedCall]
    asides: set[int]
    finished: bool


def claim(db: Database, facts: Facts, looks: Looks, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
    claiming = _Claiming(db, facts, looks, now_ms=now_ms, lease_ms=lease_ms)
    for _ in range(PASSES_MAX):
        left = runs_max - len(claiming.claimed)
        limit = max(left, LOOKS_MIN)
        lanes = claiming.ready_lanes(limit=limit) if left > 0 else []
        # Of a few that each had their turn, nothing more is to be had: that need not be asked.
        if not lanes or (claiming.open_all(lanes, runs_max=left) and len(lanes) < limit):
            break
    return claiming.claimed


class _Claiming:
    """One claim. Each provider's part of it is an act of its own: one write of its lane."""

    def __init__(self, db: Database, facts: Facts, looks: Looks, *, now_ms: int, lease_ms: int) -> None:
        self.claimed: list[ClaimedCall] = []
        self._db = db
        self._facts = facts
        self._looks = looks
        self._now_ms = now_ms
        self._lease_ms = lease_ms

    def ready_lanes(self, *, limit: int) -> list[LaneItem]:
        """Those first that have been ready for longest. The index is a hint: the lane itself says whether it is."""
        providers = ready_providers(self._db, self._looks, now_ms=self._now_ms, limit=limit)
        lanes = lanes_of(self._db, providers).values()
        for lane in lanes:
            self._looks.note(lane)
        ready = [lane for lane in lanes if lane.ready_ms <= self._now_ms]
        return sorted(ready, key=lambda lane: (lane.ready_ms, lane.provider))

    def open_all(self, lanes: Sequence[LaneItem], *, runs_max: int) -> bool:
        """Whether all of them had their turn, and none is to be looked at again before its time."""
        known = self._facts.policies.of(self._db, lanes)
        rests = {lane.provider for lane in lanes} - {one for one, facts in known.items() if not facts.policy.paused}
        self._rest([lane for lane in lanes if lane.provider in rests])
        budgets: list[tuple[LaneItem, int]] = []
        for lane in lanes:
            if runs_max > 0 and lane.provider not in rests:
                budget = min(known[lane.provider].policy.max_in_flight, runs_max)
                budgets.append((lane, budget))
                runs_max -= budget
        fan_out = self._db.threads.fan_out
        seen = fan_out(lambda one: self._look(one[0], known[one[0].provider], one[1]), budgets)
        now_ms = self._now_ms
        wishes = self._facts.wishes(self._db, (run.run for look in seen for run in look.runs if run.at_ms <= now_ms))
        opened = fan_out(lambda look: self._open(look, wishes), seen)
        for one in opened:
            self.claimed += one.claimed
        self._return_late({batch for one in opened for batch in one.asides})
        return len(budgets) + len(rests) == len(lanes) and all(one.finished for one in opened)

    def _rest(self, lanes: Iterable[LaneItem]) -> None:
        """Until its provider is put again, there is nothing to look at."""
        pairs = [(lane, lane.change(ready_ms=NEVER_MS)) for lane in lanes]
        for (_, after), written in zip(pairs, self._db.write_each([write_lane(*pair) for pair in pairs]), strict=True):
            if written.won:
                self._looks.note(after)

    def _look(self, lane: LaneItem, known: Known, budget: int) -> _Look:
        places = known.policy.max_in_flight - len(lane.held)
        waiting = Waiting([], lane.front_ms)
        if places > 0:
            waiting = waiting_from(self._db, lane, lane.front_ms, limit=min(places, budget))
        return _Look(lane, known, budget, sorted(held_runs(lane) + waiting.runs), waiting.beyond_ms)

    def _open(self, look: _Look, wishes: Wishes) -> _Opened:
        """Starts what may start at one provider. What loses against another claimer is seen anew in the next pass."""
        lane, now_ms = look.lane, self._now_ms
        if any(wishes.takes(run, lane.provider, now_ms=now_ms) for run in look.runs):
            return _Opened([], self._sift(look), finished=False)
        front = [Front(run.due_ms, run.state, run.due_ms, run.at_ms) for run in look.runs]
        starts, ready_ms, after = open_lane(
            look.known.policy,
            lane.lane,
            front,
            now_ms=now_ms,
            runs_max=look.budget,
            backlog=self._backlog(look, front, wishes),
            phase=look.known.phase,
        )
        until_ms = now_ms + look.known.policy.timeout_ms + self._lease_ms
        started = {start.handle for start in starts}
        held = {run.due_ms: _out(run, until_ms, now_ms) for run in look.runs if run.due_ms in started}
        left = [run.due_ms for run in look.runs if run.state == "waiting" and run.due_ms not in started]
        opened = lane.change(
            lane=after,
            held=dict(lane.held) | held,
            front_ms=min([*left, look.beyond_ms]),
            ready_ms=min(ready_ms, until_ms) if starts else ready_ms,
        )
        if not self._db.write(write_lane(lane, opened)).won:
            return _Opened([], set(), finished=False)
        self._looks.note(opened)
        claimed = [self._claimed(look, due_ms, one, wishes) for due_ms, one in sorted(held.items())]
        return _Opened(claimed, set(), finished=opened.ready_ms > now_ms)

    def _claimed(self, look: _Look, due_ms: int, one: Held, wishes: Wishes) -> ClaimedCall:
        record, day = wishes.records[one.run], wishes.day(one.run)
        assert look.lane.revision is not None
        return ClaimedCall(
            place_number(look.lane.provider, due_ms),
            one.attempt,
            look.lane.provider,
            look.lane.revision,
            day.batch,
            record["name"],
            day.date,
            due_ms,
            one.at_ms,
            one.lost == 1,
            record["endpoint"],
            record.get("body"),
        )

    def _backlog(self, look: _Look, front: Sequence[Front], wishes: Wishes) -> Backlog | None:
        """Of the first run that is late: the usual gap from it on, in its day's window as long as that lasts."""
        late = [run for run, place in zip(look.runs, front, strict=True) if place.at_ms < self._now_ms - LATE_MS]
        if not late:
            return None
        due_ms, end_ms = late[0].due_ms, wishes.day(late[0].run).end_ms
        to_ms = end_ms if due_ms < end_ms else NEVER_MS
        waiting = waiting_from(self._db, look.lane, max(due_ms, look.lane.front_ms), limit=GAPS_MAX + 1)
        dues = sorted([*look.lane.held, *(run.due_ms for run in waiting.runs)])
        dues = [one_ms for one_ms in dues if due_ms <= one_ms < to_ms][: GAPS_MAX + 1]
        if len(dues) < 2:
            return Backlog(max(end_ms - due_ms, 1), end_ms)  # alone: it has all the time that is left
        return Backlog(max((dues[-1] - dues[0]) // (len(dues) - 1), 1), end_ms)

    def _sift(self, look: _Look) -> set[int]:
        """Takes out of the way what is not to run, as far as one pass looks; the next pass looks again."""
        lane = look.lane
        waiting = waiting_from(self._db, lane, lane.front_ms, limit=SIFTED_MAX)
        runs = sorted(held_runs(lane) + waiting.runs)
        wishes = self._facts.wishes(self._db, (run.run for run in runs if run.at_ms <= self._now_ms))
        return sift(self._db, self._looks, lane, runs, wishes, front_ms=waiting.beyond_ms, now_ms=self._now_ms)

    def _return_late(self, batches: set[int]) -> None:
        """A batch that was resumed while its runs were set aside has not seen them."""
        for number in batches:
            if not self._facts.is_paused(self._db, number):
                bring_back(self._db, self._looks, number)


def _out(run: Run, until_ms: int, now_ms: int) -> Held:
    lost = 1 if run.lost or run.state == "out" else 0
    return Held(run.run, "out", until_ms, run.attempt + 1, lost, now_ms)

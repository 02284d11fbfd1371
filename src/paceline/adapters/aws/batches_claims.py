"""Claims of batches' runs: for each provider that is ready core.pace decides, and one write of its lane makes it so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from paceline.adapters.aws.batches_facts import Facts
from paceline.adapters.aws.batches_keys import NEVER_MS, place_number
from paceline.adapters.aws.batches_lanes import (
    Held,
    LaneItem,
    Looks,
    Run,
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
from paceline.core.provider import Policy
from paceline.core.shares import Claimant, fair_shares
from paceline.ports import ClaimedCall

PASSES_MAX = 8
"""A claim that finds too little looks at further providers so often at most."""
LOOKS_MIN = 64
SIFTED_MAX = 90
"""So many of a provider's runs at most are looked through in one pass for those that are not to run."""
GAPS_MAX = 16
"""The usual gap between a provider's runs is the mean of so many."""


class _Look(NamedTuple):
    """What a claim sees of one provider. ``runs``: all that are held, and as many that wait as have a place.

    ``ahead``: due times of those that wait, as far as they were read; None if they were not looked at for the backlog.
    ``cut``: so many have ended there that the look did not reach all of the places' runs; there may be more beyond.
    """

    lane: LaneItem
    known: Known
    budget: int
    runs: list[Run]
    beyond_ms: int
    ahead: list[int] | None = None
    cut: bool = False


class _Opened(NamedTuple):
    """``left``: the lane as it was just written, if more may start there at once. ``lost``: another came in between."""

    claimed: list[ClaimedCall]
    left: LaneItem | None = None
    lost: bool = False
    sifted: bool = False
    asides: frozenset[int] = frozenset()


class _Page(NamedTuple):
    """Lanes to be opened. ``full``: there may be more of them."""

    lanes: list[LaneItem]
    full: bool = False


def claim(
    db: Database,
    facts: Facts,
    looks: Looks,
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    providers: Collection[int] | None = None,
) -> list[ClaimedCall]:
    """Looks for lanes that are ready once, and again only where there may be more; each is read once, too.

    ``providers``: of these alone, and so without a look for others.
    """
    claiming = _Claiming(db, facts, looks, now_ms=now_ms, lease_ms=lease_ms, providers=providers)
    page = _Page([], full=True)
    for _ in range(PASSES_MAX):
        left = runs_max - len(claiming.claimed)
        if left > 0 and page.full and not page.lanes:
            page = claiming.ready_lanes(limit=max(left, LOOKS_MIN))
        if left <= 0 or not page.lanes:
            break
        page = claiming.open_all(page, runs_max=left)
    return claiming.in_turn()


class _Claiming:
    """One claim. Each provider's part of it is an act of its own: one write of its lane."""

    def __init__(
        self,
        db: Database,
        facts: Facts,
        looks: Looks,
        *,
        now_ms: int,
        lease_ms: int,
        providers: Collection[int] | None,
    ) -> None:
        self.claimed: list[ClaimedCall] = []
        self._db = db
        self._facts = facts
        self._looks = looks
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._providers = providers
        self._turns: dict[int, int] = {}
        self._sifted = False

    def in_turn(self) -> list[ClaimedCall]:
        """What was taken out of a provider's way costs it a pass, and not its turn."""
        return sorted(self.claimed, key=lambda one: self._turns[one.provider]) if self._sifted else self.claimed

    def ready_lanes(self, *, limit: int) -> _Page:
        """Those first that have been ready for longest. The index is a hint: the lane itself says whether it is."""
        if self._providers is not None:
            return _Page(self._ready(self._providers))
        providers = ready_providers(self._looks, now_ms=self._now_ms, limit=limit)
        return _Page(self._ready(providers), full=len(providers) >= limit)

    def _ready(self, providers: Iterable[int]) -> list[LaneItem]:
        lanes = lanes_of(self._db, providers).values()
        for lane in lanes:
            self._looks.note(lane)
        return _in_turn(lane for lane in lanes if lane.ready_ms <= self._now_ms)

    def open_all(self, page: _Page, *, runs_max: int) -> _Page:
        """Gives each its turn, as far as the budget reaches; those that are to be looked at again at once."""
        known = self._facts.policies.of(self._db, page.lanes)
        resting = [lane for lane in page.lanes if lane.provider not in known or known[lane.provider].policy.paused]
        self._rest(resting)
        rests = {lane.provider for lane in resting}
        lanes = [lane for lane in page.lanes if lane.provider not in rests]
        for lane in lanes:
            self._turns.setdefault(lane.provider, len(self._turns))
        wanted = [self._startable(lane, known[lane.provider].policy) for lane in lanes]
        shares = fair_shares(runs_max, [Claimant(one) for one in wanted[:runs_max]])  # at least one for each
        budgets = list(zip(lanes, shares, strict=False))
        fan_out = self._db.threads.fan_out
        seen = fan_out(lambda one: self._look(one[0], known[one[0].provider], one[1]), budgets)
        now_ms = self._now_ms
        wishes = self._facts.wishes(self._db, (run.run for look in seen for run in look.runs if run.at_ms <= now_ms))
        opened = fan_out(lambda look: self._open(look, wishes), seen)
        for one in opened:
            self.claimed += one.claimed
        self._return_late({batch for one in opened for batch in one.asides})
        if any(one.sifted for one in opened):
            self._sifted = True
            return _Page([], full=True)  # what was taken out of the way may wait elsewhere now: all of it is seen anew
        lost = [look.lane.provider for look, one in zip(seen, opened, strict=True) if one.lost]
        left = [one.left for one in opened if one.left is not None]
        again = [*lanes[len(budgets) :], *left, *(self._ready(lost) if lost else ())]
        return _Page(_in_turn(again), page.full)

    def _startable(self, lane: LaneItem, policy: Policy) -> int:
        """How many of its runs may start at once at most."""
        due = sum(one.at_ms <= self._now_ms for one in lane.held.values())
        return max(due + max(policy.max_in_flight - len(lane.held), 0), 1)

    def _rest(self, lanes: Iterable[LaneItem]) -> None:
        """Until its provider is put again, there is nothing to look at."""
        pairs = [(lane, lane.change(ready_ms=NEVER_MS)) for lane in lanes]
        for (_, after), written in zip(pairs, self._db.write_each([write_lane(*pair) for pair in pairs]), strict=True):
            if written.won:
                self._looks.note(after)

    def _look(self, lane: LaneItem, known: Known, budget: int) -> _Look:
        """Where the first is late, as far ahead as its backlog needs to be known: one request for both."""
        places = min(known.policy.max_in_flight - len(lane.held), budget)
        if places <= 0:
            return _Look(lane, known, budget, held_runs(lane), lane.front_ms)
        late = lane.front_ms < self._now_ms - LATE_MS
        asked, least = (max(places, GAPS_MAX + 1), GAPS_MAX) if late else (places, 0)
        waiting = waiting_from(self._db, lane, lane.front_ms, limit=asked, until_ms=self._now_ms, least=least)
        dues = [run.due_ms for run in waiting.runs]
        beyond_ms = dues[places] if len(dues) > places else waiting.beyond_ms
        runs = sorted(held_runs(lane) + waiting.runs[:places])
        cut = len(dues) < places and beyond_ms < NEVER_MS and not (dues and dues[-1] > self._now_ms)
        return _Look(lane, known, budget, runs, beyond_ms, dues if late else None, cut)

    def _open(self, look: _Look, wishes: Wishes) -> _Opened:
        """Starts what may start at one provider. What loses against another claimer is seen anew in the next pass."""
        lane, now_ms = look.lane, self._now_ms
        if any(wishes.takes(run, lane.provider, now_ms=now_ms) for run in look.runs):
            return _Opened([], sifted=True, asides=frozenset(self._sift(look)))
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
        ready_ms = min(ready_ms, look.beyond_ms) if look.cut else ready_ms
        write_ms = self._db.write_ms(now_ms)
        until_ms = write_ms + look.known.policy.timeout_ms + self._lease_ms
        started = {start.handle for start in starts}
        held = {run.due_ms: _out(run, until_ms, write_ms) for run in look.runs if run.due_ms in started}
        left = [run.due_ms for run in look.runs if run.state == "waiting" and run.due_ms not in started]
        opened = lane.change(
            lane=after,
            held=dict(lane.held) | held,
            front_ms=min([*left, look.beyond_ms]),
            ready_ms=min(ready_ms, until_ms) if starts else ready_ms,
        )
        if not self._db.write(write_lane(lane, opened)).won:
            return _Opened([], lost=True)
        self._looks.note(opened)
        claimed = [self._claimed(look, due_ms, one, wishes) for due_ms, one in sorted(held.items())]
        return _Opened(claimed, left=opened if opened.ready_ms <= now_ms else None)

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
        ahead = look.ahead
        if ahead is None:
            waiting = waiting_from(self._db, look.lane, max(due_ms, look.lane.front_ms), limit=GAPS_MAX + 1)
            ahead = [run.due_ms for run in waiting.runs]
        dues = sorted([*look.lane.held, *ahead])
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


def _in_turn(lanes: Iterable[LaneItem]) -> list[LaneItem]:
    return sorted(lanes, key=lambda lane: (lane.ready_ms, lane.provider))


def _out(run: Run, until_ms: int, now_ms: int) -> Held:
    lost = 1 if run.lost or run.state == "out" else 0
    return Held(run.run, "out", until_ms, run.attempt + 1, lost, now_ms)

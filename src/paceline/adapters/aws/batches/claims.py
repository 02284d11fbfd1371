"""Claims of batches' runs: core.batches.pace decides for each ready provider, and one write of its lane claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from paceline.adapters.aws.batches.keys import lane_shards, provider_in, worker_shards
from paceline.adapters.aws.batches.lanes import (
    LaneItem,
    LaneRun,
    held_runs,
    lane_of,
    lanes_of,
    ready_providers,
    waiting_from,
    write_lane,
)
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.settlements import settle_calls
from paceline.adapters.aws.batches.unwanted_runs import Wishes, bring_back, take_out
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import READY_INDEX, RUNS
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.claim import (
    GAPS_MAX,
    PASSES_MAX,
    PROVIDERS_MIN,
    backlog,
    backlog_until_ms,
    divide_budget,
    first_late,
    in_turn,
    startable,
)
from paceline.core.batches.pace import LATE_MS, Backlog, FirstRun, StartDecision, decide_starts
from paceline.core.batches.provider import KnownPolicy, Policy, ProviderKind
from paceline.core.batches.records.options import call_timeout_ms
from paceline.core.batches.run_keys import NEVER_MS, queue_key
from paceline.core.batches.settle import Held
from paceline.core.batches.unwanted import may_have_arrived
from paceline.core.batches.values import ClaimedCall

READY_MAX = 100_000
"""Lanes of one shard that one pass returns at most."""
TAKEN_OUT_MAX = 90
"""Runs of a provider that one transaction removes from its queue at most."""


class LaneRead(NamedTuple):
    """The runs that a claim reads of one provider: all that are held, and as many waiting ones as have a place.

    ``ahead``: due times of the waiting runs that were read; None if they were not read for the backlog. ``cut``: the
    read met so many ended runs that it did not reach a waiting run for each place; there may be more beyond.
    """

    lane: LaneItem
    known: KnownPolicy
    budget: int
    runs: list[LaneRun]
    beyond_ms: int
    ahead: list[int] | None = None
    cut: bool = False


class Opened(NamedTuple):
    """Result for one provider.

    ``left``: its lane as just written, if more runs may start at once. ``lost``: the write lost.
    """

    claimed: list[ClaimedCall]
    left: LaneItem | None = None
    lost: bool = False
    took_out: bool = False
    asides: frozenset[int] = frozenset()


class LanePage(NamedTuple):
    """Lanes to be opened. ``full``: there may be more of them."""

    lanes: list[LaneItem]
    full: bool = False


def _claim(
    store: BatchParts,
    providers: Collection[int] | None,
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    kind: ProviderKind = "http",
    run: int | None = None,
) -> list[ClaimedCall]:
    """Read ready lanes once, and again only if there may be more; each lane is read once, too.

    ``providers``: claim from these alone, without searching for others; None: from all. ``run``: claim this one only.
    """
    claiming = Claiming(store, providers, now_ms=now_ms, lease_ms=lease_ms, kind=kind, only=run)
    page = LanePage([], full=True)
    for _ in range(PASSES_MAX):
        left = runs_max - len(claiming.claimed)
        if left > 0 and page.full and not page.lanes:
            page = claiming.ready_lanes(limit=max(left, PROVIDERS_MIN))
        if left <= 0 or not page.lanes:
            break
        page = claiming.open_all(page, runs_max=left)
    return claiming.in_turn()


def claim_calls(store: BatchParts, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
    return _claim(store, None, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)


def claim_calls_of(
    store: BatchParts, providers: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int
) -> list[ClaimedCall]:
    """Claim like ``claim_calls``, but from these providers alone.

    A function that is told of one need not search for others.
    """
    return _claim(store, providers, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)


def claim_for_worker(
    store: BatchParts, provider: int, *, now_ms: int, runs_max: int, lease_ms: int, run: int | None = None
) -> list[ClaimedCall]:
    most = runs_max if run is None else 1
    return _claim(store, [provider], now_ms=now_ms, runs_max=most, lease_ms=lease_ms, kind="outgoing", run=run)


def next_for_worker_ms(store: BatchParts, provider: int) -> int | None:
    lane = lane_of(store.db, provider)
    return lane.ready_ms if lane is not None and lane.outgoing and lane.ready_ms < NEVER_MS else None


def settle_and_claim_calls(
    store: BatchParts, settlements: Sequence[CallSettlement], *, now_ms: int, runs_max: int, lease_ms: int
) -> tuple[list[bool], list[ClaimedCall]]:
    won = settle_calls(store, settlements)
    return won, claim_calls(store, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)


def next_call_ms(store: BatchParts) -> int | None:
    indexed_ms = store.looks.index.first()
    if sooner := store.looks.before(indexed_ms)[:100]:
        for lane in lanes_of(store.db, sooner).values():
            store.looks.note(lane)
    first_ms = min(indexed_ms, store.looks.first_ms())
    return first_ms if first_ms < NEVER_MS else None


def ready_lanes(store: BatchParts, *, until_ms: int) -> list[tuple[int, int]]:
    """Return (provider, time) of providers that may start a run until then, earliest first. From an index: a hint."""
    return _ready_among(store, lane_shards(), until_ms=until_ms)


def ready_work(store: BatchParts, *, until_ms: int) -> list[tuple[int, int]]:
    """Return the same for providers whose runs workers claim."""
    return _ready_among(store, worker_shards(), until_ms=until_ms)


def _ready_among(store: BatchParts, shards: Sequence[str], *, until_ms: int) -> list[tuple[int, int]]:
    pages = store.db.threads.fan_out(
        lambda shard: _ready_in(store.db, shard, until_ms=until_ms, limit=READY_MAX), shards
    )
    rows = sorted((row["at"], provider_in(row["pk"])) for page in pages for row in page)
    return [(provider, ready_ms) for ready_ms, provider in rows]


def ready_of(store: BatchParts, providers: Collection[int]) -> dict[int, int]:
    """Return when each provider may start its next run; providers without one, or paused, are left out."""
    lanes = lanes_of(store.db, providers)
    return {number: lane.ready_ms for number, lane in lanes.items() if lane.ready_ms < NEVER_MS}


def _ready_in(db: DynamoDatabase, shard: str, *, until_ms: int, limit: int) -> list[Item]:
    return db.page(RUNS, shard, limit=limit, index=READY_INDEX, last=until_ms)


class Claiming:
    """One claim. Each provider's part of it stands alone: one write of its lane.

    ``kind``: only providers of this kind. ``only``: the number in the ledger of the one run that is wanted.
    """

    def __init__(
        self,
        store: BatchParts,
        providers: Collection[int] | None,
        *,
        now_ms: int,
        lease_ms: int,
        kind: ProviderKind,
        only: int | None,
    ) -> None:
        self.claimed: list[ClaimedCall] = []
        self._kind = kind
        self._only = only
        self._db = store.db
        self._facts = store.facts
        self._looks = store.looks
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._providers = providers
        self._turns: list[int] = []
        self._took_out = False

    def in_turn(self) -> list[ClaimedCall]:
        return in_turn(self.claimed, self._turns) if self._took_out else self.claimed

    def ready_lanes(self, *, limit: int) -> LanePage:
        """Return ready lanes, the longest ready first.

        The index is a hint: the lane itself says whether it is ready.
        """
        if self._providers is not None:
            return LanePage(self._ready(self._providers))
        providers = ready_providers(self._looks, now_ms=self._now_ms, limit=limit)
        return LanePage(self._ready(providers), full=len(providers) >= limit)

    def _ready(self, providers: Iterable[int]) -> list[LaneItem]:
        lanes = lanes_of(self._db, providers).values()
        for lane in lanes:
            self._looks.note(lane)
        return _in_turn(lane for lane in lanes if lane.ready_ms <= self._now_ms)

    def open_all(self, page: LanePage, *, runs_max: int) -> LanePage:
        """Open each lane, as far as the budget reaches. Return the lanes to be looked at again at once."""
        lanes, known = self.open_lanes(page)
        self._turns += [lane.provider for lane in lanes]
        shares = divide_budget(runs_max, [self._startable(lane, known[lane.provider].policy) for lane in lanes])
        budgets = list(zip(lanes, shares, strict=False))
        fan_out = self._db.threads.fan_out
        seen = fan_out(lambda one: self.look(one[0], known[one[0].provider], one[1]), budgets)
        now_ms = self._now_ms
        wishes = self._facts.wishes(self._db, (run.run for look in seen for run in look.runs if run.at_ms <= now_ms))
        opened = fan_out(lambda look: self.open(look, wishes), seen)
        for one in opened:
            self.claimed += one.claimed
        self._return_late({batch for one in opened for batch in one.asides})
        if any(one.took_out for one in opened):
            self._took_out = True
            return LanePage([], full=True)  # moved runs may now wait elsewhere: all providers are read again
        lost = [look.lane.provider for look, one in zip(seen, opened, strict=True) if one.lost]
        left = [one.left for one in opened if one.left is not None]
        again = [*lanes[len(budgets) :], *left, *(self._ready(lost) if lost else ())]
        return LanePage(_in_turn(again), page.full)

    def open_lanes(self, page: LanePage) -> tuple[list[LaneItem], dict[int, KnownPolicy]]:
        """Return lanes whose provider exists, is not paused and is of the claimed kind; and all known policies."""
        known = self._facts.policies.of(self._db, page.lanes)
        resting = [lane for lane in page.lanes if lane.provider not in known or known[lane.provider].policy.paused]
        self._rest(resting)
        rests = {lane.provider for lane in resting}
        lanes = [
            lane for lane in page.lanes if lane.provider not in rests and known[lane.provider].policy.kind == self._kind
        ]
        return lanes, known

    def _startable(self, lane: LaneItem, policy: Policy) -> int:
        held_due = sum(one.at_ms <= self._now_ms for one in lane.held.values())
        return startable(policy, held=len(lane.held), held_due=held_due)

    def _rest(self, lanes: Iterable[LaneItem]) -> None:
        """Set lanes to be never ready, until their provider is put again."""
        pairs = [(lane, lane.change(ready_ms=NEVER_MS)) for lane in lanes]
        for (_, after), written in zip(pairs, self._db.write_each([write_lane(*pair) for pair in pairs]), strict=True):
            if written.won:
                self._looks.note(after)

    def look(self, lane: LaneItem, known: KnownPolicy, budget: int) -> LaneRead:
        """Read a lane's first runs. If the first is late, the same request also reads what its backlog needs."""
        places = min(known.policy.max_in_flight - len(lane.held), budget)
        if places <= 0:
            return LaneRead(lane, known, budget, held_runs(lane), lane.front_ms)
        late = lane.front_ms < self._now_ms - LATE_MS
        asked, least = (max(places, GAPS_MAX + 1), GAPS_MAX) if late else (places, 0)
        waiting = waiting_from(self._db, lane, lane.front_ms, limit=asked, until_ms=self._now_ms, least=least)
        dues = [run.due_ms for run in waiting.runs]
        beyond_ms = dues[places] if len(dues) > places else waiting.beyond_ms
        runs = sorted(held_runs(lane) + waiting.runs[:places])
        cut = len(dues) < places and beyond_ms < NEVER_MS and not (dues and dues[-1] > self._now_ms)
        return LaneRead(lane, known, budget, runs, beyond_ms, dues if late else None, cut)

    def open(self, look: LaneRead, wishes: Wishes) -> Opened:
        """Start runs at one provider. If the write loses to another claimer, the next pass makes it."""
        lane, now_ms = look.lane, self._now_ms
        if self.is_unwanted(look, wishes):
            return Opened([], took_out=True, asides=frozenset(self.take_out(look)))
        starts, ready_ms, after = self.decide(look, wishes)
        if self._only is not None and not self._is_only(look, starts):
            return Opened([])
        ready_ms = min(ready_ms, look.beyond_ms) if look.cut else ready_ms
        write_ms = self._db.write_ms(now_ms)
        started = {start.handle for start in starts}
        held = {
            run.due_ms: _out(run, write_ms + self._last_ms(look, run, wishes), write_ms)
            for run in look.runs
            if run.due_ms in started
        }
        left = [run.due_ms for run in look.runs if run.state == "waiting" and run.due_ms not in started]
        opened = lane.change(
            pace=after,
            held=dict(lane.held) | held,
            front_ms=min([*left, look.beyond_ms]),
            ready_ms=min([ready_ms, *(one.at_ms for one in held.values())]),
        )
        # The lane is written only at the version that was read: if another claimer was faster, no run starts here.
        if not self._db.write(write_lane(lane, opened)).won:
            return Opened([], lost=True)
        self._looks.note(opened)
        claimed = [self._claimed(look, due_ms, one, wishes) for due_ms, one in sorted(held.items())]
        return Opened(claimed, left=opened if opened.ready_ms <= now_ms else None)

    def is_unwanted(self, look: LaneRead, wishes: Wishes) -> bool:
        """Return True if one of the runs is unwanted."""
        return any(wishes.judge(run, look.lane.provider, now_ms=self._now_ms) for run in look.runs)

    def decide(self, look: LaneRead, wishes: Wishes) -> StartDecision:
        """Return the runs that may start, by ``core.batches.pace``."""
        front = [FirstRun(run.due_ms, run.state, run.due_ms, run.at_ms) for run in look.runs]
        return decide_starts(
            look.known.policy,
            look.lane.pace,
            front,
            now_ms=self._now_ms,
            runs_max=look.budget,
            backlog=self._backlog(look, front, wishes),
            phase=look.known.phase,
        )

    def _is_only(self, look: LaneRead, starts: Sequence[FirstRun]) -> bool:
        return any(run.due_ms == start.handle and run.run == self._only for run in look.runs for start in starts)

    def _last_ms(self, look: LaneRead, run: LaneRun, wishes: Wishes) -> int:
        """Return how long the lease of a run lasts."""
        return call_timeout_ms(wishes.records[run.run].get("options"), look.known.policy) + self._lease_ms

    def _claimed(self, look: LaneRead, due_ms: int, one: Held, wishes: Wishes) -> ClaimedCall:
        record, day = wishes.records[one.run], wishes.day(one.run)
        assert look.lane.revision is not None
        return ClaimedCall(
            queue_key(look.lane.provider, due_ms),
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
            record.get("options"),
        )

    def _backlog(self, look: LaneRead, front: Sequence[FirstRun], wishes: Wishes) -> Backlog | None:
        late = first_late(front, now_ms=self._now_ms)
        if late is None:
            return None
        due_ms, end_ms = look.runs[late].due_ms, wishes.day(look.runs[late].run).end_ms
        until_ms = backlog_until_ms(due_ms, end_ms=end_ms)
        ahead = look.ahead
        if ahead is None:
            waiting = waiting_from(self._db, look.lane, max(due_ms, look.lane.front_ms), limit=GAPS_MAX + 1)
            ahead = [run.due_ms for run in waiting.runs]
        dues = sorted([*look.lane.held, *ahead])
        return backlog([one_ms for one_ms in dues if due_ms <= one_ms < until_ms][: GAPS_MAX + 1], end_ms=end_ms)

    def take_out(self, look: LaneRead) -> set[int]:
        """Remove unwanted runs from a provider's queue; the next pass looks again."""
        lane = look.lane
        waiting = waiting_from(self._db, lane, lane.front_ms, limit=TAKEN_OUT_MAX)
        runs = sorted(held_runs(lane) + waiting.runs)
        wishes = self._facts.wishes(self._db, (run.run for run in runs if run.at_ms <= self._now_ms))
        return take_out(self._db, self._looks, lane, runs, wishes, front_ms=waiting.beyond_ms, now_ms=self._now_ms)

    def _return_late(self, batches: set[int]) -> None:
        """Bring back runs of a batch that was resumed while they were set aside: its resumption did not see them."""
        for number in batches:
            if not self._facts.is_paused(self._db, number):
                bring_back(self._db, self._looks, number)


def _in_turn(lanes: Iterable[LaneItem]) -> list[LaneItem]:
    return sorted(lanes, key=lambda lane: (lane.ready_ms, lane.provider))


def _out(run: LaneRun, until_ms: int, now_ms: int) -> Held:
    lost = 1 if may_have_arrived(run.state, run.lost) else 0
    return Held(run.run, "out", until_ms, run.attempt + 1, lost, now_ms)

"""A provider's lane: the item with its pace, the time of its next look, and its runs that are out or in back-off.

Every change of an open run goes through its lane, and a lane is written only at the version that was read: so of two
claimers, settlers or editors one loses and reads again. Runs that are out or in back-off are stored in the lane, not in
items of their own; so a claim is one write, however many runs it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.cache.change_counter import ChangeCounter
from paceline.adapters.aws.cache.index_cache import CachedIndex, IndexCache
from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, PRESENT, Action, Item, item_at, padded, put, setting, update
from paceline.adapters.aws.client.tables import READY_INDEX, RUNS
from paceline.core.batches.pace import Pace
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.batches.settle import Held
from paceline.errors import StoreUnavailable

SKEW_MS = 300_000
"""Largest difference between the clocks of planners and claimers."""
LOOK_ROWS = 16
"""Rows of the first request if it is not known how many runs are due."""
LOOKS_MAX = 64
"""Requests that one search along a queue for waiting runs makes at most."""


class LaneItem(msgspec.Struct, frozen=True):
    """A lane.

    No waiting run is due before ``front_ms``; ``ready_ms``: when to look. Both may be too early, never too late.
    ``revision`` is the provider's, None if it was removed. ``held``: runs that are out or in back-off, by due time.
    ``aside``: number of runs set aside. ``outgoing``: only workers claim its runs.
    """

    provider: int
    version: int = 1
    revision: int | None = 1
    ready_ms: int = NEVER_MS
    front_ms: int = NEVER_MS
    pace: Pace = Pace()
    redriven_ms: int = 0
    held: Mapping[int, Held] = {}
    aside: int = 0
    outgoing: bool = False

    def change(self, **fields: Any) -> LaneItem:
        return msgspec.structs.replace(self, version=self.version + 1, **fields)

    @property
    def first_ms(self) -> int:
        """Due time of the first open run."""
        return min((self.front_ms, *self.held))

    def knows(self, due_ms: int) -> bool:
        """Return False if a waiting run with this due time would never be looked at."""
        return due_ms >= self.front_ms or due_ms in self.held

    def woken(self, due_ms: int) -> LaneItem:
        """Return the lane with one more waiting run, due then."""
        if max(self.front_ms, self.ready_ms) <= due_ms:
            return self
        return self.change(front_ms=min(self.front_ms, due_ms), ready_ms=min(self.ready_ms, due_ms))


class LaneRun(NamedTuple):
    """A run that has not ended."""

    due_ms: int
    run: int
    state: Literal["waiting", "out", "retry"]
    at_ms: int
    attempt: int
    lost: int


class WaitingRuns(NamedTuple):
    """Waiting runs in due order; ``beyond_ms`` is no later than the due time of the next one beyond them."""

    runs: list[LaneRun]
    beyond_ms: int


def write_lane(before: LaneItem | None, after: LaneItem) -> Action:
    """Return the write of a lane. It wins if the lane is still ``before``, or for None if there is no lane."""
    assert before is None or after.version > before.version
    pace = after.pace
    item = {
        "pk": keys.lane_key(after.provider).pk,
        "sk": keys.lane_key(after.provider).sk,
        "version": after.version,
        "revision": after.revision,
        "shard": shard_of_lane(after.provider, outgoing=after.outgoing) if after.ready_ms < NEVER_MS else None,
        "at": after.ready_ms if after.ready_ms < NEVER_MS else None,
        "front_ms": after.front_ms,
        "rate_us": pace.rate_us,
        "paced_ms": pace.paced_ms,
        "closed_until_ms": pace.closed_until_ms,
        "failures": pace.failures,
        "staggered": pace.staggered,
        "redriven_ms": after.redriven_ms,
        "held": {str(due_ms): list(one) for due_ms, one in after.held.items()},
        "aside": after.aside,
        "outgoing": after.outgoing or None,
    }
    if before is None:
        return put(RUNS, item, when=ABSENT)
    return put(RUNS, item, when="#version = :seen", seen=before.version)


def read_lane(item: Item) -> LaneItem:
    return LaneItem(
        provider=keys.provider_in(item["pk"]),
        version=item["version"],
        revision=item.get("revision"),
        ready_ms=item.get("at", NEVER_MS),
        front_ms=item["front_ms"],
        pace=Pace(
            rate_us=item["rate_us"],
            paced_ms=item["paced_ms"],
            closed_until_ms=item["closed_until_ms"],
            failures=item["failures"],
            staggered=item["staggered"],
        ),
        redriven_ms=item["redriven_ms"],
        held={int(due_ms): Held._make(one) for due_ms, one in item["held"].items()},
        aside=item["aside"],
        outgoing=item.get("outgoing", False),
    )


def shard_of_lane(provider: int, *, outgoing: bool) -> str:
    return keys.worker_shard(provider) if outgoing else keys.lane_shard(provider)


def lane_of(db: DynamoDatabase, provider: int) -> LaneItem | None:
    item = db.get(RUNS, keys.lane_key(provider))
    return read_lane(item) if item else None


def lanes_of(db: DynamoDatabase, providers: Iterable[int]) -> dict[int, LaneItem]:
    found = db.get_many(RUNS, map(keys.lane_key, providers))
    return {lane.provider: lane for lane in map(read_lane, found.values())}


def ready_index(db: DynamoDatabase, counter: ChangeCounter) -> IndexCache:
    """Return the cache of the index that orders lanes by their next look."""
    return IndexCache(db, counter, CachedIndex(RUNS, READY_INDEX, "at", keys.lane_shards))


class Looks:
    """Times of the next look at lanes that this process wrote or read.

    The index has them too, but a moment later, and then runs that this process has just made possible would be late. A
    time here may be wrong, since others write as well: it only says which lanes to read.
    """

    KEPT_MAX = 4_096

    def __init__(self, index: IndexCache) -> None:
        self.index = index
        self._ready: dict[int, int] = {}
        self._lanes: dict[int, LaneItem] = {}

    def note(self, lane: LaneItem) -> None:
        ready_ms = lane.ready_ms if lane.ready_ms < NEVER_MS and not lane.outgoing else None
        self.index.moved(keys.lane_shard(lane.provider), keys.queue_partition(lane.provider), ready_ms)
        self._ready.pop(lane.provider, None)
        self._lanes.pop(lane.provider, None)
        if lane.held:
            if len(self._lanes) >= self.KEPT_MAX:
                self._lanes = dict(list(self._lanes.items())[self.KEPT_MAX // 2 :])
            self._lanes[lane.provider] = lane
        if ready_ms is None:
            return
        if len(self._ready) >= self.KEPT_MAX:
            self._ready = dict(list(self._ready.items())[self.KEPT_MAX // 2 :])
        self._ready[lane.provider] = ready_ms

    def last_seen(self, provider: int) -> LaneItem | None:
        """Return a lane with runs out as this process last wrote or read it.

        It is a guess, which a write at its version confirms.
        """
        return self._lanes.get(provider)

    def before(self, limit_ms: int) -> list[int]:
        return [provider for provider, ready_ms in list(self._ready.items()) if ready_ms < limit_ms]

    def first_ms(self) -> int:
        return min(list(self._ready.values()), default=NEVER_MS)


def change_lane(db: DynamoDatabase, looks: Looks, lane: LaneItem, change: Callable[[LaneItem], LaneItem]) -> LaneItem:
    """Change and write a lane, again with the newest lane if another write came in between.

    An unchanged lane is not written.
    """
    provider = lane.provider
    before: LaneItem | None = lane
    for _ in attempts():
        assert before is not None, f"provider {provider} has no lane"
        after = change(before)
        if after == before:
            return before
        written = db.write(write_lane(before, after))
        if written.won:
            looks.note(after)
            return after
        before = read_lane(written.item) if written.item else lane_of(db, provider)
    raise busy_lane(provider)


def busy_lane(provider: int) -> StoreUnavailable:
    return busy(f"the lane of provider {provider}")


def wake(db: DynamoDatabase, looks: Looks, firsts: Mapping[int, int], *, now_ms: int) -> None:
    """Make each of these providers ready no later than its waiting run is due.

    A claim that read the queue before the run was there must not win after this. Claims take only ready lanes; so a
    ready lane gets a new version, whatever its ``front_ms``.
    """

    def woken(lane: LaneItem) -> LaneItem:
        after = lane.woken(firsts[lane.provider])
        return lane.change() if after is lane and lane.ready_ms <= now_ms + SKEW_MS else after

    lanes = lanes_of(db, firsts)
    late = [lanes[provider] for provider in firsts if woken(lanes[provider]) is not lanes[provider]]
    db.threads.fan_out(lambda lane: change_lane(db, looks, lane, woken), late)


def waiting_from(
    db: DynamoDatabase, lane: LaneItem, from_ms: int, *, limit: int, until_ms: int = NEVER_MS, least: int = 0
) -> WaitingRuns:
    """Return waiting runs; reads until there are more than the limit, so that the next one is known.

    It stops earlier at a run due after ``until_ms``, if there are more than ``least`` by then: reads cost money.
    """
    found: list[LaneRun] = []
    if from_ms >= NEVER_MS:
        return WaitingRuns(found, NEVER_MS)
    few = limit if until_ms >= NEVER_MS else min(limit, max(least + 1, LOOK_ROWS))
    asked = few + 1 + sum(due_ms >= from_ms for due_ms in lane.held)
    for _ in range(LOOKS_MAX):
        rows = db.page(
            RUNS,
            keys.queue_partition(lane.provider),
            limit=asked,
            first=padded(from_ms),
            last=keys.LAST,
            only="#sk, #run, #state, #attempt, #lost",
        )
        found += [_waiting(row) for row in rows if row["state"] == "waiting" and int(row["sk"]) not in lane.held]
        if len(found) > limit:
            return WaitingRuns(found[:limit], found[limit].due_ms)
        if len(rows) < asked:
            return WaitingRuns(found, NEVER_MS)
        from_ms = int(rows[-1]["sk"]) + 1
        if len(found) > least and found[-1].due_ms > until_ms:
            break
        asked = 256
    return WaitingRuns(found, from_ms)


def _waiting(row: Item) -> LaneRun:
    due_ms = int(row["sk"])
    return LaneRun(due_ms, row["run"], "waiting", due_ms, row.get("attempt", 0), row.get("lost", 0))


def held_runs(lane: LaneItem) -> list[LaneRun]:
    return [
        LaneRun(due_ms, one.run, one.state, one.at_ms, one.attempt, one.lost)
        for due_ms, one in sorted(lane.held.items())
    ]


def ready_providers(looks: Looks, *, now_ms: int, limit: int) -> list[int]:
    """Return providers that may be ready, from the index and from what this process knows."""
    rows = sorted((row["at"], keys.provider_in(row["pk"])) for row in looks.index.upto(now_ms, limit=limit))
    return list(dict.fromkeys([*(provider for _, provider in rows[:limit]), *looks.before(now_ms + 1)[:limit]]))


def place_again(gone: Action, run: int, provider: int, due_ms: int, **facts: Any) -> list[Action]:
    """Return actions that give a run another place, in which it waits.

    ``gone``: deletes the old place if it is there.
    """
    item = item_at(keys.place_key(provider, due_ms), run=run, state="waiting", shard=keys.open_shard(run), at=due_ms)
    change, values = setting({"provider": provider, "due_ms": due_ms})
    ledger = update(RUNS, keys.ledger_key(run), change, when=PRESENT, **values)
    return [gone, put(RUNS, item | facts, when=ABSENT), ledger]

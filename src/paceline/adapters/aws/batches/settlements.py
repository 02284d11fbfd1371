"""Ends of leases on DynamoDB: runs are settled, given back, or pulled back after the clock was set back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from paceline.adapters.aws.batches.keys import dead_shard, place_key
from paceline.adapters.aws.batches.lanes import (
    LaneItem,
    Looks,
    busy_lane,
    change_lane,
    lane_of,
    lanes_of,
    read_lane,
    write_lane,
)
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.providers import live_providers
from paceline.adapters.aws.batches.unwanted_runs import IN_PLACE
from paceline.adapters.aws.client.connect import attempts
from paceline.adapters.aws.client.database import ACTIONS_MAX, DynamoDatabase, in_pages
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import Action, setting, update
from paceline.adapters.aws.client.tables import EXPIRES, RUNS
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.pace import pace_after, pace_pulled_back
from paceline.core.batches.provider import KnownPolicy
from paceline.core.batches.run_keys import due_ms_of, provider_of, queue_key
from paceline.core.batches.settle import (
    DEAD_STATES,
    RELEASED,
    counts,
    extended,
    first_ready_ms,
    is_plain,
    look_ms,
    pulled_back,
    released,
)

T = TypeVar("T")

RUNS_PER_WRITE = ACTIONS_MAX - 1
PROVIDERS_PAGE = 1_000


class _Change(NamedTuple):
    """A changed lane, the runs that change with it, and which of the requests count.

    If none counts, the lane is the one before: a lane that was never written must not be remembered.
    """

    lane: LaneItem
    actions: list[Action]
    won: list[bool]


def settle_calls(store: BatchParts, settlements: Sequence[CallSettlement]) -> list[bool]:
    """Settle runs; each provider's in one transaction with its lane, or in a few if there are very many."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(settlements):
        groups[provider_of(item.handle)].append(index)
    lanes = _lanes(
        store.db, store.looks, {one: [settlements[index] for index in indexes] for one, indexes in groups.items()}
    )
    known = store.facts.policies.of(store.db, lanes.values())

    def settle_group(provider: int) -> list[bool]:
        items = [settlements[index] for index in groups[provider]]
        lane = lanes.get(provider)
        if lane is None or provider not in known:
            return [False] * len(items)
        plain = all(is_plain(item) for item in items)
        return _in_parts(
            store.db, store.looks, lane, items, partial(_settled, store.db.retention, known[provider], plain=plain)
        )

    return _in_order(len(settlements), groups, store.db.threads.fan_out(settle_group, groups))


def _lanes(db: DynamoDatabase, looks: Looks, groups: dict[int, list[CallSettlement]]) -> dict[int, LaneItem]:
    """Return the lanes as this process remembers them, if all runs to be settled are out there; the others are read."""
    guesses = {provider: lane for provider in groups if (lane := looks.last_seen(provider)) is not None}
    for provider, lane in list(guesses.items()):
        if not all(counts(lane.held.get(due_ms_of(item.handle)), item) for item in groups[provider]):
            del guesses[provider]
    return guesses | lanes_of(db, groups.keys() - guesses.keys())


def release_calls(store: BatchParts, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    """Give runs back. An attempt that never began does not count."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, (handle, _) in enumerate(fences):
        groups[provider_of(handle)].append(index)
    lanes = lanes_of(store.db, groups)

    def release_group(provider: int) -> list[bool]:
        items = [fences[index] for index in groups[provider]]
        if (lane := lanes.get(provider)) is None:
            return [False] * len(items)
        return _in_parts(store.db, store.looks, lane, items, lambda now, part: _released(now, part, now_ms=now_ms))

    given_back = _in_order(len(fences), groups, store.db.threads.fan_out(release_group, groups))
    store.change_counter.bump()
    return given_back


def _in_order(count: int, groups: dict[int, list[int]], answers: Sequence[list[bool]]) -> list[bool]:
    won = [False] * count
    for indexes, answer in zip(groups.values(), answers, strict=True):
        for index, one in zip(indexes, answer, strict=True):
            won[index] = one
    return won


def _in_parts(
    db: DynamoDatabase,
    looks: Looks,
    lane: LaneItem,
    items: Sequence[T],
    decide: Callable[[LaneItem, Sequence[T]], _Change],
) -> list[bool]:
    won: list[bool] = []
    now = lane
    for at in range(0, len(items), RUNS_PER_WRITE):
        change = _write(db, now, items[at : at + RUNS_PER_WRITE], decide)
        looks.note(change.lane)
        now = change.lane
        won += change.won
    return won


def _write(
    db: DynamoDatabase, lane: LaneItem, items: Sequence[T], decide: Callable[[LaneItem, Sequence[T]], _Change]
) -> _Change:
    """Decide on the newest lane and write, until no other write came in between."""
    for _ in attempts():
        change = decide(lane, items)
        if change.lane is lane:
            return change
        # The lane comes first: if it was written in between, the transaction is lost and returns the lane as it is now.
        done = db.transact([write_lane(lane, change.lane), *change.actions])
        if done.won:
            return change
        stands = done.items[0] if done.items else None
        lane = read_lane(stands) if stands else lanes_of(db, [lane.provider])[lane.provider]
    raise busy_lane(lane.provider)


def _settled(
    retention: Retention, known: KnownPolicy, before: LaneItem, items: Sequence[CallSettlement], *, plain: bool
) -> _Change:
    """Return the settled lane.

    ``plain``: good calls that close nothing. The first of two settlements with the right fence counts.
    """
    pace, held, ready_ms = before.pace, dict(before.held), before.ready_ms
    actions: list[Action] = []
    won: list[bool] = []
    look: int | None = None
    ended_ms = 0
    for item in items:
        due_ms = due_ms_of(item.handle)
        one = held.get(due_ms)
        won.append(counts(one, item))
        if one is None or not won[-1]:
            continue
        pace = pace_after(
            pace, known.policy, verdict=item.verdict, closed_until_ms=item.closed_until_ms, now_ms=item.ended_ms
        )
        if item.state == "retry":
            held[due_ms] = one._replace(state="retry", at_ms=item.not_before_ms, lost=1 if item.lost else 0)
            actions.append(_tell(before.provider, due_ms, one.run, item.reason))
        else:
            del held[due_ms]
            actions.append(_end(retention, before.provider, due_ms, one.run, item))
        ended_ms = max(ended_ms, item.ended_ms)
        look = None if plain else look_ms(item, known.policy, pace, ready_ms=ready_ms)
        ready_ms = ready_ms if look is None else look
    if not any(won):
        return _Change(before, [], won)
    if look is None:
        held_at_ms = [one.at_ms for one in held.values()]
        ready_ms = first_ready_ms(before.front_ms, held_at_ms, closed_until_ms=pace.closed_until_ms, now_ms=ended_ms)
    return _Change(before.change(pace=pace, held=held, ready_ms=ready_ms), actions, won)


def _end(retention: Retention, provider: int, due_ms: int, run: int, item: CallSettlement) -> Action:
    dead = item.state in DEAD_STATES
    change, values = setting(
        {
            "state": item.state,
            "attempt": item.attempt,
            "started_ms": item.started_ms,
            "ended_ms": item.ended_ms,
            "latency_ms": item.latency_ms,
            "code": item.code,
            "reason": item.reason,
            "payload": item.payload,
            "dead": dead or None,
            "shard": dead_shard(provider) if dead else None,
            "at": queue_key(provider, due_ms) if dead else None,
            EXPIRES: retention.call_s(item.ended_ms, dead=dead),
        }
    )
    return update(RUNS, place_key(provider, due_ms), change, when=IN_PLACE, seen=run, was="waiting", **values)


def _tell(provider: int, due_ms: int, run: int, reason: str) -> Action:
    """Return the write of the reason why a run waits for another try. All else about a held run is in its lane."""
    key = place_key(provider, due_ms)
    return update(RUNS, key, "SET #reason = :reason", when=IN_PLACE, seen=run, was="waiting", reason=reason)


def _released(before: LaneItem, fences: Sequence[tuple[int, int]], *, now_ms: int) -> _Change:
    held, after = dict(before.held), before
    actions: list[Action] = []
    won: list[bool] = []
    for handle, attempt in fences:
        due_ms = due_ms_of(handle)
        one = held.get(due_ms)
        counts = one is not None and one.state == "out" and one.attempt == attempt
        won.append(counts)
        if one is None or not counts:
            continue
        if (back := released(one, now_ms=now_ms)) is not None:
            held[due_ms] = back
        else:
            del held[due_ms]
            after = after.woken(due_ms)
        actions.append(_tell(before.provider, due_ms, one.run, RELEASED))
    if not any(won):
        return _Change(before, [], won)
    return _Change(after.change(held=held, ready_ms=min(before.ready_ms, now_ms)), actions, won)


def extend_call(store: BatchParts, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    due_ms = due_ms_of(handle)
    moved = False

    def change(lane: LaneItem) -> LaneItem:
        nonlocal moved
        one = extended(lane.held.get(due_ms), attempt=attempt, until_ms=until_ms, now_ms=now_ms)
        moved = one is not None
        if one is None:
            return lane
        return lane.change(held=dict(lane.held) | {due_ms: one}, ready_ms=min(lane.ready_ms, until_ms))

    lane = lane_of(store.db, provider_of(handle))
    if lane is not None:
        change_lane(store.db, store.looks, lane, change)
    return moved


# -- a clock that was set back


def pull_back_calls(store: BatchParts, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
    """Pull back times that lie in the future, in every provider's lane."""
    moved = 0
    for page in in_pages(live_providers(store.db), PROVIDERS_PAGE):
        lanes = lanes_of(store.db, [item["number"] for item in page])
        pairs = [(lanes[number], known) for number, known in store.facts.policies.of(store.db, lanes.values()).items()]
        pull_one = partial(_pull_lane, store, read_ms=read_ms, wait_ms_max=wait_ms_max)
        moved += sum(store.db.threads.fan_out(pull_one, pairs))
    return moved


def _pull_lane(
    store: BatchParts, pair: tuple[LaneItem, KnownPolicy], *, read_ms: Callable[[], int], wait_ms_max: int
) -> int:
    moved = 0

    def change(lane: LaneItem) -> LaneItem:
        nonlocal moved
        back, moved = _pulled_back(lane, pair[1], now_ms=read_ms(), wait_ms_max=wait_ms_max)
        return back

    change_lane(store.db, store.looks, pair[0], change)
    return moved


def _pulled_back(before: LaneItem, known: KnownPolicy, *, now_ms: int, wait_ms_max: int) -> tuple[LaneItem, int]:
    held = {due_ms: pulled_back(one, now_ms=now_ms, wait_ms_max=wait_ms_max) for due_ms, one in before.held.items()}
    moved = sum(held[due_ms] != one for due_ms, one in before.held.items())
    pace = pace_pulled_back(before.pace, known.policy, now_ms=now_ms, wait_ms_max=wait_ms_max)
    moved += pace != before.pace
    ready_ms = min(before.ready_ms, now_ms) if held or pace != before.pace else before.ready_ms
    if not moved and ready_ms == before.ready_ms:
        return before, 0
    return before.change(held=held, pace=pace, ready_ms=ready_ms), moved

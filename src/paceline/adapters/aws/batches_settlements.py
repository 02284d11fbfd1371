"""What becomes of runs that are out: settled, given back, or pulled back after the clock was set back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from paceline.adapters.aws.batches_keys import (
    dead_shard,
    due_ms_of,
    place_key,
    place_number,
    provider_of,
)
from paceline.adapters.aws.batches_lanes import Held, LaneItem, Looks, busy_lane, lanes_of, read_lane, write_lane
from paceline.adapters.aws.batches_providers import Known, Policies, live_providers
from paceline.adapters.aws.batches_sidings import IN_PLACE
from paceline.adapters.aws.connect import attempts
from paceline.adapters.aws.database import ACTIONS_MAX, Database
from paceline.adapters.aws.items import Action, setting, update
from paceline.adapters.aws.tables import RUNS
from paceline.core.calls import CallSettlement
from paceline.core.pace import ends_well, lane_after, lane_pulled_back

T = TypeVar("T")

DEAD_STATES = frozenset({"failed", "unknown"})
RUNS_PER_WRITE = ACTIONS_MAX - 1
PROVIDERS_PAGE = 1_000
PROVIDERS_MAX = 1_000_000
RELEASED = "given back before it started"


class _Change(NamedTuple):
    """A lane as it shall be, the runs that change with it, and which of those asked for count."""

    lane: LaneItem
    actions: list[Action]
    won: list[bool]


def settle(db: Database, policies: Policies, looks: Looks, settlements: Sequence[CallSettlement]) -> list[bool]:
    """Each provider's in one transaction with its lane, or in a few if they are very many."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(settlements):
        groups[provider_of(item.handle)].append(index)
    lanes = _lanes(db, looks, {one: [settlements[index] for index in indexes] for one, indexes in groups.items()})
    known = policies.of(db, lanes.values())

    def settle_group(provider: int) -> list[bool]:
        items = [settlements[index] for index in groups[provider]]
        lane = lanes.get(provider)
        if lane is None or provider not in known:
            return [False] * len(items)
        plain = all(_is_plain(item) for item in items)
        return _in_parts(db, looks, lane, items, lambda now, part: _settled(now, known[provider], part, plain=plain))

    return _in_order(len(settlements), groups, db.threads.fan_out(settle_group, groups))


def _lanes(db: Database, looks: Looks, groups: dict[int, list[CallSettlement]]) -> dict[int, LaneItem]:
    """As this process knows them, where all that it settles is out there; those that it does not know so are read."""
    guesses = {provider: lane for provider in groups if (lane := looks.last_seen(provider)) is not None}
    for provider, lane in list(guesses.items()):
        if not all(_counts(lane.held.get(due_ms_of(item.handle)), item) for item in groups[provider]):
            del guesses[provider]
    return guesses | lanes_of(db, groups.keys() - guesses.keys())


def _counts(one: Held | None, item: CallSettlement) -> bool:
    return one is not None and one.state == "out" and one.attempt == item.attempt and item.ended_ms <= one.at_ms


def release(db: Database, looks: Looks, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    """An attempt that never began does not count."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, (handle, _) in enumerate(fences):
        groups[provider_of(handle)].append(index)
    lanes = lanes_of(db, groups)

    def release_group(provider: int) -> list[bool]:
        items = [fences[index] for index in groups[provider]]
        if (lane := lanes.get(provider)) is None:
            return [False] * len(items)
        return _in_parts(db, looks, lane, items, lambda now, part: _released(now, part, now_ms=now_ms))

    return _in_order(len(fences), groups, db.threads.fan_out(release_group, groups))


def _in_order(count: int, groups: dict[int, list[int]], answers: Sequence[list[bool]]) -> list[bool]:
    won = [False] * count
    for indexes, answer in zip(groups.values(), answers, strict=True):
        for index, one in zip(indexes, answer, strict=True):
            won[index] = one
    return won


def _in_parts(
    db: Database, looks: Looks, lane: LaneItem, items: Sequence[T], decide: Callable[[LaneItem, Sequence[T]], _Change]
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
    db: Database, lane: LaneItem, items: Sequence[T], decide: Callable[[LaneItem, Sequence[T]], _Change]
) -> _Change:
    """Decides on the newest lane until nobody came in between."""
    for _ in attempts():
        change = decide(lane, items)
        if not any(change.won):
            return change
        done = db.transact([write_lane(lane, change.lane), *change.actions])
        if done.won:
            return change
        stands = done.items[0] if done.items else None
        lane = read_lane(stands) if stands else lanes_of(db, [lane.provider])[lane.provider]
    raise busy_lane(lane.provider)


def _is_plain(item: CallSettlement) -> bool:
    return item.state == "done" and ends_well(item.verdict, item.closed_until_ms)


def _settled(before: LaneItem, known: Known, items: Sequence[CallSettlement], *, plain: bool) -> _Change:
    """``plain``: good calls that close nothing. Of two that are right, the first counts."""
    lane, held, ready_ms = before.lane, dict(before.held), before.ready_ms
    actions: list[Action] = []
    won: list[bool] = []
    looked = False
    for item in items:
        due_ms = due_ms_of(item.handle)
        one = held.get(due_ms)
        counts = _counts(one, item)
        won.append(counts)
        if one is None or not counts:
            continue
        lane = lane_after(
            lane, known.policy, verdict=item.verdict, closed_until_ms=item.closed_until_ms, now_ms=item.ended_ms
        )
        looked = False
        if item.state == "retry":
            held[due_ms] = one._replace(state="retry", at_ms=item.not_before_ms, lost=1 if item.lost else 0)
            actions.append(_tell(before.provider, due_ms, one.run, item.reason))
        else:
            del held[due_ms]
            actions.append(_end(before.provider, due_ms, one.run, item))
        # One at a time: what comes next is known. Else: look at once, for a place may be free.
        if not plain and known.policy.max_in_flight > 1:
            ready_ms, looked = min(ready_ms, item.ended_ms), True
        elif not plain and item.state == "retry":
            ready_ms, looked = max(item.not_before_ms, lane.closed_until_ms), True
    after = before.change(lane=lane, held=held)
    # Whatever of those left may start first says when to look again.
    after = after.change(ready_ms=ready_ms if looked else _first_ready_ms(after))
    return _Change(after, actions, won)


def _first_ready_ms(lane: LaneItem) -> int:
    """What is out may start again when its lease ends, what was put off when its pause does: not when it was due."""
    first_ms = min((lane.front_ms, *(one.at_ms for one in lane.held.values())))
    return max(first_ms, lane.lane.closed_until_ms)


def _end(provider: int, due_ms: int, run: int, item: CallSettlement) -> Action:
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
            "at": place_number(provider, due_ms) if dead else None,
        }
    )
    return update(RUNS, place_key(provider, due_ms), change, when=IN_PLACE, seen=run, was="waiting", **values)


def _tell(provider: int, due_ms: int, run: int, reason: str) -> Action:
    """Why it waits for another try. All else about a run that is held stands in its lane."""
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
        if attempt == 1:
            del held[due_ms]
            after = after.woken(due_ms)
        else:
            held[due_ms] = Held(one.run, "retry", now_ms, attempt - 1, one.lost, None)
        actions.append(_tell(before.provider, due_ms, one.run, RELEASED))
    return _Change(after.change(held=held, ready_ms=min(before.ready_ms, now_ms)), actions, won)


# -- a clock that was set back


def pull_back(db: Database, policies: Policies, looks: Looks, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
    """Looks at every provider's lane."""
    moved = 0
    after = ""
    for _ in range(PROVIDERS_MAX // PROVIDERS_PAGE):
        page = live_providers(db, after=after, limit=PROVIDERS_PAGE)
        lanes = lanes_of(db, [item["number"] for item in page])
        pairs = [(lanes[number], known) for number, known in policies.of(db, lanes.values()).items()]
        pull_one = partial(_pull_lane, db, looks, read_ms=read_ms, wait_ms_max=wait_ms_max)
        moved += sum(db.threads.fan_out(pull_one, pairs))
        if len(page) < PROVIDERS_PAGE:
            break
        after = page[-1]["id"]
    return moved


def _pull_lane(
    db: Database, looks: Looks, pair: tuple[LaneItem, Known], *, read_ms: Callable[[], int], wait_ms_max: int
) -> int:
    lane, known = pair
    for _ in attempts():
        back, moved = _pulled_back(lane, known, now_ms=read_ms(), wait_ms_max=wait_ms_max)
        if back is lane:
            return 0
        written = db.write(write_lane(lane, back))
        if written.won:
            looks.note(back)
            return moved
        lane = read_lane(written.item) if written.item else lanes_of(db, [lane.provider])[lane.provider]
    raise busy_lane(lane.provider)


def _pulled_back(before: LaneItem, known: Known, *, now_ms: int, wait_ms_max: int) -> tuple[LaneItem, int]:
    held: dict[int, Held] = {}
    moved = 0
    for due_ms, one in before.held.items():
        held[due_ms] = one
        if one.state == "out" and one.started_ms is not None and one.started_ms > now_ms:
            held[due_ms] = one._replace(at_ms=now_ms + one.at_ms - one.started_ms, started_ms=now_ms)
        elif one.state == "retry" and one.at_ms > now_ms + wait_ms_max:
            held[due_ms] = one._replace(at_ms=now_ms + wait_ms_max)
        moved += held[due_ms] != one
    lane = lane_pulled_back(before.lane, known.policy, now_ms=now_ms, wait_ms_max=wait_ms_max)
    moved += lane != before.lane
    ready_ms = min(before.ready_ms, now_ms) if held or lane != before.lane else before.ready_ms
    if not moved and ready_ms == before.ready_ms:
        return before, 0
    return before.change(held=held, lane=lane, ready_ms=ready_ms), moved

"""Dead letters in DynamoDB: listed, put back into their queues, or discarded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import NamedTuple

from paceline.adapters.aws import dead_queues
from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.days import days_chosen
from paceline.adapters.aws.batches.enqueue import free_dues_ms
from paceline.adapters.aws.batches.lanes import LaneItem, busy_lane, lane_of, lanes_of, place_again, write_lane
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.results import LedgerRun, entries_by_run, runs_of
from paceline.adapters.aws.client.connect import attempts
from paceline.adapters.aws.client.database import ACTIONS_MAX, DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import Action, DynamoKey, Item, delete, setting, update
from paceline.adapters.aws.client.tables import EXPIRES, ITEMS, READY_INDEX, RUNS
from paceline.core.batches import run_keys
from paceline.core.batches.provider import Policy
from paceline.core.batches.redrive import (
    BEYOND,
    CHUNK_ROWS,
    REDRIVEN,
    asks_first,
    redrive_dues_ms,
    redrive_gap_ms,
    redrive_target,
)
from paceline.core.batches.values import CallRun, DeadChoice

RUNS_PER_WRITE = (ACTIONS_MAX - 1) // 3
"""A run that is put back takes three actions: its old place, its new place, and the ledger. The lane takes one more."""
STILL_DEAD = "#run = :seen AND #dead = :yes AND #ended_ms = :ended"


class DeadLetterItem(NamedTuple):
    place: int
    run: int
    ended_ms: int
    unknown: bool


def dead(store: BatchParts, choice: DeadChoice, *, after: int, limit: int) -> tuple[list[CallRun], int | None]:
    found = list(islice(_chosen(store.db, choice, after=after), limit + 1))
    page = found[:limit]
    runs = runs_of(
        store, [LedgerRun(one.run, run_keys.provider_of(one.place), run_keys.due_ms_of(one.place)) for one in page]
    )
    return [run for run in runs if run.dead], page[-1].place if len(found) > limit else None


def redrive(store: BatchParts, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
    """Put dead letters back. Each run goes back in one transaction with its provider's lane, so it is put back once."""
    wanted = _chosen(store.db, choice)
    made = 0
    firsts: dict[int, int] = {}
    # A result below the limit means that there are no more, so runs that another process put back must not count.
    while made < limit and (chunk := list(islice(wanted, limit - made))):
        groups: dict[int, list[DeadLetterItem]] = defaultdict(list)
        for one, target in _targets(store.db, [one for one in chunk if one.ended_ms <= now_ms]):
            groups[target].append(one)
        for target, items in sorted(groups.items()):
            items.sort(key=lambda one: one.place & run_keys.TIME_MASK)
            for at in range(0, len(items), RUNS_PER_WRITE):
                part = items[at : at + RUNS_PER_WRITE]
                dues = _redrive_at(store, target, part, gap_ms=gap_ms, now_ms=now_ms)
                made += len(dues)
                if dues:
                    firsts.setdefault(target, dues[0])
    dead_queues.tell(store.queues, firsts, now_ms=now_ms)
    store.change_counter.bump()
    return made


def discard(store: BatchParts, choice: DeadChoice, *, limit: int) -> int:
    wanted = _chosen(store.db, choice)
    done = 0
    while done < limit and (chunk := list(islice(wanted, limit - done))):
        actions = [_discarded(store.db.retention, one) for one in chunk]
        done += sum(written.won for written in store.db.write_each(actions))
    return done


def _discarded(retention: Retention, one: DeadLetterItem) -> Action:
    expires_s = retention.call_s(one.ended_ms, dead=False)
    change, values = setting({"dead": None, "shard": None, "at": None, EXPIRES: expires_s})
    return update(RUNS, _place(one), change, when=STILL_DEAD, seen=one.run, yes=True, ended=one.ended_ms, **values)


def _targets(db: DynamoDatabase, items: Sequence[DeadLetterItem]) -> list[tuple[DeadLetterItem, int]]:
    """Return each dead letter with the provider it goes back to, as core decides; without those that stay."""
    records = db.get_many(ITEMS, (keys.record_key(one.run & run_keys.RECORD_MASK) for one in items))
    named = {one.run: records.get(keys.record_key(one.run & run_keys.RECORD_MASK)) for one in items}
    numbers = {run_keys.provider_of(one.place) for one in items} | {item["provider"] for item in named.values() if item}
    there = {number for number, lane in lanes_of(db, numbers).items() if lane.revision is not None}
    found = []
    for one in items:
        record = named[one.run]
        names = record["provider"] if record is not None and not record.get("deleted") else None
        target = redrive_target(sent=run_keys.provider_of(one.place), named=names, unknown=one.unknown, there=there)
        if target is not None:
            found.append((one, target))
    return found


def _redrive_at(
    store: BatchParts, provider: int, items: Sequence[DeadLetterItem], *, gap_ms: int, now_ms: int
) -> list[int]:
    """Put runs back and return their due times."""
    left = list(items)
    for _ in attempts():
        lane = lane_of(store.db, provider)
        assert lane is not None
        if lane.revision is None:
            return []  # removed in the meantime: they stay dead letters
        policy = store.facts.policies.of(store.db, [lane])[provider].policy
        gap_ms = redrive_gap_ms(gap_ms, policy)
        wanted = redrive_dues_ms(len(left), gap_ms=gap_ms, redriven_ms=lane.redriven_ms, now_ms=now_ms)
        dues = free_dues_ms(store.db, provider, wanted)
        after = lane.woken(dues[0]).change(redriven_ms=dues[-1] + gap_ms)
        after = after.change(ready_ms=min(after.ready_ms, dues[0]))
        moves = [_move(policy, after, one, due_ms) for one, due_ms in zip(left, dues, strict=True)]
        if store.db.transact([write_lane(lane, after), *(action for move in moves for action in move)]).won:
            store.looks.note(after)
            return dues
        left = _still_dead(store.db, left)
        if not left:
            return []  # another process was faster
    raise busy_lane(provider)


def _move(policy: Policy, lane: LaneItem, one: DeadLetterItem, due_ms: int) -> list[Action]:
    lost = 1 if asks_first(policy, unknown=one.unknown) else None
    gone = delete(RUNS, _place(one), when=STILL_DEAD, seen=one.run, yes=True, ended=one.ended_ms)
    return place_again(gone, one.run, lane.provider, due_ms, lost=lost, reason=REDRIVEN)


def _still_dead(db: DynamoDatabase, items: Sequence[DeadLetterItem]) -> list[DeadLetterItem]:
    rows = db.get_many(RUNS, map(_place, items))
    return [one for one in items if (row := rows.get(_place(one))) is not None and _read(one.place, row) == one]


def _chosen(db: DynamoDatabase, choice: DeadChoice, *, after: int = 0) -> Iterator[DeadLetterItem]:
    """Yield dead letters in order of place, in chunks. The index is a hint: each item is read itself."""
    bounds = _bounds(db, choice)
    days = _days(db, choice)
    if bounds is None or days == set():
        return
    after, beyond = max(after, bounds[0] - 1), bounds[1]
    if choice.handles is not None:
        named = sorted(run_keys.queue_key(entry.provider, entry.due_ms) for entry in entries_by_run(db, choice.handles))
        places = [place for place in named if after < place < beyond]
        for at in range(0, len(places), CHUNK_ROWS):
            yield from _read_all(db, places[at : at + CHUNK_ROWS], days, set(choice.handles))
        return
    shards = range(keys.SHARDS) if choice.provider is None else [run_keys.provider_of(bounds[0])]
    while True:
        pages = db.threads.fan_out(partial(_indexed, db, after=after, beyond=beyond), shards)
        places = list(islice(merge(*pages), CHUNK_ROWS))
        yield from _read_all(db, places, days, None)
        if len(places) < CHUNK_ROWS:
            return
        after = places[-1]


def _indexed(db: DynamoDatabase, shard: int, *, after: int, beyond: int) -> list[int]:
    rows = db.page(
        RUNS, keys.dead_shard(shard), limit=CHUNK_ROWS, index=READY_INDEX, first=after + 1, last=beyond - 1, only="#at"
    )
    return [row["at"] for row in rows]


def _read_all(
    db: DynamoDatabase, places: Sequence[int], days: set[int] | None, runs: set[int] | None
) -> Iterator[DeadLetterItem]:
    rows = db.get_many(
        RUNS, (keys.place_key(run_keys.provider_of(place), run_keys.due_ms_of(place)) for place in places)
    )
    for place in places:
        row = rows.get(keys.place_key(run_keys.provider_of(place), run_keys.due_ms_of(place)))
        one = _read(place, row) if row is not None else None
        if one is None or (days is not None and one.run >> run_keys.RECORD_BITS not in days):
            continue
        if runs is None or one.run in runs:
            yield one


def _read(place: int, row: Item) -> DeadLetterItem | None:
    return DeadLetterItem(place, row["run"], row["ended_ms"], row["state"] == "unknown") if row.get("dead") else None


def _place(one: DeadLetterItem) -> DynamoKey:
    return keys.place_key(run_keys.provider_of(one.place), run_keys.due_ms_of(one.place))


def _bounds(db: DynamoDatabase, choice: DeadChoice) -> tuple[int, int] | None:
    """Return the range of places to search; None if there is no such provider."""
    if choice.provider is None:
        return 0, BEYOND
    item = db.get(ITEMS, keys.provider_key(choice.provider))
    if item is None:
        return None
    first = run_keys.queue_key(item["number"], 0)
    return first, first + run_keys.TIME_MASK + 1


def _days(db: DynamoDatabase, choice: DeadChoice) -> set[int] | None:
    """Return the chosen days; None for all."""
    if choice.batch is None and choice.date is None:
        return None
    found = days_chosen(db, batch=choice.batch, date=choice.date)
    return {number for numbers in found.values() for number in numbers}

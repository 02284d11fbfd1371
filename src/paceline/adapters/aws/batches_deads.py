"""Dead letters: runs that failed or are unknown, until somebody puts them back or lets them go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import NamedTuple

from paceline.adapters.aws.batches_days import days_chosen
from paceline.adapters.aws.batches_enqueue import free_dues_ms
from paceline.adapters.aws.batches_facts import Facts
from paceline.adapters.aws.batches_keys import (
    EPOCH_MS,
    RECORD_BITS,
    RECORD_MASK,
    SHARDS,
    TIME_MASK,
    dead_shard,
    due_ms_of,
    ledger_key,
    open_shard,
    place_key,
    place_number,
    provider_key,
    provider_of,
    record_key,
)
from paceline.adapters.aws.batches_lanes import LaneItem, Looks, busy_lane, lane_of, lanes_of, place_of_run, write_lane
from paceline.adapters.aws.batches_results import Entry, entries_by_run, runs_of
from paceline.adapters.aws.connect import attempts
from paceline.adapters.aws.database import ACTIONS_MAX, Database
from paceline.adapters.aws.items import ABSENT, PRESENT, Action, Item, Key, delete, put, setting, update
from paceline.adapters.aws.tables import ITEMS, READY_INDEX, RUNS
from paceline.core.provider import Policy
from paceline.ports import CallRun, DeadChoice

CHUNK_ROWS = 1_000
BEYOND = 1 << 62
RUNS_PER_WRITE = (ACTIONS_MAX - 1) // 3
"""Of a run that is put back: its old place, its new one, and the ledger; and the lane once."""
STILL_DEAD = "#run = :seen AND #dead = :yes AND #ended_ms = :ended"


class Redriven(NamedTuple):
    """How many, and of each provider when the first of them is due."""

    runs: int
    firsts: dict[int, int]


class Dead(NamedTuple):
    place: int
    run: int
    ended_ms: int
    unknown: bool


def dead(db: Database, facts: Facts, choice: DeadChoice, *, after: int, limit: int) -> tuple[list[CallRun], int | None]:
    """In order of provider and due time."""
    found = list(islice(_chosen(db, choice, after=after), limit + 1))
    page = found[:limit]
    runs = runs_of(db, facts, [Entry(one.run, provider_of(one.place), due_ms_of(one.place)) for one in page])
    return [run for run in runs if run.dead], page[-1].place if len(found) > limit else None


def redrive(
    db: Database, facts: Facts, looks: Looks, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int
) -> Redriven:
    """Provider by provider; each run in one transaction with its lane, so that it is put back once."""
    wanted = _chosen(db, choice)
    made = 0
    firsts: dict[int, int] = {}
    # Fewer than the limit means that there are no more: those that another was faster with do not count.
    while made < limit and (chunk := list(islice(wanted, limit - made))):
        groups: dict[int, list[Dead]] = defaultdict(list)
        for one, target in _targets(db, [one for one in chunk if one.ended_ms <= now_ms]):
            groups[target].append(one)
        for target, items in sorted(groups.items()):
            items.sort(key=lambda one: one.place & TIME_MASK)
            for at in range(0, len(items), RUNS_PER_WRITE):
                part = items[at : at + RUNS_PER_WRITE]
                dues = _redrive_at(db, facts, looks, target, part, gap_ms=gap_ms, now_ms=now_ms)
                made += len(dues)
                if dues:
                    firsts.setdefault(target, dues[0])
    return Redriven(made, firsts)


def discard(db: Database, choice: DeadChoice, *, limit: int) -> int:
    change, _ = setting({"dead": None, "shard": None, "at": None})
    wanted = _chosen(db, choice)
    done = 0
    while done < limit and (chunk := list(islice(wanted, limit - done))):
        actions = [
            update(RUNS, _place(one), change, when=STILL_DEAD, seen=one.run, yes=True, ended=one.ended_ms)
            for one in chunk
        ]
        done += sum(written.won for written in db.write_each(actions))
    return done


def _targets(db: Database, items: Sequence[Dead]) -> list[tuple[Dead, int]]:
    """What may have arrived stays with whom it was sent to; what has not goes where its record points now.

    Those whose provider was removed are left out.
    """
    records = db.get_many(ITEMS, (record_key(one.run & RECORD_MASK) for one in items))
    named = {one.run: records.get(record_key(one.run & RECORD_MASK)) for one in items}
    numbers = {provider_of(one.place) for one in items} | {item["provider"] for item in named.values() if item}
    there = {number for number, lane in lanes_of(db, numbers).items() if lane.revision is not None}
    found = []
    for one in items:
        sent, record = provider_of(one.place), named[one.run]
        wanted = [sent] if one.unknown else []
        wanted += [record["provider"]] if record is not None and not record.get("deleted") else []
        if target := next((number for number in [*wanted, sent] if number in there), None):
            found.append((one, target))
    return found


def _redrive_at(
    db: Database, facts: Facts, looks: Looks, provider: int, items: Sequence[Dead], *, gap_ms: int, now_ms: int
) -> list[int]:
    """When those that were put back are due."""
    left = list(items)
    for _ in attempts():
        lane = lane_of(db, provider)
        assert lane is not None
        if lane.revision is None:
            return []  # removed meanwhile: they stay dead letters
        policy = facts.policies.of(db, [lane])[provider].policy
        gap_ms = max(gap_ms, -(-policy.rate_gap_us // 1_000), 1)
        begin_ms = max(now_ms, lane.redriven_ms, EPOCH_MS)
        dues = free_dues_ms(db, provider, [begin_ms + index * gap_ms for index in range(len(left))])
        after = lane.woken(dues[0]).change(redriven_ms=dues[-1] + gap_ms)
        after = after.change(ready_ms=min(after.ready_ms, dues[0]))
        moves = [_move(policy, after, one, due_ms) for one, due_ms in zip(left, dues, strict=True)]
        if db.transact([write_lane(lane, after), *(action for move in moves for action in move)]).won:
            looks.note(after)
            return dues
        left = _still_dead(db, left)
        if not left:
            return []  # another was faster
    raise busy_lane(provider)


def _move(policy: Policy, lane: LaneItem, one: Dead, due_ms: int) -> list[Action]:
    # A person has decided to send it again; only where the provider can be asked it is asked first.
    asks = policy.unknown == "look_up" and one.unknown
    item = place_of_run(lane.provider, due_ms) | {
        "run": one.run,
        "state": "waiting",
        "lost": 1 if asks else None,
        "reason": "redriven",
        "shard": open_shard(one.run),
        "at": due_ms,
    }
    change, values = setting({"provider": lane.provider, "due_ms": due_ms})
    return [
        delete(RUNS, _place(one), when=STILL_DEAD, seen=one.run, yes=True, ended=one.ended_ms),
        put(RUNS, item, when=ABSENT),
        update(RUNS, ledger_key(one.run), change, when=PRESENT, **values),
    ]


def _still_dead(db: Database, items: Sequence[Dead]) -> list[Dead]:
    rows = db.get_many(RUNS, map(_place, items))
    return [one for one in items if (row := rows.get(_place(one))) is not None and _read(one.place, row) == one]


def _chosen(db: Database, choice: DeadChoice, *, after: int = 0) -> Iterator[Dead]:
    """In order of place, read in chunks. The index is a hint: each is looked at itself."""
    bounds = _bounds(db, choice)
    days = _days(db, choice)
    if bounds is None or days == set():
        return
    after, beyond = max(after, bounds[0] - 1), bounds[1]
    if choice.handles is not None:
        named = sorted(place_number(entry.provider, entry.due_ms) for entry in entries_by_run(db, choice.handles))
        places = [place for place in named if after < place < beyond]
        for at in range(0, len(places), CHUNK_ROWS):
            yield from _read_all(db, places[at : at + CHUNK_ROWS], days, set(choice.handles))
        return
    shards = range(SHARDS) if choice.provider is None else [provider_of(bounds[0])]
    while True:
        pages = db.threads.fan_out(partial(_indexed, db, after=after, beyond=beyond), shards)
        places = list(islice(merge(*pages), CHUNK_ROWS))
        yield from _read_all(db, places, days, None)
        if len(places) < CHUNK_ROWS:
            return
        after = places[-1]


def _indexed(db: Database, shard: int, *, after: int, beyond: int) -> list[int]:
    rows = db.query(
        RUNS,
        "#shard = :shard AND #at BETWEEN :first AND :last",
        index=READY_INDEX,
        limit=CHUNK_ROWS,
        only="#at",
        shard=dead_shard(shard),
        first=after + 1,
        last=beyond - 1,
    )
    return [row["at"] for row in rows]


def _read_all(db: Database, places: Sequence[int], days: set[int] | None, runs: set[int] | None) -> Iterator[Dead]:
    rows = db.get_many(RUNS, (place_key(provider_of(place), due_ms_of(place)) for place in places))
    for place in places:
        row = rows.get(place_key(provider_of(place), due_ms_of(place)))
        one = _read(place, row) if row is not None else None
        if one is None or (days is not None and one.run >> RECORD_BITS not in days):
            continue
        if runs is None or one.run in runs:
            yield one


def _read(place: int, row: Item) -> Dead | None:
    return Dead(place, row["run"], row["ended_ms"], row["state"] == "unknown") if row.get("dead") else None


def _place(one: Dead) -> Key:
    return place_key(provider_of(one.place), due_ms_of(one.place))


def _bounds(db: Database, choice: DeadChoice) -> tuple[int, int] | None:
    """The places among which to look; None if there is no such provider."""
    if choice.provider is None:
        return 0, BEYOND
    item = db.get(ITEMS, provider_key(choice.provider))
    if item is None:
        return None
    first = place_number(item["number"], 0)
    return first, first + TIME_MASK + 1


def _days(db: Database, choice: DeadChoice) -> set[int] | None:
    """The days that are meant; None for all."""
    if choice.batch is None and choice.date is None:
        return None
    found = days_chosen(db, batch=choice.batch, date=choice.date)
    return {number for numbers in found.values() for number in numbers}

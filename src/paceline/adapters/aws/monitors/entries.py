"""Entries: how recorded changes move them, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any, NamedTuple, assert_never

from msgspec import to_builtins
from msgspec.structs import replace

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import (
    ABSENT,
    Action,
    DynamoKey,
    Item,
    check,
    delete,
    joined,
    put,
    setting,
    update,
)
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.client.tables import ITEMS, LEDGER, SCHEDULERS
from paceline.adapters.aws.client.tables import RUNS as RUNS_TABLE
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.due import NextDue, between, generations_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.transactions import Act, in_waves, transact_acts
from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.monitors.due import Due
from paceline.core.monitors.schedule import Arm, Cadence, Entry, Keep, Remove, Rest
from paceline.core.monitors.values import Change, Reacted, Scheduler
from paceline.ports.queue_messages import Alarm

WALKED, WALKED_MAX = 100, 20_000
"""Generations that are read at a time, and how many may be missing in a row before the table is scanned instead."""
AS_SEEN = "#counter = :seen_counter AND #revision = :seen_revision"


class EntryQueue(NamedTuple):
    """The queue of an entry's runs and their owner: kept with the entry, and copied into its runs."""

    queue: str
    user: int
    owner: str
    monitor: str


# -- reading


def read_entries(db: DynamoDatabase, generations: Sequence[int]) -> dict[int, Item]:
    found = db.get_many(SCHEDULERS, [keys.entry_key(generation) for generation in generations])
    return {item["generation"]: item for item in found.values()}


def entries(store: MonitorParts, generations: Sequence[int], *, now_ms: int) -> dict[int, Entry]:
    del now_ms  # an entry is found by its key, whenever it is due
    return {generation: to_entry(item) for generation, item in read_entries(store.db, generations).items()}


def schedulers(store: MonitorParts, *, after_generation: int, limit: int, now_ms: int) -> list[Scheduler]:
    del now_ms
    db = store.db
    counted = db.get(LEDGER, DynamoKey(joined("number", "generation"), "-"))
    last = counted["last"] if counted else 0
    found: list[Scheduler] = []
    while len(found) < limit and (items := _entries_after(db, after_generation, last, limit=limit - len(found))):
        found += _named(db, items)
        after_generation = items[-1]["generation"]
    return found


def _entries_after(db: DynamoDatabase, generation: int, last: int, *, limit: int) -> list[Item]:
    """Read the generations one after the other: they are given in order, so normally few are missing."""
    end = min(generation + WALKED_MAX, last)
    while generation < end:
        following = min(generation + max(WALKED, limit), end)
        if items := read_entries(db, range(generation + 1, following + 1)):
            return [items[found] for found in sorted(items)][:limit]
        generation = following
    if generation == last:
        return []
    # Most generations are gone: reading the whole table costs less than asking for each.
    behind = (item for item in db.scan(SCHEDULERS) if item["generation"] > generation)
    return nsmallest(limit, behind, key=lambda item: int(item["generation"]))


def _named(db: DynamoDatabase, items: Sequence[Item]) -> list[Scheduler]:
    """Return the entries whose definition still exists."""
    monitors = db.get_many(ITEMS, [keys.monitor_key(item["user"], item["monitor"]) for item in items])
    there = {monitor["generation"] for monitor in monitors.values()}
    return [Scheduler(item["owner"], item["monitor"], to_entry(item)) for item in items if item["generation"] in there]


def due(store: MonitorParts, *, now_ms: int, limit: int) -> list[Due]:
    shards = store.next_due.awake(now_ms)
    return with_lanes(
        store.db, _armed(store.db, shards, first=0, last=keys.due_of(now_ms, keys.GENERATION_MAX), limit=limit)
    )


def next_due_ms(store: MonitorParts) -> int | None:
    return store.next_due.first_ms()


def armed_after(store: MonitorParts, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
    db = store.db
    first = keys.due_of(from_ms, 0) if after is None else keys.due_of(after.due_ms, after.generation) + 1
    return _armed(db, keys.due_shards(last_generation(db)), first=first, last=keys.due_of(1 << 60, 0), limit=limit)


def _armed(db: DynamoDatabase, shards: Sequence[str], *, first: int, last: int, limit: int) -> list[Due]:
    """Return the current entries that the index names, without those that are no longer due then."""
    while True:
        rows = between(db, shards, first=first, last=last, limit=limit)
        items = read_entries(db, generations_of(rows))
        found = [
            to_due(item)
            for row in rows
            if (item := items.get(int(row["pk"]))) is not None and first <= item.get("due", -1) <= last
        ]
        if found or len(rows) < limit:
            return sorted(found, key=lambda one: (one.due_ms, one.generation))
        first = rows[-1]["due"] + 1  # the index lags, and all of these entries have moved: the next ones follow


def with_lanes(db: DynamoDatabase, dues: Sequence[Due]) -> list[Due]:
    """Return each entry with whether its newest run is open, from its lane. Without a lane it never fired."""
    lanes = db.get_many(RUNS_TABLE, [keys.lane_key(one.generation) for one in dues if one.counter])
    return [replace(one, busy=is_busy(lanes.get(keys.lane_key(one.generation)))) for one in dues]


def is_busy(lane: Item | None) -> bool:
    return lane is not None and lane["front"] <= lane["newest"]


# -- reacting


def react(store: MonitorParts, reacted: Sequence[Reacted], *, now_ms: int) -> list[bool]:
    won = write_reactions(store, reacted, now_ms=now_ms)
    if any(moved and isinstance(item.reaction, Arm) for item, moved in zip(reacted, won, strict=True)):
        store.change_counter.bump()
    return won


def write_reactions(store: MonitorParts, reacted: Sequence[Reacted], *, now_ms: int) -> list[bool]:
    """React to changes without bumping the change counter."""
    db = store.db
    owners = {item.change.monitor.owner for item in reacted if item.change.monitor is not None}
    users = {item["id"]: item for item in db.get_many(ITEMS, [keys.user_key(owner) for owner in owners]).values()}

    def write(chosen: list[Reacted]) -> list[bool]:
        acts = [_reaction(item, users) for item in chosen]
        possible = [item for item, act in zip(chosen, acts, strict=True) if act]

        def count(tried: Sequence[int]) -> list[Action]:
            return _count([possible[index] for index in tried])

        done = iter(transact_acts(db, [act for act in acts if act], beside=count))
        return [bool(act) and next(done) for act in acts]

    won = in_waves(reacted, lambda item: item.change.generation, write)
    moved = [item for item, happened in zip(reacted, won, strict=True) if happened]
    for item in moved:
        _note(store.next_due, item)
    alarms = (
        Alarm(item.change.generation, item.change.entry.counter if item.change.entry else 0, item.reaction.due_ms)
        for item in moved
        if isinstance(item.reaction, Arm)
    )
    store.alarms.arm(alarms, now_ms=now_ms)
    return won


def _reaction(item: Reacted, users: dict[str, Item]) -> Act:
    """Return the writes of a reaction; none if the owner is gone, which is a change that comes next."""
    change, key = item.change, keys.change_key(item.change.generation)
    user = users.get(change.monitor.owner) if change.monitor is not None else None
    if isinstance(item.reaction, Arm | Rest) and user is None:
        return ()
    if user is None:
        return [delete(ITEMS, key, when="#seq = :seq", seq=change.seq), *_move(item, None)]
    believed = {"seq": change.seq, "user": user["number"]}
    # Deleting the change and moving the entry is one transaction, so a change is reacted to once.
    return [delete(ITEMS, key, when="#seq = :seq AND #user = :user", **believed), *_move(item, user)]


def _move(item: Reacted, user: Item | None) -> list[Action]:
    change, reaction = item.change, item.reaction
    key = keys.entry_key(change.generation)
    believed, values = token_of(change.entry) if change.entry else (ABSENT, {})
    match reaction:
        case Arm() | Rest():
            assert user is not None
            wanted = _armed_as(change, reaction, user)
            if change.entry is None:
                row = key._asdict() | {"generation": change.generation, "counter": 0} | wanted
                return [put(SCHEDULERS, row, when=ABSENT)]
            text, given = setting(wanted)
            return [update(SCHEDULERS, key, text, when=believed, **given, **values)]
        case Keep():
            return [check(SCHEDULERS, key, when=believed, **values)]
        case Remove():
            gone = delete(RUNS_TABLE, keys.uptime_key(change.generation))
            return [delete(SCHEDULERS, key, when=believed, **values), gone] if change.entry else []
        case never:
            assert_never(never)


def _armed_as(change: Change, wish: Arm | Rest, user: Item) -> dict[str, Any]:
    assert change.monitor is not None
    generation, due_ms = change.generation, wish.due_ms if isinstance(wish, Arm) else None
    armed = due_ms is not None
    return {
        "revision": change.monitor.revision,
        "cadence": to_builtins(wish.cadence),
        "outgoing": wish.outgoing,
        "queue": _queue_of(wish, user, generation),
        "queue_name": wish.queue,
        "user": user["number"],
        "owner": user["id"],
        "monitor": change.monitor.id,
        "due_ms": due_ms,
        "due": keys.due_of(due_ms, generation) if due_ms is not None else None,
        "shard": keys.due_shard(generation) if armed else None,
        "lead_ms": wish.lead_ms if isinstance(wish, Arm) else None,
        # The beginning of its grid, for `paceline verify`; nothing else reads it.
        "base_ms": due_ms,
        "base_lead_ms": wish.lead_ms if isinstance(wish, Arm) else None,
    }


def _queue_of(wish: Arm | Rest, user: Item, generation: int) -> str:
    if not wish.outgoing:
        return keys.check_queue(generation)
    return keys.owner_queue(user["number"], user["queues"], generation, wish.queue)


def token_of(entry: Entry) -> tuple[str, dict[str, Any]]:
    """Return the condition that the entry is still as it was seen."""
    values: dict[str, Any] = {"seen_counter": entry.counter, "seen_revision": entry.revision}
    if entry.due_ms is None:
        return f"{AS_SEEN} AND attribute_not_exists(#due_ms)", values
    return f"{AS_SEEN} AND #due_ms = :seen_ms", values | {"seen_ms": entry.due_ms}


def _count(tried: Sequence[Reacted]) -> list[Action]:
    """Return the write that keeps the number of entries."""
    made = sum(item.change.entry is None and isinstance(item.reaction, Arm | Rest) for item in tried)
    gone = sum(item.change.entry is not None and isinstance(item.reaction, Remove) for item in tried)
    if made == gone:
        return []
    key = keys.tally_key(tried[0].change.generation)
    return [update(ITEMS, key, "ADD #entries :entries", when="", entries=made - gone)]


def _note(next_due: NextDue, item: Reacted) -> None:
    if isinstance(item.reaction, Keep):
        return
    before_ms = item.change.entry.due_ms if item.change.entry else None
    after_ms = item.reaction.due_ms if isinstance(item.reaction, Arm) else None
    next_due.moved(item.change.generation, from_ms=before_ms, to_ms=after_ms)


# -- items to values


def to_place(item: Item) -> EntryQueue:
    return EntryQueue(item["queue"], item["user"], item["owner"], item["monitor"])


def to_due(item: Item) -> Due:
    cadence = Cadence(**item["cadence"])
    token = item["generation"], item["counter"], item["revision"], item["due_ms"]
    return Due(*token, cadence, to_place(item), overlapped=item.get("overlapped", 0), lead_ms=item.get("lead_ms") or 0)


def to_entry(item: Item) -> Entry:
    return Entry(
        generation=item["generation"],
        counter=item["counter"],
        revision=item["revision"],
        due_ms=item.get("due_ms"),
        cadence=Cadence(**item["cadence"]),
        outgoing=item["outgoing"],
        last_due_ms=item.get("last_due_ms"),
        overlapped=item.get("overlapped", 0),
        queue=item.get("queue_name", DEFAULT_QUEUE),
        lead_ms=item.get("lead_ms"),
    )

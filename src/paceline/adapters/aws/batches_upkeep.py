"""Retention of batches' runs, and their counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from paceline.adapters.aws.batches_enqueue import chains
from paceline.adapters.aws.batches_keys import (
    NEVER_MS,
    RECORD_BITS,
    RECORD_MASK,
    SHARDS,
    aside_partition,
    day_key,
    day_number_key,
    dead_shard,
    gone_key,
    ledger_key,
    name_key,
    newcomer_key,
    place_key,
    record_key,
    run_number,
)
from paceline.adapters.aws.batches_lanes import LaneItem, Looks, lanes_of, states_from, waiting_from, wake
from paceline.adapters.aws.batches_providers import BATCHES_MAX, live_providers
from paceline.adapters.aws.batches_records import batches, read_batch
from paceline.adapters.aws.batches_results import Entry, entries_of
from paceline.adapters.aws.batches_sidings import bring_back
from paceline.adapters.aws.database import ACTIONS_MAX, Database
from paceline.adapters.aws.items import PRESENT, Action, Item, delete, padded, update
from paceline.adapters.aws.part import BatchCounts
from paceline.adapters.aws.tables import ITEMS, READY_INDEX, RUNS
from paceline.ports import CallPurge

DAYS_MAX = 1_000
"""So many days are looked at in one pass."""
KEPT_DAYS_MAX = 1_000_000
"""All of them: a day is kept for as long as its runs are."""
TOMBSTONES_MAX = 50
PROVIDERS_MAX = 10_000
COUNTED_MAX = 100_000
WAITING_MAX, WAITING_MIN = 100_000, 1_000
"""For all providers together, and for each in any case."""
BATCHES_PAGE = 1_000
ENDED = "#run = :seen AND #ended_ms = :ended"


def purge(
    db: Database, looks: Looks, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int
) -> CallPurge:
    """Walks on through the ledger from ``after``. A walk that begins also finishes what somebody left half done."""
    if after <= 0:
        _return_left_aside(db, looks)
    looked = deleted = 0
    days = _days_from(db, after)
    for row in days:
        day = int(row["sk"])
        beyond = run_number(day + 1, 0) - 1
        if row["end_ms"] >= ended_before_ms or row.get("gone"):
            after = beyond
            continue
        first = after & RECORD_MASK if after >> RECORD_BITS == day else 0
        entries = entries_of(db, day, after=first, limit=limit - looked)
        gone = _purge_some(db, looks, entries, ended_before_ms=ended_before_ms, dead_before_ms=dead_before_ms)
        deleted += gone
        looked += len(entries)
        if looked >= limit:
            return CallPurge(deleted, after=entries[-1].run)
        if first == 0 and gone == len(entries):
            _note_gone(db, row)
        after = beyond
    return CallPurge(deleted, after=after if len(days) == DAYS_MAX else None)


def _days_from(db: Database, after: int) -> list[Item]:
    first = max(after + 1, 0) >> RECORD_BITS
    return db.query(ITEMS, "#pk = :pk AND #sk >= :first", limit=DAYS_MAX, pk="days", first=padded(first))


def _purge_some(
    db: Database, looks: Looks, entries: Sequence[Entry], *, ended_before_ms: int, dead_before_ms: int
) -> int:
    """What still waits long after its day is looked at once more: its planner may have died before it woke anyone."""
    rows = db.get_many(RUNS, (place_key(entry.provider, entry.due_ms) for entry in entries))
    old: list[_Pair] = []
    firsts: dict[int, int] = {}
    for entry in entries:
        row = rows.get(place_key(entry.provider, entry.due_ms))
        if row is None or row["run"] != entry.run:
            continue
        if row["state"] == "waiting":
            firsts[entry.provider] = min(firsts.get(entry.provider, entry.due_ms), entry.due_ms)
        elif "ended_ms" in row and row["ended_ms"] < (dead_before_ms if row.get("dead") else ended_before_ms):
            place = place_key(entry.provider, entry.due_ms)
            gone = delete(RUNS, place, when=ENDED, seen=entry.run, ended=row["ended_ms"])
            old.append(_Pair(entry.provider, [gone, delete(RUNS, ledger_key(entry.run))]))
    held = lanes_of(db, firsts)
    missed = {one: due_ms for one, due_ms in firsts.items() if due_ms not in held[one].held}
    wake(db, looks, missed, now_ms=ended_before_ms)
    return _delete_pairs(db, old)


class _Pair(NamedTuple):
    """A run and its row in the ledger, to be deleted together."""

    provider: int
    actions: list[Action]


def _delete_pairs(db: Database, pairs: Sequence[_Pair]) -> int:
    """Some at once; where one of them was put back meanwhile, each by itself."""

    def delete_some(chain: list[list[_Pair]]) -> list[tuple[list[_Pair], bool]]:
        return [(part, db.transact([action for pair in part for action in pair.actions]).won) for part in chain]

    by_provider = sorted(pairs, key=lambda pair: pair.provider)
    chained = chains(by_provider, provider_of=lambda pair: pair.provider, size=ACTIONS_MAX // 2)
    done = [one for chain in db.threads.fan_out(delete_some, chained) for one in chain]
    lost = [pair.actions for part, won in done if not won for pair in part]
    return sum(len(part) for part, won in done if won) + sum(one.won for one in db.transact_each(lost))


def _note_gone(db: Database, row: Item) -> None:
    """Of a planned day whose runs are all deleted: walks need not look at it again."""
    day = db.get(ITEMS, day_key(row["batch"], row["date"]))
    if day is not None and day["state"] == "planned":
        key = day_number_key(int(row["sk"]))
        db.write(update(ITEMS, key, "SET #gone = :yes", when=PRESENT, yes=True))


def _return_left_aside(db: Database, looks: Looks) -> None:
    after = ""
    for _ in range(BATCHES_MAX // BATCHES_PAGE):
        page = batches(db, after=after, limit=BATCHES_PAGE)
        for batch in page:
            if not batch.spec.paused:
                bring_back(db, looks, batch.number)
        if len(page) < BATCHES_PAGE:
            return
        after = page[-1].id


def purge_records(db: Database, *, after: int) -> CallPurge:
    """Deleted records that no run of the ledger names any more; until then their names keep a day's runs single."""
    rows = db.query(ITEMS, "#pk = :pk AND #sk > :after", limit=TOMBSTONES_MAX, pk="gone", after=padded(max(after, 0)))
    if not rows:
        return CallPurge(0, after=None)
    days = _kept_days(db)
    keys = {
        ledger_key(run_number(int(day["sk"]), row["number"])): row["number"]
        for row in rows
        for day in days[row["batch"]]
    }
    named = {keys[key] for key in db.get_many(RUNS, keys)}
    planned = {batch for batch in {row["batch"] for row in rows} if _is_planned(db, batch, days[batch])}
    gone = [row for row in rows if row["number"] not in named and row["batch"] in planned]
    deleted = sum(one.won for one in db.transact_each([_forget(row) for row in gone]))
    return CallPurge(deleted, after=rows[-1]["number"] if len(rows) == TOMBSTONES_MAX else None)


def _kept_days(db: Database) -> dict[str, list[Item]]:
    """By batch, the days of which runs may be in the ledger."""
    found: dict[str, list[Item]] = defaultdict(list)
    kept = "attribute_not_exists(#gone)"
    for row in db.query(ITEMS, "#pk = :pk", limit=KEPT_DAYS_MAX, filtered=kept, pk="days"):
        found[row["batch"]].append(row)
    return found


def _is_planned(db: Database, batch: str, days: Sequence[Item]) -> bool:
    """Not while a plan is under way: it may have seen a record that was removed since, and make a run of it yet."""
    there = db.get_many(ITEMS, (day_key(batch, row["date"]) for row in days))
    return all(day["state"] == "planned" for day in there.values())


def _forget(row: Item) -> list[Action]:
    """Unless it was made anew meanwhile."""
    number = row["number"]
    return [
        delete(ITEMS, name_key(row["batch"], row["name"]), when="#deleted = :yes", yes=True),
        delete(ITEMS, record_key(number)),
        delete(ITEMS, newcomer_key(row["batch_number"], number)),
        delete(ITEMS, gone_key(number)),
    ]


def counts(db: Database) -> BatchCounts:
    """Waiting runs are counted along the queues, so no further than to a hundred thousand, shared by the providers."""
    providers = live_providers(db, after="", limit=PROVIDERS_MAX)
    lanes = list(lanes_of(db, (item["number"] for item in providers)).values())
    firsts = db.threads.fan_out(lambda lane: waiting_from(db, lane, lane.front_ms, limit=1), lanes)
    heads = [
        min([*lane.held, *(run.due_ms for run in first.runs)], default=None)
        for lane, first in zip(lanes, firsts, strict=True)
        if lane.ready_ms < NEVER_MS
    ]
    limit = max(WAITING_MAX // max(len(lanes), 1), WAITING_MIN)
    asides = [read_batch(item) for item in db.query(ITEMS, "#pk = :pk", limit=BATCHES_MAX, pk="batches")]
    return BatchCounts(
        providers=len(providers),
        batches=len(asides),
        calls_waiting=sum(db.threads.fan_out(lambda lane: _waiting(db, lane, limit=limit), lanes)),
        calls_aside=sum(
            db.threads.fan_out(
                lambda batch: db.count(RUNS, "#pk = :pk", limit=COUNTED_MAX, pk=aside_partition(batch.number)),
                asides,
            )
        ),
        dead_letters=dead_letters(db),
        oldest_call_due_ms=min((head for head in heads if head is not None), default=None),
        call_start_ms=min((lane.ready_ms for lane in lanes if lane.ready_ms < NEVER_MS), default=None),
    )


def dead_letters(db: Database) -> int:
    def count(shard: int) -> int:
        return db.count(RUNS, "#shard = :shard", index=READY_INDEX, limit=COUNTED_MAX, shard=dead_shard(shard))

    return sum(db.threads.fan_out(count, range(SHARDS)))


def _waiting(db: Database, lane: LaneItem, *, limit: int) -> int:
    """From the first on that has not ended."""
    states = islice(states_from(db, lane.provider, lane.first_ms), limit)
    return sum(state == "waiting" for state in states)

"""Retention of batches' runs, and their counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from paceline.adapters.aws.base import BatchCounts
from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.enqueue import chains
from paceline.adapters.aws.batches.lanes import LaneItem, Looks, lanes_of, waiting_from, wake
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.providers import BATCHES_MAX, live_providers
from paceline.adapters.aws.batches.records import read_batch
from paceline.adapters.aws.batches.results import LedgerRun, entries_of
from paceline.adapters.aws.batches.unwanted_runs import bring_back
from paceline.adapters.aws.client.database import ACTIONS_MAX, PAGE_MAX, DynamoDatabase
from paceline.adapters.aws.client.expiry import MARGIN_MS
from paceline.adapters.aws.client.items import PRESENT, Action, Item, ReadOptions, delete, padded, update
from paceline.adapters.aws.client.tables import ITEMS, READY_INDEX, RUNS
from paceline.core.batches.run_keys import NEVER_MS, RECORD_BITS, RECORD_MASK, run_key
from paceline.core.batches.settle import PURGED_DAYS_MAX, is_old
from paceline.core.batches.values import FOR_WORKERS_MAX, CallPurge

KEPT_DAYS_MAX = 1_000_000
"""All days: a day is kept as long as its runs."""
TOMBSTONES_MAX = 50
PROVIDERS_MAX = 10_000
QUEUES_MAX = 100
"""Providers whose queues are read to count waiting runs, and the limit of requests for all of them."""
DEAD_MAX = 10_000
"""Dead letters that are counted in each of their shards at most."""
ENDED = "#run = :seen AND #ended_ms = :ended"


def purge_calls(store: BatchParts, *, ended_before_ms: int, dead_before_ms: int, after: int, limit: int) -> CallPurge:
    """Walk on through the ledger from ``after`` and delete old runs.

    A new walk also repairs what was left half done.
    """
    if after <= 0:
        _return_left_aside(store)
    looked = deleted = 0
    days = _days_from(store.db, after)
    for row in days:
        day = int(row["sk"])
        beyond = run_key(day + 1, 0) - 1
        if row["end_ms"] >= ended_before_ms or row.get("gone"):
            after = beyond
            continue
        first = after & RECORD_MASK if after >> RECORD_BITS == day else 0
        entries = entries_of(store.db, day, after=first, limit=limit - looked)
        gone = _purge_some(
            store.db, store.looks, row, entries, ended_before_ms=ended_before_ms, dead_before_ms=dead_before_ms
        )
        deleted += gone
        looked += len(entries)
        if looked >= limit:
            return CallPurge(deleted, after=entries[-1].run)
        if first == 0 and gone == len(entries):
            _note_gone(store.db, row)
        after = beyond
    return CallPurge(deleted, after=after if len(days) == PURGED_DAYS_MAX else None)


def _days_from(db: DynamoDatabase, after: int) -> list[Item]:
    first = max(after + 1, 0) >> RECORD_BITS
    return db.page(ITEMS, "days", limit=PURGED_DAYS_MAX, first=padded(first))


def _purge_some(
    db: DynamoDatabase,
    looks: Looks,
    day: Item,
    entries: Sequence[LedgerRun],
    *,
    ended_before_ms: int,
    dead_before_ms: int,
) -> int:
    """Delete runs that are old enough. Return how many.

    If a provider's lane does not know of a waiting run, the lane is woken: the planner died before it could do that. A
    ledger row whose run has expired is deleted alone; if its day is younger than that, the run is being moved.
    """
    expired = day["start_ms"] + MARGIN_MS < ended_before_ms
    rows = db.get_many(RUNS, (keys.place_key(entry.provider, entry.due_ms) for entry in entries))
    old: list[_Pair] = []
    waiting: dict[int, list[int]] = defaultdict(list)
    for entry in entries:
        row = rows.get(keys.place_key(entry.provider, entry.due_ms))
        if row is None or row["run"] != entry.run:
            old += [_Pair(entry.provider, [forgotten(entry)])] if expired else []
        elif row["state"] == "waiting":
            waiting[entry.provider].append(entry.due_ms)
        elif is_old(
            row.get("ended_ms"),
            dead=bool(row.get("dead")),
            ended_before_ms=ended_before_ms,
            dead_before_ms=dead_before_ms,
        ):
            place = keys.place_key(entry.provider, entry.due_ms)
            gone = delete(RUNS, place, when=ENDED, seen=entry.run, ended=row["ended_ms"])
            old.append(_Pair(entry.provider, [gone, delete(RUNS, keys.ledger_key(entry.run))]))
    unknown = {
        lane.provider: min(dues)
        for lane in lanes_of(db, waiting).values()
        if (dues := [due_ms for due_ms in waiting[lane.provider] if not lane.knows(due_ms)])
    }
    wake(db, looks, unknown, now_ms=ended_before_ms)
    return _delete_pairs(db, old)


class _Pair(NamedTuple):
    """A run and its ledger row, to be deleted together; if the run has expired, its row alone."""

    provider: int
    actions: list[Action]


def forgotten(entry: LedgerRun) -> Action:
    """Returns the deletion of a row of the ledger whose run is not there; it is lost if the run has moved."""
    when = "#provider = :provider AND #due_ms = :due"
    return delete(RUNS, keys.ledger_key(entry.run), when=when, provider=entry.provider, due=entry.due_ms)


def _delete_pairs(db: DynamoDatabase, pairs: Sequence[_Pair]) -> int:
    """Delete pairs, many in a transaction; if one of them was put back in the meantime, each by itself."""

    def delete_some(chain: list[list[_Pair]]) -> list[tuple[list[_Pair], bool]]:
        return [(part, db.transact([action for pair in part for action in pair.actions]).won) for part in chain]

    by_provider = sorted(pairs, key=lambda pair: pair.provider)
    chained = chains(by_provider, provider_of=lambda pair: pair.provider, size=ACTIONS_MAX // 2)
    done = [one for chain in db.threads.fan_out(delete_some, chained) for one in chain]
    lost = [pair.actions for part, won in done if not won for pair in part]
    return sum(len(part) for part, won in done if won) + sum(one.won for one in db.transact_each(lost))


def _note_gone(db: DynamoDatabase, row: Item) -> None:
    """Mark a planned day whose runs are all deleted: walks need not read it again."""
    day = db.get(ITEMS, keys.day_key(row["batch"], row["date"]))
    if day is not None and day["state"] == "planned":
        key = keys.day_number_key(int(row["sk"]))
        db.write(update(ITEMS, key, "SET #gone = :yes", when=PRESENT, yes=True))


def _return_left_aside(store: BatchParts) -> None:
    for batch in map(read_batch, store.db.walk(ITEMS, "batches")):
        if not batch.spec.paused:
            bring_back(store.db, store.looks, batch.number)


def purge_records(store: BatchParts, *, after: int) -> CallPurge:
    rows = store.db.page(ITEMS, "gone", limit=TOMBSTONES_MAX, after=padded(max(after, 0)))
    if not rows:
        return CallPurge(0, after=None)
    days = _kept_days(store.db)
    item_keys = {
        keys.ledger_key(run_key(int(day["sk"]), row["number"])): row["number"]
        for row in rows
        for day in days[row["batch"]]
    }
    named = {item_keys[key] for key in store.db.get_many(RUNS, item_keys)}
    planned = {batch for batch in {row["batch"] for row in rows} if _is_planned(store.db, batch, days[batch])}
    gone = [row for row in rows if row["number"] not in named and row["batch"] in planned]
    deleted = sum(one.won for one in store.db.transact_each([_forget(row) for row in gone]))
    return CallPurge(deleted, after=rows[-1]["number"] if len(rows) == TOMBSTONES_MAX else None)


def _kept_days(db: DynamoDatabase) -> dict[str, list[Item]]:
    """Return, by batch, the days that may have runs in the ledger."""
    found: dict[str, list[Item]] = defaultdict(list)
    kept = "attribute_not_exists(#gone)"
    for row in db.page(ITEMS, "days", limit=KEPT_DAYS_MAX, filtered=kept):
        found[row["batch"]].append(row)
    return found


def _is_planned(db: DynamoDatabase, batch: str, days: Sequence[Item]) -> bool:
    """Return False while a plan is under way.

    It may have read a record that was removed since, and still make its run.
    """
    there = db.get_many(ITEMS, (keys.day_key(batch, row["date"]) for row in days))
    return all(day["state"] == "planned" for day in there.values())


def _forget(row: Item) -> list[Action]:
    """Return the actions that delete a record for good, unless it was put again in the meantime."""
    number = row["number"]
    return [
        delete(ITEMS, keys.name_key(row["batch"], row["name"]), when="#deleted = :yes", yes=True),
        delete(ITEMS, keys.record_key(number)),
        delete(ITEMS, keys.newcomer_key(row["batch_number"], number)),
        delete(ITEMS, keys.gone_key(number)),
    ]


def batch_counts(store: BatchParts) -> BatchCounts:
    """Return counts, with a few hundred requests at most; a count that they do not reach is a lower bound."""
    providers = list(islice(live_providers(store.db), PROVIDERS_MAX))
    lanes = sorted(lanes_of(store.db, (item["number"] for item in providers)).values(), key=lambda lane: lane.first_ms)
    queues = [lane for lane in lanes if lane.first_ms < NEVER_MS][:QUEUES_MAX]
    limit = QUEUES_MAX // max(len(queues), 1) * PAGE_MAX
    ready = [lane for lane in lanes if lane.ready_ms < NEVER_MS]
    return BatchCounts(
        providers=len(providers),
        batches=store.db.count(ITEMS, "batches", limit=BATCHES_MAX),
        calls_waiting=sum(store.db.threads.fan_out(lambda lane: _waiting(store.db, lane, limit=limit), queues)),
        calls_aside=sum(lane.aside for lane in lanes),
        dead_letters=dead_letters(store),
        oldest_call_due_ms=_oldest_due_ms(store.db, ready[:QUEUES_MAX]),
        call_start_ms=min((lane.ready_ms for lane in ready if not lane.outgoing), default=None),
        worker_start_ms=min((lane.ready_ms for lane in ready if lane.outgoing), default=None),
    )


def calls_for_workers(store: BatchParts, *, now_ms: int) -> int:
    """Count waiting runs in the queues of a limited number of providers, up to a page of runs each."""
    rows = store.db.threads.fan_out(
        lambda shard: store.db.page(RUNS, shard, limit=QUEUES_MAX, index=READY_INDEX),
        keys.worker_shards(),
    )
    lanes = lanes_of(store.db, [keys.provider_in(row["pk"]) for page in rows for row in page]).values()
    waiting = store.db.threads.fan_out(
        lambda lane: waiting_from(store.db, lane, lane.front_ms, limit=PAGE_MAX, until_ms=now_ms).runs,
        [lane for lane in lanes if lane.outgoing and lane.front_ms <= now_ms],
    )
    return min(sum(run.due_ms <= now_ms for runs in waiting for run in runs), FOR_WORKERS_MAX)


def dead_letters(store: BatchParts) -> int:
    def count(shard: int) -> int:
        return store.db.count(RUNS, keys.dead_shard(shard), limit=DEAD_MAX, index=READY_INDEX)

    return sum(store.db.threads.fan_out(count, range(keys.SHARDS)))


def _waiting(db: DynamoDatabase, lane: LaneItem, *, limit: int) -> int:
    """Return how many runs wait, counted from the first that has not ended."""
    asked: ReadOptions = {"first": padded(lane.first_ms), "last": keys.LAST, "only": "#state"}
    rows = db.walk(RUNS, keys.queue_partition(lane.provider), size=PAGE_MAX, **asked)
    return sum(row["state"] == "waiting" for row in islice(rows, limit))


def _oldest_due_ms(db: DynamoDatabase, lanes: Sequence[LaneItem]) -> int | None:
    """Return the due time of the first open run. A lane's time may be too early, so its first runs are read."""
    oldest_ms = NEVER_MS
    for lane in lanes:
        if lane.first_ms >= oldest_ms:
            break
        waiting = waiting_from(db, lane, lane.front_ms, limit=1)
        oldest_ms = min([oldest_ms, *lane.held, *(run.due_ms for run in waiting.runs)])
    return oldest_ms if oldest_ms < NEVER_MS else None

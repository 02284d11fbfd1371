"""Deletes a batch from DynamoDB: its runs with their lanes, then its days, its records, and the batch itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.days import days
from paceline.adapters.aws.batches.lanes import LaneItem, lanes_of, write_lane
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.records import batch as find_batch
from paceline.adapters.aws.batches.results import LedgerRun, entries_of
from paceline.adapters.aws.batches.upkeep import forgotten
from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import ACTIONS_MAX
from paceline.adapters.aws.client.items import PRESENT, Action, Item, delete, setting, update
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.deletion import GRACE_MS, DeletePass, is_let_finish

ROWS_MAX = 1_000
"""Fewer in one pass than on SQLite, where one statement deletes many rows."""
DAYS_MAX = 1_000
RUNS_PER_WRITE = (ACTIONS_MAX - 1) // 3
"""An open run takes three actions: its place, its ledger row and its pointer. The lane takes one more."""


def mark(store: BatchParts, batch_id: str, *, now_ms: int) -> Batch | None:
    for _ in attempts():
        there = find_batch(store, batch_id)
        if there is None or there.deleting is not None:
            return there
        text = msgspec.json.encode(msgspec.structs.replace(there.spec, paused=True)).decode()
        values = {"spec": text, "revision": there.revision + 1, "updated_ms": now_ms, "deleting_ms": now_ms}
        change, given = setting(values | {"deleted_runs": 0, "deleted_records": 0})
        if store.db.write(
            update(ITEMS, keys.batch_key(batch_id), change, when="#revision = :seen", seen=there.revision, **given)
        ).won:
            store.change_counter.bump()
            return find_batch(store, batch_id)
    raise busy(f"batch {batch_id}")


def delete_pass(store: BatchParts, batch: Batch, *, now_ms: int, limit: int) -> DeletePass:
    """Delete a part of a batch.

    Each run goes together with its lane, so no claim can start it. Runs whose write loses are deleted by the next pass.
    """
    assert batch.deleting is not None
    limit = min(limit, ROWS_MAX)
    settled = now_ms >= batch.deleting.since_ms + GRACE_MS
    runs, days_left = 0, False
    for day in days(store, batch, before=None, limit=DAYS_MAX):
        _end_plan(store, day)
        entries = entries_of(store.db, day.number, after=0, limit=limit - runs)
        deleted = _delete_runs(store, batch, entries, now_ms=now_ms)
        runs += deleted
        if settled and not entries:
            _delete_day(store, batch, day)
        else:
            days_left = True
        if runs >= limit:
            break
    records = 0 if days_left or not settled else _delete_records(store, batch, limit=limit - runs)
    if days_left or not settled or runs + records >= limit:
        change = "ADD #deleted_runs :runs, #deleted_records :records"
        store.db.write(update(ITEMS, keys.batch_key(batch.id), change, when=PRESENT, runs=runs, records=records))
        return DeletePass(runs, records, over=False)
    store.db.write(delete(ITEMS, keys.batch_key(batch.id), when="#number = :seen", seen=batch.number))
    store.change_counter.bump()
    return DeletePass(runs, records, over=True)


def _end_plan(store: BatchParts, day: Day) -> None:
    """End a plan under way: the planner finds the day's state changed, and stops."""
    if day.state == "planning":
        change = "SET #state = :planned"
        store.db.write(update(ITEMS, keys.day_key(day.batch, day.date), change, when=PRESENT, planned="planned"))


class _Found(NamedTuple):
    entry: LedgerRun
    item: Item


def _delete_runs(store: BatchParts, batch: Batch, entries: Sequence[LedgerRun], *, now_ms: int) -> int:
    rows = store.db.get_many(RUNS, (keys.place_key(entry.provider, entry.due_ms) for entry in entries))
    lanes = lanes_of(store.db, {entry.provider for entry in entries})
    ended: list[list[Action]] = []
    missing: list[list[Action]] = []
    open_: dict[int, list[_Found]] = defaultdict(list)
    for entry in entries:
        row = rows.get(keys.place_key(entry.provider, entry.due_ms))
        if row is None or row["run"] != entry.run:
            missing.append([forgotten(entry)])  # the run has expired; or it moves just now, and this is lost
            continue
        if "ended_ms" in row:
            ended.append(_gone(entry, "#run = :seen AND #ended_ms = :ended", seen=entry.run, ended=row["ended_ms"]))
        else:
            open_[entry.provider].append(_Found(entry, row))
    groups = [
        (lanes[provider], found[at : at + RUNS_PER_WRITE])
        for provider, found in open_.items()
        for at in range(0, len(found), RUNS_PER_WRITE)
    ]
    size = ACTIONS_MAX // 2
    chunks = [[one for pair in ended[at : at + size] for one in pair] for at in range(0, len(ended), size)]
    deleted = sum(
        len(chunk) // 2 for chunk, done in zip(chunks, store.db.transact_each(chunks), strict=True) if done.won
    )
    deleted += sum(done.won for done in store.db.transact_each(missing))
    for lane, found in groups:
        deleted += _delete_open(store, batch, lane.provider, found, now_ms=now_ms)
    return deleted


def _gone(entry: LedgerRun, when: str, **values: int | str) -> list[Action]:
    return [
        delete(RUNS, keys.place_key(entry.provider, entry.due_ms), when=when, **values),
        delete(RUNS, keys.ledger_key(entry.run)),
    ]


def _delete_open(store: BatchParts, batch: Batch, provider: int, found: Sequence[_Found], *, now_ms: int) -> int:
    """Delete open runs of one provider in one transaction with its lane. Return how many; 0 if it lost."""
    lane = lanes_of(store.db, [provider])[provider]
    mine = [one for one in found if not _is_out(lane, one.entry, now_ms=now_ms)]
    if not mine:
        return 0
    gone = {one.entry.due_ms for one in mine}
    held = {due_ms: one for due_ms, one in lane.held.items() if due_ms not in gone}
    aside = [one.entry for one in mine if one.item["state"] == "aside"]
    after = lane.change(held=held, aside=lane.aside - len(aside))
    actions = [write_lane(lane, after)]
    for one in mine:
        state = one.item["state"]
        actions += _gone(one.entry, "#run = :seen AND #state = :was", seen=one.entry.run, was=state)
    actions += [delete(RUNS, keys.aside_key(batch.number, entry.provider, entry.due_ms)) for entry in aside]
    if not store.db.transact(actions).won:
        return 0
    store.looks.note(after)
    return len(mine)


def _is_out(lane: LaneItem, entry: LedgerRun, *, now_ms: int) -> bool:
    one = lane.held.get(entry.due_ms)
    return one is not None and one.run == entry.run and is_let_finish(one.state, one.at_ms, now_ms=now_ms)


def _delete_day(store: BatchParts, batch: Batch, day: Day) -> None:
    item_keys = [keys.counter_key(batch.id, day.date, counter) for counter in range(keys.COUNTERS)]
    store.db.write_many([delete(ITEMS, key) for key in (*item_keys, keys.day_number_key(day.number))])
    store.db.write(delete(ITEMS, keys.day_key(batch.id, day.date)))  # last, so that the next pass finds the day


def _delete_records(store: BatchParts, batch: Batch, *, limit: int) -> int:
    pages = store.db.threads.fan_out(
        lambda shard: store.db.page(ITEMS, keys.name_partition(batch.id, shard), limit=limit, only="#sk, #number"),
        range(keys.SHARDS),
    )
    rows = list(islice((row for page in pages for row in page), limit))
    item_keys = [
        key
        for row in rows
        for key in (
            keys.record_key(row["number"]),
            keys.newcomer_key(batch.number, row["number"]),
            keys.gone_key(row["number"]),
        )
    ]
    store.db.write_many([delete(ITEMS, key) for key in item_keys])
    store.db.write_many([delete(ITEMS, keys.name_key(batch.id, row["sk"])) for row in rows])
    return len(rows)

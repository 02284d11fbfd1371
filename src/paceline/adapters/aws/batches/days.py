"""Days of a batch in DynamoDB: the order in which a day is planned, and the runs that planning makes."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.enqueue import enqueue, enqueue_with_lane, placings
from paceline.adapters.aws.batches.lanes import wake
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.client.database import PAGE_MAX, DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, Action, Item, check, item_at, padded, put, setting, update
from paceline.adapters.aws.client.tables import ITEMS, READY_INDEX, RUNS
from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.deletion import no_batch
from paceline.core.batches.provider import parse_stored_provider
from paceline.core.batches.redrive import DAYS_MAX
from paceline.core.batches.reruns import split_round
from paceline.core.batches.run_keys import NEVER_MS, RECORD_BITS, RECORD_MASK, run_key
from paceline.core.batches.values import PagePlan, Placements, PlanOrder

RECORDS_MAX = 1 << RECORD_BITS
FEW = 64
"""Late records that are planned in the same transaction as the lanes; more are planned like a page."""
PLACE_BITS = 32


def open_day(store: BatchParts, batch: Batch, date: str, *, start_ms: int, end_ms: int) -> Day:
    if (there := day(store, batch, date)) is not None:
        return there
    number = store.numbers.take("day", 1, block=1)[0]
    assert number < 1 << 31
    window = {"start_ms": start_ms, "end_ms": end_ms}
    made = item_at(keys.day_key(batch.id, date), number=number, state="planning", **window)
    batch_names = {"batch": batch.id, "batch_number": batch.number}
    named = item_at(keys.day_number_key(number), **batch_names, date=date, **window)
    kept = check(
        ITEMS,
        keys.batch_key(batch.id),
        when="#number = :number AND attribute_not_exists(#deleting_ms)",
        number=batch.number,
    )
    # The check makes sure that the batch was not deleted since it was read.
    if store.db.transact([put(ITEMS, made, when=ABSENT), put(ITEMS, named, when=ABSENT), kept]).won:
        return _day(batch, made, enqueued=0, skipped=0)
    if (opened := day(store, batch, date)) is None:  # if it is there, another process was faster
        raise no_batch(batch.id)
    return opened


def day(store: BatchParts, batch: Batch, date: str) -> Day | None:
    rows = store.db.page(ITEMS, keys.days_partition(batch.id), limit=1 + keys.COUNTERS, first=date, last=f"{date}#~")
    found = _days(batch, rows)
    return found[0] if found else None


def days(store: BatchParts, batch: Batch, *, before: str | None, limit: int) -> list[Day]:
    """Return days, newest first. The counters of a day are sorted right behind it."""
    rows = store.db.page(
        ITEMS, keys.days_partition(batch.id), limit=limit * (1 + keys.COUNTERS), before=before or "~", newest_first=True
    )
    return _days(batch, rows)[:limit]


def _days(batch: Batch, rows: Iterable[Item]) -> list[Day]:
    items: list[Item] = []
    enqueued: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for row in rows:
        date, _, counter = row["sk"].partition("#")
        if counter:
            enqueued[date] += row["enqueued"]
            skipped[date] += row["skipped"]
        else:
            items.append(row)
    return [_day(batch, row, enqueued=enqueued[row["sk"]], skipped=skipped[row["sk"]]) for row in items]


def _day(batch: Batch, row: Item, *, enqueued: int, skipped: int) -> Day:
    cursor = (row["cursor_provider"], row["cursor_record"]) if "cursor_record" in row else None
    return Day(
        row["number"], batch.id, row["sk"], row["start_ms"], row["end_ms"], row["state"], cursor, enqueued, skipped
    )


# -- the order of a plan


def plan_order(store: BatchParts, batch: Batch, cursor: tuple[int, int] | None) -> PlanOrder:
    wishes = _Wishes({}, {})
    pages = store.db.threads.fan_out(
        lambda shard: _records_in(store.db, keys.name_partition(batch.id, shard), wishes), range(keys.SHARDS)
    )
    begin = None
    if cursor is not None and (last := store.db.get(ITEMS, keys.record_key(cursor[1]))) is not None:
        begin = last["place"] << RECORD_BITS | cursor[1]
    return _with_wishes(store, batch, _order([row for page in pages for row in page], begin), wishes)


class _Wishes(NamedTuple):
    """Wishes by record number: its priority, and the name of the record that it comes after; most have neither."""

    priorities: dict[int, int]
    after: dict[int, str]


def _with_wishes(store: BatchParts, batch: Batch, order: PlanOrder, wishes: _Wishes) -> PlanOrder:
    names = store.facts.policies.names(store.db, (provider for provider, _ in order.providers))
    items = store.db.get_many(ITEMS, map(keys.provider_key, names.values())).values()
    orders = {item["number"]: parse_stored_provider(item["spec"]).order for item in items}
    found = store.db.get_many(ITEMS, (keys.name_key(batch.id, name) for name in set(wishes.after.values())))
    numbers = {key.sk: one["number"] for key, one in found.items() if one["active"] and not one.get("deleted")}
    return msgspec.structs.replace(
        order,
        orders={number: by for number, by in orders.items() if by != "spread"},
        priorities=wishes.priorities if "priority" in orders.values() else {},
        after={number: numbers.get(name) for number, name in wishes.after.items()},
    )


def _records_in(db: DynamoDatabase, partition: str, wishes: _Wishes) -> list[int]:
    """Return each active record packed into one number: provider, place, record.

    Reads page by page to keep no more than that.
    """
    packed: list[int] = []
    only = "#provider, #place, #number, #active, #deleted, #priority, #after"
    for row in db.walk(ITEMS, partition, only=only):
        if row["active"] and not row.get("deleted"):
            packed.append(_packed(row))
            if "priority" in row:
                wishes.priorities[row["number"]] = row["priority"]
            if "after" in row:
                wishes.after[row["number"]] = row["after"]
    return packed


def _packed(row: Item) -> int:
    return int((row["provider"] << PLACE_BITS | row["place"]) << RECORD_BITS | row["number"])


def _order(rows: list[int], begin: int | None) -> PlanOrder:
    """Return the plan order, by place. So a page has runs of all providers, and the first page the earliest ones."""
    rows.sort()
    records = array("q", [row & RECORD_MASK for row in rows])
    counts = Counter(row >> PLACE_BITS + RECORD_BITS for row in rows)
    mask = (1 << PLACE_BITS + RECORD_BITS) - 1
    places = array("Q", [row & mask for row in rows])
    turns = array("I", sorted(range(len(rows)), key=places.__getitem__))
    passed = sum(place <= begin for place in places) if begin is not None else 0
    return PlanOrder(providers=list(counts.items()), records=records, turns=turns, begin=passed)


def late_order(store: BatchParts, batch: Batch) -> PlanOrder:
    rows = store.db.page(ITEMS, keys.newcomer_partition(batch.number), limit=RECORDS_MAX, only="#number")
    numbers = [row["number"] for row in rows]
    packed: list[int] = []
    for at in range(0, len(numbers), PAGE_MAX):
        items = store.db.get_many(ITEMS, map(keys.record_key, numbers[at : at + PAGE_MAX]))
        packed += [_packed(item) for item in items.values()]
    return _order(packed, None)


# -- plans


def plan_page(
    store: BatchParts, day: Day, page: Placements, *, cursor: tuple[int, int], skipped: Placements, now_ms: int
) -> PagePlan:
    """Write the runs, each once; then wake providers; then move the cursor. If cut short, all of it is done again."""
    if not _stands_there(store.db, day):
        return PagePlan(won=False, enqueued=0, already=0, skipped=0)
    wanted = [*placings(day, page, missed=False), *placings(day, skipped, missed=True)]
    made = enqueue(store.db, day, wanted, now_ms=now_ms)
    wake(store.db, store.looks, made.firsts, now_ms=now_ms)
    won = store.db.write(_move_day(day, {"cursor_provider": cursor[0], "cursor_record": cursor[1]})).won
    store.change_counter.bump()
    already = len(wanted) - made.enqueued - made.skipped
    return PagePlan(won=won, enqueued=made.enqueued, already=already, skipped=made.skipped)


def close_day(store: BatchParts, day: Day) -> bool:
    return store.db.write(_move_day(day, {"state": "planned"})).won


def _stands_there(db: DynamoDatabase, day: Day) -> bool:
    item = db.get(ITEMS, keys.day_key(day.batch, day.date))
    if item is None or item["number"] != day.number:
        return False  # its batch was deleted
    cursor = (item["cursor_provider"], item["cursor_record"]) if "cursor_record" in item else None
    return item["state"] == "planning" and cursor == day.cursor


def _move_day(day: Day, values: dict[str, str | int]) -> Action:
    """Return the write that moves a day, on condition that its cursor is where it was read."""
    change, given = setting(values)
    when = "#state = :planning AND attribute_not_exists(#cursor_record)"
    if day.cursor is not None:
        when = "#state = :planning AND #cursor_provider = :was_provider AND #cursor_record = :was_record"
        given |= {"was_provider": day.cursor[0], "was_record": day.cursor[1]}
    return update(ITEMS, keys.day_key(day.batch, day.date), change, when=when, planning="planning", **given)


def plan_late_records(store: BatchParts, day: Day, page: Placements) -> PagePlan:
    there = store.db.get(ITEMS, keys.day_key(day.batch, day.date))
    if there is None or there["number"] != day.number:
        return PagePlan(won=False, enqueued=0, already=0, skipped=0)
    wanted = placings(day, page, missed=False)
    if len(wanted) <= FEW:
        enqueued = enqueue_with_lane(store.db, store.looks, day, wanted)
    else:
        made = enqueue(store.db, day, wanted, now_ms=0)
        wake(store.db, store.looks, made.firsts, now_ms=NEVER_MS)
        enqueued = made.enqueued
    store.change_counter.bump()
    return PagePlan(won=True, enqueued=enqueued, already=len(wanted) - enqueued, skipped=0)


def unplanned(store: BatchParts, day: Day, records: Sequence[int]) -> set[int]:
    item_keys = {keys.ledger_key(run_key(day.number, record)): record for record in records}
    return set(records) - {item_keys[key] for key in store.db.get_many(RUNS, item_keys)}


def taken(store: BatchParts, of: int | Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
    """Return due times of a provider's runs that have not ended, in order.

    The state is not filtered by DynamoDB, which would read on past the limit.
    """
    if isinstance(of, Day):
        return _taken_on(store, of, from_ms=from_ms, to_ms=to_ms, limit=limit)
    dues: list[int] = []
    asked = min(limit, PAGE_MAX)
    while to_ms > from_ms and len(dues) < limit:
        rows = store.db.page(
            RUNS,
            keys.queue_partition(of),
            limit=asked,
            first=padded(max(from_ms, 0)),
            last=padded(max(to_ms - 1, 0)),
            only="#sk, #state",
        )
        dues += [int(row["sk"]) for row in rows if row["state"] == "waiting"]
        if len(rows) < asked:
            break
        from_ms, asked = int(rows[-1]["sk"]) + 1, PAGE_MAX
    return dues[:limit]


def _taken_on(store: BatchParts, day: Day, *, from_ms: int, to_ms: int, limit: int) -> list[int]:
    """Return due times from the index of open runs. It may lack a run of the last moment, which does no harm here."""
    if to_ms <= from_ms:
        return []
    pages = store.db.threads.fan_out(
        lambda shard: store.db.page(
            RUNS,
            keys.open_shard_of(day.number, shard),
            limit=limit,
            index=READY_INDEX,
            first=from_ms,
            last=to_ms - 1,
            only="#at",
        ),
        range(keys.SHARDS),
    )
    return list(islice(sorted(row["at"] for page in pages for row in page), limit))


def days_chosen(db: DynamoDatabase, *, batch: str | None, date: str | None) -> dict[str, set[int]]:
    """Return the numbers of days, by batch."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    if batch is not None:
        partition = keys.days_partition(batch)
        for row in db.page(ITEMS, partition, limit=DAYS_MAX * (1 + keys.COUNTERS)):
            if "number" in row and date in (None, row["sk"], split_round(row["sk"])[0]):
                found[batch].add(row["number"])
        return found
    for row in db.page(ITEMS, "days", limit=DAYS_MAX):
        if date in (None, row["date"], split_round(row["date"])[0]):
            found[row["batch"]].add(int(row["sk"]))
    return found

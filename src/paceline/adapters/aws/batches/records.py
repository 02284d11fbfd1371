"""Batches and their records as the operator declared them, and records that are added during a day."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import msgspec

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.days import days
from paceline.adapters.aws.batches.lanes import LaneItem, lanes_of
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.unwanted_runs import bring_back
from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import ACTIONS_MAX, PAGE_MAX, DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, Action, Item, delete, item_at, put
from paceline.adapters.aws.client.numbers import Numbers
from paceline.adapters.aws.client.tables import ITEMS
from paceline.core.batches.batch import Batch, BatchSpec, Deletion, RecordSpec, parse_stored_batch
from paceline.core.batches.put import RecordPuts, RecordState, new_names, put_disposition
from paceline.core.batches.records.options import parse_options
from paceline.core.batches.run_keys import RECORD_BITS
from paceline.core.batches.spread import place_of
from paceline.core.batches.values import RECORDS_READ_MAX, BatchPut, LateRecord, RecordPut

DAYS_MAX = 16
WRITE_BYTES_MAX = 1_000_000
"""Bytes of bodies in one transaction; AWS takes four megabytes, including names."""
ACTIONS_PER_RECORD = 4
"""A record takes at most four actions: its name, itself, its note as a late record, its note as removed."""


def put_batch(
    store: BatchParts, batch_id: str, spec: BatchSpec, *, expected_revision: int | None, now_ms: int
) -> BatchPut:
    for _ in attempts():
        now = batch(store, batch_id)
        if now is not None and now.deleting is not None:
            return BatchPut("deleting", now)
        revision, same = (now.revision, now.spec == spec) if now is not None else (None, False)
        disposition = put_disposition(revision=revision, expected=expected_revision, same=same)
        if disposition in ("revision_mismatch", "unchanged"):
            return BatchPut(disposition, now)
        if now is None:
            after = Batch(
                batch_id, store.numbers.take("batch", 1, block=1)[0], 1, spec, created_ms=now_ms, updated_ms=now_ms
            )
            action = put(ITEMS, _batch_item(after), when=ABSENT)
        else:
            after = msgspec.structs.replace(now, revision=now.revision + 1, spec=spec, updated_ms=now_ms)
            action = put(ITEMS, _batch_item(after), when="#revision = :seen", seen=now.revision)
        if store.db.write(action).won:
            if now is not None and now.spec.paused and not spec.paused:
                bring_back(store.db, store.looks, now.number)
            store.change_counter.bump()
            return BatchPut(disposition, after)
    raise busy(f"batch {batch_id}")


def batch(store: BatchParts, batch_id: str) -> Batch | None:
    item = store.db.get(ITEMS, keys.batch_key(batch_id))
    return read_batch(item) if item else None


find_batch = batch  # a second name, for functions with an argument ``batch``


def batches(store: BatchParts, *, after: str, limit: int) -> list[Batch]:
    rows = store.db.page(ITEMS, "batches", limit=limit, after=after)
    return [read_batch(row) for row in rows]


def read_batch(item: Item) -> Batch:
    return Batch(
        item["sk"],
        item["number"],
        item["revision"],
        parse_stored_batch(item["spec"]),
        created_ms=item["created_ms"],
        updated_ms=item["updated_ms"],
        deleting=_deletion(item) if "deleting_ms" in item else None,
    )


def _deletion(item: Item) -> Deletion:
    return Deletion(item["deleting_ms"], item["deleted_runs"], item["deleted_records"])


def _batch_item(after: Batch) -> Item:
    return item_at(
        keys.batch_key(after.id),
        number=after.number,
        revision=after.revision,
        spec=msgspec.json.encode(after.spec).decode(),
        created_ms=after.created_ms,
        updated_ms=after.updated_ms,
    )


# -- records


class _Change(NamedTuple):
    """A record that is put.

    ``before`` is None if it is new. ``version``: that of the item before, 0 if there was none.
    """

    before: RecordState | None
    after: RecordState
    version: int


def put_records(store: BatchParts, batch: Batch, records: Sequence[RecordSpec], *, now_ms: int) -> list[RecordPut]:
    there = find_batch(store, batch.id)
    if there is None or there.number != batch.number or there.deleting is not None:
        return ["no_batch"] * len(records)
    results: dict[int, RecordPut] = {}
    left = list(enumerate(records))
    day_is_on = _day_is_on(store, batch, now_ms=now_ms) if records else False
    came: list[int] = []
    written: dict[str, _Change] = {}
    for _ in attempts():
        if not left:
            break
        page = _RecordWrites(store.db, store.numbers, batch, left, day_is_on=day_is_on)
        results |= page.results
        lost = page.write()
        written |= {name: change for name, change in page.changes().items() if name not in lost}
        came += [number for name, number in page.came.items() if name not in lost]
        left = [(index, record) for index, record in left if record.id in lost]
    if left:
        raise busy(f"records of {batch.id}")
    for name in _undo_orphans(store, batch, written):
        results |= {index: "no_provider" for index, record in enumerate(records) if record.id == name}
    # A day that was opened in the meantime may have been planned without them.
    if came and not day_is_on and _day_is_on(store, batch, now_ms=now_ms):
        store.db.write_many(put(ITEMS, _newcomer(batch, number)) for number in came)
    store.change_counter.bump()
    return [results[index] for index in range(len(records))]


class _RecordWrites:
    """Records judged one by one against the stored ones, and written together, some in each transaction."""

    def __init__(
        self,
        db: DynamoDatabase,
        numbers: Numbers,
        batch: Batch,
        records: list[tuple[int, RecordSpec]],
        *,
        day_is_on: bool,
    ) -> None:
        self._db = db
        self._batch = batch
        self._day_is_on = day_is_on
        items = db.get_many(ITEMS, (keys.provider_key(record.provider) for _, record in records))
        providers = {key.sk: one["number"] for key, one in items.items() if not one.get("deleted")}
        self._before, self._versions = _states(db, batch, {record.id for _, record in records})
        new = new_names((one for _, one in records), providers=providers, known=self._before)
        fresh = dict(zip(new, numbers.take("record", len(new), block=1) if new else (), strict=True))
        assert not fresh or max(fresh.values()) < 1 << RECORD_BITS
        self._puts = RecordPuts(self._before, providers=providers, numbers=fresh)
        judged = self._puts.judge([record for _, record in records])
        self.results = dict(zip([index for index, _ in records], judged, strict=True))
        self.came = self._puts.came

    def changes(self) -> dict[str, _Change]:
        """Return the changes to be written, by name."""
        return {
            name: _Change(self._before.get(name), after, self._versions.get(name, 0))
            for name, after in self._puts.changed().items()
        }

    def write(self) -> set[str]:
        """Write the changes.

        Return the names of those that lost: a transaction with one lost record writes none of its records.
        """
        changed = list(self.changes())
        size = ACTIONS_MAX // ACTIONS_PER_RECORD if self._before or self._day_is_on else ACTIONS_MAX // 2
        groups = self._groups(changed, size)
        done = self._db.transact_each([[act for name in group for act in self._actions(name)] for group in groups])
        return {name for group, one in zip(groups, done, strict=True) if not one.won for name in group}

    def _groups(self, names: Sequence[str], size: int) -> list[list[str]]:
        """Return the names in groups for transactions: at most ``size`` each, and at most WRITE_BYTES_MAX bytes."""
        groups: list[list[str]] = []
        size_bytes = WRITE_BYTES_MAX
        for name in names:
            own_bytes = (
                len((self._puts.now[name].body or "").encode()) + len(self._puts.now[name].endpoint) + 4 * len(name)
            )
            if not groups or len(groups[-1]) >= size or size_bytes + own_bytes > WRITE_BYTES_MAX:
                groups.append([])
                size_bytes = 0
            groups[-1].append(name)
            size_bytes += own_bytes
        return groups

    def _actions(self, name: str) -> list[Action]:
        before, after, version = self._before.get(name), self._puts.now[name], self._versions.get(name, 0)
        named, item = _record_items(self._batch, name, after, version=version + 1)
        if before is None:
            actions = [put(ITEMS, named, when=ABSENT)]
        else:
            actions = [put(ITEMS, named, when="#version = :seen", seen=version)]
        actions.append(put(ITEMS, item))
        if before is not None and before.deleted:
            actions.append(delete(ITEMS, keys.gone_key(after.number)))
        if name in self._puts.went and before is not None:
            actions.append(delete(ITEMS, keys.newcomer_key(self._batch.number, after.number)))
        elif name in self.came and self._day_is_on:
            actions.append(put(ITEMS, _newcomer(self._batch, after.number)))
        return actions


def _record_items(batch: Batch, name: str, state: RecordState, *, version: int) -> tuple[Item, Item]:
    """Return the two items of a record: the one that plans read, and the one that calls read."""
    facts: Item = {
        "number": state.number,
        "provider": state.provider,
        "place": place_of(batch.id, name),
        "active": state.active,
        "deleted": state.deleted or None,
    }
    options = parse_options(state.options)
    facts |= {"priority": options.priority or None, "after": options.after}
    named = item_at(keys.name_key(batch.id, name), version=version, **facts)
    texts = {"endpoint": state.endpoint, "body": state.body, "options": state.options}
    return named, item_at(keys.record_key(state.number), **facts, batch=batch.id, name=name, **texts)


def _newcomer(batch: Batch, number: int) -> Item:
    return item_at(keys.newcomer_key(batch.number, number), number=number)


def _states(db: DynamoDatabase, batch: Batch, names: Iterable[str]) -> tuple[dict[str, RecordState], dict[str, int]]:
    """Return records by name, including deleted ones, and the versions of their items."""
    named = db.get_many(ITEMS, (keys.name_key(batch.id, name) for name in names))
    records = db.get_many(ITEMS, (keys.record_key(one["number"]) for one in named.values()))
    states = {
        key.sk: RecordState(
            number=one["number"],
            provider=one["provider"],
            active=one["active"],
            deleted=bool(one.get("deleted")),
            endpoint=records[keys.record_key(one["number"])]["endpoint"],
            body=records[keys.record_key(one["number"])].get("body"),
            options=records[keys.record_key(one["number"])].get("options"),
        )
        for key, one in named.items()
    }
    return states, {key.sk: one["version"] for key, one in named.items()}


def _undo_orphans(store: BatchParts, batch: Batch, written: Mapping[str, _Change]) -> list[str]:
    """Restore records that were written while their provider was being removed. Return their names.

    The removal searches for records before and after it: a record that it did not see was written later, and so this
    function finds the provider removed.
    """
    lanes = lanes_of(store.db, {change.after.provider for change in written.values()})
    orphans = [name for name, change in written.items() if _is_removed(lanes, change.after.provider)]
    for name in orphans:
        was, _, version = written[name]
        if was is None or was.deleted or _is_removed(lanes, was.provider):
            remove_record(store, batch, name)
            continue
        named, item = _record_items(batch, name, was, version=version + 2)
        # A later write was made knowing that the provider is removed, and stays.
        store.db.transact([put(ITEMS, named, when="#version = :seen", seen=version + 1), put(ITEMS, item)])
    return orphans


def _is_removed(lanes: Mapping[int, LaneItem], provider: int) -> bool:
    return provider in lanes and lanes[provider].revision is None


def _day_is_on(store: BatchParts, batch: Batch, *, now_ms: int) -> bool:
    return any(day.end_ms > now_ms for day in days(store, batch, before=None, limit=DAYS_MAX))


def record(store: BatchParts, batch: Batch, record_id: str) -> RecordSpec | None:
    named = store.db.get(ITEMS, keys.name_key(batch.id, record_id))
    if named is None or named.get("deleted"):
        return None
    item = store.db.get(ITEMS, keys.record_key(named["number"]))
    return _read_records(store, [item])[0] if item is not None else None


def afters(store: BatchParts, batch: Batch, names: Collection[str]) -> dict[str, str | None]:
    found = store.db.get_many(ITEMS, (keys.name_key(batch.id, name) for name in names))
    return {key.sk: item.get("after") for key, item in found.items() if not item.get("deleted")}


def record_numbers(store: BatchParts, batch: Batch) -> array[int]:
    pages = store.db.threads.fan_out(lambda shard: _numbers_in(store.db, batch, shard), range(keys.SHARDS))
    return array("q", sorted(number for page in pages for number in page))


def _numbers_in(db: DynamoDatabase, batch: Batch, shard: int) -> array[int]:
    rows = db.walk(ITEMS, keys.name_partition(batch.id, shard), only="#number, #deleted")
    return array("q", (row["number"] for row in rows if not row.get("deleted")))


def records_of(store: BatchParts, numbers: Sequence[int]) -> list[RecordSpec]:
    items = store.db.get_many(ITEMS, map(keys.record_key, numbers)).values()
    return _read_records(store, sorted((one for one in items if not one.get("deleted")), key=itemgetter("number")))


def find_records(
    store: BatchParts, batch: Batch, *, provider: str | None = None, active: bool | None = None, after: str, limit: int
) -> tuple[list[RecordSpec], str | None]:
    """Return a page of records. Reads the names in chunks, and whole records only of those that are wanted."""
    item = store.db.get(ITEMS, keys.provider_key(provider)) if provider is not None else None
    if provider is not None and item is None:
        return [], None
    found: list[Item] = []
    more, looked = True, 0
    while more and len(found) < limit and looked < RECORDS_READ_MAX:
        page = _named_page(store.db, batch, after=after, limit=PAGE_MAX)
        more, looked = len(page) == PAGE_MAX, looked + len(page)
        after = page[-1]["sk"] if page else after
        found += [row for row in page if _is_wanted(row, item["number"] if item else None, active=active)]
    if len(found) > limit:
        found, more = found[:limit], True
        after = found[-1]["sk"]
    items = store.db.get_many(ITEMS, (keys.record_key(row["number"]) for row in found))
    read = _read_records(store, [one for row in found if (one := items.get(keys.record_key(row["number"])))])
    return read, after if more else None


def _is_wanted(row: Item, provider: int | None, *, active: bool | None) -> bool:
    return not row.get("deleted") and provider in (None, row["provider"]) and active in (None, row["active"])


def _named_page(db: DynamoDatabase, batch: Batch, *, after: str, limit: int) -> list[Item]:
    """Return the first names of each shard, merged in order, including deleted ones."""
    partitions = [keys.name_partition(batch.id, shard) for shard in range(keys.SHARDS)]
    pages = db.threads.fan_out(partial(_names_in, db, after=after, limit=limit), partitions)
    return sorted((row for rows in pages for row in rows), key=itemgetter("sk"))[:limit]


def _names_in(db: DynamoDatabase, partition: str, *, after: str, limit: int) -> list[Item]:
    return db.page(ITEMS, partition, limit=limit, after=after, only="#sk, #number, #deleted, #provider, #active")


def _read_records(store: BatchParts, items: Sequence[Item]) -> list[RecordSpec]:
    names = store.facts.policies.names(store.db, (item["provider"] for item in items))
    return [
        RecordSpec(
            item["name"],
            names[item["provider"]],
            item["endpoint"],
            item.get("body"),
            item["active"],
            parse_options(item.get("options")),
        )
        for item in items
    ]


def remove_record(store: BatchParts, batch: Batch, record_id: str) -> bool:
    for _ in attempts():
        states, versions = _states(store.db, batch, [record_id])
        now = states.get(record_id)
        if now is None or now.deleted:
            return False
        version = versions[record_id]
        named, item = _record_items(batch, record_id, now._replace(deleted=True), version=version + 1)
        named_by = {"batch": batch.id, "batch_number": batch.number, "name": record_id}
        actions = [
            put(ITEMS, named, when="#version = :seen", seen=version),
            put(ITEMS, item),
            put(ITEMS, item_at(keys.gone_key(now.number), number=now.number, **named_by)),
            delete(ITEMS, keys.newcomer_key(batch.number, now.number)),
        ]
        if store.db.transact(actions).won:
            return True
    raise busy(f"record {record_id}")


def record_names(store: BatchParts, numbers: Sequence[int]) -> dict[int, str]:
    return {item["number"]: item["name"] for item in store.db.get_many(ITEMS, map(keys.record_key, numbers)).values()}


# -- newcomers


def late_records(store: BatchParts, batch: Batch, *, limit: int) -> list[LateRecord]:
    rows = store.db.page(ITEMS, keys.newcomer_partition(batch.number), limit=limit, only="#number")
    items = store.db.get_many(ITEMS, (keys.record_key(row["number"]) for row in rows))
    found = sorted(items.values(), key=itemgetter("number"))
    return [LateRecord(item["number"], item["provider"], item["place"]) for item in found]


def forget_late_records(store: BatchParts, done: Sequence[int]) -> None:
    items = store.db.get_many(ITEMS, map(keys.record_key, done))
    numbers = {name: batch(store, name) for name in {item["batch"] for item in items.values()}}
    gone = [
        delete(ITEMS, keys.newcomer_key(there.number, item["number"]))
        for item in items.values()
        if (there := numbers[item["batch"]]) is not None
    ]
    store.db.write_many(gone)

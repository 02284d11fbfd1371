"""Providers in DynamoDB, as the operator declared them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

import msgspec

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.lanes import LaneItem, held_runs, lane_of, shard_of_lane, waiting_from, write_lane
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, PRESENT, Action, Item, item_at, padded, put, update
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.core.batches.provider import Policy, ProviderDefinition, ProviderSpec, parse_stored_provider
from paceline.core.batches.put import put_disposition
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.batches.values import WAITING_MAX, ProviderPut, ProviderStanding, PutProvider
from paceline.core.why.queued import ProviderQueue, QueuedRun, queued_call

BATCHES_MAX = 100_000
NUMBER_MAX = 1 << 22


def put_provider(store: BatchParts, put: PutProvider, *, now_ms: int) -> ProviderPut:
    for _ in attempts():
        now = store.db.get(ITEMS, keys.provider_key(put.id))
        shown = _provider(now) if now is not None and not now.get("deleted") else None
        text = msgspec.json.encode(put.spec).decode()
        disposition = put_disposition(
            revision=shown.revision if shown else None,
            expected=put.expected_revision,
            same=now is not None and now["spec"] == text,
        )
        if disposition in ("revision_mismatch", "unchanged"):
            return ProviderPut(disposition, shown)
        item = _new_item(put.id, now, text, number=0, now_ms=now_ms)
        outgoing = put.spec.kind == "outgoing"
        if now is None:
            item["number"] = store.numbers.take("provider", 1, block=1)[0]
            assert item["number"] < NUMBER_MAX
            actions = _create(item, outgoing=outgoing)
        else:
            actions = _replace(item, seen=now["revision"], outgoing=outgoing)
        if store.db.transact(actions).won:
            store.looks.note(LaneItem(item["number"], ready_ms=NEVER_MS if now is None else 0, outgoing=outgoing))
            store.change_counter.bump()
            return ProviderPut(disposition, _provider(item))
    raise busy(f"provider {put.id}")


def _new_item(provider_id: str, now: Item | None, text: str, *, number: int, now_ms: int) -> Item:
    kept = now is not None and not now.get("deleted")
    return item_at(
        keys.provider_key(provider_id),
        id=provider_id,
        number=now["number"] if now else number,
        revision=now["revision"] + 1 if now else 1,
        spec=text,
        created_ms=now["created_ms"] if now and kept else now_ms,
        updated_ms=now_ms,
    )


def _create(item: Item, *, outgoing: bool) -> list[Action]:
    named = item_at(keys.provider_number_key(item["number"]), number=item["number"], id=item["id"])
    lane = write_lane(None, LaneItem(item["number"], outgoing=outgoing))
    return [put(ITEMS, item, when=ABSENT), put(ITEMS, named, when=ABSENT), lane]


def _replace(item: Item, *, seen: int, outgoing: bool) -> list[Action]:
    """Return the actions that replace a provider.

    Its lane becomes ready, because the new policy may allow more. The other attributes of the lane stay, so the update
    needs no version as its condition.
    """
    lane = update(
        RUNS,
        keys.lane_key(item["number"]),
        "SET #revision = :revision, #at = :now, #shard = :shard, #version = #version + :one, #outgoing = :outgoing",
        when=PRESENT,
        revision=item["revision"],
        now=0,
        shard=shard_of_lane(item["number"], outgoing=outgoing),
        one=1,
        outgoing=outgoing,
    )
    return [put(ITEMS, item, when="#revision = :seen", seen=seen), lane]


def provider(store: BatchParts, key: str | int) -> ProviderDefinition | None:
    if isinstance(key, int):
        names = store.facts.policies.names(store.db, [key])
        item = store.db.get(ITEMS, keys.provider_key(names[key])) if names else None
        return _provider(item) if item else None
    item = store.db.get(ITEMS, keys.provider_key(key))
    return _provider(item) if item is not None and not item.get("deleted") else None


def providers(store: BatchParts, *, after: str, limit: int) -> list[ProviderDefinition]:
    return [_provider(item) for item in islice(live_providers(store.db, after=after), limit)]


def live_providers(db: DynamoDatabase, *, after: str = "") -> Iterator[Item]:
    return db.walk(ITEMS, "providers", after=after, filtered="attribute_not_exists(#deleted)")


def remove_provider(store: BatchParts, provider_id: str) -> Literal["removed", "not_found", "in_use"]:
    for _ in attempts():
        item = store.db.get(ITEMS, keys.provider_key(provider_id))
        if item is None or item.get("deleted"):
            return "not_found"
        lane = lane_of(store.db, item["number"])
        assert lane is not None
        if _has_runs(store.db, lane) or _is_named(store.db, item["number"]):
            return "in_use"
        spec = msgspec.structs.replace(parse_stored_provider(item["spec"]), headers={})
        gone = item | {"deleted": True, "revision": item["revision"] + 1, "spec": msgspec.json.encode(spec).decode()}
        after = lane.change(ready_ms=NEVER_MS, revision=None)
        done = store.db.transact(
            [put(ITEMS, gone, when="#revision = :seen", seen=item["revision"]), write_lane(lane, after)]
        )
        if done.won and _is_named(store.db, item["number"]):
            # A record was written in between: the provider is restored.
            back = item | {"revision": gone["revision"] + 1}
            store.db.transact(_replace(back, seen=gone["revision"], outgoing=lane.outgoing))
            return "in_use"
        if done.won:
            store.looks.note(after)
            return "removed"
    raise busy(f"provider {provider_id}")


def _has_runs(db: DynamoDatabase, lane: LaneItem) -> bool:
    waiting = waiting_from(db, lane, lane.front_ms, limit=1)
    return bool(lane.held or lane.aside or waiting.runs) or waiting.beyond_ms < NEVER_MS


def _is_named(db: DynamoDatabase, number: int) -> bool:
    """Return True if a record names the provider. Reads the names of all records: a provider is seldom removed."""
    batches = db.page(ITEMS, "batches", limit=BATCHES_MAX, only="#sk")
    partitions = [keys.name_partition(batch["sk"], shard) for batch in batches for shard in range(keys.SHARDS)]
    named = "#provider = :provider AND attribute_not_exists(#deleted)"
    return any(
        db.page(ITEMS, partition, limit=1, only="#sk", filtered=named, given={"provider": number})
        for partition in partitions
    )


def provider_standing(store: BatchParts, number: int, *, now_ms: int) -> ProviderStanding:
    item = lane_of(store.db, number) or LaneItem(number)
    waiting = waiting_from(store.db, item, item.front_ms, limit=WAITING_MAX).runs
    out = sum(1 for one in item.held.values() if one.state == "out" and one.at_ms > now_ms)
    pace = item.pace
    dues = [*item.held, *(run.due_ms for run in waiting[:1])]
    return ProviderStanding(
        pace=msgspec.structs.replace(pace, staggered=False),
        in_flight=out,
        waiting=min(len(waiting) + len(item.held) - out, WAITING_MAX),
        head_due_ms=min(dues, default=None),
        ready_ms=item.ready_ms if item.ready_ms < NEVER_MS else None,
    )


def provider_queue(store: BatchParts, number: int, policy: Policy, *, limit: int) -> ProviderQueue:
    lane = lane_of(store.db, number) or LaneItem(number)
    found = waiting_from(store.db, lane, lane.front_ms, limit=limit)
    runs = sorted([*held_runs(lane), *found.runs])
    wishes = store.facts.wishes(store.db, [run.run for run in runs])
    calls = []
    for run in runs:
        record = wishes.record(run.run)
        provider, options = (record["provider"], record.get("options")) if record is not None else (None, None)
        seen = QueuedRun(run.run, run.state, run.due_ms, run.at_ms, number, provider, options)
        calls.append(queued_call(seen, wishes.day(run.run), policy))
    return ProviderQueue(lane.pace, calls, found.beyond_ms < NEVER_MS)


def latencies_ms(store: BatchParts, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
    """Return mean latencies of done runs. Ended runs come before waiting ones in the queue; the newest are read."""
    means = store.db.threads.fan_out(lambda number: _latency_ms(store.db, number, runs_max), numbers)
    return {number: mean for number, mean in zip(numbers, means, strict=True) if mean is not None}


def _latency_ms(db: DynamoDatabase, number: int, runs_max: int) -> float | None:
    lane = lane_of(db, number)
    rows = db.page(
        RUNS,
        keys.queue_partition(number),
        limit=runs_max,
        before=padded(lane.front_ms if lane else NEVER_MS),
        only="#state, #latency_ms",
        newest_first=True,
    )
    done = [float(row["latency_ms"]) for row in rows if row["state"] == "done" and "latency_ms" in row]
    return sum(done) / len(done) if done else None


def _provider(item: Item) -> ProviderDefinition:
    spec: ProviderSpec = parse_stored_provider(item["spec"])
    return ProviderDefinition(
        item["id"],
        item["number"],
        item["revision"],
        spec,
        created_ms=item["created_ms"],
        updated_ms=item["updated_ms"],
    )

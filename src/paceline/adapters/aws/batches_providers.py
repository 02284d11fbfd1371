"""Providers as their operator declared them, and their policies as a claim needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from paceline.adapters.aws.batches_keys import (
    NEVER_MS,
    SHARDS,
    lane_key,
    lane_shard,
    name_partition,
    provider_key,
    provider_number_key,
    queue_partition,
)
from paceline.adapters.aws.batches_lanes import LaneItem, Looks, lane_of, waiting_from, write_lane
from paceline.adapters.aws.connect import attempts
from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import ABSENT, PRESENT, Action, Item, padded, put, update
from paceline.adapters.aws.numbers import Numbers
from paceline.adapters.aws.tables import ITEMS, RUNS
from paceline.core.ids import stable_fraction
from paceline.core.pace import Lane
from paceline.core.provider import Policy, ProviderDefinition, ProviderSpec, parse_stored_provider, policy_of
from paceline.errors import StoreUnavailable
from paceline.ports import ProviderPut, ProviderStanding, PutProvider

WAITING_MAX = 1_000
"""A standing counts no further."""
BATCHES_MAX = 100_000
NUMBER_MAX = 1 << 22


class Known(NamedTuple):
    """``phase`` in [0, 1) depends on the provider's name alone."""

    revision: int
    policy: Policy
    phase: float


class Policies:
    """Policies by provider's number. The lane tells the revision, so an edit by any process counts at once."""

    KEPT_MAX = 65_536

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._names: dict[int, str] = {}

    def of(self, db: Database, lanes: Iterable[LaneItem]) -> dict[int, Known]:
        """Of those whose provider exists."""
        there = [lane for lane in lanes if lane.revision is not None]
        missing = [lane.provider for lane in there if not self._is_known(lane)]
        if missing:
            self._read(db, missing)
        return {lane.provider: self._known[lane.provider] for lane in there}

    def names(self, db: Database, numbers: Iterable[int]) -> dict[int, str]:
        """A number has one name for ever."""
        wanted = set(numbers)
        if missing := wanted - self._names.keys():
            found = db.get_many(ITEMS, map(provider_number_key, missing))
            self._names |= {item["number"]: item["id"] for item in found.values()}
        return {number: self._names[number] for number in wanted if number in self._names}

    def _is_known(self, lane: LaneItem) -> bool:
        kept = self._known.get(lane.provider)
        return kept is not None and kept.revision == lane.revision

    def _read(self, db: Database, numbers: Sequence[int]) -> None:
        if len(self._known) >= self.KEPT_MAX:
            self._known.clear()
        names = self.names(db, numbers)
        for item in db.get_many(ITEMS, map(provider_key, names.values())).values():
            policy = policy_of(parse_stored_provider(item["spec"]))
            self._known[item["number"]] = Known(item["revision"], policy, stable_fraction(item["id"]))


def put_provider(db: Database, numbers: Numbers, looks: Looks, wanted: PutProvider, *, now_ms: int) -> ProviderPut:
    for _ in attempts():
        now = db.get(ITEMS, provider_key(wanted.id))
        there = now is not None and not now.get("deleted")
        shown = _provider(now) if now is not None and there else None
        if wanted.expected_revision is not None and wanted.expected_revision != (shown.revision if shown else 0):
            return ProviderPut("revision_mismatch", shown)
        text = msgspec.json.encode(wanted.spec).decode()
        if now is not None and there and now["spec"] == text:
            return ProviderPut("unchanged", shown)
        item = _new_item(wanted.id, now, text, number=0, now_ms=now_ms)
        if now is None:
            item["number"] = numbers.take("provider", 1, block=1)[0]
            assert item["number"] < NUMBER_MAX
            actions = _create(item)
        else:
            actions = _replace(item, seen=now["revision"])
        if db.transact(actions).won:
            looks.note(LaneItem(item["number"], ready_ms=NEVER_MS if now is None else 0))
            return ProviderPut("replaced" if there else "created", _provider(item))
    raise _busy(wanted.id)


def _new_item(provider_id: str, now: Item | None, text: str, *, number: int, now_ms: int) -> Item:
    kept = now is not None and not now.get("deleted")
    key = provider_key(provider_id)
    return {
        "pk": key.pk,
        "sk": key.sk,
        "id": provider_id,
        "number": now["number"] if now else number,
        "revision": now["revision"] + 1 if now else 1,
        "spec": text,
        "created_ms": now["created_ms"] if now and kept else now_ms,
        "updated_ms": now_ms,
    }


def _create(item: Item) -> list[Action]:
    key = provider_number_key(item["number"])
    named = {"pk": key.pk, "sk": key.sk, "number": item["number"], "id": item["id"]}
    lane = write_lane(None, LaneItem(item["number"]))
    return [put(ITEMS, item, when=ABSENT), put(ITEMS, named, when=ABSENT), lane]


def _replace(item: Item, *, seen: int) -> list[Action]:
    """More may be allowed now than when its next look was set. All else in its lane stays, so nobody is raced."""
    lane = update(
        RUNS,
        lane_key(item["number"]),
        "SET #revision = :revision, #at = :now, #shard = :shard, #version = #version + :one",
        when=PRESENT,
        revision=item["revision"],
        now=0,
        shard=lane_shard(item["number"]),
        one=1,
    )
    return [put(ITEMS, item, when="#revision = :seen", seen=seen), lane]


def provider(db: Database, provider_id: str) -> ProviderDefinition | None:
    item = db.get(ITEMS, provider_key(provider_id))
    return _provider(item) if item is not None and not item.get("deleted") else None


def provider_by_number(db: Database, policies: Policies, number: int) -> ProviderDefinition | None:
    """Also one that was removed: results still name it."""
    names = policies.names(db, [number])
    item = db.get(ITEMS, provider_key(names[number])) if names else None
    return _provider(item) if item else None


def providers(db: Database, *, after: str, limit: int) -> list[ProviderDefinition]:
    return [_provider(item) for item in live_providers(db, after=after, limit=limit)]


def live_providers(db: Database, *, after: str, limit: int) -> list[Item]:
    return db.query(
        ITEMS,
        "#pk = :pk AND #sk > :after",
        limit=limit,
        filtered="attribute_not_exists(#deleted)",
        pk="providers",
        after=after or " ",
    )


def remove(db: Database, looks: Looks, provider_id: str) -> Literal["removed", "not_found", "in_use"]:
    for _ in attempts():
        item = db.get(ITEMS, provider_key(provider_id))
        if item is None or item.get("deleted"):
            return "not_found"
        lane = lane_of(db, item["number"])
        assert lane is not None
        if _has_runs(db, lane) or _is_named(db, item["number"]):
            return "in_use"
        spec = msgspec.structs.replace(parse_stored_provider(item["spec"]), headers={})
        gone = item | {"deleted": True, "revision": item["revision"] + 1, "spec": msgspec.json.encode(spec).decode()}
        after = lane.change(ready_ms=NEVER_MS, revision=None)
        done = db.transact([put(ITEMS, gone, when="#revision = :seen", seen=item["revision"]), write_lane(lane, after)])
        if done.won and _is_named(db, item["number"]):
            # A record came in between: the provider is as it was, and nobody has seen otherwise for long.
            db.transact(_replace(item | {"revision": gone["revision"] + 1}, seen=gone["revision"]))
            return "in_use"
        if done.won:
            looks.note(after)
            return "removed"
    raise _busy(provider_id)


def _has_runs(db: Database, lane: LaneItem) -> bool:
    waiting = waiting_from(db, lane, lane.front_ms, limit=1)
    return bool(lane.held or lane.aside or waiting.runs) or waiting.beyond_ms < NEVER_MS


def _is_named(db: Database, number: int) -> bool:
    """Reads the names of all records: a provider is seldom removed."""
    batches = db.query(ITEMS, "#pk = :pk", limit=BATCHES_MAX, only="#sk", pk="batches")
    partitions = [name_partition(batch["sk"], shard) for batch in batches for shard in range(SHARDS)]
    return any(
        db.query(
            ITEMS,
            "#pk = :pk",
            limit=1,
            filtered="#provider = :provider AND attribute_not_exists(#deleted)",
            only="#sk",
            pk=partition,
            provider=number,
        )
        for partition in partitions
    )


def standing(db: Database, number: int, *, now_ms: int) -> ProviderStanding:
    item = lane_of(db, number) or LaneItem(number)
    waiting = waiting_from(db, item, item.front_ms, limit=WAITING_MAX).runs
    out = sum(1 for one in item.held.values() if one.state == "out" and one.at_ms > now_ms)
    lane = item.lane
    dues = [*item.held, *(run.due_ms for run in waiting[:1])]
    return ProviderStanding(
        lane=Lane(
            rate_us=lane.rate_us,
            paced_ms=lane.paced_ms,
            closed_until_ms=lane.closed_until_ms,
            failures=lane.failures,
        ),
        in_flight=out,
        waiting=min(len(waiting) + len(item.held) - out, WAITING_MAX),
        head_due_ms=min(dues, default=None),
        ready_ms=item.ready_ms if item.ready_ms < NEVER_MS else None,
    )


def latencies_ms(db: Database, numbers: Sequence[int], *, runs_max: int) -> dict[int, float]:
    """What ended lies before what waits; the newest of it first."""
    means = db.threads.fan_out(lambda number: _latency_ms(db, number, runs_max), numbers)
    return {number: mean for number, mean in zip(numbers, means, strict=True) if mean is not None}


def _latency_ms(db: Database, number: int, runs_max: int) -> float | None:
    lane = lane_of(db, number)
    rows = db.query(
        RUNS,
        "#pk = :pk AND #sk < :front",
        limit=runs_max,
        only="#state, #latency_ms",
        newest_first=True,
        pk=queue_partition(number),
        front=padded(lane.front_ms if lane else NEVER_MS),
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


def _busy(provider_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"AWS: provider {provider_id} is written to all the time: try again in a moment.")

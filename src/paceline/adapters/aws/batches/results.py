"""A day's runs for reports. The ledger has the place of each run; nothing beyond the day is read."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.lanes import lanes_of
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.client.database import DynamoDatabase, in_pages
from paceline.adapters.aws.client.items import Item, ReadOptions, padded
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.core.batches.batch import Day
from paceline.core.batches.calls import CallState
from paceline.core.batches.run_keys import RECORD_BITS, RECORD_MASK, due_ms_of, provider_of, run_key
from paceline.core.batches.unwanted import ASIDE
from paceline.core.batches.values import RUNS_READ_MAX, CallRun, DayCount, OutCall

CHUNK_RUNS = 1_000
NUMBER_BITS = 22
NUMBER_MASK = (1 << NUMBER_BITS) - 1
"""Mask of a provider's number."""


class LedgerRun(NamedTuple):
    """A run in the ledger, and its place."""

    run: int
    provider: int
    due_ms: int


def day_counts(store: BatchParts, day: Day) -> list[DayCount]:
    counts: Counter[tuple[int, CallState]] = Counter()
    for some in store.db.threads.fan_out(lambda shard: _counts_in(store.db, day.number, shard), range(keys.SHARDS)):
        counts += some
    names = store.facts.policies.names(store.db, {provider for provider, _ in counts})
    return sorted(DayCount(names[provider], state, runs) for (provider, state), runs in counts.items())


def _counts_in(db: DynamoDatabase, day: int, shard: int) -> Counter[tuple[int, CallState]]:
    counts: Counter[tuple[int, CallState]] = Counter()
    for page in _pages_of(db, day, shard):
        states = _states(db, page)
        counts.update((entry.provider, states[entry.run]["state"]) for entry in page if entry.run in states)
    return counts


def day_dues(store: BatchParts, day: Day) -> tuple[array[int], array[int]]:
    """Return the due times and providers of a day. Each run is kept as one number, so that a day of a million fits."""
    places: list[int] = []
    for some in store.db.threads.fan_out(lambda shard: _places_in(store.db, day, shard), range(keys.SHARDS)):
        places += some
    places.sort()
    return array("q", [one >> NUMBER_BITS for one in places]), array("q", [one & NUMBER_MASK for one in places])


def _places_in(db: DynamoDatabase, day: Day, shard: int) -> list[int]:
    pages = _pages_of(db, day.number, shard)
    if db.retention.may_be_gone(day.start_ms, now_ms=db.write_ms(0)):
        pages = (_present(db, page) for page in pages)
    return [entry.due_ms << NUMBER_BITS | entry.provider for page in pages for entry in page]


def _present(db: DynamoDatabase, entries: Sequence[LedgerRun]) -> list[LedgerRun]:
    """Those whose runs are there."""
    states = _states(db, entries)
    return [entry for entry in entries if entry.run in states]


def _pages_of(db: DynamoDatabase, day: int, shard: int) -> Iterator[list[LedgerRun]]:
    """Yield all runs of a day in one shard of the ledger, in pages."""
    return in_pages(_walk_in(db, day, shard, after=0), CHUNK_RUNS)


def day_runs(
    store: BatchParts, day: Day, *, state: CallState | None, provider: str | None, after: int, limit: int
) -> tuple[list[CallRun], int | None]:
    number = _number(store.db, provider) if provider is not None else None
    looked_at_max = RUNS_READ_MAX if state or provider is not None else limit + 1
    entries = entries_of(store.db, day.number, after=after, limit=looked_at_max)
    found: list[LedgerRun] = []
    seen, looked = after, 0
    for at in range(0, len(entries), CHUNK_RUNS):
        chunk = entries[at : at + CHUNK_RUNS]
        states = _states(store.db, chunk) if state else {}
        for entry in chunk:
            wanted = state is None or (entry.run in states and states[entry.run]["state"] == state)
            wanted = wanted and (provider is None or entry.provider == number)
            if wanted and len(found) == limit:
                return runs_of(store, found), seen
            if wanted:
                found.append(entry)
            seen, looked = entry.run & RECORD_MASK, looked + 1
    return runs_of(store, found), seen if looked == looked_at_max else None


def find_call_run(store: BatchParts, batch_id: str, record_id: str, date: str) -> CallRun | None:
    found = store.db.get_many(ITEMS, [keys.day_key(batch_id, date), keys.name_key(batch_id, record_id)])
    day, named = found.get(keys.day_key(batch_id, date)), found.get(keys.name_key(batch_id, record_id))
    if day is None or named is None:
        return None
    runs = runs_of(store, entries_by_run(store.db, [run_key(day["number"], named["number"])]))
    return runs[0] if runs else None


def out_calls(store: BatchParts, handles: Sequence[int]) -> dict[int, OutCall]:
    lanes = lanes_of(store.db, set(map(provider_of, handles)))
    found = {
        handle: one
        for handle in handles
        if (lane := lanes.get(provider_of(handle))) is not None
        and (one := lane.held.get(due_ms_of(handle))) is not None
        and one.state == "out"
    }
    records = store.db.get_many(ITEMS, {keys.record_key(one.run & RECORD_MASK) for one in found.values()})
    days = store.facts.days(store.db, (one.run >> RECORD_BITS for one in found.values()))
    return {
        handle: OutCall(
            handle,
            one.attempt,
            provider_of(handle),
            days[one.run >> RECORD_BITS]["batch"],
            records[keys.record_key(one.run & RECORD_MASK)]["name"],
            days[one.run >> RECORD_BITS]["date"],
            one.started_ms or 0,
        )
        for handle, one in found.items()
    }


def entries_of(db: DynamoDatabase, day: int, *, after: int, limit: int) -> list[LedgerRun]:
    """Return runs in order of record number, after the given one: the first of each shard, merged."""
    pages = db.threads.fan_out(lambda shard: _entries_in(db, day, shard, after=after, limit=limit), range(keys.SHARDS))
    return list(islice(merge(*pages), limit))


def _entries_in(db: DynamoDatabase, day: int, shard: int, *, after: int, limit: int) -> list[LedgerRun]:
    return list(islice(_walk_in(db, day, shard, after=after, size=min(limit, CHUNK_RUNS)), limit))


def _walk_in(db: DynamoDatabase, day: int, shard: int, *, after: int, size: int = CHUNK_RUNS) -> Iterator[LedgerRun]:
    asked: ReadOptions = {"first": padded(after + 1), "last": keys.LAST, "only": "#sk, #provider, #due_ms"}
    rows = db.walk(RUNS, keys.ledger_partition(day, shard), size=size, **asked)
    return (LedgerRun(run_key(day, int(row["sk"])), row["provider"], row["due_ms"]) for row in rows)


def entries_by_run(db: DynamoDatabase, runs: Iterable[int]) -> list[LedgerRun]:
    """Return those of the runs that are in the ledger, in order."""
    item_keys = {keys.ledger_key(run): run for run in runs}
    found = db.get_many(RUNS, item_keys)
    return sorted(LedgerRun(item_keys[key], item["provider"], item["due_ms"]) for key, item in found.items())


def runs_of(store: BatchParts, entries: Sequence[LedgerRun]) -> list[CallRun]:
    """Return the runs in the order given."""
    states = _states(store.db, entries)
    records = store.db.get_many(ITEMS, (keys.record_key(entry.run & RECORD_MASK) for entry in entries))
    days = store.facts.days(store.db, (entry.run >> RECORD_BITS for entry in entries))
    names = store.facts.policies.names(store.db, (entry.provider for entry in entries))
    runs = []
    for entry in entries:
        if (row := states.get(entry.run)) is not None:
            day, record = days[entry.run >> RECORD_BITS], records[keys.record_key(entry.run & RECORD_MASK)]
            named = (entry.run, day["batch"], record["name"], day["date"], names[entry.provider], entry.due_ms)
            runs.append(_run(named, row))
    return runs


def _states(db: DynamoDatabase, entries: Sequence[LedgerRun]) -> dict[int, Item]:
    """Return each run's item, with the lane's facts if it is held. A run that is being moved is left out."""
    rows = db.get_many(RUNS, (keys.place_key(entry.provider, entry.due_ms) for entry in entries))
    found = {
        entry.run: row
        for entry in entries
        if (row := rows.get(keys.place_key(entry.provider, entry.due_ms))) is not None and row["run"] == entry.run
    }
    waiting = [entry for entry in entries if entry.run in found and found[entry.run]["state"] == "waiting"]
    lanes = lanes_of(db, {entry.provider for entry in waiting})
    for entry in waiting:
        one = lanes[entry.provider].held.get(entry.due_ms) if entry.provider in lanes else None
        if one is not None and one.run == entry.run:
            cleared = {"reason": ""} if one.state == "out" else {}
            held = {"state": one.state, "at_ms": one.at_ms, "attempt": one.attempt, "started_ms": one.started_ms}
            found[entry.run] = found[entry.run] | held | cleared
    return found


def _run(named: tuple[int, str, str, str, str, int], row: Item) -> CallRun:
    state, reason = row["state"], row.get("reason", "")
    if state in ("waiting", "out", "retry"):
        return CallRun(
            *named,
            state=state,
            attempt=row.get("attempt", 0),
            reason=reason,
            until_ms=row.get("at_ms"),
            started_ms=row.get("started_ms"),
        )
    if state == "aside":
        return CallRun(*named, state="aside", reason=ASIDE)
    latency_ms = row.get("latency_ms")
    return CallRun(
        *named,
        state=state,
        attempt=row["attempt"],
        reason=reason,
        started_ms=row.get("started_ms"),
        ended_ms=row["ended_ms"],
        latency_ms=float(latency_ms) if latency_ms is not None else None,
        code=row.get("code"),
        payload=row.get("payload"),
        dead=bool(row.get("dead")),
    )


def _number(db: DynamoDatabase, provider: str) -> int | None:
    item = db.get(ITEMS, keys.provider_key(provider))
    return int(item["number"]) if item else None

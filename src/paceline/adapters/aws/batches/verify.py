"""The invariants of batches' runs for ``paceline check``. Reads the whole table, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from paceline.adapters.aws.batches.keys import LANE, ledger_key, place_key, provider_in
from paceline.adapters.aws.batches.lanes import LaneItem, read_lane
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.providers import BATCHES_MAX
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.core.batches.provider import parse_stored_provider
from paceline.core.batches.run_keys import NEVER_MS, RECORD_BITS, RECORD_MASK, run_key
from paceline.core.batches.settle import DEAD_STATES

Place = tuple[int, int]
"""Provider and due time."""
SHOWN_MAX = 10
"""Findings of one kind that are shown."""


class _Seen:
    """All items of the table about batches, each run as a few numbers."""

    def __init__(self, db: DynamoDatabase) -> None:
        self.ledger: dict[int, Place] = {}
        self.places: dict[Place, tuple[int, str]] = {}
        self.lanes: dict[int, LaneItem] = {}
        self.asides: set[Place] = set()
        self.wrong: list[str] = []
        for item in db.scan(RUNS):
            self._see(item)

    def _see(self, item: Item) -> None:
        kind, _, rest = item["pk"].partition("#")
        if kind == "d":
            day = int(rest.partition("#")[0])
            self.ledger[run_key(day, int(item["sk"]))] = (item["provider"], item["due_ms"])
        elif kind == "aside":
            self.asides.add((item["provider"], item["due_ms"]))
        elif kind == "q" and item["sk"] == LANE:
            lane = read_lane(item)
            self.lanes[lane.provider] = lane
        elif kind == "q":
            self._see_run((provider_in(item["pk"]), int(item["sk"])), item)

    def _see_run(self, place: Place, item: Item) -> None:
        self.places[place] = (item["run"], item["state"])
        if item["state"] in DEAD_STATES and not item.get("reason"):
            self.wrong.append(f"promise 10: a run that failed or is unknown has no reason {place}")
        if item.get("dead") and item["state"] not in DEAD_STATES:
            self.wrong.append(f"only a run that failed or is unknown can be a dead letter {place}")


def verify_batches(store: BatchParts) -> list[str]:
    """Return problems that two looks find: while others write, a single look sees their writes half done."""
    found = _look(store.db)
    return [problem for problem in found if problem in again] if found and (again := _look(store.db)) else []


def _look(db: DynamoDatabase) -> list[str]:
    seen = _Seen(db)
    found = list(seen.wrong)
    for problems in (_ledger(db, seen), _places(seen), _names(db, seen), _lanes(db, seen), _fronts(seen)):
        for count, problem in enumerate(problems):
            if count >= SHOWN_MAX:
                found.append("and more of the last kind")
                break
            found.append(problem)
    return found


def _ledger(db: DynamoDatabase, seen: _Seen) -> Iterator[str]:
    """A planned run is somewhere, unless it has expired before a purge came."""
    lost = [run for run, place in seen.ledger.items() if seen.places.get(place, (None, ""))[0] != run]
    starts = {int(row["sk"]): row["start_ms"] for row in db.page(ITEMS, "days", limit=BATCHES_MAX)} if lost else {}
    now_ms = db.write_ms(0)
    for run in lost:
        if not db.retention.may_be_gone(starts.get(run >> RECORD_BITS, now_ms), now_ms=now_ms):
            yield f"promise 10: a planned run is neither waiting nor aside nor ended ({ledger_key(run)})"


def _places(seen: _Seen) -> Iterator[str]:
    for place, (run, state) in seen.places.items():
        if seen.ledger.get(run) != place:
            yield f"promise 5: a run is not the one that the ledger has there ({place_key(*place)}, {state})"
        if (state == "aside") != (place in seen.asides):
            yield f"promise 10: a run is set aside and is not listed so, or the other way round ({place_key(*place)})"
    for place in seen.asides - seen.places.keys():
        yield f"promise 10: a run that is listed as set aside is not there ({place_key(*place)})"


def _names(db: DynamoDatabase, seen: _Seen) -> Iterator[str]:
    days = {int(row["sk"]) for row in db.page(ITEMS, "days", limit=BATCHES_MAX, only="#sk")}
    records = {item["number"] for item in db.scan(ITEMS, filtered="begins_with(#pk, :record)", record="record#")}
    for run in seen.ledger:
        if run >> RECORD_BITS not in days or run & RECORD_MASK not in records:
            yield f"promise 10: a planned run has no day or no record ({ledger_key(run)})"


def _lanes(db: DynamoDatabase, seen: _Seen) -> Iterator[str]:
    waiting = {place[0] for place, (_, state) in seen.places.items() if state == "waiting"}
    for item in db.page(ITEMS, "providers", limit=BATCHES_MAX):
        lane = seen.lanes.get(item["number"])
        if lane is None:
            yield f"a provider has no lane ({item['id']})"
            continue
        if lane.revision != (None if item.get("deleted") else item["revision"]):
            yield f"a lane believes in another revision of its provider ({item['id']})"
        paused = parse_stored_provider(item["spec"]).paused or item.get("deleted")
        if lane.ready_ms >= NEVER_MS and lane.provider in waiting and not paused:
            yield f"promise 10: a provider with waiting runs would never be looked at ({item['id']})"


def _fronts(seen: _Seen) -> Iterator[str]:
    for (provider, due_ms), (run, state) in seen.places.items():
        lane = seen.lanes.get(provider)
        if lane is None or state != "waiting":
            continue
        one = lane.held.get(due_ms)
        if one is None and due_ms < lane.front_ms:
            yield f"promise 10: a waiting run would never be looked at ({place_key(provider, due_ms)})"
        if one is not None and (one.run != run or one.at_ms <= 0 or one.attempt < 1):
            yield f"a run is out without a lease, or tried again without a time ({place_key(provider, due_ms)})"
    asides = Counter(provider for provider, _ in seen.asides)
    for lane in seen.lanes.values():
        for due_ms in lane.held:
            if seen.places.get((lane.provider, due_ms), (0, ""))[1] != "waiting":
                yield f"promise 5: a lane holds a run that is not there ({place_key(lane.provider, due_ms)})"
        if asides[lane.provider] != lane.aside:
            yield f"a lane counts {lane.aside} runs aside, not {asides[lane.provider]} (provider {lane.provider})"

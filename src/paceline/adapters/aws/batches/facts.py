"""Days and providers that a process remembers, and the current wishes of records and batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.adapters.aws.batches.keys import batch_key, day_number_key, provider_key, provider_number_key, record_key
from paceline.adapters.aws.batches.lanes import LaneItem
from paceline.adapters.aws.batches.predecessors import predecessors
from paceline.adapters.aws.batches.unwanted_runs import Wishes
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import DynamoKey, Item
from paceline.adapters.aws.client.tables import ITEMS
from paceline.core.batches.batch import parse_stored_batch
from paceline.core.batches.provider import POLICIES_MAX, KnownPolicy, known_policy
from paceline.core.batches.run_keys import RECORD_BITS, RECORD_MASK
from paceline.core.batches.unwanted import DayFacts


class AwsPolicyCache:
    """A cache of policies by provider number. The lane has the revision, so an edit by any process counts at once."""

    def __init__(self) -> None:
        self._known: dict[int, KnownPolicy] = {}
        self._names: dict[int, str] = {}

    def of(self, db: DynamoDatabase, lanes: Iterable[LaneItem]) -> dict[int, KnownPolicy]:
        """Return the policies of lanes whose provider exists."""
        there = [lane for lane in lanes if lane.revision is not None]
        missing = [lane.provider for lane in there if not self._is_known(lane)]
        if missing:
            self._read(db, missing)
        return {lane.provider: self._known[lane.provider] for lane in there}

    def names(self, db: DynamoDatabase, numbers: Iterable[int]) -> dict[int, str]:
        """Return names by number; a number never gets another name."""
        wanted = set(numbers)
        if missing := wanted - self._names.keys():
            found = db.get_many(ITEMS, map(provider_number_key, missing))
            self._names |= {item["number"]: item["id"] for item in found.values()}
        return {number: self._names[number] for number in wanted if number in self._names}

    def _is_known(self, lane: LaneItem) -> bool:
        kept = self._known.get(lane.provider)
        return kept is not None and kept.revision == lane.revision

    def _read(self, db: DynamoDatabase, numbers: Sequence[int]) -> None:
        if len(self._known) >= POLICIES_MAX:
            self._known.clear()
        names = self.names(db, numbers)
        for item in db.get_many(ITEMS, map(provider_key, names.values())).values():
            self._known[item["number"]] = known_policy(item["id"], item["revision"], item["spec"])


class DayCache:
    """A cache of days.

    A day's window and its batch's name never change, so they are read once; all else is read each time.
    """

    DAYS_MAX = 65_536

    def __init__(self) -> None:
        self.policies = AwsPolicyCache()
        self._days: dict[int, Item] = {}
        self._batches: dict[int, str] = {}

    def days(self, db: DynamoDatabase, numbers: Iterable[int]) -> dict[int, Item]:
        """Return (batch, batch_number, date, start_ms, end_ms) of those days that exist."""
        wanted = set(numbers)
        if missing := wanted - self._days.keys():
            if len(self._days) >= self.DAYS_MAX:
                self._days.clear()
                missing = wanted
            found = db.get_many(ITEMS, map(day_number_key, missing))
            self._days |= {int(key.sk): item for key, item in found.items()}
            self._batches |= {item["batch_number"]: item["batch"] for item in found.values()}
        return {number: self._days[number] for number in wanted if number in self._days}

    def wishes(self, db: DynamoDatabase, runs: Iterable[int]) -> Wishes:
        wanted = list(runs)
        if not wanted:
            return Wishes({}, {}, {})
        days = self.days(db, (run >> RECORD_BITS for run in wanted))
        keys = {record_key(run & RECORD_MASK) for run in wanted}
        asked = keys | {batch_key(day["batch"]) for day in days.values()}
        found = db.get_many(ITEMS, asked)
        records = {run: found[key] for run in wanted if (key := record_key(run & RECORD_MASK)) in found}
        facts = {number: _day_facts(day, found) for number, day in days.items()}
        return Wishes(records, facts, predecessors(db, records, facts))

    def is_paused(self, db: DynamoDatabase, batch_number: int) -> bool:
        item = db.get(ITEMS, batch_key(self._batches[batch_number]))
        return item is not None and parse_stored_batch(item["spec"]).paused


def _day_facts(day: Item, found: dict[DynamoKey, Item]) -> DayFacts:
    spec = parse_stored_batch(found[batch_key(day["batch"])]["spec"])
    return DayFacts(
        day["batch"],
        day["batch_number"],
        day["date"],
        day["start_ms"],
        day["end_ms"],
        spec.paused,
        spec.missed == "skip",
    )

"""What a process remembers of days and providers, and what records and batches want right now."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.adapters.aws.batches_keys import RECORD_BITS, RECORD_MASK, batch_key, day_number_key, record_key
from paceline.adapters.aws.batches_providers import Policies
from paceline.adapters.aws.batches_sidings import DayFacts, Wishes
from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item, Key
from paceline.adapters.aws.tables import ITEMS
from paceline.core.batch import parse_stored_batch


class Facts:
    """A day's window and its batch's name never change, so they are read once; all else is read each time."""

    KEPT_MAX = 65_536

    def __init__(self) -> None:
        self.policies = Policies()
        self._days: dict[int, Item] = {}
        self._batches: dict[int, str] = {}

    def days(self, db: Database, numbers: Iterable[int]) -> dict[int, Item]:
        """(batch, batch_number, date, start_ms, end_ms) of those that exist."""
        wanted = set(numbers)
        if missing := wanted - self._days.keys():
            if len(self._days) >= self.KEPT_MAX:
                self._days.clear()
                missing = wanted
            found = db.get_many(ITEMS, map(day_number_key, missing))
            self._days |= {int(key.sk): item for key, item in found.items()}
            self._batches |= {item["batch_number"]: item["batch"] for item in found.values()}
        return {number: self._days[number] for number in wanted if number in self._days}

    def wishes(self, db: Database, runs: Iterable[int]) -> Wishes:
        wanted = list(runs)
        if not wanted:
            return Wishes({}, {})
        days = self.days(db, (run >> RECORD_BITS for run in wanted))
        keys = {record_key(run & RECORD_MASK) for run in wanted}
        asked = keys | {batch_key(day["batch"]) for day in days.values()}
        found = db.get_many(ITEMS, asked)
        records = {run: found[key] for run in wanted if (key := record_key(run & RECORD_MASK)) in found}
        return Wishes(records, {number: _day_facts(day, found) for number, day in days.items()})

    def is_paused(self, db: Database, batch_number: int) -> bool:
        item = db.get(ITEMS, batch_key(self._batches[batch_number]))
        return item is not None and parse_stored_batch(item["spec"]).paused


def _day_facts(day: Item, found: dict[Key, Item]) -> DayFacts:
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

"""Facts about days, providers and their runs, for `paceline verify`.

The ledger of days is in other partitions than the runs, and is kept in memory as two numbers for each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from paceline.adapters.aws.batches.keys import LANE, day_key, provider_in
from paceline.adapters.aws.batches.lanes import read_lane
from paceline.adapters.aws.batches.parts import BatchParts
from paceline.adapters.aws.batches.providers import BATCHES_MAX
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.core.batches.provider import parse_stored_provider, policy_of
from paceline.core.batches.records.options import parse_options
from paceline.core.batches.run_keys import RECORD_BITS, RECORD_MASK, run_key
from paceline.core.batches.settle import Held
from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact

Place = tuple[int, int]
"""Provider and due time."""


def call_facts(store: BatchParts) -> Iterator[Fact]:
    """Yield the days, then each provider with its runs, then runs that are in the ledger and at no provider."""
    db = store.db
    days = list(_days(db))
    yield from days
    providers = {item["number"]: _provider(item) for item in db.page(ITEMS, "providers", limit=BATCHES_MAX)}
    ledger = dict(_ledger(db))
    followers = set(_followers(db))
    runs = db.scan(RUNS, filtered="begins_with(#pk, :queue)", queue="q#")
    for pk, group in groupby(runs, key=lambda item: str(item["pk"])):
        number, items = provider_in(pk), list(group)
        held = next((read_lane(item).held for item in items if item["sk"] == LANE), {})
        calls = sorted((item for item in items if item["sk"] != LANE), key=lambda item: int(item["sk"]))
        yield providers.get(number, ProviderFact(number))
        for item in calls:
            place = (number, int(item["sk"]))
            in_ledger = ledger.get(item["run"]) == place
            if in_ledger:
                del ledger[item["run"]]
            yield _call(
                place, item, held.get(place[1]), in_ledger=in_ledger, follows=item["run"] & RECORD_MASK in followers
            )
    now_ms = db.write_ms(0)
    expired = {day.number for day in days if db.retention.may_be_gone(day.start_ms, now_ms=now_ms)}
    yield from _nowhere({run: place for run, place in ledger.items() if run >> RECORD_BITS not in expired})


def _days(db: DynamoDatabase) -> Iterator[DayFact]:
    """Yield the days. The number of runs of each is counted by the process that makes them, and not exact."""
    rows = list(db.page(ITEMS, "days", limit=BATCHES_MAX))
    states = db.get_many(ITEMS, [day_key(row["batch"], row["date"]) for row in rows])
    for row in rows:
        state = states.get(day_key(row["batch"], row["date"]), {})
        planned = (state.get("number"), state.get("state")) == (int(row["sk"]), "planned")
        yield DayFact(int(row["sk"]), row["batch"], row["date"], row["start_ms"], row["end_ms"], planned=planned)


def _nowhere(ledger: dict[int, Place]) -> Iterator[Fact]:
    for run, (provider, due_ms) in sorted(ledger.items(), key=lambda one: one[1]):
        yield CallFact(provider, due_ms, run >> RECORD_BITS, run & RECORD_MASK, "")


def _ledger(db: DynamoDatabase) -> Iterator[tuple[int, Place]]:
    for item in db.scan(RUNS, filtered="begins_with(#pk, :day)", day="d#"):
        day = int(item["pk"].split("#")[1])
        yield run_key(day, int(item["sk"])), (item["provider"], item["due_ms"])


def _followers(db: DynamoDatabase) -> Iterator[int]:
    """Yield the numbers of records that come after another."""
    for item in db.scan(ITEMS, filtered="begins_with(#pk, :record)", record="record#"):
        if parse_options(item.get("options")).after is not None:
            yield item["number"]


def _provider(item: Item) -> ProviderFact:
    policy = policy_of(parse_stored_provider(item["spec"]))
    places, gap_us = (0, 0) if item.get("deleted") else (policy.max_in_flight, policy.rate_gap_us)
    return ProviderFact(item["number"], item["id"], places, item["updated_ms"], gap_us)


def _call(place: Place, item: Item, held: Held | None, *, in_ledger: bool, follows: bool) -> CallFact:
    """Return the fact of a run. If it is out or in back-off, that is in the lane, and its own item says ``waiting``."""
    waits = held if item["state"] == "waiting" else None
    run = item["run"]
    return CallFact(
        *(*place, run >> RECORD_BITS, run & RECORD_MASK),
        state=waits.state if waits else item["state"],
        in_ledger=in_ledger,
        attempt=waits.attempt if waits else item.get("attempt", 0),
        started_ms=waits.started_ms if waits else item.get("started_ms"),
        ended_ms=item.get("ended_ms"),
        until_ms=waits.at_ms if waits and waits.state == "out" else None,
        follows=follows,
        dead=bool(item.get("dead")),
        reason=item.get("reason", ""),
    )

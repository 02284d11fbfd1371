"""States of runs that must be done before others."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.adapters.aws.batches.keys import ledger_key, name_key, place_key
from paceline.adapters.aws.batches.lanes import lanes_of
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.core.batches.records.options import parse_options
from paceline.core.batches.run_keys import RECORD_BITS, run_key
from paceline.core.batches.unwanted import DayFacts, Predecessor


def predecessors(
    db: DynamoDatabase, records: Mapping[int, Item], days: Mapping[int, DayFacts]
) -> dict[int, Predecessor]:
    """Return by run, for records that come after another: the state of that other's run on the same day."""
    wanted = {
        run: name_key(days[run >> RECORD_BITS].batch, after)
        for run, record in records.items()
        if (after := parse_options(record.get("options")).after) is not None
    }
    if not wanted:
        return {}
    named = db.get_many(ITEMS, set(wanted.values()))
    others = {run: run_key(run >> RECORD_BITS, named[key]["number"]) for run, key in wanted.items() if key in named}
    entries = db.get_many(RUNS, {ledger_key(other) for other in others.values()})
    places = {
        run: (entry["provider"], entry["due_ms"])
        for run, other in others.items()
        if (entry := entries.get(ledger_key(other))) is not None
    }
    rows = db.get_many(RUNS, {place_key(*place) for place in places.values()})
    lanes = lanes_of(db, {provider for provider, _ in places.values()})
    found = {run: Predecessor(key.sk) for run, key in wanted.items()}
    for run, (provider, due_ms) in places.items():
        row, held = rows.get(place_key(provider, due_ms)), lanes[provider].held.get(due_ms)
        # A run that is being moved is nowhere for a moment: it counts as waiting.
        state = "waiting" if row is None or row["run"] != others[run] else row["state"]
        if held is not None and held.run == others[run]:
            state = held.state
        found[run] = Predecessor(wanted[run].sk, state, due_ms)
    return found

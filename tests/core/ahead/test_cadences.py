"""Where monitors are counted by cadence, and how edits move them from one count to another."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paceline.core.ahead.cadences import (
    CadenceLoad,
    Counted,
    CountMove,
    cadence_key,
    counted,
    counted_entry,
    load_of_key,
    move_of,
)
from paceline.core.monitors.schedule import Arm, Cadence, Entry, Keep, Reaction, Remove, Rest

HOURLY = Cadence(every_ms=3_600_000)
NIGHTLY = Cadence(cron="0 3 * * *", timezone="Europe/Berlin")
ENTRY = Entry(7, 0, 1, 5_000, HOURLY, outgoing=False)
PLACE = counted(HOURLY, generation=7, due_ms=5_000)


@pytest.mark.parametrize(
    ("cadence", "name"),
    [(HOURLY, "every 1h"), (NIGHTLY, "0 3 * * * Europe/Berlin"), (Cadence(every_ms=90_000), "every 90s")],
)
def test_key_of_a_cadence_leads_back_to_it_and_has_a_name_for_people(cadence: Cadence, name: str) -> None:
    load = load_of_key(cadence_key(cadence), {0: 2, 5: 3})
    assert (load.every_ms, load.cron, load.timezone) == (cadence.every_ms, cadence.cron, cadence.timezone)
    assert (load.name, load.monitors) == (name, 5)
    assert isinstance(load, CadenceLoad)


def test_entry_is_counted_by_its_due_time_unless_it_rests_or_a_circle_counts_it() -> None:
    assert counted_entry(ENTRY) == PLACE
    assert counted_entry(replace(ENTRY, due_ms=None)) is None
    assert counted_entry(replace(ENTRY, lead_ms=0)) is None


def test_cron_entry_is_counted_by_the_minute_of_its_jitter_whenever_it_is_due() -> None:
    jittered = replace(NIGHTLY, jitter_ms=3_600_000)
    places = {counted(jittered, generation=7, due_ms=due_ms) for due_ms in (0, 86_400_000)}
    assert len(places) == 1
    assert 0 <= places.pop().bucket < 60
    assert counted(NIGHTLY, generation=7, due_ms=5_000) == Counted(cadence_key(NIGHTLY), 0)


def arm(cadence: Cadence, lead_ms: int | None = None) -> Arm:
    return Arm(5_000, cadence, outgoing=False, lead_ms=lead_ms)


NIGHTLY_PLACE = counted(NIGHTLY, generation=7, due_ms=5_000)


@pytest.mark.parametrize(
    ("reaction", "entry", "move"),
    [
        (Keep(), ENTRY, None),
        (arm(HOURLY), ENTRY, None),
        (arm(NIGHTLY), ENTRY, CountMove(7, PLACE, NIGHTLY_PLACE, is_new=False)),
        (arm(HOURLY), None, CountMove(7, None, PLACE, is_new=True)),
        (arm(HOURLY, 0), None, None),
        (arm(HOURLY, 0), ENTRY, CountMove(7, PLACE, None, is_new=False)),
        (Remove(), ENTRY, CountMove(7, PLACE, None, is_new=False)),
        (Rest(HOURLY, outgoing=False), ENTRY, CountMove(7, PLACE, None, is_new=False)),
        (Rest(HOURLY, outgoing=False), None, None),
    ],
)
def test_reaction_moves_a_monitor_between_counts(
    reaction: Reaction, entry: Entry | None, move: CountMove | None
) -> None:
    assert move_of(reaction, entry, generation=7) == move

"""The next hours on a real store: what the counts say is what enumerating every entry says, after any edit."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime

import pytest
from msgspec.structs import replace

from paceline.core.batches.batch import BatchSpec, RecordSpec
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import PutProvider
from paceline.core.instants import to_ms
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.schedule import next_due_ms
from paceline.core.monitors.values import PutMonitor, RemoveMonitor
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.ahead.counts import CADENCES, WALK, WALKS, count_page, is_counted
from paceline.steps.ahead.facts import PlaceSettings
from paceline.steps.ahead.report import AheadView, ahead
from paceline.steps.batches.plan import plan_day
from paceline.steps.monitors import define
from tests.contract.support.stage import HOUR_MS, MONITORS_MAX, T0_MS, user

HOURS = 6
PLACES = PlaceSettings(checks=10, checks_of_one=8, sends=1)
GET = HttpCheck(url="http://example.org/")
CADENCES_OF = (
    MonitorSpec(check=GET, every="60s"),
    MonitorSpec(check=GET, every="7s"),
    MonitorSpec(check=GET, every="25m"),
    MonitorSpec(check=GET, every="2h", initial_delay="90s"),
    MonitorSpec(check=GET, every="90s", initial_delay="0s", jitter="1m"),
    MonitorSpec(check=GET, cron="0 * * * *"),
    MonitorSpec(check=GET, cron="30 14 * * *", timezone="Europe/Berlin", jitter="20m"),
)


def put(
    store: Store, *names: str, owner: str = "ann", now_ms: int = T0_MS, paused: bool = False, shift: int = 0
) -> None:
    puts = [
        PutMonitor(owner, name, replace(CADENCES_OF[(index + shift) % len(CADENCES_OF)], paused=paused))
        for index, name in enumerate(names)
    ]
    results = define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=now_ms)
    assert {result.disposition for result in results} <= {"created", "replaced"}


def told(store: Store, *, owner: str | None = None, now_ms: int = T0_MS) -> AheadView:
    return ahead(store, PLACES, user=owner, hours=HOURS, now_ms=now_ms)


def firings(view: AheadView) -> list[int]:
    return [window.monitors for window in view.windows]


def enumerated(store: Store, view: AheadView, *, owner: str | None = None, now_ms: int = T0_MS) -> list[int]:
    """Every due time of every grid, by window; a firing that is owed beside its grid does not count."""
    start_ms = to_ms(datetime.fromisoformat(view.windows[0].start))
    end_ms, width_ms = start_ms + HOURS * HOUR_MS, HOURS * HOUR_MS // len(view.windows)
    found: Counter[int] = Counter()
    for row in store.schedulers(after_generation=0, limit=1_000, now_ms=now_ms):
        entry = row.entry
        if entry.due_ms is None or owner not in (None, row.owner):
            continue
        if every_ms := entry.cadence.every_ms:
            first_ms = start_ms + (entry.due_ms + (entry.lead_ms or 0) - start_ms) % every_ms
            times = list(range(first_ms, end_ms, every_ms))
        else:
            times = [start_ms - 1]
            while times[-1] < end_ms:
                times.append(next_due_ms(entry.cadence, after_ms=times[-1], due_ms=0, generation=entry.generation))
        found.update((at_ms - start_ms) // width_ms for at_ms in times if start_ms <= at_ms < end_ms)
    return [found[window] for window in range(len(view.windows))]


def test_firings_ahead_are_those_of_enumerating_every_entry_after_any_edit(store: Store, other: Store) -> None:
    names = [f"m{number}" for number in range(14)]
    put(store, *names)
    assert firings(told(other)) == enumerated(other, told(other))
    assert sum(firings(told(other))) > 0
    put(other, *names[:7], shift=3)  # other cadences
    put(store, *names[7:9], paused=True)
    define.remove_monitors(store, [RemoveMonitor("ann", name) for name in names[10:]], now_ms=T0_MS)
    view = told(store)
    assert firings(view) == enumerated(store, view)
    put(store, *names[7:9])
    view = told(other)
    assert firings(view) == enumerated(other, view)


def test_disabled_user_s_monitors_do_not_count_and_come_back_with_the_user(store: Store) -> None:
    put(store, *(f"m{number}" for number in range(7)))
    before = firings(told(store))
    access.edit_user(store, "ann", UserEdit(disabled=True), now_ms=T0_MS)
    assert sum(firings(told(store))) == 0
    access.edit_user(store, "ann", UserEdit(disabled=False), now_ms=T0_MS)
    view = told(store)
    assert firings(view) == enumerated(store, view)
    assert sum(before) == pytest.approx(sum(firings(view)), abs=7)


def test_one_user_sees_their_own_firings_alone(store: Store) -> None:
    assert store.add_user(user("ben"))
    put(store, *(f"m{number}" for number in range(7)))
    put(store, "b1", "b2", owner="ben")
    for owner in ("ann", "ben"):
        view = told(store, owner=owner)
        assert firings(view) == enumerated(store, view, owner=owner)
        assert view.user == owner
        assert view.complete
    assert told(store, owner="ben").windows[0].busiest.capacity == PLACES.checks_of_one * 60


def test_monitors_from_before_the_counts_existed_are_counted_once(store: Store, other: Store) -> None:
    names = [f"m{number}" for number in range(14)]
    put(store, *names)
    for found in [*CADENCES.walk(store)]:
        CADENCES.delete(store, found.key)
    WALKS.delete(store, WALK)
    assert not told(store).complete
    assert count_page(store, now_ms=T0_MS, limit=5).more
    put(other, *names[:2], shift=1)  # one that is counted again, one that is not
    put(other, *names[12:], shift=2)
    put(other, "new1", "new2", "new3", shift=4)
    while count_page(store, now_ms=T0_MS, limit=5).more:
        pass
    view = told(other)
    assert is_counted(other)
    assert view.complete
    assert firings(view) == enumerated(other, view)
    assert count_page(store, now_ms=T0_MS) == (0, False)


def test_new_store_is_complete_without_a_walk(store: Store) -> None:
    put(store, "m", shift=5)
    assert count_page(store, now_ms=T0_MS).more is False
    assert told(store).complete


def test_calls_ahead_are_spread_over_the_days_and_held_against_their_providers(store: Store) -> None:
    shop = PutProvider("shop", ProviderSpec(base_url="http://shop.example/", rate="1/1m"), None)
    bank = PutProvider("bank", ProviderSpec(base_url="http://bank.example/", paused=True), None)
    for one in (shop, bank):
        assert store.put_provider(one, now_ms=T0_MS).provider is not None
    start_ms = T0_MS - T0_MS % HOUR_MS + HOUR_MS
    batch = store.put_batch("daily", BatchSpec(start="15:00", window="2h"), expected_revision=None, now_ms=T0_MS).batch
    assert batch is not None
    records = [RecordSpec(f"r{number}", "shop" if number % 4 else "bank") for number in range(480)]
    store.put_records(batch, records, now_ms=T0_MS)
    unplanned = told(store)
    assert sum(window.batches for window in unplanned.windows) == 480
    assert unplanned.windows[0].batches == 0
    report = plan_day(store, batch, date(2026, 9, 21), now_ms=start_ms)
    assert report.enqueued == 480
    view = told(store)
    by_window = [window.batches for window in view.windows if window.batches]
    assert sum(by_window) == 480
    assert max(by_window) - min(by_window) <= 2
    parts = {part.name: part for part in view.parts}
    assert (parts["shop"].starts, parts["bank"].starts) == (360, 120)
    assert {worst.limit for worst in view.worst} == {"bank"}  # it is paused, and takes nothing
    assert view.worst[0].share is None
    store.put_batch("daily", BatchSpec(start="15:00", window="2h", paused=True), expected_revision=None, now_ms=T0_MS)
    assert sum(window.batches for window in told(store).windows) == 0


def test_worst_minute_names_the_cron_minute_that_many_share(store: Store) -> None:
    puts = [PutMonitor("ann", f"m{number}", MonitorSpec(check=GET, cron="0 16 * * *")) for number in range(40)]
    puts.append(PutMonitor("ann", "steady", MonitorSpec(check=GET, every="10s")))
    define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    first = told(store).worst[0]
    assert first.start == "2026-09-21T16:00:00.000Z"
    assert (first.kind, first.starts, first.capacity) == ("monitors", 46, 600)
    assert [(ask.name, ask.starts) for ask in first.asks] == [("0 16 * * * UTC", 40), ("every 10s", 6)]
    assert first.text == "40 of 46 checks have the cadence 0 16 * * * UTC; 600 can start in a minute."
    assert first.start in {window.busiest.start for window in told(store).windows}

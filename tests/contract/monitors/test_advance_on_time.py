"""Advancing entries on time in one transaction, on every engine."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from paceline.core.monitors.due import CatchUp, Due, OnTime, advance
from paceline.core.monitors.schedule import Arm, Cadence, Reaction, Rest
from paceline.core.monitors.values import CHECKS, Change, Moved, PutMonitor, Reacted
from paceline.ports import Store
from tests.contract.support.stage import (
    GET,
    HOUR_MS,
    MINUTE_MS,
    MONITORS_MAX,
    OUTGOING,
    T0_MS,
    armed,
    claim,
    due_of,
    make_runs,
    names,
    outgoing_of,
    settle,
    spec,
    step,
)

CADENCES = (
    Cadence(every_ms=1_000),
    Cadence(every_ms=7_050, missed="all"),
    Cadence(every_ms=MINUTE_MS, jitter_ms=30_000),
    Cadence(every_ms=HOUR_MS, missed="once"),
    Cadence(cron="* * * * *", timezone="Europe/Berlin"),
)


def populate(store: Store, random: Random) -> None:
    """Monitors of every kind around T0: due, overdue, not due yet, at rest."""
    puts = [
        PutMonitor(random.choice(("ann", "bob")), f"m{number}", spec(random.choice((GET, OUTGOING))))
        for number in range(40)
    ]
    store.put_monitors(puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    changes = store.changes(limit=len(puts), now_ms=T0_MS)
    assert all(store.react([Reacted(change, react(change, random)) for change in changes], now_ms=T0_MS))


def react(change: Change, random: Random) -> Reaction:
    assert change.monitor is not None
    cadence, outgoing = random.choice(CADENCES), change.monitor.spec.check == OUTGOING
    due_ms = T0_MS - random.choice((-50, 0, 50, 950, 1_000, 5_000, 7_000, 9_950, 10_000, 10_050, 50_000, HOUR_MS))
    lead_ms = random.choice((None, 0, 50, 5_000, 7_000)) if cadence.every_ms else None
    return Arm(due_ms, cadence, outgoing, lead_ms=lead_ms) if random.random() < 0.95 else Rest(cadence, outgoing)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_fast_path_for_due_entries_advances_as_core_decides(store: Store, other: Store, seed: int, limit: int) -> None:
    random = Random(seed)
    populate(store, random)
    rule = OnTime(T0_MS, random.choice((0, 1_000, 10_000)))
    catch_up = CatchUp(grace_ms=rule.grace_ms)
    before = other.due(now_ms=T0_MS, limit=1_000)
    counted = store.advance_on_time(rule, limit=limit)
    after = {due.generation: due for due in other.armed_after(None, from_ms=0, limit=1_000)}
    moved = [due for due in before if after[due.generation] != due]
    covered = [due for due in before if rule.covers(due)][:limit]
    assert moved in ([], covered)
    assert counted == Moved(Counter(due.due_ms for due in moved), 0)
    for due in moved:
        expected = advance(due, now_ms=T0_MS, catch_up=catch_up)
        token = (due.generation, due.counter + 1, due.revision, expected.next_due_ms)
        assert after[due.generation].token == token
    made = {
        (item.generation, item.counter, item.due_ms)
        for queue in (CHECKS, outgoing_of("ann"), outgoing_of("bob"))
        for item in claim(store, queue)
    }
    assert made == {(due.generation, due.counter, due.due_ms) for due in moved}


def test_no_entry_is_advanced_twice(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    stale = step(due_of(other, monitor))
    rule = OnTime(T0_MS, 10_000)
    made = store.advance_on_time(rule, limit=9)
    assert other.advance_on_time(rule, limit=9).entries == 0
    assert other.commit([stale], now_ms=T0_MS) == [not made.entries]
    assert due_of(other, monitor).counter == 1


def test_runs_made_on_time_are_in_the_queue_of_their_monitor(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    settle(store, claim(store))
    now_ms = T0_MS + MINUTE_MS
    if not store.advance_on_time(OnTime(now_ms, 10_000), limit=9).entries:
        make_runs(store, monitor, now_ms=now_ms)
    make_runs(store, monitor, now_ms=now_ms)
    runs = store.monitor_runs(monitor, before=None, limit=9, now_ms=now_ms)
    assert [run.counter for run in runs] == [2, 1, 0]
    assert names(claim(store, now_ms=now_ms)) == [("a", 1)]
    assert claim(store, now_ms=now_ms) == []


def test_an_entry_is_found_after_it_advanced_on_time(store: Store) -> None:
    monitor = armed(store, "a")
    store.advance_on_time(OnTime(T0_MS, 10_000), limit=9)
    found = due_of(store, monitor)
    assert isinstance(found, Due)
    assert found.due_ms in (T0_MS, T0_MS + MINUTE_MS)

"""Facts of monitors: both engines yield the same ones, as they are stored, and ``verify`` finds them in order."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.monitors.due import ExtraRun
from paceline.core.monitors.outcome import Done, Unknown
from paceline.core.monitors.values import RemoveMonitor, Settlement
from paceline.core.verify.facts import EntryFact, Fact, MonitorFact, RunFact
from paceline.core.verify.rules import Rules
from paceline.ports import Store
from paceline.steps.history.notes import note_retention, note_set_back
from paceline.steps.history.verify import store_facts, verify
from tests.contract.support.stage import (
    DAY_MS,
    LEASE_MS,
    MINUTE_MS,
    POST,
    T0_MS,
    armed,
    claim,
    make_runs,
    put,
    settle,
)

LATER_MS = T0_MS + 10_000


def facts_of(store: Store) -> list[Fact]:
    """Handles, and the order of making, are the store's own."""
    return [replace(one, handle=0, made=0) if isinstance(one, RunFact) else one for one in store.monitor_facts()]


def judged(store: Store, *, now_ms: int = LATER_MS, since_ms: int = 0) -> set[str]:
    rules = Rules(now_ms, since_ms=since_ms, keep_ms=DAY_MS, expire_ms=DAY_MS)
    report = verify(store, rules, progress=lambda _done, _total: None)
    return {verdict.promise for verdict in report.verdicts if not verdict.passed}


def test_monitor_facts_are_definition_entry_and_runs_as_they_are_stored(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    settle(store, claim(store), Done(ok=False, reason="no"), now_ms=T0_MS + 1_000)
    entry = store.entries([monitor.generation], now_ms=LATER_MS)[monitor.generation]
    assert store.make_extra_runs([ExtraRun(entry, LATER_MS)], now_ms=LATER_MS) == [True]
    claim(store, now_ms=LATER_MS)
    number = monitor.generation
    assert facts_of(store) == [
        MonitorFact(number, "ann", "a", True, False, failures=1, edited_ms=T0_MS, target="example.org:80"),
        EntryFact(number, 2, T0_MS + MINUTE_MS, MINUTE_MS, base_ms=T0_MS),
        RunFact(number, 0, T0_MS, "failed", 0, 1, T0_MS + 1_000, T0_MS + 1_000, reason="no"),
        RunFact(number, 1, LATER_MS, "out", 0, 1, LATER_MS, until_ms=LATER_MS + LEASE_MS, extra=True),
    ]
    assert judged(store) == set()


def test_monitor_facts_tell_of_a_definition_without_an_entry_and_of_a_recorded_change(store: Store) -> None:
    created = put(store, "a").monitor
    assert created is not None
    defined = MonitorFact(
        *(created.generation, "ann", "a", True, True),
        failures=0,
        edited_ms=T0_MS,
        target="example.org:80",
    )
    assert facts_of(store) == [defined]
    assert judged(store) == set()


def test_facts_of_a_deleted_monitor_are_its_runs(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    settle(store, claim(store))
    store.remove_monitors([RemoveMonitor("ann", "a")])
    entry, run = (fact for fact in facts_of(store) if not isinstance(fact, MonitorFact))
    assert isinstance(entry, EntryFact)
    assert isinstance(run, RunFact)
    assert judged(store) == set()


def test_verify_notices_a_run_that_started_before_it_was_due_unless_the_clock_was_set_back(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    settle(store, claim(store), now_ms=T0_MS - MINUTE_MS)
    assert judged(store) == {"in order"}
    assert judged(store, since_ms=T0_MS + 1) == set()
    note_set_back(store, from_ms=T0_MS + 1, to_ms=T0_MS - 2 * MINUTE_MS)
    assert judged(store) == set()


def test_shortest_retention_that_was_ever_in_force_is_noted(store: Store) -> None:
    for keep_ms, expire_ms in ((100, 50), (200, 40), (300, 60)):
        note_retention(store, keep_ms=keep_ms, expire_ms=expire_ms)
    (fact,) = store_facts(store)
    assert (fact.keep_ms, fact.expire_ms) == (100, 40)  # type: ignore[attr-defined]


def test_outcome_of_a_later_attempt_says_when_it_was_claimed_and_what_was_lost_before(store: Store) -> None:
    make_runs(store, armed(store, "a", check=POST))
    claim(store)
    again_ms = T0_MS + 2 * LEASE_MS
    (item,) = claim(store, now_ms=again_ms)
    assert settle(store, [item], Unknown("it was cut short"), now_ms=again_ms) == [True]
    run = next(fact for fact in facts_of(store) if isinstance(fact, RunFact))
    assert (run.attempt, run.claimed_ms, run.lost) == (2, again_ms, True)
    assert judged(store, now_ms=again_ms) == set()


def test_verify_notices_a_post_that_was_made_again_after_a_lost_attempt(store: Store) -> None:
    make_runs(store, armed(store, "a", check=POST))
    claim(store)
    again_ms = T0_MS + 2 * LEASE_MS
    settle(store, claim(store, now_ms=again_ms), now_ms=again_ms)
    assert judged(store, now_ms=again_ms) == {"once"}


def test_verify_notices_an_outcome_that_an_earlier_attempt_reported(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    claim(store)
    again_ms = T0_MS + 2 * LEASE_MS
    (item,) = claim(store, now_ms=again_ms)
    forged = Settlement(item.handle, item.attempt, Done(ok=True), started_ms=T0_MS, ended_ms=again_ms)
    assert store.settle([forged]) == [True]
    assert judged(store, now_ms=again_ms) == {"once"}

"""Outgoing checks that name their queue: a claim takes the runs of its own queue and touches no other."""

from __future__ import annotations

from collections import Counter

from paceline.core.monitors.checks import OutgoingCheck
from paceline.core.monitors.put import QUEUES_MAX
from paceline.core.monitors.values import PutMonitor, RunQueue
from paceline.ports import Store
from paceline.steps.monitors.react import react_to_all
from tests.contract.support.stage import (
    ALL_OUTGOING,
    LEASE_MS,
    MONITORS_MAX,
    OUTGOING,
    T0_MS,
    armed,
    armed_all,
    claim,
    due_of,
    make_run_of_each,
    make_runs,
    names,
    outgoing_of,
    put,
    settle,
    spec,
    step,
    user,
)


def in_queue(name: str) -> OutgoingCheck:
    return OutgoingCheck(document={"kind": "outgoing", "queue": name})


BROWSER = in_queue("browser")
ALL_BROWSER = RunQueue(outgoing=True, name="browser")


def test_a_claim_takes_only_the_runs_of_its_queue(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "plain", check=OUTGOING))
    make_runs(store, armed(store, "page", check=BROWSER))
    make_runs(store, armed(store, "file", check=in_queue("files")))
    assert claim(other, RunQueue(outgoing=True, name="nothing")) == []
    assert names(claim(other, RunQueue(outgoing=True, owner="ann", name="browser"))) == [("page", 0)]
    assert claim(store, ALL_BROWSER) == []
    assert names(claim(store, ALL_OUTGOING)) == [("plain", 0)]
    assert names(claim(store, RunQueue(outgoing=True, name="files"))) == [("file", 0)]
    assert claim(store, RunQueue(outgoing=True, owner="bob", name="files")) == []


def test_entry_says_in_which_queue_its_runs_wait(store: Store) -> None:
    monitor = armed(store, "page", check=BROWSER)
    entry = store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert (entry.outgoing, entry.queue) == (True, "browser")


def test_promise_13_owners_share_a_claim_of_a_queue_evenly_whatever_waits_in_others(store: Store) -> None:
    for owner, count in (("ann", 12), ("bob", 4)):
        many = (f"{owner}-{number}" for number in range(count))
        make_run_of_each(store, armed_all(store, many, check=BROWSER, owner=owner))
        some = (f"{owner}-plain-{number}" for number in range(6))
        make_run_of_each(store, armed_all(store, some, check=OUTGOING, owner=owner))
    shares = Counter(item.owner for item in claim(store, ALL_BROWSER, runs_max=8))
    assert shares == {"ann": 4, "bob": 4}
    assert Counter(item.owner for item in claim(store, ALL_OUTGOING, runs_max=4)) == {"ann": 2, "bob": 2}


def test_runs_of_a_queue_that_were_left_come_back_to_it(store: Store) -> None:
    make_runs(store, armed(store, "page", check=BROWSER))
    (item,) = claim(store, ALL_BROWSER)
    late_ms = T0_MS + LEASE_MS
    assert claim(store, ALL_OUTGOING, now_ms=late_ms) == []
    (again,) = claim(store, ALL_BROWSER, now_ms=late_ms)
    assert (again.handle, again.attempt, again.lost) == (item.handle, 2, True)
    assert settle(store, [again], now_ms=late_ms) == [True]


def test_check_with_another_queue_makes_its_next_runs_there_and_in_order(store: Store) -> None:
    monitor = armed(store, "page", check=OUTGOING)
    make_runs(store, monitor)
    assert put(store, "page", spec(BROWSER)).disposition == "replaced"
    react_to_all(store, now_ms=T0_MS)
    due = due_of(store, monitor)
    assert store.commit([step(due)], now_ms=due.due_ms) == [True]
    # What was made before waits where it was made, and the next run behind it.
    assert claim(store, ALL_BROWSER, now_ms=due.due_ms) == []
    (first,) = claim(store, ALL_OUTGOING, now_ms=due.due_ms)
    assert settle(store, [first], now_ms=due.due_ms) == [True]
    (second,) = claim(store, ALL_BROWSER, now_ms=due.due_ms)
    assert (first.counter, second.counter) == (0, 1)
    entry = store.entries([monitor.generation], now_ms=due.due_ms)[monitor.generation]
    assert entry.queue == "browser"


def test_one_user_s_checks_name_a_limited_number_of_queues(store: Store) -> None:
    puts = [PutMonitor("ann", f"m{number}", spec(in_queue(f"q{number}"))) for number in range(QUEUES_MAX)]
    results = store.put_monitors(puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    assert {result.disposition for result in results} == {"created"}
    react_to_all(store, now_ms=T0_MS)
    assert put(store, "more", spec(in_queue("more"))).disposition == "queues_reached"
    assert put(store, "m1", spec(in_queue("more"))).disposition == "queues_reached"
    assert put(store, "again", spec(in_queue("q7"))).disposition == "created"
    assert put(store, "plain", spec(OUTGOING)).disposition == "created"
    assert put(store, "other", spec(in_queue("more")), owner="bob").disposition == "created"
    react_to_all(store, now_ms=T0_MS)


def test_queues_of_a_removed_user_are_not_inherited_by_a_new_user_of_the_same_name(store: Store) -> None:
    make_runs(store, armed(store, "page", check=BROWSER))
    assert store.remove_user("ann")
    react_to_all(store, now_ms=T0_MS)
    assert store.add_user(user("ann"))
    make_runs(store, armed(store, "page", check=BROWSER))
    (item,) = claim(store, RunQueue(outgoing=True, owner="ann", name="browser"))
    assert (item.owner, item.monitor, item.counter) == ("ann", "page", 0)
    assert claim(store, outgoing_of("ann")) == []

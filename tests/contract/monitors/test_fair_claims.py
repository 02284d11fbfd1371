"""Claims are fair: owners take turns, places are shared, and ceilings hold for owners and targets (promise 13)."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.core.monitors.checks import Check, HttpCheck
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.places import ALL_TAKEN, KEPT_FREE, Places, owner_reason, target_of, target_reason
from paceline.core.monitors.values import CHECKS, Claimed, Run, RunQueue
from paceline.core.monitors.wait_reasons import UNCLAIMED, wait_reason
from paceline.ports import Store
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import (
    ALL_OUTGOING,
    GET,
    LEASE_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    armed,
    armed_all,
    claim,
    make_run_of_each,
    make_runs,
    names,
    run_of,
    settle,
    user,
)

QUEUES = pytest.mark.parametrize(
    ("queue", "check"), [(CHECKS, GET), (ALL_OUTGOING, OUTGOING)], ids=["checks", "outgoing"]
)
HANGS = HttpCheck(url="http://hangs.example/")
ANSWERS = HttpCheck(url="http://answers.example/")


def let_wait(store: Store, owner: str, count: int, check: Check = GET, *, prefix: str = "m") -> None:
    many = [f"{owner}-{prefix}-{number}" for number in range(count)]
    make_run_of_each(store, armed_all(store, many, check=check, owner=owner))


def claim_checks(
    store: Store, out: list[Claimed], *, places: int, owner_max: int, target_max: int, now_ms: int = T0_MS
) -> list[Claimed]:
    """Claims like a process with this many places that has these runs out."""
    held = Counter((item.owner, target_of(item.check)) for item in out)
    given = Places(owner_max, target_max, held)
    return store.claim(CHECKS, now_ms=now_ms, runs_max=places - len(out), lease_ms=LEASE_MS, places=given)


@QUEUES
@pytest.mark.parametrize(("many", "few"), [("ann", "bob"), ("bob", "ann")])
def test_promise_13_places_unused_by_one_owner_go_to_another(
    store: Store, queue: RunQueue, check: Check, many: str, few: str
) -> None:
    let_wait(store, many, 9, check)
    let_wait(store, few, 1, check)
    assert Counter(item.owner for item in claim(store, queue, runs_max=8)) == {many: 7, few: 1}


@QUEUES
def test_promise_13_backlog_of_one_owner_does_not_delay_the_others(store: Store, queue: RunQueue, check: Check) -> None:
    let_wait(store, "ann", 60, check)
    let_wait(store, "bob", 3, check)
    assert Counter(item.owner for item in claim(store, queue, runs_max=6)) == {"ann": 3, "bob": 3}


@QUEUES
def test_promise_13_owners_take_turns_when_each_claim_has_one_place(
    store: Store, queue: RunQueue, check: Check
) -> None:
    assert store.add_user(user("cem"))
    for owner in ("ann", "bob", "cem"):
        let_wait(store, owner, 4, check)
    turns = [claim(store, queue, runs_max=1)[0].owner for _ in range(12)]
    for begin in range(0, 12, 3):
        assert sorted(turns[begin : begin + 3]) == ["ann", "bob", "cem"]


def test_promise_13_newly_waiting_owner_has_its_turn_behind_all_waiting_owners(store: Store) -> None:
    """Holds even if the others were served after that owner's last turn: they have waited since."""
    let_wait(store, "bob", 1)
    let_wait(store, "ann", 3)
    assert [claim(store, runs_max=1)[0].owner for _ in range(2)] == ["bob", "ann"]
    let_wait(store, "bob", 2, prefix="more")
    assert [claim(store, runs_max=1)[0].owner for _ in range(4)] == ["ann", "bob", "ann", "bob"]


@QUEUES
def test_promise_13_claim_uses_all_its_room_though_some_of_an_owner_s_runs_wait_behind_others(
    store: Store, queue: RunQueue, check: Check
) -> None:
    make_runs(store, armed(store, "many", check=check, owner="ann"), 5)
    let_wait(store, "bob", 4, check)
    assert Counter(item.owner for item in claim(store, queue, runs_max=4)) == {"ann": 1, "bob": 3}


def test_promise_13_one_owner_never_gets_all_places_and_a_newcomer_starts_at_once(store: Store) -> None:
    let_wait(store, "ann", 25)
    out = claim_checks(store, [], places=20, owner_max=16, target_max=20)
    assert len(out) == 16
    assert claim_checks(store, out, places=20, owner_max=16, target_max=20) == []
    let_wait(store, "bob", 2, ANSWERS)
    assert [item.owner for item in claim_checks(store, out, places=20, owner_max=16, target_max=20)] == ["bob", "bob"]


def test_promise_13_freed_place_goes_to_the_owner_with_fewer_runs_out(store: Store) -> None:
    let_wait(store, "ann", 25)
    out = claim_checks(store, [], places=10, owner_max=8, target_max=10)
    let_wait(store, "bob", 9, ANSWERS)
    out += claim_checks(store, out, places=10, owner_max=8, target_max=10)
    assert Counter(item.owner for item in out) == {"ann": 8, "bob": 1}
    for _ in range(3):
        first = next(item for item in out if item.owner == "ann")
        assert settle(store, [first]) == [True]
        out.remove(first)
        (freed,) = claim_checks(store, out, places=10, owner_max=8, target_max=10)
        assert freed.owner == "bob"
        out.append(freed)


def test_promise_13_a_full_target_blocks_neither_the_owner_s_other_targets_nor_other_owners(store: Store) -> None:
    let_wait(store, "ann", 30, HANGS, prefix="hangs")
    let_wait(store, "ann", 3, ANSWERS, prefix="answers")
    out: list[Claimed] = []
    for second in range(3):
        now_ms = T0_MS + second * 1_000
        out += claim_checks(store, out, places=50, owner_max=40, target_max=10, now_ms=now_ms)
    assert Counter(target_of(item.check) for item in out) == {"hangs.example:80": 8, "answers.example:80": 3}
    let_wait(store, "bob", 1, HANGS)
    (also,) = claim_checks(store, out, places=50, owner_max=40, target_max=10)
    assert also.owner == "bob", "one owner does not hold all places of a target"


def test_promise_13_a_place_that_is_freed_at_a_target_is_used_at_once(store: Store) -> None:
    let_wait(store, "ann", 12, HANGS)
    out = claim_checks(store, [], places=50, owner_max=40, target_max=5)
    assert len(out) == 4
    for _ in range(8):
        done = out.pop(0)
        assert settle(store, [done]) == [True]
        (freed,) = claim_checks(store, out, places=50, owner_max=40, target_max=5)
        assert freed.monitor not in {item.monitor for item in out} | {done.monitor}
        out.append(freed)


def test_promise_6_runs_that_wait_for_a_place_start_in_order(store: Store) -> None:
    let_wait(store, "ann", 1, HANGS, prefix="first")
    out = claim_checks(store, [], places=9, owner_max=8, target_max=1)
    make_runs(store, armed(store, "queued", check=HANGS), 3)
    assert claim_checks(store, out, places=9, owner_max=8, target_max=1) == []
    found = []
    while out:
        assert settle(store, out) == [True]
        out = claim_checks(store, [], places=9, owner_max=8, target_max=1)
        found += names(out)
    assert found == [("queued", 0), ("queued", 1), ("queued", 2)]


def test_promise_10_run_that_waits_for_a_place_is_offered_to_other_processes_again(store: Store, other: Store) -> None:
    let_wait(store, "ann", 12, HANGS)
    out = claim_checks(store, [], places=50, owner_max=40, target_max=5)
    assert len(out) == 4
    elsewhere = claim_checks(other, [], places=50, owner_max=40, target_max=5, now_ms=T0_MS + 30_000)
    assert len(elsewhere) == 4
    assert not {item.handle for item in out} & {item.handle for item in elsewhere}


def test_promise_13_many_owners_with_one_run_each_are_all_served(store: Store, *, by_request: bool) -> None:
    count = 12 if by_request else 300
    for number in range(count):
        assert store.add_user(user(f"u{number}"))
        let_wait(store, f"u{number}", 1)
    found: list[Claimed] = []
    while some := claim(store, runs_max=50):
        found += some
    assert sorted(item.owner for item in found) == sorted(f"u{number}" for number in range(count))


def test_promise_10_run_that_waits_for_a_place_has_that_reason(store: Store) -> None:
    let_wait(store, "ann", 3, HANGS)
    let_wait(store, "bob", 3, ANSWERS)
    assert [run.reason.partition(":")[0] for run in waiting_runs(store, "ann")] == ["waiting for a place"] * 3
    out = claim_checks(store, [], places=50, owner_max=2, target_max=40)
    out += claim_checks(store, out, places=50, owner_max=2, target_max=40)
    assert Counter(item.owner for item in out) == {"ann": 2, "bob": 2}
    (left,) = waiting_runs(store, "ann")
    assert left.reason.startswith("waiting for a place: ")
    shown = store.runs([left.handle], now_ms=T0_MS).get(left.handle)
    found = store.find_run("ann", left.monitor, generation=left.generation, counter=0, now_ms=T0_MS)
    assert shown == found == left
    for item in out:
        assert run_of(store, item).reason == ""


def test_superseded_runs_do_not_count_as_checks_that_wait_for_a_place(store: Store) -> None:
    """Otherwise its owner's next run would seem to wait for a place."""
    armed(store, "a", overlap="queue")
    for minute in range(4):
        tick(store, now_ms=T0_MS + minute * MINUTE_MS, catch_up=CatchUp(waiting_max=1))
    (item,) = claim_checks(store, [], places=50, owner_max=1, target_max=40)
    store.release([(item.handle, item.attempt)], now_ms=T0_MS)
    assert run_of(store, item).reason == wait_reason("waiting", outgoing=False)


def test_promise_10_run_that_waits_for_an_outside_checker_says_so(store: Store) -> None:
    let_wait(store, "ann", 1, OUTGOING)
    (left,) = waiting_runs(store, "ann")
    assert left.reason == UNCLAIMED


def test_promise_10_made_up_run_has_the_reason_that_it_was_missed(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 1, after_ms=T0_MS + 1_000)
    (run,) = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert (run.state, run.reason) == ("later", wait_reason("later", outgoing=False))
    assert "missed" in run.reason


def test_promise_10_a_run_that_waits_for_a_place_says_why(store: Store) -> None:
    let_wait(store, "ann", 5, HANGS)
    let_wait(store, "bob", 5, ANSWERS)
    out = claim_checks(store, [], places=50, owner_max=2, target_max=40)
    out += claim_checks(store, out, places=50, owner_max=40, target_max=3, now_ms=T0_MS + 1_000)
    assert len(out) == 4
    reasons = {run.owner: run.reason for run in waiting_runs(store, "ann") + waiting_runs(store, "bob")}
    assert "answers.example:80" in reasons["bob"]
    claim_checks(store, out, places=50, owner_max=2, target_max=40, now_ms=T0_MS + 2_000)
    let_wait(store, "ann", 1, GET, prefix="more")
    claim_checks(store, out, places=50, owner_max=2, target_max=40, now_ms=T0_MS + 3_000)
    (newest,) = [run for run in waiting_runs(store, "ann") if run.monitor == "ann-more-0"]
    assert "one user may have" in newest.reason
    while out:
        settle(store, out)
        out = claim(store, now_ms=T0_MS + 30_000)
    assert waiting_runs(store, "ann") == []


@QUEUES
def test_promise_6_runs_of_one_owner_start_in_order_of_their_due_times(
    store: Store, queue: RunQueue, check: Check
) -> None:
    """Of equals that of the older monitor. Checks may have been made in any order."""
    late = armed(store, "late", check=check, due_ms=T0_MS + 2_000)
    early, twin = armed_all(store, ["early", "twin"], check=check, due_ms=T0_MS)
    middle = armed(store, "middle", check=check, due_ms=T0_MS + 1_000)
    now_ms = T0_MS + 10_000
    made = [[early, twin], [middle], [late]]
    for monitors in made if queue.outgoing else reversed(made):
        make_run_of_each(store, monitors, now_ms=now_ms)
    assert one_by_one(store, queue, 4, now_ms=now_ms) == ["early", "twin", "middle", "late"]


@QUEUES
def test_promise_6_retried_run_keeps_its_place_among_its_owner_s_runs(
    store: Store, queue: RunQueue, check: Check
) -> None:
    """When its pause ended does not count, nor whether it is new."""
    monitors = armed_all(store, ["a", "b", "c"], check=check, due_ms=T0_MS + 1_000)
    make_run_of_each(store, monitors, now_ms=T0_MS + 1_000)
    out = {item.monitor: item for item in claim(store, queue, now_ms=T0_MS + 1_000)}
    for name, wait_ms in {"a": 4_000, "b": 2_000, "c": 3_000}.items():
        settle(store, [out[name]], Retry("again", T0_MS + wait_ms), now_ms=T0_MS + 1_000)
    for name, due_ms in {"older": T0_MS + 500, "newer": T0_MS + 1_500}.items():
        make_run_of_each(store, [armed(store, name, check=check, due_ms=due_ms)], now_ms=T0_MS + 10_000)
    assert one_by_one(store, queue, 5, now_ms=T0_MS + 10_000) == ["older", "a", "b", "c", "newer"]


@QUEUES
def test_promise_6_run_whose_lease_ran_out_keeps_its_place_among_its_owner_s_runs(
    store: Store, queue: RunQueue, check: Check
) -> None:
    make_run_of_each(store, armed_all(store, ["a", "b"], check=check))
    claim(store, queue, runs_max=1)
    now_ms = T0_MS + 2 * LEASE_MS
    make_run_of_each(store, [armed(store, "new", check=check, due_ms=now_ms)], now_ms=now_ms)
    assert one_by_one(store, queue, 3, now_ms=now_ms) == ["a", "b", "new"]


def one_by_one(store: Store, queue: RunQueue, count: int, *, now_ms: int) -> list[str]:
    return [item.monitor for _ in range(count) for item in claim(store, queue, now_ms=now_ms, runs_max=1)]


@pytest.mark.parametrize(
    ("waiting", "places", "owner_max", "target_max", "reason"),
    [
        ({"ann": 5}, 50, 2, 40, owner_reason(2)),
        ({"ann": 5}, 50, 40, 2, target_reason("hangs.example:80")),
        ({"ann": 9}, 5, 40, 40, KEPT_FREE),
        ({"ann": 1, "bob": 1}, 1, 40, 40, ALL_TAKEN),
    ],
    ids=["owner", "target", "kept free", "all"],
)
def test_promise_10_run_names_the_ceiling_that_it_waits_for_in_the_same_words_on_every_engine(
    store: Store, waiting: dict[str, int], places: int, owner_max: int, target_max: int, reason: str
) -> None:
    for owner, count in waiting.items():
        let_wait(store, owner, count, HANGS)
    assert claim_checks(store, [], places=places, owner_max=owner_max, target_max=target_max)
    left = [run.reason for owner in waiting for run in waiting_runs(store, owner)]
    assert left
    assert set(left) == {reason}


def waiting_runs(store: Store, owner: str) -> list[Run]:
    monitors = store.monitors(owner, after="", limit=100)
    runs = [run for monitor in monitors for run in store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)]
    return [run for run in runs if run.state in {"waiting", "held"}]

"""The outgoing queues: one per owner, and all of them together in fair turns."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest

from paceline.core.monitors.checks import Check
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.outcome import DETAIL_BYTES_MAX, Retry
from paceline.core.monitors.values import CHECKS, Run, RunQueue
from paceline.core.monitors.wait_reasons import HELD, wait_reason
from paceline.core.users import UserEdit
from paceline.errors import PacelineError, StaleLease
from paceline.ports import Store
from paceline.steps.monitors.outgoing import OutcomeReport, OutgoingItem, claim_outgoing, settle_outcomes
from tests.contract.support.stage import (
    ALL_OUTGOING,
    DAY_MS,
    GET,
    LEASE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    armed_all,
    claim,
    make_run_of_each,
    make_runs,
    names,
    outgoing_of,
    settle,
    user,
)


def test_promise_12_an_owner_s_queue_holds_only_the_owner_s_runs(store: Store) -> None:
    for owner in ("ann", "bob"):
        make_runs(store, armed(store, f"{owner}-1", check=OUTGOING, owner=owner))
    make_runs(store, armed(store, "check"))
    assert [(item.owner, item.monitor) for item in claim(store, outgoing_of("ann"))] == [("ann", "ann-1")]
    assert [(item.owner, item.monitor) for item in claim(store, outgoing_of("bob"))] == [("bob", "bob-1")]
    assert claim(store, outgoing_of("nobody")) == []
    assert names(claim(store, CHECKS)) == [("check", 0)]


def test_the_queue_of_all_owners_hands_out_each_run_once(store: Store, other: Store) -> None:
    for owner in ("ann", "bob"):
        many = (f"{owner}-{number}" for number in range(5))
        make_run_of_each(store, armed_all(store, many, check=OUTGOING, owner=owner))
    found = claim(store, outgoing_of("ann"), runs_max=2)
    while out := claim(other, ALL_OUTGOING, runs_max=3):
        found += out
    assert len({item.handle for item in found}) == len(found) == 10


def test_backlog_of_one_owner_does_not_delay_another(store: Store) -> None:
    make_run_of_each(store, armed_all(store, (f"a-{number}" for number in range(60)), check=OUTGOING))
    make_run_of_each(store, armed_all(store, (f"b-{number}" for number in range(3)), check=OUTGOING, owner="bob"))
    first = claim(store, ALL_OUTGOING, runs_max=6)
    assert Counter(item.owner for item in first) == {"ann": 3, "bob": 3}


def test_owners_take_turns_with_claims_of_one_run(store: Store) -> None:
    assert store.add_user(user("cem"))
    owners = ("ann", "bob", "cem")
    for owner in owners:
        many = (f"{owner}-{number}" for number in range(4))
        make_run_of_each(store, armed_all(store, many, check=OUTGOING, owner=owner))
    turns = [claim(store, ALL_OUTGOING, runs_max=1)[0].owner for _ in range(12)]
    for begin in range(0, 12, 3):
        assert sorted(turns[begin : begin + 3]) == sorted(owners)


def test_claim_places_unused_by_one_owner_go_to_another(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING))
    make_run_of_each(store, armed_all(store, (f"b-{number}" for number in range(9)), check=OUTGOING, owner="bob"))
    assert len(claim(store, ALL_OUTGOING, runs_max=8)) == 8


@pytest.mark.parametrize("check", [GET, OUTGOING], ids=["checks", "outgoing"])
def test_a_disabled_owner_s_runs_are_held_with_the_reason_and_come_back(
    store: Store, other: Store, check: Check
) -> None:
    monitor = armed(store, "a", check=check)
    make_runs(store, monitor, 2)
    queues = [CHECKS, ALL_OUTGOING]  # a disabled owner cannot ask for the own queue
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS + LEASE_MS * 100, outgoing=check is OUTGOING)
    for now_ms in (T0_MS, T0_MS + LEASE_MS, T0_MS + 10 * LEASE_MS):
        assert all(claim(handle, queue, now_ms=now_ms) == [] for handle in (store, other) for queue in queues)
    oldest = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)[-1]
    assert oldest.state == "held"
    assert "disabled" in oldest.reason
    store.edit_user("ann", UserEdit(disabled=False))
    arm_all(store, T0_MS + LEASE_MS * 100, outgoing=check is OUTGOING)
    now_ms = T0_MS + 10 * LEASE_MS
    queue: RunQueue = outgoing_of("ann") if check is OUTGOING else CHECKS
    counters = []
    while out := claim(other, queue, now_ms=now_ms):
        counters += [item.counter for item in out]
        settle(other, out, now_ms=now_ms)
    assert counters == [0, 1]


@pytest.mark.parametrize("check", [GET, OUTGOING], ids=["checks", "outgoing"])
def test_run_still_held_after_its_owner_was_enabled_shows_what_it_waits_for(store: Store, check: Check) -> None:
    monitor = armed(store, "a", check=check)
    make_runs(store, monitor)
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS + LEASE_MS * 100, outgoing=check is OUTGOING)
    assert claim(store, ALL_OUTGOING if check is OUTGOING else CHECKS) == []
    [held] = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert (held.state, held.reason) == ("held", HELD)
    store.edit_user("ann", UserEdit(disabled=False))
    [enabled] = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert enabled.reason == wait_reason("waiting", outgoing=check is OUTGOING)
    assert store.runs([enabled.handle], now_ms=T0_MS) == {enabled.handle: enabled}


def test_disabled_owner_does_not_block_the_runs_of_others(store: Store) -> None:
    make_run_of_each(store, armed_all(store, (f"a-{number}" for number in range(20))))
    make_runs(store, armed(store, "b", owner="bob"))
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS + LEASE_MS)
    found = [item.monitor for _ in range(20) for item in claim(store, runs_max=2)]
    assert found == ["b"]


def test_runs_of_a_removed_user_are_not_handed_out(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING), 2)
    make_runs(store, armed(store, "b", check=OUTGOING, owner="bob"))
    assert store.remove_user("ann")
    arm_all(store, T0_MS)
    found = claim(store, ALL_OUTGOING)
    assert [item.monitor for item in found if item.check is not None] == ["b"]
    assert store.add_user(user("ann"))
    assert claim(store, outgoing_of("ann")) == []


def test_an_outgoing_retry_comes_back_in_the_owner_s_queue(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING))
    out = claim(store, outgoing_of("ann"))
    assert settle(store, out, Retry("later", T0_MS + 1_000)) == [True]
    assert claim(store, ALL_OUTGOING) == []
    (again,) = claim(store, ALL_OUTGOING, now_ms=T0_MS + 1_000)
    assert again.attempt == 2


# -- outcomes in bulk

POLICY = RetryPolicy(attempts_max=2)


def report(item: OutgoingItem, status: Literal["ok", "failed", "retry"] = "ok", *, viewer: str | None = "ann",
           detail: dict[str, Any] | None = None) -> OutcomeReport:  # fmt: skip
    return OutcomeReport(item.run, item.lease, status, detail or {}, viewer, chance=0.5)


def claimed(store: Store, names_: str, *, owner: str = "ann", now_ms: int = T0_MS) -> list[OutgoingItem]:
    if names_:
        make_run_of_each(store, armed_all(store, names_, check=OUTGOING, owner=owner))
    items = claim_outgoing(store, owner=owner, now_ms=now_ms, runs_max=100, lease_ms=LEASE_MS, policy=POLICY)
    return sorted(items, key=lambda item: item.monitor)


def test_outcomes_in_bulk_each_have_their_own_answer(store: Store, other: Store) -> None:
    good, bad, again, late, huge = claimed(store, "abcde")
    (foreign,) = claimed(store, "f", owner="bob")
    done = settle_outcomes(
        store,
        [
            report(good),
            report(bad, "failed", detail={"reason": "no"}),
            report(again, "retry"),
            report(foreign),
            report(huge, detail={"text": "x" * DETAIL_BYTES_MAX}),
            OutcomeReport(late.run, good.lease, "ok", {}, "ann", 0.5),
            OutcomeReport("nonsense", "lease", "ok", {}, "ann", 0.5),
        ],
        now_ms=T0_MS + 1,
        policy=POLICY,
    )
    found = [item.code if isinstance(item, PacelineError) else item.state for item in done]
    assert found == ["ok", "failed", "retry", "not_found", "invalid_input", "not_found", "not_found"]
    states = [find_run(other, item).state for item in (good, bad, again, late, foreign)]
    assert states == ["ok", "failed", "retry", "out", "out"]
    stale = settle_outcomes(store, [report(late), report(good)], now_ms=T0_MS + LEASE_MS + 1, policy=POLICY)
    assert [isinstance(item, StaleLease) for item in stale] == [True, True]


def test_first_of_two_outcomes_of_one_run_in_bulk_counts(store: Store) -> None:
    one, two = claimed(store, "ab")
    reports = [report(one, "failed"), report(two), report(one)]
    done = settle_outcomes(store, reports, now_ms=T0_MS, policy=POLICY)
    assert [getattr(item, "state", None) for item in done] == ["failed", "ok", None]
    assert isinstance(done[2], StaleLease)
    assert find_run(store, one).state == "failed"


def test_retry_in_bulk_after_the_last_attempt_ends_the_run(store: Store) -> None:
    (item,) = claimed(store, "a")
    (first,) = settle_outcomes(store, [report(item, "retry")], now_ms=T0_MS, policy=POLICY)
    (item,) = claimed(store, "", now_ms=T0_MS + DAY_MS)
    (second,) = settle_outcomes(store, [report(item, "retry")], now_ms=T0_MS + DAY_MS, policy=POLICY)
    assert [getattr(done, "state", None) for done in (first, second)] == ["retry", "dead"]


def test_runs_read_in_bulk_equal_runs_read_one_by_one(store: Store, other: Store) -> None:
    items = claimed(store, "abc")
    settle_outcomes(store, [report(items[0])], now_ms=T0_MS, policy=POLICY)
    handles = [int(item.lease.partition(".")[0], 16) for item in items]
    together = other.runs([*handles, 1 << 41], now_ms=T0_MS)
    assert together == {handle: other.runs([handle], now_ms=T0_MS).get(handle) for handle in handles}
    assert other.runs([], now_ms=T0_MS) == {}


def find_run(store: Store, item: OutgoingItem) -> Run:
    handle = int(item.lease.partition(".")[0], 16)
    run = store.runs([handle], now_ms=T0_MS).get(handle)
    assert run is not None
    return run

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec.structs import replace

from paceline.core.monitors.outcome import DETAIL_BYTES_MAX
from paceline.core.monitors.values import Run
from paceline.errors import InvalidInput, NotClaimable, NotFound, StaleLease
from paceline.ports import Store
from paceline.steps.monitors.define import get_monitor, remove_monitor
from paceline.steps.monitors.outgoing import (
    OutcomeReport,
    OutgoingItem,
    RunClaim,
    claim_outgoing,
    claim_runs,
    extend_lease,
    record_outcomes,
)
from tests.steps.support.scene import OUTGOING, POLICY, SECOND_MS, T0_MS, put, run_tick, runs
from tests.support.outgoing_runs import claim_run, record_outcome

LEASE_MS = 60_000


def claim(store: Store, *, now_ms: int, owner: str | None = "ann", runs_max: int = 10) -> list[OutgoingItem]:
    return claim_outgoing(store, owner=owner, now_ms=now_ms, runs_max=runs_max, lease_ms=LEASE_MS, policy=POLICY)


def record(
    store: Store,
    item: OutgoingItem,
    status: Literal["ok", "failed", "retry"] = "ok",
    *,
    now_ms: int,
    viewer: str | None = "ann",
    detail: dict[str, Any] | None = None,
    run: str | None = None,
    lease: str | None = None,
) -> Run:
    report = OutcomeReport(
        item.run if run is None else run,
        item.lease if lease is None else lease,
        status,
        detail or {},
        viewer,
        chance=0.5,
    )
    return record_outcome(store, report, now_ms=now_ms, policy=POLICY)


def extend(store: Store, item: OutgoingItem, *, now_ms: int, viewer: str | None = "ann", by_ms: int = LEASE_MS) -> int:
    return extend_lease(store, item.run, lease=item.lease, by_ms=by_ms, viewer=viewer, now_ms=now_ms)


@pytest.fixture
def item(store: Store) -> OutgoingItem:
    """A run of ann's monitor, claimed at T0."""
    put(store, "a", now_ms=T0_MS, check=OUTGOING)
    run_tick(store, now_ms=T0_MS)
    (item,) = claim(store, now_ms=T0_MS)
    return item


def test_claimed_run_has_everything_that_the_checker_needs(item: OutgoingItem) -> None:
    assert item.run.startswith("ann/a#")
    assert item.run.endswith("@0")
    assert (item.check, item.attempt, item.monitor, item.user) == (OUTGOING, 1, "a", "ann")
    assert item.due.endswith("Z")


def test_an_outcome_is_recorded_with_its_detail(store: Store, item: OutgoingItem) -> None:
    detail = {"reason": "all good", "latency_ms": 12, "more": [1, {"a": None}]}
    run = record(store, item, "ok", now_ms=T0_MS + 400, detail=detail)
    assert (run.state, run.reason, run.latency_ms, run.detail) == ("ok", "all good", 12.0, detail)
    assert (run.started_ms, run.ended_ms) == (T0_MS, T0_MS + 400)


def test_a_failure_says_so_even_without_a_reason(store: Store, item: OutgoingItem) -> None:
    run = record(store, item, "failed", now_ms=T0_MS + 1)
    assert (run.state, run.reason) == ("failed", "the checker reported a failure")


def test_promise_5_a_run_is_settled_once(store: Store, second: Store, item: OutgoingItem) -> None:
    record(store, item, "ok", now_ms=T0_MS + 1)
    for status in ("ok", "failed", "retry"):
        with pytest.raises(StaleLease):
            record(second, item, status, now_ms=T0_MS + 2)
    assert runs(store, "a", now_ms=T0_MS)[0].state == "ok"


def test_a_retry_comes_back_after_its_delay_until_the_attempts_are_spent(store: Store, item: OutgoingItem) -> None:
    run = record(store, item, "retry", now_ms=T0_MS, detail={"reason": "busy"})
    assert (run.state, run.reason, run.until_ms) == ("retry", "busy", T0_MS + 500)
    assert claim(store, now_ms=T0_MS + 499) == []
    (second_try,) = claim(store, now_ms=T0_MS + 500)
    assert second_try.attempt == 2
    assert second_try.lease != item.lease
    record(store, second_try, "retry", now_ms=T0_MS + 500)
    (third_try,) = claim(store, now_ms=T0_MS + 1_500)
    run = record(store, third_try, "retry", now_ms=T0_MS + 1_500, detail={"reason": "still busy"})
    assert (run.state, run.reason) == ("dead", "given up after 3 attempts: still busy")


def test_promise_10_a_checker_that_froze_beyond_its_lease_is_refused(
    store: Store, second: Store, item: OutgoingItem
) -> None:
    late_ms = T0_MS + LEASE_MS + 1
    with pytest.raises(StaleLease):
        record(store, item, now_ms=late_ms)
    with pytest.raises(StaleLease):
        extend(store, item, now_ms=late_ms)
    (heir,) = claim(second, now_ms=late_ms)
    assert (heir.run, heir.attempt) == (item.run, 2)
    with pytest.raises(StaleLease):
        record(store, item, now_ms=late_ms)
    assert record(second, heir, now_ms=late_ms).state == "ok"


def test_an_extended_lease_may_be_settled_later(store: Store, item: OutgoingItem) -> None:
    until_ms = extend(store, item, now_ms=T0_MS + LEASE_MS, by_ms=5 * LEASE_MS)
    assert until_ms == T0_MS + 6 * LEASE_MS
    assert claim(store, now_ms=T0_MS + 5 * LEASE_MS) == []
    assert record(store, item, now_ms=until_ms).state == "ok"


@pytest.mark.parametrize("viewer", ["bob", ""])
def test_promise_12_user_cannot_settle_or_extend_runs_of_another_user(
    store: Store, item: OutgoingItem, viewer: str
) -> None:
    with pytest.raises(NotFound):
        record(store, item, now_ms=T0_MS, viewer=viewer)
    with pytest.raises(NotFound):
        extend(store, item, now_ms=T0_MS, viewer=viewer)
    assert record(store, item, now_ms=T0_MS, viewer=None).state == "ok"


def test_promise_12_user_cannot_claim_runs_of_another_user(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, check=OUTGOING)
    run_tick(store, now_ms=T0_MS)
    assert claim(store, now_ms=T0_MS, owner="bob") == []
    assert claim(store, now_ms=T0_MS, owner="nobody") == []
    assert len(claim(store, now_ms=T0_MS, owner=None)) == 1


@pytest.mark.parametrize(
    "lease",
    [
        "",
        ".",
        "1",
        "x.1",
        "1.x",
        "1.-1",
        "-1.1",
        "1.1.1",
        "10000000001.99",
        "FFFF.1",
        "\u0661.1",
        "1.\u0661",
        "f" * 16 + ".1",
        "1." + "9" * 90,
        "\ud800.1",
        "20000000001." + "9" * 25,
    ],
)
def test_a_lease_that_was_never_given_is_not_found(store: Store, item: OutgoingItem, lease: str) -> None:
    with pytest.raises((NotFound, StaleLease)):
        record(store, item, now_ms=T0_MS, lease=lease)
    with pytest.raises((NotFound, StaleLease)):
        extend_lease(store, item.run, lease=lease, by_ms=LEASE_MS, viewer="ann", now_ms=T0_MS)
    assert runs(store, "a", now_ms=T0_MS)[0].state == "out"


def test_lease_settles_only_its_own_run(store: Store, item: OutgoingItem) -> None:
    for run in ("ann/a#1@1", "ann/b#1@0", "bob/a#1@0", "nonsense", item.run + "0", "x" * 5_000):
        with pytest.raises(NotFound) as caught:
            record(store, item, now_ms=T0_MS, run=run)
        assert len(caught.value.detail) < 500


def test_a_detail_that_is_too_large_or_carries_a_nul_is_refused_and_may_be_sent_again(
    store: Store, item: OutgoingItem
) -> None:
    for detail, pointer in (
        ({"x": "y" * DETAIL_BYTES_MAX}, "/detail"),
        ({"reason": "a\x00b"}, "/detail"),
    ):
        with pytest.raises(InvalidInput) as caught:
            record(store, item, now_ms=T0_MS, detail=detail)
        assert [problem.pointer for problem in caught.value.errors] == [pointer]
    assert record(store, item, now_ms=T0_MS).state == "ok"


def test_reason_or_latency_of_a_wrong_type_is_ignored(store: Store, item: OutgoingItem) -> None:
    run = record(store, item, now_ms=T0_MS, detail={"reason": {"a": 1}, "latency_ms": "fast"})
    assert (run.reason, run.latency_ms) == ("", None)


@pytest.mark.parametrize("latency_ms", [10**400, -1, True, 1e308], ids=["huge", "negative", "true", "large"])
def test_a_latency_out_of_range_does_no_harm(store: Store, item: OutgoingItem, latency_ms: object) -> None:
    assert record(store, item, now_ms=T0_MS, detail={"latency_ms": latency_ms}).state == "ok"


def test_a_deeply_nested_detail_is_kept_or_refused(store: Store, item: OutgoingItem) -> None:
    detail: dict[str, Any] = {}
    for _ in range(900):
        detail = {"a": detail}
    with pytest.raises(InvalidInput):
        record(store, item, now_ms=T0_MS, detail=detail)
    assert record(store, item, now_ms=T0_MS, detail={"a": {"b": [{"c": 1}]}}).state == "ok"


def test_promise_3_a_deleted_monitor_s_run_is_not_handed_out(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, check=OUTGOING)
    run_tick(store, now_ms=T0_MS)
    remove_monitor(store, "ann", "a", now_ms=T0_MS)
    assert claim(store, now_ms=T0_MS) == []
    assert store.status().runs_waiting == 0


def test_an_outcome_for_a_deleted_monitor_is_not_found(store: Store, item: OutgoingItem) -> None:
    remove_monitor(store, "ann", "a", now_ms=T0_MS)
    with pytest.raises((NotFound, StaleLease)):
        record(store, item, now_ms=T0_MS)


def test_promise_6_a_checker_gets_one_run_of_a_monitor_at_a_time(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, check=OUTGOING, every="1s")
    for second in range(4):
        run_tick(store, now_ms=T0_MS + second * SECOND_MS)
    now_ms = T0_MS + 5 * SECOND_MS
    seen = []
    while items := claim(store, now_ms=now_ms):
        assert len(items) == 1
        seen.append(items[0].run[-2:])
        record(store, items[0], now_ms=now_ms)
        now_ms += SECOND_MS // 2  # twice the usual pace
    assert seen == ["@0", "@1", "@2", "@3"]


def test_outcomes_that_come_together_are_settled_in_one_act_and_answered_each(store: Store, item: OutgoingItem) -> None:
    good = OutcomeReport(item.run, item.lease, "ok", {}, "ann", chance=0.5)
    answers = record_outcomes(
        store,
        [
            replace(good, viewer="bob"),
            good,
            replace(good, status="failed"),
            replace(good, detail={"reason": "a\x00b"}),
        ],
        now_ms=T0_MS,
        policy=POLICY,
    )
    assert [type(answer) for answer in answers] == [NotFound, Run, StaleLease, InvalidInput]
    assert isinstance(answers[1], Run)
    assert answers[1].state == "ok"


def test_runs_are_claimed_by_their_ids_each_with_its_own_answer(store: Store) -> None:
    for name in ("a", "b", "c"):
        put(store, name, now_ms=T0_MS, check=OUTGOING)
    run_tick(store, now_ms=T0_MS)
    a, b, c = (f"ann/{name}#{get_monitor(store, 'ann', name).generation}@0" for name in ("a", "b", "c"))
    asks = [
        RunClaim(a, 1, LEASE_MS, "ann"),
        RunClaim(a, None, LEASE_MS, "ann"),
        RunClaim(b, 2, LEASE_MS, "ann"),
        RunClaim(c, None, LEASE_MS, "bob"),
        RunClaim("nothing", None, LEASE_MS, None),
        RunClaim(c, 1, 2 * LEASE_MS, None),
    ]
    first, again, later, stolen, nothing, other = claim_runs(store, asks, now_ms=T0_MS, policy=POLICY)
    assert isinstance(first, OutgoingItem)
    assert isinstance(other, OutgoingItem)
    assert (first.run, first.attempt, other.run) == (a, 1, c)
    assert first.lease_until < other.lease_until
    assert [type(one) for one in (again, later, stolen, nothing)] == [NotClaimable, NotClaimable, NotFound, NotFound]
    assert record(store, first, now_ms=T0_MS + 1).state == "ok"
    with pytest.raises(NotClaimable, match="it has ended as 'ok'"):
        claim_run(store, asks[1], now_ms=T0_MS + 2, policy=POLICY)

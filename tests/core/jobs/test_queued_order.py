"""Queued measurements: which may go, which fails or waits beside the queue, and who is tried first."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.answers import Gates
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.pool import LOOK_AGAIN_MS, PASSED_MS_MAX, Gate, Wait, make_pool
from paceline.core.jobs.send_order import (
    ROOM_LEFT_MS,
    in_turn,
    may_fit_behind,
    most_passed,
    next_look,
    passed_by,
    sort_queued,
    waits_behind,
)
from paceline.core.jobs.values import StoredMeasurement, TargetFull
from tests.core.support.measurements import NOW_MS, NOW_S, definition, measurement, stored
from tests.core.support.pool_stage import account

WAIT = Wait(NOW_MS + 10_000, "every account is full")
FULL = make_pool([account(concurrent=msgspec.structs.replace(account().concurrent, held=100))])
ROOMY = make_pool([account(sends=1), account("b")])


def costing(number: int, credits_: int, results: int = 10, slots: int = 1, kind: str = "ping") -> StoredMeasurement:
    cost = Cost(credits_, results, slots, credits_, results)
    fields = {"protocol": "ICMP"} if kind == "traceroute" else {}
    return stored(number, asked=measurement(definition(kind, **fields)), cost=cost)


def test_queued_measurements_are_sorted_into_those_that_may_go_are_overdue_or_have_a_full_target() -> None:
    late = measurement(definition(target="full.example"), stop_time=NOW_S + 100)
    waits = stored(2, asked=measurement(definition(target="full.example")))
    opened = stored(3, asked=measurement(definition(target="was-full.example")))
    overdue = stored(4, asked=late)
    gates = Gates(
        None,
        {
            "full.example": TargetFull("full.example", NOW_MS + 500_000, 1, "25 already"),
            "was-full.example": TargetFull("was-full.example", NOW_MS, 1, "25 already"),
        },
    )
    found = sort_queued([stored(1), waits, opened, overdue], gates, now_ms=NOW_MS + 200_000)
    assert [item.handle for item in found.may_go] == [1, 3]
    assert [item.handle for item in found.overdue] == [4]
    gate = Gate(NOW_MS + 500_000, "the target full.example is full: 25 already")
    assert found.gated == {gate: [waits]}


def test_measurement_that_was_passed_longest_beyond_the_limit_is_tried_first() -> None:
    long_ago_ms, now_ms = NOW_MS, NOW_MS + PASSED_MS_MAX
    items = [stored(1), stored(2, passed_ms=long_ago_ms + 1), stored(4, passed_ms=long_ago_ms)]
    assert most_passed(items, now_ms=now_ms) is items[2]
    items.append(stored(3, passed_ms=long_ago_ms))
    assert most_passed(items, now_ms=now_ms) is items[3]
    assert most_passed(items[:2], now_ms=now_ms) is None


def test_measurement_that_was_passed_in_the_future_counts_as_passed_too_long() -> None:
    item = stored(1, passed_ms=NOW_MS + 1)
    assert most_passed([item], now_ms=NOW_MS) is item


owners = st.lists(st.sampled_from("abc"), min_size=1, max_size=8).map(sorted)


@given(owners=owners, first=st.integers(-1, 7))
def test_promise_13_users_keep_their_turns_and_no_measurement_is_dropped_or_doubled(
    owners: list[str], first: int
) -> None:
    items = [stored(number, owner) for number, owner in enumerate(owners)]
    chosen = items[first] if 0 <= first < len(items) else None
    ordered = in_turn(items, ROOMY, chosen, now_ms=NOW_MS)
    assert sorted(item.handle for item in ordered) == [item.handle for item in items]
    if chosen is not None:
        assert ordered[0] is chosen
    rest = [item.owner for item in ordered[0 if chosen is None else 1 :]]
    assert rest == sorted(rest)


def test_measurement_that_evens_out_the_accounts_goes_first_among_those_of_a_user() -> None:
    used = msgspec.structs.replace(account().credits, spent=500_000)
    pool = make_pool([account(sends=1), account("b", credits=used)])
    small, large = costing(1, 10), costing(2, 250_000)
    assert in_turn([small, large], pool, None, now_ms=NOW_MS) == [large, small]


def test_measurement_that_takes_no_less_than_one_that_waits_is_not_tried() -> None:
    waits = [(costing(1, 60), WAIT)]
    assert waits_behind(costing(2, 60), waits) == WAIT
    assert waits_behind(costing(2, 90, 20, 2), waits) == WAIT
    assert waits_behind(costing(2, 59), waits) is None
    assert waits_behind(costing(2, 60, results=9), waits) is None
    assert waits_behind(costing(2, 60, slots=0), waits) is None
    assert waits_behind(costing(2, 60, kind="traceroute"), waits) is None
    assert waits_behind(costing(2, 60), []) is None


def test_first_measurement_of_each_user_that_did_not_fit_is_passed_once() -> None:
    sent = stored(9, "ada")
    waits = [stored(1, "ada"), stored(2, "ada"), stored(3, "bob", passed_ms=NOW_MS), stored(4, "cyd"), sent]
    assert [item.handle for item in passed_by(sent, [(item, WAIT) for item in waits])] == [1, 4]
    assert passed_by(sent, [(sent, WAIT)]) == []


def test_next_look_is_sooner_while_an_account_has_room() -> None:
    waits = [(stored(1), WAIT), (stored(2), Wait(NOW_MS + LOOK_AGAIN_MS, "other"))]
    assert next_look(waits, FULL, now_ms=NOW_MS) == (WAIT.reason, WAIT.until_ms)
    assert next_look(waits, ROOMY, now_ms=NOW_MS) == (WAIT.reason, NOW_MS + ROOM_LEFT_MS)


def test_unread_part_of_the_queue_may_fit_only_if_accounts_have_room() -> None:
    items = [stored(1, "ada"), stored(2, "ada"), stored(3, "bob")]

    def may(users_max: int, each_max: int) -> bool:
        return may_fit_behind(items, ROOMY, users_max=users_max, each_max=each_max, now_ms=NOW_MS)

    assert not may(3, 3)
    assert may(2, 3)
    assert may(3, 2)
    assert not may_fit_behind(items, FULL, users_max=2, each_max=2, now_ms=NOW_MS)

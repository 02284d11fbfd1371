"""Where a claim stops: ceilings, reasons that are noted, rounds that are bounded, and what is remembered of turns."""

from __future__ import annotations

from collections import Counter

from paceline.core.monitors.places import (
    ALL_TAKEN,
    KEPT_FREE,
    TURNS_MAX,
    OwnerDemand,
    Places,
    Seats,
    Turns,
    noted_reason,
    owner_reason,
    target_reason,
)
from paceline.core.monitors.waiting_checks import OWNERS_MAX, OWNERS_MIN, ROUNDS_MAX, WaitingChecks


def waiting(*runs: tuple[str, str]) -> WaitingChecks:
    found = WaitingChecks()
    found.add(enumerate(runs))
    return found


def test_wait_reason_of_an_owner_is_full_places_its_ceiling_or_owners_with_fewer() -> None:
    seats = Seats(0, Places(3, 9, {("ann", "a"): 3, ("bob", "a"): 1}))
    assert seats.wait_reason("cyd") == ALL_TAKEN
    assert seats.wait_reason("ann") == owner_reason(3)
    assert seats.wait_reason("bob") == KEPT_FREE
    assert Seats(1, Places(3, 9)).wait_reason("cyd") == ""
    assert Seats(0).wait_reason("cyd") == ""


def test_run_waits_for_its_target_first_and_then_for_its_owner() -> None:
    seats = Seats(0, Places(9, 2, {("ann", "a"): 2}))
    assert seats.why_waits("bob", "a") == target_reason("a")
    assert seats.why_waits("bob", "b") == ALL_TAKEN


def test_reason_is_that_of_the_target_or_else_of_all_others() -> None:
    reasons = {"a": "full", "": "taken"}
    assert noted_reason(reasons, "a") == "full"
    assert noted_reason(reasons, "b") == "taken"
    assert noted_reason({}, "b") == ""


def test_target_is_divided_only_where_there_are_ceilings_and_a_target() -> None:
    free = Seats(10)
    free.divide("a", [OwnerDemand("ann", 5)])
    assert free.room_at("ann", "a") == 10
    seats = Seats(100, Places(100, 10))
    seats.divide("", [OwnerDemand("ann", 1), OwnerDemand("bob", 1)])
    assert seats.room_at("ann", "") == 100
    seats.divide("a", [OwnerDemand("ann", 9), OwnerDemand("bob", 9)])
    assert 0 < seats.room_at("ann", "a") < 8


def test_turns_of_the_owners_served_longest_ago_are_forgotten() -> None:
    turns = Turns()
    turns.serve([str(number) for number in range(TURNS_MAX + 1)])
    assert turns.order(["1", "0", str(TURNS_MAX)]) == [1, 0, 2]
    turns.serve(["1"])
    assert turns.order(["1", "2"]) == [1, 0]


def test_owners_that_wait_are_named_in_the_order_of_their_turns() -> None:
    queue = waiting(("ann", "a"), ("bob", "a"), ("ann", "b"))
    assert queue.owners == ["ann", "bob"]
    queue.choose(Seats(1, Places(1, 1)))
    assert queue.owners == ["bob", "ann"]


def test_runs_that_stepped_aside_start_first_once_there_are_places_for_all() -> None:
    queue = waiting(("ann", "full"), ("ann", "full"), ("ann", "a"))
    assert [run for _, run, _ in queue.choose(Seats(1, Places(9, 1, {("bob", "full"): 1})))] == [2]
    queue.add([(3, ("ann", "b"))])
    seats = Seats(100, Places(100, 100))
    assert [run for _, run, _ in queue.choose(seats)] == [0, 1, 3]
    assert (len(queue), queue.owners) == (0, [])
    assert seats.room == 97
    assert seats.held_by("ann") == 3


def test_claim_that_finds_only_full_targets_ends_after_a_bounded_number_of_owners() -> None:
    owners = [f"u{number}" for number in range(OWNERS_MAX * (ROUNDS_MAX + 1))]
    queue = waiting(*((owner, "full") for owner in owners))
    assert queue.choose(Seats(5, Places(5, 1, {("other", "full"): 1}))) == []
    assert len(queue) == len(owners)
    assert queue.owners[0] == owners[OWNERS_MAX * ROUNDS_MAX], "those that were not asked come first next time"


def test_no_more_owners_are_asked_than_can_get_a_place() -> None:
    owners = [f"u{number}" for number in range(OWNERS_MIN + 10)]
    queue = waiting(*((owner, "") for owner in owners))
    chosen = queue.choose(Seats(2, Places(2, 2)))
    assert Counter(owner for owner, _, _ in chosen) == {"u0": 1, "u1": 1}
    assert queue.owners[:10] == owners[OWNERS_MIN:], "the owners behind were not asked and come first"


def test_reason_is_noted_only_of_runs_that_lack_more_than_their_turn() -> None:
    queue = waiting(("ann", "full"), ("ann", "a"), ("bob", "a"))
    seats = Seats(1, Places(9, 3, {("cyd", "full"): 3}))
    queue.choose(seats)
    reasons = queue.reasons(seats, limit=9)
    assert reasons["ann", "full"] == target_reason("full")
    roomy = waiting(("dan", "a"))
    assert roomy.reasons(Seats(5, Places(9, 9)), limit=9) == {}

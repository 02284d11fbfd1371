"""Places for checks: shares, ceilings, targets, turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.monitors.places import SPARE, OwnerDemand, Places, Seats, Turns, ceiling_of, spared_shares, target_of
from paceline.core.shares import Claimant

CLAIMANTS = st.lists(st.builds(Claimant, st.integers(0, 600), st.integers(0, 50)), max_size=12)


@pytest.mark.parametrize(
    ("check", "target"),
    [
        (HttpCheck(url="http://Example.org/path"), "example.org:80"),
        (HttpCheck(url="https://example.org./"), "example.org:443"),
        (HttpCheck(url="https://example.org:8443/"), "example.org:8443"),
        (HttpCheck(url="http://[2001:DB8::1]/"), "[2001:db8::1]:80"),
        (TcpCheck(host="EXAMPLE.org", port=22), "example.org:22"),
        (TlsCheck(host="2001:db8::1"), "[2001:db8::1]:443"),
        (DnsCheck(name="example.org", server="192.0.2.1"), "192.0.2.1:53"),
        (DnsCheck(name="example.org"), ""),
        (OutgoingCheck(document={"kind": "outgoing"}), ""),
        (None, ""),
    ],
)
def test_target_is_the_host_and_port_that_a_check_connects_to(check: Check | None, target: str) -> None:
    assert target_of(check) == target


@pytest.mark.parametrize(("places", "ceiling"), [(1, 1), (2, 1), (3, 2), (5, 4), (500, 400)])
def test_ceiling_is_four_fifths_and_leaves_a_place_where_there_are_two(places: int, ceiling: int) -> None:
    assert ceiling_of(places) == ceiling


def test_single_owner_gets_four_fifths_of_the_places() -> None:
    assert spared_shares(500, [Claimant(2_000)], ceiling=500) == [400]


def test_share_of_an_owner_shrinks_with_more_owners_and_some_places_stay_free() -> None:
    assert spared_shares(500, [Claimant(2_000)] * 2, ceiling=400) == [222, 222]
    assert spared_shares(500, [Claimant(2_000)] * 10, ceiling=400) == [49] * 7 + [48] * 3


def test_places_unused_by_a_small_owner_go_to_a_large_one() -> None:
    assert spared_shares(500, [Claimant(3), Claimant(2_000)], ceiling=500) == [3, 397]


@given(room=st.integers(0, 500), claimants=CLAIMANTS, ceiling=st.integers(1, 500))
def test_promise_13_shares_keep_to_the_room_and_the_ceiling_and_leave_places_free(
    room: int, claimants: list[Claimant], ceiling: int
) -> None:
    grants = spared_shares(room, claimants, ceiling=ceiling)
    left = room - sum(grants)
    assert left >= 0
    for one, grant in zip(claimants, grants, strict=True):
        assert 0 <= grant <= one.wanted
        if grant:
            assert one.held + grant <= min(ceiling, max(1, SPARE * left))


@given(room=st.integers(1, 500), claimants=CLAIMANTS, ceiling=st.integers(1, 500))
def test_promise_13_no_owner_gets_a_place_while_a_waiting_owner_has_two_fewer(
    room: int, claimants: list[Claimant], ceiling: int
) -> None:
    grants = spared_shares(room, claimants, ceiling=ceiling)
    wanting = [one.held + grant for one, grant in zip(claimants, grants, strict=True) if grant < one.wanted]
    for one, grant in zip(claimants, grants, strict=True):
        if grant and wanting:
            assert one.held + grant <= min(wanting) + 1


@given(room=st.integers(1, 500), claimants=CLAIMANTS)
def test_promise_13_free_place_goes_to_an_owner_without_places(room: int, claimants: list[Claimant]) -> None:
    grants = spared_shares(room, claimants, ceiling=500)
    newcomers = [grant for one, grant in zip(claimants, grants, strict=True) if one.wanted and not one.held]
    assert sum(grant > 0 for grant in newcomers) == min(room, len(newcomers))


def test_a_target_at_its_ceiling_refuses_and_other_targets_do_not() -> None:
    seats = Seats(100, Places(owner_max=100, target_max=10, held={("ann", "a:80"): 8, ("bob", "a:80"): 2}))
    assert "a:80" in seats.refusal("cem", "a:80")
    assert seats.refusal("cem", "b:80") == ""
    assert seats.refusal("cem", "") == ""
    assert seats.room_at("cem", "a:80") == 0


@given(held=st.integers(0, 20), others=st.integers(0, 20), target_max=st.integers(1, 30), owner_max=st.integers(1, 30))
def test_room_at_a_target_is_the_number_of_checks_that_may_start_there(
    held: int, others: int, target_max: int, owner_max: int
) -> None:
    places = Places(owner_max, target_max, held={("ann", "a:80"): held, ("bob", "a:80"): others})
    seats = Seats(100, places)
    room = seats.room_at("ann", "a:80")
    for _ in range(room):
        assert seats.refusal("ann", "a:80") == ""
        seats.take("ann", "a:80")
    assert seats.refusal("ann", "a:80")


def test_one_owner_never_has_all_the_places_of_a_target() -> None:
    seats = Seats(100, Places(owner_max=100, target_max=10))
    while not seats.refusal("ann", "a:80"):
        seats.take("ann", "a:80")
    assert seats.room == 92
    assert seats.refusal("bob", "a:80") == ""
    assert seats.refusal("ann", "b:80") == ""


def test_an_owner_at_the_ceiling_is_refused_at_every_target() -> None:
    seats = Seats(100, Places(owner_max=2, target_max=10, held={("ann", "a:80"): 2}))
    assert "owner" in seats.refusal("ann", "b:80")
    assert seats.shares([OwnerDemand("ann", 5), OwnerDemand("bob", 5)]) == [0, 2]


def test_places_without_ceilings_are_limited_only_by_the_room() -> None:
    seats = Seats(8)
    assert seats.shares([OwnerDemand("ann", 9), OwnerDemand("bob", 1)]) == [7, 1]
    assert seats.refusal("ann", "a:80") == ""


def test_owner_served_longest_ago_comes_first() -> None:
    turns = Turns()
    turns.serve(["b", "a"])
    assert turns.order(["a", "b", "c"]) == [2, 1, 0]
    turns.serve(["c", "b"])
    assert turns.order(["a", "b", "c"]) == [0, 2, 1]

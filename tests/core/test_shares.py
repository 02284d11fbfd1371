"""Properties of max-min fair shares."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.shares import Claimant, fair_shares

claimants = st.lists(st.builds(Claimant, st.integers(0, 50), st.integers(0, 30)), max_size=12)
rooms = st.integers(0, 200)
ceilings = st.none() | st.integers(1, 60)


def _wish(claimant: Claimant, ceiling: int | None) -> int:
    return max(0, claimant.wanted if ceiling is None else min(claimant.wanted, ceiling - claimant.held))


@given(rooms, claimants, ceilings)
def test_fair_shares_never_exceed_room_wish_or_ceiling(room: int, some: list[Claimant], ceiling: int | None) -> None:
    grants = fair_shares(room, some, ceiling=ceiling)
    assert sum(grants) <= room
    for claimant, grant in zip(some, grants, strict=True):
        assert 0 <= grant <= _wish(claimant, ceiling)


@given(rooms, claimants, ceilings)
def test_fair_shares_leave_no_room_unused_while_there_is_demand(
    room: int, some: list[Claimant], ceiling: int | None
) -> None:
    grants = fair_shares(room, some, ceiling=ceiling)
    assert sum(grants) == min(room, sum(_wish(claimant, ceiling) for claimant in some))


@given(rooms, claimants, ceilings)
def test_fair_shares_grant_no_more_than_to_an_unsatisfied_owner(
    room: int, some: list[Claimant], ceiling: int | None
) -> None:
    grants = fair_shares(room, some, ceiling=ceiling)
    totals = [claimant.held + grant for claimant, grant in zip(some, grants, strict=True)]
    short = [
        total for claimant, grant, total in zip(some, grants, totals, strict=True) if grant < _wish(claimant, ceiling)
    ]
    for grant, total in zip(grants, totals, strict=True):
        if grant:
            assert all(total <= other + 1 for other in short)


def test_fair_shares_give_unused_places_to_the_others_in_any_order() -> None:
    assert fair_shares(8, [Claimant(9), Claimant(1)]) == [7, 1]
    assert fair_shares(8, [Claimant(1), Claimant(9)]) == [1, 7]


def test_fair_shares_give_the_odd_place_to_the_first_owner() -> None:
    assert fair_shares(3, [Claimant(5), Claimant(5)]) == [2, 1]
    assert fair_shares(1, [Claimant(5, held=2), Claimant(5), Claimant(5)]) == [0, 1, 0]


def test_fair_shares_count_places_that_are_held_already() -> None:
    assert fair_shares(10, [Claimant(100, held=8), Claimant(100)]) == [1, 9]
    assert fair_shares(10, [Claimant(100, held=8), Claimant(3)], ceiling=9) == [1, 3]

"""Whose writes go into the next commit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.write_turns import take_turns

WEIGHTS_MAX = 50
waiting_users = st.lists(st.lists(st.integers(1, WEIGHTS_MAX), min_size=1, max_size=30), min_size=1, max_size=8)


def test_promise_13_one_write_has_its_turn_beside_a_thousand_of_another_user() -> None:
    assert take_turns([[1] * 5_000, [1]], room=1_000) == [999, 1]
    assert take_turns([[250] * 40, [250] * 40, [1]], room=1_000) == [2, 2, 1]


def test_single_user_has_the_whole_room() -> None:
    assert take_turns([[1] * 5_000], room=1_000) == [1_000]
    assert take_turns([[250] * 40], room=1_000) == [4]


def test_write_that_is_heavier_than_the_room_is_taken_by_itself() -> None:
    assert take_turns([[5_000, 1]], room=1_000) == [1]


def test_first_users_have_the_turn_if_there_are_more_users_than_places() -> None:
    assert take_turns([[1], [1], [1]], room=2) == [1, 1, 0]


@given(waiting=waiting_users, room=st.integers(1, 500))
def test_promise_13_turns_are_bounded_and_fair(waiting: list[list[int]], room: int) -> None:
    taken = take_turns(waiting, room=room)
    used = [sum(weights[:count]) for weights, count in zip(waiting, taken, strict=True)]
    assert sum(used) <= room + len(waiting) * (WEIGHTS_MAX - 1), "each user passes its share by one write at most"
    assert any(taken)
    for weights, count, mine in zip(waiting, taken, used, strict=True):
        if count < len(weights):
            # A user who has to wait has as much as anybody else, but for the last write of each.
            assert all(mine >= other - WEIGHTS_MAX for other in used)

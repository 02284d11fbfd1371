"""Whose turn it is: the queue of users, as every engine reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.send_order import Turn, leaves_queue, next_turns

queues = st.lists(
    st.builds(
        Turn,
        served=st.integers(0, 9),
        owner=st.integers(1, 50),
        has_queued=st.booleans(),
        disabled=st.sampled_from([False, False, True, None]),
    ),
    unique_by=lambda turn: turn.owner,
    max_size=20,
)


@given(queue=queues, users_max=st.integers(0, 25))
def test_next_turns_are_the_ready_users_served_longest_ago(queue: list[Turn], users_max: int) -> None:
    chosen = next_turns(queue, users_max=users_max)
    others = [turn for turn in queue if turn not in chosen and turn.has_queued and turn.disabled is False]
    assert all(turn.has_queued and turn.disabled is False for turn in chosen)
    assert len(chosen) <= users_max
    assert not others or len(chosen) == users_max
    assert [(turn.served, turn.owner) for turn in chosen] == sorted((turn.served, turn.owner) for turn in chosen)
    assert all((one.served, one.owner) < (other.served, other.owner) for one in chosen for other in others)


@given(queue=queues, data=st.data())
def test_next_turns_do_not_depend_on_the_order_in_which_the_queue_is_read(
    queue: list[Turn], data: st.DataObject
) -> None:
    assert next_turns(data.draw(st.permutations(queue)), users_max=5) == next_turns(queue, users_max=5)


@given(queue=queues)
def test_user_leaves_the_queue_exactly_when_nothing_of_theirs_is_queued(queue: list[Turn]) -> None:
    stay = [turn for turn in queue if not leaves_queue(turn)]
    assert {turn.owner for turn in stay} == {turn.owner for turn in queue if turn.has_queued}
    assert next_turns(stay, users_max=20) == next_turns(queue, users_max=20)


@given(queue=queues)
def test_every_ready_user_is_served_once_before_anybody_is_served_twice(queue: list[Turn]) -> None:
    ready = {turn.owner for turn in queue if turn.is_ready}
    newest = max((turn.served for turn in queue), default=0)
    served = []
    for number in range(1, len(ready) + 1):
        [turn] = next_turns(queue, users_max=1)
        served.append(turn.owner)
        queue = [one._replace(served=newest + number) if one.owner == turn.owner else one for one in queue]
    assert sorted(served) == sorted(ready)

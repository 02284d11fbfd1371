"""Whose turn it is: the queue of users, as every engine reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.send_order import Turn, next_turns

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


@given(queue=queues, users_max=st.integers(1, 25))
def test_next_turns_are_the_ready_users_served_longest_ago(queue: list[Turn], users_max: int) -> None:
    chosen = next_turns(sorted(queue), users_max=users_max).ready
    others = [turn for turn in queue if turn not in chosen and turn.has_queued and turn.disabled is False]
    assert all(turn.has_queued and turn.disabled is False for turn in chosen)
    assert len(chosen) <= users_max
    assert not others or len(chosen) == users_max
    assert [(turn.served, turn.owner) for turn in chosen] == sorted((turn.served, turn.owner) for turn in chosen)
    assert all((one.served, one.owner) < (other.served, other.owner) for one in chosen for other in others)


@given(queue=queues, users_max=st.integers(1, 25))
def test_user_with_nothing_queued_leaves_the_queue_when_its_turn_is_passed(queue: list[Turn], users_max: int) -> None:
    ready, leaving = next_turns(sorted(queue), users_max=users_max)
    last = ready[-1] if len(ready) == users_max else None
    assert leaving == [turn for turn in sorted(queue) if not turn.has_queued and (last is None or turn < last)]


@given(queue=queues, pages=st.integers(1, 5), users_max=st.integers(1, 25))
def test_queue_that_is_read_in_pages_gives_the_same_turns_as_the_whole(
    queue: list[Turn], pages: int, users_max: int
) -> None:
    whole = queue = sorted(queue)
    ready, leaving = list[Turn](), list[Turn]()
    while queue and len(ready) < users_max:
        size = min(pages, users_max - len(ready))
        page, queue = queue[:size], queue[size:]
        found = next_turns(page, users_max=size)
        ready += found.ready
        leaving += found.leaving
    assert (ready, leaving) == next_turns(whole, users_max=users_max)


@given(queue=queues)
def test_every_ready_user_is_served_once_before_anybody_is_served_twice(queue: list[Turn]) -> None:
    ready = {turn.owner for turn in queue if turn.is_ready}
    newest = max((turn.served for turn in queue), default=0)
    served = []
    for number in range(1, len(ready) + 1):
        [turn] = next_turns(sorted(queue), users_max=1).ready
        served.append(turn.owner)
        queue = [one._replace(served=newest + number) if one.owner == turn.owner else one for one in queue]
    assert sorted(served) == sorted(ready)

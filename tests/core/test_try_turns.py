"""Turns for tries: places are shared max-min fair, each user's tries keep their order, and a list is not read twice."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import try_turns
from paceline.core.try_turns import (
    AGAIN_MS,
    LATE_MS,
    PLACES,
    PLACES_PER_USER_MAX,
    STALE_MS,
    DueCursor,
    DuePosition,
    DueTries,
    TryPlaces,
    TryQueue,
)

NOW_MS = 1_800_000_000_000
NUMBERS = count(1)


def due(user: str, *, number: int | None = None, at_ms: int = NOW_MS, tries: int = 1) -> DueTries[int]:
    return DueTries(user, DuePosition(at_ms, next(NUMBERS) if number is None else number), tries)


def queue_of(**counts: int) -> TryQueue[int]:
    queue: TryQueue[int] = TryQueue()
    queue.begin_pass(now_ms=NOW_MS)
    for user, many in counts.items():
        queue.add(due(user) for _ in range(many))
    return queue


def users_of(queue: TryQueue[int], places: TryPlaces) -> Counter[str]:
    taken: Counter[str] = Counter()
    for turn in queue.choose(places):
        taken[turn.due.user] += turn.places
    return taken


def page_of(*times_ms: int) -> list[DuePosition[int]]:
    return [DuePosition(at_ms, number) for number, at_ms in enumerate(times_ms)]


# -- turns


def test_promise_13_one_user_s_tries_never_get_all_places_and_a_newcomer_gets_one_at_once() -> None:
    queue = queue_of(ann=500)
    held = users_of(queue, TryPlaces())
    assert held == {"ann": PLACES_PER_USER_MAX}
    assert users_of(queue, TryPlaces(PLACES - held.total(), held)) == {}
    queue.add([due("bob")])
    assert users_of(queue, TryPlaces(PLACES - held.total(), held)) == {"bob": 1}


def test_promise_13_many_users_get_the_same_number_of_tries() -> None:
    shares = users_of(queue_of(ann=900, bob=40, carol=300, dave=7), TryPlaces())
    assert shares["dave"] == 7
    others = [shares[user] for user in ("ann", "bob", "carol")]
    assert max(others) - min(others) <= 1
    assert PLACES - 7 < shares.total() <= PLACES


def test_freed_place_goes_to_the_user_who_was_served_longest_ago() -> None:
    queue = queue_of(ann=9, bob=9, carol=9)
    served = [next(iter(users_of(queue, TryPlaces(1)))) for _ in range(6)]
    assert served == ["ann", "bob", "carol"] * 2


def test_tries_of_one_user_begin_in_the_order_of_their_time() -> None:
    queue: TryQueue[int] = TryQueue()
    queue.begin_pass(now_ms=NOW_MS)
    queue.add([due("ann", at_ms=NOW_MS - 1), due("ann", at_ms=NOW_MS - 9), due("ann", at_ms=NOW_MS - 5)])
    queue.add([due("ann", at_ms=NOW_MS - 7)])
    assert [turn.due.position.at_ms - NOW_MS for turn in queue.choose(TryPlaces())] == [-9, -7, -5, -1]


def test_record_with_more_tries_than_places_gets_the_places_that_there_are() -> None:
    queue: TryQueue[int] = TryQueue()
    queue.begin_pass(now_ms=NOW_MS)
    queue.add([due("ann", number=1, tries=30), due("ann", number=2, tries=30), due("bob", number=3)])
    assert [(turn.due.position.id, turn.places) for turn in queue.choose(TryPlaces())] == [(1, 30), (2, 9), (3, 1)]


def test_full_places_choose_nobody() -> None:
    queue = queue_of(ann=1)
    assert queue.choose(TryPlaces(0)) == []
    assert len(queue) == 1


def test_choice_asks_no_more_users_than_may_get_a_place() -> None:
    queue = queue_of(**{f"u{number}": 3 for number in range(500)})
    assert users_of(queue, TryPlaces(5)) == {f"u{number}": 1 for number in range(5)}
    assert users_of(queue, TryPlaces(5, {"u7": 1})) == {f"u{number}": 1 for number in (5, 6, 8, 9, 10)}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.integers(1, 9), min_size=1, max_size=30)),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 12)),
)
def test_choice_never_exceeds_room_or_ceiling_and_leaves_out_nobody_who_has_least(
    waiting: dict[str, list[int]], held: dict[str, int]
) -> None:
    queue: TryQueue[int] = TryQueue()
    queue.begin_pass(now_ms=NOW_MS)
    for user, tries in waiting.items():
        queue.add(due(user, tries=many) for many in tries)
    room = max(0, PLACES - sum(held.values()))
    shares = users_of(queue, TryPlaces(room, held))
    assert shares.total() <= room
    for user, tries in waiting.items():
        assert shares[user] <= sum(tries)
        assert not shares[user] or shares[user] + held.get(user, 0) <= PLACES_PER_USER_MAX
        if not held.get(user) and room >= len(waiting):
            assert shares[user], "somebody without a try in flight finds a place"


# -- memory


def test_remembered_record_is_not_remembered_twice() -> None:
    queue = queue_of()
    queue.add([due("ann", number=7)])
    queue.add([due("ann", number=7), due("ann", number=8)])
    assert (len(queue), 7 in queue, 9 in queue) == (2, True, False)
    assert len(queue.choose(TryPlaces())) == 2
    assert (len(queue), 7 in queue) == (0, False)


def test_memory_is_bounded_and_says_when_a_user_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(try_turns, "IDS_MAX", 12)
    monkeypatch.setattr(try_turns, "USER_IDS_MAX", 10)
    monkeypatch.setattr(try_turns, "USER_IDS_MIN", 2)
    queue = queue_of(ann=20, bob=5, carol=5)
    assert len(queue) == 10 + 2 + 2
    short = [queue.is_short]
    assert users_of(queue, TryPlaces()) == {"ann": 10, "bob": 2, "carol": 2}
    queue.cursor.note(page_of(NOW_MS - 1), now_ms=NOW_MS)
    short.append(queue.is_short)
    queue.read_all_again()
    assert queue.cursor.after is None
    assert [*short, queue.is_short] == [False, True, False], "in between, none of what is due is remembered"


@pytest.mark.parametrize(("passed_ms", "left"), [(STALE_MS - 1, 3), (STALE_MS, 0), (-1, 0)])
def test_memory_is_dropped_if_the_clock_was_set_back_or_the_last_pass_is_long_ago(passed_ms: int, left: int) -> None:
    queue = queue_of(ann=3)
    queue.cursor.note(page_of(NOW_MS - 1), now_ms=NOW_MS)
    queue.begin_pass(now_ms=NOW_MS + passed_ms)
    assert len(queue) == left
    assert (queue.cursor.after is None) == (left == 0)


# -- cursor


def test_next_page_begins_behind_the_last_one() -> None:
    cursor: DueCursor[int] = DueCursor()
    full = page_of(*range(NOW_MS - try_turns.PAGE, NOW_MS))
    assert cursor.note(full, now_ms=NOW_MS)
    assert cursor.after == full[-1]
    assert not cursor.note(page_of(NOW_MS), now_ms=NOW_MS)
    assert not cursor.note([], now_ms=NOW_MS)
    assert cursor.after == DuePosition(NOW_MS, 0)


def test_newest_part_of_the_list_is_read_again_once_a_second() -> None:
    cursor: DueCursor[int] = DueCursor()
    page = page_of(NOW_MS - LATE_MS - 1, NOW_MS - LATE_MS, NOW_MS - 1)
    assert not cursor.go_back(now_ms=NOW_MS), "all is read as long as nothing is remembered"
    cursor.note(page, now_ms=NOW_MS)
    assert not cursor.go_back(now_ms=NOW_MS + AGAIN_MS - 1)
    assert cursor.after == page[-1]
    assert cursor.go_back(now_ms=NOW_MS + AGAIN_MS)
    assert cursor.after == page[1], "the last position that was read late enough"


def test_whole_list_is_read_again_page_by_page() -> None:
    cursor: DueCursor[int] = DueCursor()
    full = page_of(*range(try_turns.PAGE))
    cursor.note_again(full)
    assert cursor.again == full[-1]
    cursor.note_again(full[:-1])
    assert cursor.again is None, "it begins at the start again"

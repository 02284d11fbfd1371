"""Checks that wait for places: turns, shares, ceilings, order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.places import Places, Seats
from paceline.core.monitors.waiting_checks import OWNERS_MAX, Chosen, WaitingChecks

RUNS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", "z", ""])), max_size=60)


def waiting(*runs: tuple[str, str]) -> WaitingChecks:
    """Runs with their owners and targets, numbered from 0 in the order given."""
    found = WaitingChecks()
    found.add((handle, run) for handle, run in enumerate(runs))
    return found


def drained(queue: WaitingChecks, *, places: int, owner_max: int, target_max: int, ends: int) -> list[list[Chosen]]:
    """Returns what each claim chooses if ``ends`` of the running checks, the oldest first, end after it."""
    out: list[Chosen] = []
    rounds: list[list[Chosen]] = []
    while queue:
        held = Counter((owner, target) for owner, _, target in out)
        chosen = queue.choose(Seats(places - len(out), Places(owner_max, target_max, held)))
        assert chosen or out, "nothing is out, everything is free, and still nothing starts"
        rounds.append(chosen)
        out = (out + chosen)[ends:]
    return rounds


@given(runs=RUNS, places=st.integers(1, 12), ends=st.integers(1, 5))
def test_every_run_is_chosen_once_and_one_owner_s_runs_at_a_target_in_order(
    runs: list[tuple[str, str]], places: int, ends: int
) -> None:
    rounds = drained(waiting(*runs), places=places, owner_max=places, target_max=places, ends=ends)
    chosen = [run for some in rounds for run in some]
    assert sorted(handle for _, handle, _ in chosen) == list(range(len(runs)))
    for pair in set(runs):
        handles = [handle for owner, handle, target in chosen if (owner, target) == pair]
        assert handles == sorted(handles)
    assert all(runs[handle] == (owner, target) for owner, handle, target in chosen)


@given(
    runs=RUNS,
    places=st.integers(1, 12),
    owner_max=st.integers(1, 12),
    target_max=st.integers(1, 12),
    held=st.dictionaries(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y"])), st.integers(1, 3)),
)
def test_promise_13_choosing_keeps_to_room_and_ceilings(
    runs: list[tuple[str, str]], places: int, owner_max: int, target_max: int, held: dict[tuple[str, str], int]
) -> None:
    queue = waiting(*runs)
    chosen = queue.choose(Seats(places, Places(owner_max, target_max, held)))
    assert len(chosen) <= places
    assert len(queue) == len(runs) - len(chosen)
    out = Counter(held) + Counter((owner, target) for owner, _, target in chosen)
    for owner in {owner for owner, _, _ in chosen}:
        assert sum(count for (name, _), count in out.items() if name == owner) <= owner_max
    for target in {target for _, _, target in chosen if target}:
        assert sum(count for (_, name), count in out.items() if name == target) <= target_max


@given(runs=RUNS, places=st.integers(1, 12))
def test_promise_13_no_owner_gets_two_more_places_than_a_waiting_owner(
    runs: list[tuple[str, str]], places: int
) -> None:
    queue = waiting(*[(owner, "") for owner, _ in runs])
    got = Counter(owner for owner, _, _ in queue.choose(Seats(places)))
    wanted = Counter(owner for owner, _ in runs)
    for owner in wanted:
        if got[owner] < wanted[owner]:
            assert all(got[owner] >= got[other] - 1 for other in wanted)


def test_owners_take_turns_if_only_one_place_is_free() -> None:
    queue = waiting(*[("many", "")] * 6, ("few", ""), ("few", ""))
    turns = [queue.choose(Seats(1))[0][0] for _ in range(8)]
    assert turns[:4] == ["many", "few", "many", "few"]


def test_run_at_a_full_target_lets_those_behind_it_pass_and_starts_when_there_is_a_place() -> None:
    queue = waiting(("a", "full"), ("a", "free"), ("a", "full"))
    full = Places(9, 1, {("b", "full"): 1})
    assert queue.choose(Seats(9, full)) == [("a", 1, "free")]
    assert queue.choose(Seats(9, full)) == []
    assert queue.choose(Seats(9, Places(9, 1))) == [("a", 0, "full")]
    assert queue.choose(Seats(9, Places(9, 1))) == [("a", 2, "full")]


@given(owners=st.integers(2, 12), target_max=st.integers(12, 60), quick=st.integers(1, 5))
def test_promise_13_owners_that_wait_at_one_target_share_its_places_evenly(
    owners: int, target_max: int, quick: int
) -> None:
    """The first claim does not know the other owners at the target yet; from then on all get equal shares."""
    queue = waiting(*[(f"owner{number % owners}", "shared") for number in range(owners * 200)])
    held: Counter[tuple[str, str]] = Counter()
    for claim in range(4):
        places = Places(100, target_max, {pair: count for pair, count in held.items() if count})
        chosen = queue.choose(Seats(100 - held.total(), places))
        held.update((owner, target) for owner, _, target in chosen)
        if claim:
            assert max(held.values()) - min(held.values()) <= 1
        held.subtract((owner, target) for owner, _, target in chosen[::quick])
        if not claim:
            held.clear()


def test_run_that_comes_back_takes_its_place_among_the_owner_s_other_runs() -> None:
    queue = waiting(("a", ""), ("a", ""), ("b", ""))
    ranks = {0: (10, 1), 1: (20, 1), 2: (5, 1), 7: (10, 2), 8: (3, 9), 9: (30, 1)}
    queue.merge([(8, ("a", "")), (7, ("a", "")), (9, ("a", ""))], ranks.__getitem__)
    assert [handle for _, handle, _ in queue.choose(Seats(9))] == [8, 0, 7, 1, 9, 2]


def test_run_that_comes_back_to_a_full_target_takes_its_place_among_those_that_stepped_aside() -> None:
    queue = waiting(("a", "full"), ("a", "free"))
    assert queue.choose(Seats(9, Places(9, 1, {("b", "full"): 1}))) == [("a", 1, "free")]
    queue.merge([(7, ("a", "full"))], {0: (10, 1), 7: (5, 1)}.__getitem__)
    assert queue.choose(Seats(9, Places(9, 1))) == [("a", 7, "full")]


def test_owners_at_a_full_target_do_not_hide_later_owners() -> None:
    blocked = [(f"owner{number}", "full") for number in range(OWNERS_MAX + 10)]
    queue = waiting(*blocked, ("last", "free"))
    places = Places(9, 1, {("other", "full"): 1})
    assert [owner for owner, _, _ in queue.choose(Seats(9, places))] == ["last"]


def test_reasons_name_the_full_target_and_the_owner_at_its_ceiling() -> None:
    queue = waiting(("a", "full"), ("b", "free"), ("b", "free"))
    seats = Seats(9, Places(1, 1, {("c", "full"): 1}))
    assert queue.choose(seats) == [("b", 1, "free")]
    reasons = queue.reasons(seats, limit=9)
    assert "full has as many checks out" in reasons["a", "full"]
    assert "one user may have (1 at most)" in reasons["b", ""]


@given(
    runs=RUNS,
    room=st.integers(0, 400),
    held=st.dictionaries(st.tuples(st.sampled_from("abcd"), st.just("x")), st.integers(1, 9)),
)
def test_ample_places_start_the_same_runs_as_turns_would(
    runs: list[tuple[str, str]], room: int, held: dict[tuple[str, str], int]
) -> None:
    places = Places(room, room, held)
    ample = Seats(room, places).is_ample(len(runs))
    by_turns = waiting(*runs)._choose_by_turns(Seats(room, places))
    queue = waiting(*runs)
    chosen = queue.choose(Seats(room, places))
    assert chosen == by_turns
    assert not (ample and len(queue))

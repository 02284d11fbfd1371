"""Monitors share the circle of their interval evenly (promise 7), and so do those of one host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.monitors.phases.allot import allot_one, allot_together, notes_after
from paceline.core.monitors.phases.circle import (
    Circle,
    CirclePosition,
    after_moves,
    bucket_count,
    bucket_of,
    fullest_second,
)
from paceline.core.monitors.phases.hosts import NOTES_MAX, HostNote, HostNotes, after_come, notes_in
from paceline.core.monitors.schedule import SLOT_MS, Phase

T0_MS = 1_790_000_000_000
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000

seconds = st.sampled_from([1, 2, 7, 10, 30, 60, 90, 300, 601, 900, 1_800, 3_600])
intervals = st.one_of(seconds.map(lambda s: s * SECOND_MS), st.integers(1, 80_000).map(lambda n: n * SLOT_MS))


def places(hosts: Sequence[str], phases: Sequence[Phase]) -> list[CirclePosition]:
    return [CirclePosition(host, phase.ms, phase.first_ms or 0) for host, phase in zip(hosts, phases, strict=True)]


class Ring:
    """A circle with the notes of its hosts."""

    def __init__(self, every_ms: int) -> None:
        self.every_ms = every_ms
        self.circle: Circle | None = None
        self.notes: dict[str, HostNote] = {}

    def add(self, hosts: Sequence[str], *, now_ms: int = T0_MS) -> list[CirclePosition]:
        """Adds monitors together, or one alone."""
        if len(hosts) == 1:
            note = self.notes.get(hosts[0])
            return self._count(places(hosts, [allot_one(self.circle, note, self.every_ms, now_ms=now_ms)]))
        return self._count(places(hosts, allot_together(self.circle, self.notes, self.every_ms, hosts, now_ms=now_ms)))

    def remove(self, gone: Sequence[CirclePosition]) -> None:
        self.circle = after_moves(self.circle, self.every_ms, gone=gone)
        self.notes = self.notes if self.circle else {}

    def _count(self, come: list[CirclePosition]) -> list[CirclePosition]:
        notes, new = self.notes, {place.host for place in come} - self.notes.keys()
        self.notes = notes | notes_after(self.circle, notes, self.every_ms, come)
        self.circle = after_moves(self.circle, self.every_ms, come=come, hosts=len(new))
        return come


def ratio(phases_ms: Sequence[int], every_ms: int) -> float:
    """The largest gap over the ideal one, without the 50 ms that the raster may add."""
    rising = sorted(phases_ms)
    gaps = [later - sooner for sooner, later in pairwise([*rising, rising[0] + every_ms])]
    return (max(gaps) - SLOT_MS) * len(rising) / every_ms


@given(seconds, st.lists(st.integers(1, 400), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_promise_7_fullest_second_after_an_import_has_at_most_the_ideal_and_one(every_s: int, pages: list[int]) -> None:
    ring, found = Ring(every_s * SECOND_MS), list[int]()
    for page, count in enumerate(pages):
        hosts = [f"h{page % 3}-{number % 7}" for number in range(count + 1)]
        found += [place.phase_ms for place in ring.add(hosts)]
        assert fullest_second(found, ring.every_ms) <= len(found) / every_s + 1


@given(seconds, st.lists(st.integers(1, 300), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_promise_7_neighbours_of_a_host_are_less_than_two_ideal_gaps_apart_after_an_import(
    every_s: int, counts: list[int]
) -> None:
    hosts = [f"h{host}" for host, count in enumerate(counts) for _ in range(count)]
    Random(sum(counts)).shuffle(hosts)
    come = Ring(every_s * SECOND_MS).add(hosts)
    for name in set(hosts):
        assert ratio([place.phase_ms for place in come if place.host == name], every_s * SECOND_MS) < 2


def dealt(shape: str, size: int, hosts: int, random: Random) -> list[str]:
    """Hosts of an import: in turn, at random, some far more often than others, or one after the other."""
    match shape:
        case "in turn":
            return [f"h{number % hosts}" for number in range(size)]
        case "at random":
            return [f"h{random.randrange(hosts)}" for _ in range(size)]
        case _:
            uneven = [f"h{int(hosts * random.random() ** 2)}" for _ in range(size)]
            return sorted(uneven) if shape == "one by one" else uneven


@pytest.mark.parametrize("shape", ["in turn", "at random", "unevenly", "one by one"])
@pytest.mark.parametrize(("size", "hosts"), [(4_000, 200), (3_000, 20), (3_000, 1_000)])
@pytest.mark.parametrize("every_s", [60, 300, 3_600])
def test_promise_7_neighbours_of_a_host_are_less_than_two_ideal_gaps_and_two_seconds_apart_after_an_import_in_pages(
    every_s: int, size: int, hosts: int, shape: str
) -> None:
    names, ring = dealt(shape, size, hosts, Random(size + hosts + every_s)), Ring(every_s * SECOND_MS)
    found: dict[str, list[int]] = {}
    for start in range(0, size, 500):
        for place in ring.add(names[start : start + 500]):
            found.setdefault(place.host, []).append(place.phase_ms)
    for phases in found.values():
        rising = sorted(phases)
        gap_ms = max(later - sooner for sooner, later in pairwise([*rising, rising[0] + ring.every_ms]))
        assert gap_ms < 2 * ring.every_ms / len(rising) + 2 * SECOND_MS + SLOT_MS
    assert fullest_second([ms for phases in found.values() for ms in phases], ring.every_ms) <= size / every_s + 1


@given(seconds, st.integers(0, 2**32), st.integers(1, 500))
@settings(deadline=None, max_examples=40)
def test_promise_7_no_second_ever_has_more_than_one_above_the_largest_ideal_so_far(
    every_s: int, seed: int, size: int
) -> None:
    """Random additions and removals, one by one or together."""
    random, ring, live, peak = Random(seed), Ring(every_s * SECOND_MS), list[CirclePosition](), 0
    for _ in range(60):
        if live and random.random() < 0.45:
            random.shuffle(live)
            left = random.randint(0, len(live) - 1)
            ring.remove(live[left:])
            live = live[:left]
            continue
        hosts = [f"h{random.randrange(9)}" for _ in range(random.choice((1, 1, random.randint(2, size + 1))))]
        live += ring.add(hosts, now_ms=T0_MS + random.randrange(DAY_MS))
        peak = max(peak, len(live))
        assert fullest_second([one.phase_ms for one in live], ring.every_ms) <= peak / every_s + 1


@pytest.mark.parametrize(("every_s", "size"), [(60, 60), (60, 600), (300, 400), (3_600, 3_600)])
def test_promise_7_thousands_of_random_adds_and_removes_leave_at_most_four_times_the_ideal(
    every_s: int, size: int
) -> None:
    random, ring, live = Random(every_s + size), Ring(every_s * SECOND_MS), list[CirclePosition]()
    for turn in range(size + 4_000):
        if len(live) < size or random.random() < 0.5:
            live += ring.add([f"h{random.randrange(20)}"], now_ms=T0_MS + turn * 1_237)
        else:
            ring.remove([live.pop(random.randrange(len(live)))])
        if turn % 97 == 0 and len(live) >= every_s:
            assert fullest_second([one.phase_ms for one in live], ring.every_ms) <= 4 * len(live) / every_s


@given(intervals, st.integers(1, 60), st.integers(0, DAY_MS))
@settings(deadline=None)
def test_phases_are_on_the_raster_and_inside_the_interval(every_ms: int, count: int, passed_ms: int) -> None:
    now_ms, ring = T0_MS + passed_ms, Ring(every_ms)
    found = ring.add([f"h{number % 3}" for number in range(count)], now_ms=now_ms) + ring.add(["h0"], now_ms=now_ms)
    for place in found + ring.add(["new"], now_ms=now_ms) + Ring(every_ms).add([""], now_ms=0):
        assert 0 <= place.phase_ms < every_ms
        assert place.phase_ms % SLOT_MS == 0
        assert 0 <= bucket_of(place.phase_ms, every_ms) < bucket_count(every_ms)


def test_first_monitor_of_a_host_is_on_its_grid_at_once() -> None:
    phase = allot_one(None, None, 60_000, now_ms=T0_MS + 1_234)
    assert phase == Phase((T0_MS + 1_250) % 60_000, T0_MS + 1_250)


def test_single_monitors_of_a_host_are_spread_over_the_whole_circle() -> None:
    ring, found = Ring(60_000), list[int]()
    for number in range(8):
        found += [place.phase_ms for place in ring.add(["a.example"], now_ms=T0_MS + number)]
    assert ratio(found, 60_000) <= 1.2


def test_monitors_put_together_get_first_checks_in_free_seconds() -> None:
    hosts, ring = [f"h{number}" for number in range(20)], Ring(HOUR_MS)
    come = ring.add(hosts)
    firsts = [place.first_ms or T0_MS + (place.phase_ms - T0_MS) % HOUR_MS for place in come]
    assert max(firsts) < T0_MS + 25 * SECOND_MS
    assert max(Counter(ms // SECOND_MS for ms in firsts).values()) == 1
    more = ring.add(hosts)
    assert not {place.first_ms for place in more if place.first_ms} & set(firsts)


def test_full_circle_leaves_no_room_for_first_checks() -> None:
    come = Ring(60_000).add([f"h{number}" for number in range(600)])
    assert all(place.first_ms == 0 for place in come)


@pytest.mark.slow
def test_size_of_a_circle_does_not_grow_with_monitors_or_hosts() -> None:
    sizes = []
    for count in (10_000, 80_000):
        ring = Ring(60_000)
        ring.add([f"h{number}" for number in range(count)])
        sizes.append(len(msgspec.json.encode(ring.circle)))
    assert sizes[1] < sizes[0] + 300
    day = after_moves(
        None, DAY_MS, come=[CirclePosition("", number * SECOND_MS) for number in range(DAY_MS // SECOND_MS)]
    )
    assert len(msgspec.json.encode(day)) < 16_384


def test_notes_of_hosts_are_bounded_and_those_of_a_circle_that_was_left_say_nothing() -> None:
    shard: HostNotes | None = None
    for number in range(3 * NOTES_MAX):
        shard = after_come(shard, {f"h{number}": HostNote(number, 1)}, born=7)
        assert len(shard.notes) <= NOTES_MAX
    last = f"h{3 * NOTES_MAX - 1}"
    assert notes_in(shard, ["h0", last], born=7) == {last: HostNote(3 * NOTES_MAX - 1, 1)}
    assert len(msgspec.json.encode(shard)) < 16_384
    assert notes_in(shard, [last], born=8) == {}
    assert after_come(shard, {}, born=8) == HostNotes(8)


def test_circle_that_everybody_left_is_gone() -> None:
    circle = after_moves(None, 60_000, come=[CirclePosition("a", 50)])
    assert after_moves(circle, 60_000, gone=[CirclePosition("", 50)]) is None
    assert after_moves(None, 60_000, gone=[CirclePosition("", 50)]) is None

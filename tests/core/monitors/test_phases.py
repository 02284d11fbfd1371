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

from paceline.core.monitors.phases.allot import allot_one, allot_together
from paceline.core.monitors.phases.circle import (
    HOST_NOTES,
    Circle,
    Place,
    after_moves,
    bucket_count,
    bucket_of,
    fullest_second,
)
from paceline.core.monitors.schedule import SLOT_MS, Phase

T0_MS = 1_790_000_000_000
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000

seconds = st.sampled_from([1, 2, 7, 10, 30, 60, 90, 300, 601, 900, 1_800, 3_600])
intervals = st.one_of(seconds.map(lambda s: s * SECOND_MS), st.integers(1, 80_000).map(lambda n: n * SLOT_MS))


def places(hosts: Sequence[str], phases: Sequence[Phase]) -> list[Place]:
    return [Place(host, phase.ms, phase.first_ms or 0) for host, phase in zip(hosts, phases, strict=True)]


def ratio(phases_ms: Sequence[int], every_ms: int) -> float:
    """The largest gap over the ideal one, without the 50 ms that the raster may add."""
    rising = sorted(phases_ms)
    gaps = [later - sooner for sooner, later in pairwise([*rising, rising[0] + every_ms])]
    return (max(gaps) - SLOT_MS) * len(rising) / every_ms


@given(seconds, st.lists(st.integers(1, 400), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_promise_7_fullest_second_after_an_import_has_at_most_the_ideal_and_one(every_s: int, pages: list[int]) -> None:
    every_ms, circle, found = every_s * SECOND_MS, None, list[int]()
    for page, count in enumerate(pages):
        hosts = [f"h{page}-{number % 7}" for number in range(count)]
        phases = allot_together(circle, every_ms, hosts, now_ms=T0_MS)
        circle = after_moves(circle, every_ms, come=places(hosts, phases))
        found += [phase.ms for phase in phases]
    assert fullest_second(found, every_ms) <= len(found) / every_s + 1


@given(seconds, st.lists(st.integers(1, 300), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_promise_7_neighbours_of_a_host_are_less_than_two_ideal_gaps_apart_after_an_import(
    every_s: int, counts: list[int]
) -> None:
    hosts = [f"h{host}" for host, count in enumerate(counts) for _ in range(count)]
    Random(sum(counts)).shuffle(hosts)
    phases = allot_together(None, every_s * SECOND_MS, hosts, now_ms=T0_MS)
    for name in set(hosts):
        mine = [phase.ms for host, phase in zip(hosts, phases, strict=True) if host == name]
        assert ratio(mine, every_s * SECOND_MS) < 2


@given(seconds, st.integers(0, 2**32), st.integers(1, 500))
@settings(deadline=None, max_examples=40)
def test_promise_7_no_second_ever_has_more_than_one_above_the_largest_ideal_so_far(
    every_s: int, seed: int, size: int
) -> None:
    """Whatever is added and removed, by ones or together."""
    random, every_ms, circle, live, peak = Random(seed), every_s * SECOND_MS, None, list[Place](), 0
    for _ in range(60):
        if live and random.random() < 0.45:
            random.shuffle(live)
            left = random.randint(0, len(live) - 1)
            circle, live = after_moves(circle, every_ms, gone=live[left:]), live[:left]
            continue
        come = added(circle, every_ms, random, size)
        circle, live = after_moves(circle, every_ms, come=come), live + come
        peak = max(peak, len(live))
        assert fullest_second([one.phase_ms for one in live], every_ms) <= peak / every_s + 1


def added(circle: Circle | None, every_ms: int, random: Random, size: int) -> list[Place]:
    hosts = [f"h{random.randrange(9)}" for _ in range(random.choice((1, 1, random.randint(2, size + 1))))]
    if len(hosts) == 1:
        return places(hosts, [allot_one(circle, every_ms, hosts[0], now_ms=T0_MS + random.randrange(DAY_MS))])
    return places(hosts, allot_together(circle, every_ms, hosts, now_ms=T0_MS))


@pytest.mark.parametrize(("every_s", "size"), [(60, 60), (60, 600), (300, 400), (3_600, 3_600)])
def test_promise_7_thousands_of_random_adds_and_removes_leave_at_most_four_times_the_ideal(
    every_s: int, size: int
) -> None:
    random, every_ms, circle, live = Random(every_s + size), every_s * SECOND_MS, None, list[Place]()
    for turn in range(size + 4_000):
        if len(live) < size or random.random() < 0.5:
            host = f"h{random.randrange(20)}"
            come = places([host], [allot_one(circle, every_ms, host, now_ms=T0_MS + turn * 1_237)])
            circle, live = after_moves(circle, every_ms, come=come), live + come
        else:
            gone = live.pop(random.randrange(len(live)))
            circle = after_moves(circle, every_ms, gone=[gone])
        if turn % 97 == 0 and len(live) >= every_s:
            assert fullest_second([one.phase_ms for one in live], every_ms) <= 4 * len(live) / every_s


@given(intervals, st.integers(1, 60), st.integers(0, DAY_MS))
@settings(deadline=None)
def test_phases_are_on_the_raster_and_inside_the_interval(every_ms: int, count: int, passed_ms: int) -> None:
    now_ms = T0_MS + passed_ms
    hosts = [f"h{number % 3}" for number in range(count)]
    phases = allot_together(None, every_ms, hosts, now_ms=now_ms)
    circle = after_moves(None, every_ms, come=places(hosts, phases))
    for phase in (*phases, allot_one(circle, every_ms, "h0", now_ms=now_ms), allot_one(None, every_ms, "", now_ms=0)):
        assert 0 <= phase.ms < every_ms
        assert phase.ms % SLOT_MS == 0
        assert 0 <= bucket_of(phase.ms, every_ms) < bucket_count(every_ms)


def test_first_monitor_of_a_host_is_on_its_grid_at_once() -> None:
    phase = allot_one(None, 60_000, "a.example", now_ms=T0_MS + 1_234)
    assert phase == Phase((T0_MS + 1_250) % 60_000, T0_MS + 1_250)


def test_single_monitors_of_a_host_are_spread_over_the_whole_circle() -> None:
    circle, found = None, list[int]()
    for number in range(8):
        phase = allot_one(circle, 60_000, "a.example", now_ms=T0_MS + number)
        circle = after_moves(circle, 60_000, come=[Place("a.example", phase.ms)])
        found.append(phase.ms)
    assert ratio(found, 60_000) <= 1.2


def test_monitors_that_come_together_have_first_checks_in_seconds_that_nobody_has() -> None:
    hosts = [f"h{number}" for number in range(20)]
    phases = allot_together(None, HOUR_MS, hosts, now_ms=T0_MS)
    firsts = [phase.first_ms or T0_MS + (phase.ms - T0_MS) % HOUR_MS for phase in phases]
    assert max(firsts) < T0_MS + 25 * SECOND_MS
    assert max(Counter(ms // SECOND_MS for ms in firsts).values()) == 1
    circle = after_moves(None, HOUR_MS, come=places(hosts, phases))
    more = allot_together(circle, HOUR_MS, hosts, now_ms=T0_MS)
    assert not {phase.first_ms for phase in more if phase.first_ms} & set(firsts)


def test_full_circle_leaves_no_room_for_first_checks() -> None:
    phases = allot_together(None, 60_000, [f"h{number}" for number in range(600)], now_ms=T0_MS)
    assert all(phase.first_ms is None for phase in phases)


def test_size_of_a_circle_does_not_grow_with_monitors_or_hosts() -> None:
    sizes = []
    for count in (10_000, 80_000):
        hosts = [f"h{number}" for number in range(count)]
        circle = after_moves(None, 60_000, come=places(hosts, allot_together(None, 60_000, hosts, now_ms=T0_MS)))
        assert circle is not None
        assert len(circle.hosts) <= HOST_NOTES
        sizes.append(len(msgspec.json.encode(circle)))
    assert sizes[1] < sizes[0] + 300
    day = after_moves(None, DAY_MS, come=[Place("", number * SECOND_MS) for number in range(DAY_MS // SECOND_MS)])
    assert len(msgspec.json.encode(day)) < 16_384


def test_circle_that_everybody_left_is_gone() -> None:
    circle = after_moves(None, 60_000, come=[Place("a", 50)])
    assert after_moves(circle, 60_000, gone=[Place("", 50)]) is None
    assert after_moves(None, 60_000, gone=[Place("", 50)]) is None

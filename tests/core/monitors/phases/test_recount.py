"""A circle that is counted again page by page is exact at the end, whatever comes and goes meanwhile."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.monitors.phases.allot import allot_together
from paceline.core.monitors.phases.circle import MOVED_MAX, Circle, CirclePosition, after_moves, bucket_count, bucket_of
from paceline.core.monitors.phases.hosts import shard_of
from paceline.core.monitors.phases.recount import (
    NewCounts,
    begin_recount,
    buckets_by_interval,
    counts_of,
    end_recount,
    recount_page,
)
from paceline.core.monitors.schedule import Cadence, Entry

EVERY_MS = 10_000
BUCKETS = bucket_count(EVERY_MS)
PAGE = 4


def entry(generation: int, phase_ms: int, **fields: object) -> Entry:
    one = Entry(generation, 0, 1, phase_ms + EVERY_MS, Cadence(every_ms=EVERY_MS), outgoing=False, lead_ms=0)
    return replace(one, **fields)


def test_entries_are_counted_in_the_buckets_in_which_they_fire() -> None:
    rest = entry(3, 0, due_ms=None)
    own_grid = entry(4, 0, lead_ms=None)
    minutely = entry(5, 1_000, cadence=Cadence(every_ms=60_000), due_ms=61_000)
    found = buckets_by_interval([entry(1, 500), entry(2, 9_950), rest, own_grid, minutely])
    assert found == {EVERY_MS: [0, 9], 60_000: [1]}


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[bool, int, int]]:
    return draw(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 199)), max_size=12))


@given(
    wrong=st.lists(st.integers(0, 5), min_size=BUCKETS, max_size=BUCKETS).filter(any),
    first=st.dictionaries(st.integers(1, 30), st.integers(0, 199), min_size=1, max_size=20),
    between=st.lists(moves(), min_size=1, max_size=6),
)
def test_recount_is_exact_however_much_moves_between_its_pages(
    wrong: list[int], first: dict[int, int], between: list[list[tuple[bool, int, int]]]
) -> None:
    there = {generation: slot * 50 for generation, slot in first.items()}
    circle: Circle | None = begin_recount(Circle([count + 9 for count in wrong]), walk=1)
    found, until = NewCounts([0] * BUCKETS), 0
    for step in range(40):
        assert circle is not None
        assert circle.walked is not None
        page = [generation for generation in sorted(there) if generation > until][:PAGE]
        until = page[-1] if page else 1_000
        buckets = buckets_by_interval(entry(one, there[one]) for one in page).get(EVERY_MS, [])
        circle, found = recount_page(circle, found, buckets, until=until)
        if until == 1_000:
            break
        for comes, generation, slot in between[step % len(between)]:
            if comes and generation not in there:
                there[generation] = slot * 50
                circle = after_moves(circle, EVERY_MS, come=[CirclePosition("h", slot * 50, generation=generation)])
            elif not comes and generation in there:
                gone = CirclePosition("h", there.pop(generation), generation=generation)
                circle = after_moves(circle, EVERY_MS, gone=[gone])
            assert circle is not None
    assert circle is not None
    true = counts_of((bucket_of(phase_ms, EVERY_MS) for phase_ms in there.values()), EVERY_MS)
    after = end_recount(circle, found)
    if there:
        assert after.circle is not None
        assert after.circle.counts == true
        assert after.circle.walked is None
    else:
        assert after.circle is None
    assert after.wrong == sum(abs(new - old) for new, old in zip(true, circle.counts, strict=True))


def test_abandoned_recount_is_given_up_after_too_many_moves() -> None:
    every_ms = 3_600_000
    circle: Circle | None = begin_recount(Circle([1] * bucket_count(every_ms)), walk=3)
    assert circle is not None
    circle = replace(circle, walked=replace(circle.walked, until=10**6)) if circle.walked else None
    for number in range(MOVED_MAX):
        circle = after_moves(circle, every_ms, come=[CirclePosition("h", number * 1_000, generation=number)])
    assert circle is not None
    assert circle.walked is not None
    assert len(circle.walked.moved) == MOVED_MAX
    circle = after_moves(circle, every_ms, come=[CirclePosition("h", MOVED_MAX * 1_000, generation=5)])
    assert circle is not None
    assert circle.walked is None


def test_new_recount_replaces_an_unfinished_one() -> None:
    circle = begin_recount(begin_recount(Circle([1] * BUCKETS), walk=1), walk=2)
    assert circle.walked is not None
    assert (circle.walked.walk, circle.walked.until, circle.walked.moved) == (2, 0, {})


@pytest.mark.parametrize("host", ["", "example.org", "a" * 253])
def test_host_has_its_shard_for_ever(host: str) -> None:
    assert shard_of(host) == shard_of(host)
    assert 0 <= shard_of(host) < 16


def test_promise_7_monitors_are_dealt_by_parts_where_a_hosts_own_sequence_would_leave_a_wide_gap() -> None:
    every_ms, hosts = 2_000, ["h2", "h1", "h0", "h4", "h0", "h3", "h0", "h0", "h1", "h1", "h0", "h0", "h0"]
    phases = allot_together(Circle([2, 0], made=30, hosts_made=10), {}, every_ms, hosts, now_ms=0)
    mine = sorted(phase.ms for phase, host in zip(phases, hosts, strict=True) if host == "h0")
    gaps = [later - sooner for sooner, later in zip(mine, [*mine[1:], mine[0] + every_ms], strict=True)]
    assert max(gaps) < 2 * every_ms / len(mine) + 50
    after = Counter(bucket_of(phase.ms, every_ms) for phase in phases)
    assert max(2 + after[0], after[1]) <= (2 + len(hosts)) // 2 + 1

"""What the RIPE Atlas client reads from the simulator's real server: statuses, lists, credits, results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas import Lost, Refused, site_tag
from paceline.core.jobs.atlas_replies import Credits, Delivered, Stopped
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, SimulatedLimits
from tests.adapters.providers.support.atlas_stage import (
    MINUTE_MS,
    SITE,
    measurement,
    sent,
)

LAG_MS = 5_000


def limited(simulator: AtlasSimulator, **limits: Any) -> str:
    return simulator.add_account("small", limits=SimulatedLimits(**limits))[0]


def test_statuses_are_read_in_bulk_and_only_for_the_requested_ids(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    first, second = sent(atlas, key, measurement("ping", "ping", is_public=False, requested=50))
    (other,) = sent(atlas, key)
    simulator.clock.advance(LAG_MS + 6_000)
    missing = range(5_000_000_000_000, 5_000_000_001_200)
    found = atlas.statuses(key, [first, second, *missing])
    assert not isinstance(found, Refused | Lost)
    assert set(found) == {first, second}
    assert found[first].status == 2
    scheduled = len(simulator.world.measurements[first].probes)
    assert (found[first].scheduled, found[first].credits_per_result) == (scheduled, 3)
    asked = [request.query["id__in"] for request, _ in simulator.latest if "id__in" in request.query]
    assert len(asked) == 4
    assert max(len(one) for one in asked) <= 5_000
    simulator.clock.advance(10 * MINUTE_MS)
    ended = atlas.statuses(key, [first, other])
    assert not isinstance(ended, Refused | Lost)
    assert {one.status for one in ended.values()} == {4}
    assert atlas.statuses("", [first, other]) == {other: ended[other]}
    assert atlas.statuses(key, []) == {}


def test_in_flight_count_of_an_account_falls_when_its_measurements_end(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    for index in range(3):
        sent(atlas, key, index=index)
    assert atlas.in_flight(key) == 0
    simulator.clock.advance(LAG_MS)
    assert atlas.in_flight(key) == 3
    running = atlas.running_by_marker(key, site_tag(SITE))
    assert not isinstance(running, Refused | Lost)
    assert len(running) == 3
    simulator.clock.advance(11 * MINUTE_MS)
    assert atlas.in_flight(key) == 0
    assert atlas.running_by_marker(key, site_tag(SITE)) == ()
    assert len(atlas.find_by_marker(key, site_tag(SITE))) == 3


def test_all_pages_of_a_marker_are_read_in_order_of_id(simulator: AtlasSimulator, atlas: RipeAtlas) -> None:
    key = limited(simulator, concurrent=2_000)
    wanted = [measurement(*["ping"] * 20, target=f"192.0.2.{index}", requested=1) for index in range(1, 61)]
    ids = [one for index, many in enumerate(wanted) for one in sent(atlas, key, many, index)]
    simulator.clock.advance(LAG_MS)
    found = atlas.find_by_marker(key, site_tag(SITE))
    assert not isinstance(found, Refused | Lost)
    assert [one.id for one in found] == ids
    assert sum("tags" in request.query for request, _ in simulator.latest) == 3


def test_credits_equal_the_figures_of_ripe(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    sent(atlas, key, measurement(requested=100))
    simulator.clock.advance(5 * 60 * MINUTE_MS)
    answer = atlas.credits(key)
    assert isinstance(answer, Credits), answer
    results = answer.results_day
    assert 0 < results <= 100
    assert answer == Credits(10_000_000 - 6 * results, 6 * results, results, 1_000_000)


def test_measurement_can_be_stopped_twice(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    (one,) = sent(atlas, key)
    simulator.clock.advance(LAG_MS)
    assert atlas.stop(key, one) == Stopped()
    assert atlas.stop(key, one) == Stopped()
    assert simulator.world.measurements[one].ended is not None
    missing = atlas.stop(key, 7)
    assert isinstance(missing, Refused), missing
    assert missing.scope == "request"


def test_results_stream_line_by_line_and_stop_at_the_bound(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    (one,) = sent(atlas, key, measurement("traceroute", requested=200, is_public=False))
    simulator.clock.advance(10 * MINUTE_MS)
    lines: list[bytes] = []
    answer = atlas.results(key, one, lines.append, bytes_max=100_000_000)
    assert answer == Delivered(len(lines), sum(len(line) + 1 for line in lines), whole=True)
    assert len(lines) > 150
    assert {json.loads(line)["msm_id"] for line in lines} == {one}
    some: list[bytes] = []
    size = len(lines[0]) + len(lines[1]) + 2
    assert atlas.results(key, one, some.append, bytes_max=size + 1) == Delivered(2, size, whole=False)
    assert some == lines[:2]
    hidden = atlas.results("", one, some.append, bytes_max=1_000)
    assert isinstance(hidden, Refused), hidden
    assert hidden.scope == "request"


@pytest.mark.parametrize("kind", ["half_reply", "wrong_json"])
def test_results_that_break_off_are_lost(simulator: AtlasSimulator, atlas: RipeAtlas, key: str, kind: Any) -> None:
    (one,) = sent(atlas, key, measurement(requested=50))
    simulator.clock.advance(10 * MINUTE_MS)
    simulator.add_fault(Fault(kind=kind, path="results"))
    lines: list[bytes] = []
    assert isinstance(atlas.results(key, one, lines.append, bytes_max=1_000_000), Lost)
    assert all(json.loads(line)["msm_id"] == one for line in lines)


def test_exception_of_the_result_consumer_is_raised_and_the_client_stays_usable(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    (one,) = sent(atlas, key, measurement(requested=50))
    simulator.clock.advance(10 * MINUTE_MS)

    def full(_line: bytes) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        atlas.results(key, one, full, bytes_max=1_000_000)
    assert isinstance(atlas.credits(key), Credits)

"""The RIPE Atlas client when answers are late, lost or broken, or something other than RIPE answers."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas import Lost, Refused, marker_tag, site_tag
from paceline.core.jobs.atlas_replies import Credits
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault
from tests.adapters.providers.support.atlas_stage import (
    SITE,
    marker,
    measurement,
    posts,
    send,
    sent,
)

LAG_MS = 5_000


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="drop_after", method="POST"),
        Fault(kind="half_reply", method="POST"),
        Fault(kind="error_after", method="POST"),
        Fault(kind="error_after", method="POST", status=502),
        Fault(kind="no_ids", method="POST"),
        Fault(kind="wrong_json", method="POST"),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status or ''}".strip(),
)
def test_a_lost_reply_is_found_by_its_marker_once_the_list_has_caught_up(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, fault: Fault
) -> None:
    sent(atlas, key, measurement(), index=11)  # its tag begins with the other's
    simulator.add_fault(fault)
    wanted = measurement("ping", "traceroute")
    assert isinstance(send(atlas, key, wanted, index=1), Lost)
    tag = marker_tag(marker(1))
    assert atlas.find_by_marker(key, tag) == ()
    simulator.clock.advance(LAG_MS)
    found = atlas.find_by_marker(key, tag)
    assert not isinstance(found, Refused | Lost)
    made = [one.id for one in simulator.world.measurements.values() if tag in one.tags]
    assert [one.id for one in found] == made
    assert len(made) == 2
    assert posts(simulator) == 2
    assert {tag, site_tag(SITE)} <= set(found[0].tags)


@pytest.mark.parametrize("status", [None, 200], ids=["503", "200"])
def test_a_maintenance_page_is_no_answer_to_anything(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, status: int | None
) -> None:
    simulator.add_fault(Fault(kind="maintenance", times=None, status=status))
    lines: list[bytes] = []
    answers = [
        send(atlas, key),
        atlas.find_by_marker(key, "t"),
        atlas.statuses(key, [1]),
        atlas.in_flight(key),
        atlas.credits(key),
        atlas.results(key, 1, lines.append, bytes_max=1_000_000),
        atlas.check_key(key),
    ]
    assert [type(answer) for answer in answers] == [Lost] * 7
    assert lines == []
    assert "<" not in "".join(answer.reason for answer in answers if isinstance(answer, Lost))


def test_html_page_with_status_403_is_a_refusal_for_everybody(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    simulator.add_fault(Fault(kind="maintenance", times=2, status=403))
    answers = [send(atlas, key), atlas.check_key(key)]
    assert [answer.scope for answer in answers if isinstance(answer, Refused)] == ["global"] * 2


@pytest.mark.parametrize("kind", ["drop_after", "half_reply", "wrong_json", "error_before"])
def test_a_read_that_breaks_is_lost_and_can_be_asked_again(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str, kind: Any
) -> None:
    simulator.add_fault(Fault(kind=kind, method="GET", times=3))
    broken = [atlas.credits(key), atlas.in_flight(key), atlas.statuses(key, [1])]
    assert [type(answer) for answer in broken] == [Lost] * 3
    assert isinstance(atlas.credits(key), Credits)


def test_a_send_that_takes_too_long_is_lost_and_not_sent_again(simulator: AtlasSimulator, key: str) -> None:
    atlas = RipeAtlas(simulator.base_url, timeout_ms=300)
    simulator.add_fault(Fault(kind="delay", delay_ms=4_000))
    begun_s = time.monotonic()
    answer = send(atlas, key)
    assert time.monotonic() - begun_s < 3.5
    assert isinstance(answer, Lost), answer
    assert "timed out after 300ms" in answer.reason
    assert posts(simulator) == 1
    atlas.close()


def test_request_that_never_left_this_machine_created_no_measurement(key: str) -> None:
    atlas = RipeAtlas("http://127.0.0.1:9")
    answer = send(atlas, key)
    assert isinstance(answer, Refused), answer
    assert (answer.scope, answer.reason) == ("global", "RIPE could not be reached: connection refused")
    assert isinstance(atlas.credits(key), Lost)
    atlas.close()


def test_a_creation_is_not_repeated_on_a_kept_connection_that_dies(
    simulator: AtlasSimulator, atlas: RipeAtlas, key: str
) -> None:
    simulator.add_fault(Fault(kind="drop_before", method="POST", times=5))
    for _ in range(5):
        assert isinstance(atlas.credits(key), Credits)
        assert isinstance(send(atlas, key), Lost)
    assert posts(simulator) == 5


def test_interrupted_atlas_request_ends_soon_and_later_requests_are_refused_at_once(
    simulator: AtlasSimulator, key: str
) -> None:
    atlas = RipeAtlas(simulator.base_url)
    simulator.add_fault(Fault(kind="delay", delay_ms=6_000))
    threading.Timer(0.2, atlas.interrupt).start()
    begun_s = time.monotonic()
    answer = send(atlas, key)
    assert time.monotonic() - begun_s < 5.5
    assert isinstance(answer, Lost), answer
    later = send(atlas, key)
    assert isinstance(later, Refused), later
    assert posts(simulator) == 1
    atlas.close()

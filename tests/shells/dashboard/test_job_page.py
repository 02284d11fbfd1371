"""The page of a job over a real API, with a RIPE Atlas simulator behind it: progress, queue, cost and results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.core.daemons import Daemon
from paceline.shells.dashboard.views import jobs
from paceline.steps.upkeep.daemons import beat
from tests.shells.api.support.job_stage import COST, AtlasWorld, atlas_world, job, measurement, submitted
from tests.shells.dashboard.support.reading import text_of


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[AtlasWorld]:
    with atlas_world(tmp_path) as running:
        yield running


def test_waiting_job_shows_how_many_measurements_wait_why_and_the_cost(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(3))
    text = text_of(stage.alice, f"/ui/jobs/{made}")
    assert "Place in the queue" in text
    assert re.search(r"Waiting to be sent 3 ", text)
    assert f"credits, at most {3 * COST}" in text
    assert "Download results" not in text
    body = stage.alice("GET", f"/ui/jobs/{made}").body.decode()
    assert f'href="/ui/runs/{made}%2F0/why">Why<' in body
    assert "data-part" not in body


def test_jobs_that_wait_have_a_place_in_the_queue_and_a_forecast(stage: AtlasWorld) -> None:
    now_ms = stage.now_ms()
    beat(stage.store, Daemon("up-1", "up", "host", 7, "", now_ms, now_ms, every_ms=600_000))
    first, second = submitted(stage.alice, job(2)), submitted(stage.alice, job())
    text = text_of(stage.alice, f"/ui/jobs/{first}")
    assert "It is next ." in text
    assert re.search(r"The first measurement is sent (between )?\d", text)
    text = text_of(stage.alice, f"/ui/jobs/{second}")
    assert "2 sends come before its next one" in text
    listed = text_of(stage.alice, "/ui/jobs")
    assert re.search(r"0 of 1 done .+, 2 sends before it, starts \d", listed)
    stage.send()
    assert re.search(r"The last measurement ends (between )?\d", text_of(stage.alice, f"/ui/jobs/{first}"))


def test_measurements_that_need_a_look_come_first(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(3))
    stage.done(stage.send())
    body = stage.alice("GET", f"/ui/jobs/{made}").body.decode()
    assert re.findall(r'<tr role="row" data-key="(\d)"', body) == ["1", "2", "0"]
    assert "No result yet from 10 probes" in body  # of which RIPE has not told


def test_results_are_drawn_by_measurement_with_axes_and_a_sentence(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(measurements=[measurement(), measurement("192.0.2.7")]))
    stage.done(stage.send())
    page = stage.alice("GET", f"/ui/jobs/{made}").body.decode()
    assert f'data-part="/ui/jobs/{made}/results" data-of="0 1"' in page
    body = stage.alice("GET", f"/ui/jobs/{made}/results").body.decode()
    told = re.search(r"(\d+) results of 1 measurement: half of them within <b>\d+ ms</b>, 95 % within <b>\d+ ms", body)
    assert told is not None
    assert 5 <= int(told[1]) <= 10  # not every probe answers
    assert f'aria-label="ping 192.0.2.1, latency of {told[1]} results in ms: median ' in body
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", body)) + len(re.findall(r"M[\d.]+ \d+v-6", body)) == int(told[1])
    assert f'text-anchor="end">{told[1]} probes</text>' in body
    assert "192.0.2.7" not in body


def test_results_of_a_large_job_are_read_no_further_than_a_picture_needs(
    stage: AtlasWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RESULTS_BYTES_MAX", 1)
    stage.root("PATCH", "/v1/users/alice", {"daily_credits": 100_000})
    targets = [f"192.0.2.{number}" for number in range(1, 101)]
    made = submitted(stage.alice, job(measurements=[measurement(*targets)]))
    stage.done(stage.send(), spent=100 * COST)
    text = text_of(stage.alice, f"/ui/jobs/{made}/results")
    assert "There are more than were read for these pictures." in text
    told = re.search(r"(\d+) results of (\d+) measurements", text)
    assert told is not None
    assert 0 < int(told[1]) < 300  # one page of the stream, of about a thousand results
    assert int(told[2]) < 30


def test_page_of_results_is_hidden_from_other_users_and_says_when_there_are_none(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job())
    bob = stage.world.add("bob")
    assert bob("GET", f"/ui/jobs/{made}/results").status == 404
    assert "RIPE has no result of this job yet." in text_of(stage.alice, f"/ui/jobs/{made}/results")

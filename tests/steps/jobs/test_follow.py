"""Measurements are followed to a true end, and settled on what was really delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.simulators.ripe_atlas import Model
from paceline.simulators.ripe_atlas.measurements import STATUS_NAMES, StatusSince
from paceline.simulators.ripe_atlas.world import Fate
from paceline.steps.jobs import follow as following
from paceline.steps.jobs.follow import Watch, finish
from tests.steps.support.atlas_scene import MINUTE_MS, SECOND_MS, START_MS, Scene, a_scene, measurement
from tests.steps.support.follow_scene import (
    LAG_MS,
    asked,
    at_ripe,
    charge,
    force,
    money,
    pass_on,
    sent,
    until_ended,
    used,
)

HOUR_MS = 60 * MINUTE_MS
SHY = Model(answering_share=0.5, scheduled_share=1.0)
"""Half of the probes never answer."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db", model=SHY) as scene:
        scene.add_account()
        yield scene


@pytest.fixture
def diligent(tmp_path: Path) -> Iterator[Scene]:
    """Every probe answers."""
    with a_scene(tmp_path / "store.db", model=Model(answering_share=1.0, scheduled_share=1.0)) as scene:
        scene.add_account()
        yield scene


def test_promise_8_measurement_is_settled_on_its_delivered_results(scene: Scene) -> None:
    job = sent(scene, measurement(probes=20))
    assert (money(scene), used(scene)["credits"]) == ((0, 120), (0, 120))
    reports = until_ended(scene, Watch(), job)
    item = scene.one(job)
    assert 0 < charge(scene, item) < 120
    assert (item.state, item.settled, item.reason) == ("done", charge(scene, item), "")
    results = charge(scene, item) // 6
    assert money(scene) == (item.settled, 0)
    assert used(scene) == {"concurrent": (0, 0), "results": (results, 0), "credits": (item.settled, 0)}
    assert item.atlas[0].delivered == results
    [end] = reports[-1].ended
    assert (end.job, end.state, end.credits, end.overrun) == (job.id, "done", item.settled, 0)


def test_promise_11_a_job_is_finished_when_all_have_ended_and_successful_only_if_all_did_well(scene: Scene) -> None:
    scene.simulator.world.add_fate(Fate(status=7, target="192.0.2.66"))
    good = sent(scene, measurement(), measurement())
    mixed = sent(scene, measurement(), measurement("192.0.2.66"))
    watch = Watch()
    pass_on(scene, watch)
    assert finish(scene.store, now_ms=scene.clock.now_ms()) == []
    until_ended(scene, watch, mixed)
    finished = {job.id: job for job in finish(scene.store, now_ms=scene.clock.now_ms())}
    assert [(finished[job.id].finished, finished[job.id].success) for job in (good, mixed)] == [
        (True, True),
        (True, False),
    ]
    assert finish(scene.store, now_ms=scene.clock.now_ms()) == []


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [(4, "done", ""), (5, "failed", "forced to stop"), (7, "failed", "never ran"), (8, "failed", "denied or archived")],
)
def test_each_final_status_of_ripe_ends_a_measurement_with_its_state(
    scene: Scene, status: int, state: str, reason: str
) -> None:
    job = sent(scene)
    scene.clock.advance(20 * SECOND_MS)
    force(scene, scene.one(job), status)
    report = pass_on(scene, after_ms=LAG_MS)
    item = scene.one(job)
    assert item.state == state
    assert reason in item.reason
    assert item.settled == charge(scene, item) > 0
    assert used(scene)["concurrent"] == (0, 0)
    assert report.unknown_statuses == ()


def test_no_suitable_probes_is_a_failure_only_after_the_deadline(scene: Scene) -> None:
    job = sent(scene)
    at_ripe(scene, scene.one(job)).take_deliveries(())
    force(scene, scene.one(job), 6)
    watch = Watch()
    pass_on(scene, watch)
    assert (scene.one(job).state, scene.one(job).atlas[0].status) == ("ongoing", 6)
    pass_on(scene, watch, after_ms=HOUR_MS)
    item = scene.one(job)
    assert (item.state, item.reason, item.settled) == ("failed", "no suitable probes", 0)
    assert money(scene) == (0, 0)


def test_unknown_status_of_ripe_fails_the_measurement_and_is_reported(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STATUS_NAMES, 3, "Resting")
    job = sent(scene)
    scene.clock.advance(20 * SECOND_MS)
    item = scene.one(job)
    at_ripe(scene, item).ended = StatusSince(3, scene.clock.now_ms())
    report = pass_on(scene)
    assert scene.one(job).state == "failed"
    assert "not known: 3" in scene.one(job).reason
    assert [(one.account, one.atlas_id, one.status) for one in report.unknown_statuses] == [
        ("lab", item.atlas[0].atlas_id, 3)
    ]


def test_measurement_ends_with_its_last_definition_and_all_are_settled(scene: Scene) -> None:
    job = sent(scene, measurement(definitions=3))
    scene.clock.advance(20 * SECOND_MS)
    for definition in (0, 1):
        force(scene, scene.one(job), 4, definition)
    pass_on(scene, Watch())
    assert scene.one(job).state == "ongoing"
    assert [one.status for one in scene.one(job).atlas] == [4, 4, 2]
    force(scene, scene.one(job), 5, 2)
    pass_on(scene, Watch())
    item = scene.one(job)
    assert (item.state, item.settled) == ("failed", charge(scene, item))
    assert used(scene)["concurrent"] == (0, 0)


def test_all_results_end_a_one_off_early_and_its_slot_waits_for_ripe(diligent: Scene) -> None:
    scene, watch = diligent, Watch()
    job = sent(scene)
    pass_on(scene, watch)
    assert (scene.one(job).state, asked(scene, "/results")) == ("ongoing", 0)
    pass_on(scene, watch)
    item = scene.one(job)
    assert (item.state, item.settled) == ("done", 60)
    assert (money(scene), used(scene)["concurrent"], used(scene)["credits"]) == ((60, 0), (0, 1), (0, 60))
    assert pass_on(scene, watch).freed == 0
    report = pass_on(scene, watch, after_ms=10 * MINUTE_MS)
    assert report.freed == 1
    assert used(scene) == {"concurrent": (0, 0), "results": (10, 0), "credits": (60, 0)}
    assert asked(scene, "/measurements/", "DELETE") == 0


def test_results_of_a_running_one_off_are_read_only_when_its_age_has_doubled(scene: Scene) -> None:
    sent(scene)
    watch = Watch()
    counts = []
    for _ in range(18):
        counts += [pass_on(scene, watch).counted]
    assert [(number + 1) * 30 for number, count in enumerate(counts) if count] == [60, 120, 240, 480]


def test_a_periodic_measurement_is_counted_once_at_its_end(scene: Scene) -> None:
    periodic = measurement(probes=4, interval=60) | {"is_oneoff": False, "stop_time": START_MS // 1_000 + 1_800}
    job = sent(scene, periodic)
    reports = until_ended(scene, Watch(), job)
    item = scene.one(job)
    assert (item.state, item.settled) == ("done", charge(scene, item))
    assert 0 < charge(scene, item) < item.cost.credits
    assert sum(one.counted for one in reports) == 1
    assert asked(scene, "/results") == 1


def test_results_of_a_scheduled_one_off_are_read_from_its_start(scene: Scene) -> None:
    job = sent(scene, measurement() | {"start_time": START_MS // 1_000 + 7_200})
    watch = Watch()
    for _ in range(4):
        pass_on(scene, watch, after_ms=30 * MINUTE_MS)
    assert (scene.one(job).state, asked(scene, "/results")) == ("ongoing", 0)
    counts = [pass_on(scene, watch).counted for _ in range(18)]
    assert [(number + 1) * 30 for number, count in enumerate(counts) if count] == [60, 120, 240, 480]
    until_ended(scene, watch, job)
    assert scene.one(job).state == "done"


def test_measurement_without_an_end_at_ripe_is_stopped_at_its_deadline_and_settled(scene: Scene) -> None:
    job = sent(scene, measurement(probes=20))
    item = scene.one(job)
    at_ripe(scene, item).stop_ms = None
    report = pass_on(scene, after_ms=HOUR_MS)
    item = scene.one(job)
    assert (item.state, item.settled, report.stopped) == ("done", charge(scene, item), 1)
    assert used(scene)["concurrent"] == (0, 1)
    assert pass_on(scene).freed == 1
    results = charge(scene, item) // 6
    assert used(scene) == {"concurrent": (0, 0), "results": (results, 0), "credits": (item.settled, 0)}


def test_cancelled_measurement_is_stopped_and_its_missing_results_are_refunded(scene: Scene) -> None:
    periodic = measurement(probes=4, interval=60) | {"is_oneoff": False, "stop_time": START_MS // 1_000 + 86_400}
    job = sent(scene, periodic)
    pass_on(scene, after_ms=10 * MINUTE_MS)
    assert scene.store.cancel_job(job.number, now_ms=scene.clock.now_ms())
    assert pass_on(scene).stopped == 1
    assert scene.one(job).state == "ongoing"
    pass_on(scene)
    item = scene.one(job)
    assert (item.state, item.reason, item.settled) == ("cancelled", "cancelled", charge(scene, item))
    assert 0 < charge(scene, item) < item.cost.credits
    assert money(scene) == (item.settled, 0)
    assert used(scene)["concurrent"] == (0, 0)
    assert scene.created()[0]["status"] == 4


def test_many_statuses_are_read_in_one_request(scene: Scene) -> None:
    sent(scene, *[measurement(f"192.0.2.{number}") for number in range(60)])
    before = asked(scene, "/measurements/")
    assert pass_on(scene).looked == 60
    assert asked(scene, "/measurements/") == before + 1


def test_follow_pass_reads_results_up_to_its_limit_and_the_rest_in_the_next_pass(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "COUNTS_MAX", 2)
    job = sent(scene, *[measurement()] * 3)
    watch = Watch()
    report = pass_on(scene, watch, after_ms=11 * MINUTE_MS)
    assert (len(report.ended), report.put_off) == (2, 1)
    assert len(pass_on(scene, watch).ended) == 1
    assert {item.state for item in scene.measurements(job)} == {"done"}


def test_measurements_of_a_removed_user_are_stopped(scene: Scene) -> None:
    job = sent(scene)
    assert scene.store.remove_user("ann")
    pass_on(scene)
    finish(scene.store, now_ms=scene.clock.now_ms())
    assert pass_on(scene).stopped == 1
    pass_on(scene)
    assert (scene.one(job).state, scene.created()[0]["status"]) == ("cancelled", 4)


def test_restarted_process_follows_running_measurements(scene: Scene) -> None:
    job = sent(scene)
    scene.clock.advance(11 * MINUTE_MS)
    scene.restart()
    assert len(pass_on(scene).ended) == 1
    assert scene.one(job).state == "done"

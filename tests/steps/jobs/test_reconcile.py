"""Measurements at RIPE that no process follows are stopped; those that a lookup will find are left to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.core.jobs.atlas import Created, Marker, request_body
from paceline.core.jobs.job import JobLimits, parse_request
from paceline.core.jobs.values import AccountSpec, NotSent
from paceline.simulators.ripe_atlas import Fault
from paceline.simulators.ripe_atlas.measurements import ProbeDelivery
from paceline.steps.jobs.accounts import put_account_spec
from paceline.steps.jobs.follow import Watch
from paceline.steps.jobs.reconcile import Reconciled, reconcile
from tests.steps.support.atlas_scene import MINUTE_MS, SETTLE_MS, SITE, VAULT, Scene, a_scene, measurement
from tests.steps.support.follow_scene import asked, at_ripe, pass_on, sent


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db") as scene:
        scene.add_account()
        yield scene


def look(scene: Scene, *, after_ms: int = 2 * MINUTE_MS) -> Reconciled:
    scene.clock.advance(after_ms)
    return reconcile(scene.store, scene.atlas, VAULT, site=SITE, settle_ms=SETTLE_MS, clock=scene.clock)


def create(scene: Scene, *, site: str = SITE, job: str, **fields: Any) -> int:
    """Something at RIPE that bears a mark, however it came there."""
    wanted = parse_request(json.dumps(measurement(**fields)).encode(), JobLimits(), now_ms=scene.clock.now_ms())
    marker = Marker(site, job, 0)
    body = request_body(wanted, marker, client="0" * 64, now_ms=scene.clock.now_ms())
    answer = scene.atlas.create(scene.secrets[0], wanted, body)
    assert isinstance(answer, Created)
    return answer.ids[0]


def statuses(scene: Scene) -> dict[int, int]:
    return {row["id"]: row["status"] for row in scene.created()}


def test_followed_measurement_is_not_stopped_as_an_orphan(scene: Scene) -> None:
    sent(scene, measurement(), measurement(definitions=2))
    report = look(scene)
    assert (report.asked, report.orphans, report.left) == (1, (), 0)
    assert set(statuses(scene).values()) == {2}


def test_measurement_of_an_unknown_job_is_stopped_and_reported(scene: Scene) -> None:
    orphan = create(scene, job="restored")
    [found] = look(scene).orphans
    assert (found.account, found.atlas_id, found.job, found.index, found.stopped) == (
        "lab",
        orphan,
        "restored",
        0,
        True,
    )
    assert found.why == "its job is not in the store"
    assert statuses(scene)[orphan] == 4
    assert look(scene).orphans == ()


def test_measurements_of_other_installations_are_not_stopped(scene: Scene) -> None:
    create(scene, site="other1", job="a1")
    create(scene, site="other1", job="a1", tags=[f"paceline-{SITE}", f"paceline-{SITE}-a1-0"])
    assert look(scene).orphans == ()
    assert set(statuses(scene).values()) == {2}


def test_tag_chosen_by_the_user_does_not_make_a_measurement_an_orphan(scene: Scene) -> None:
    job = sent(scene, measurement(tags=[f"paceline-{SITE}-restored-0"]))
    at_ripe(scene, scene.one(job)).tags.reverse()  # RIPE promises no order
    assert look(scene).orphans == ()


def test_orphan_with_a_changed_description_is_recognized_by_its_tag(scene: Scene) -> None:
    orphan = create(scene, job="restored", tags=[f"paceline-{SITE}-another-0"])
    scene.simulator.world.measurements[orphan].definition["description"] = "renamed"
    assert [(one.atlas_id, one.job) for one in look(scene).orphans] == [(orphan, "restored")]


def test_measurement_with_a_lost_reply_is_left_to_the_lookup(scene: Scene) -> None:
    job = scene.submit()
    scene.fault("drop_after")
    assert scene.dispatch().outcome == "unknown"
    report = look(scene)
    assert (report.orphans, report.left, scene.one(job).state) == ((), 1, "unknown")
    scene.look_up()
    assert scene.one(job).state == "ongoing"
    assert look(scene).orphans == ()


def test_late_duplicate_of_a_measurement_that_was_sent_again_is_stopped(scene: Scene) -> None:
    job = scene.submit()
    scene.fault("drop_after")
    scene.dispatch()
    item = scene.one(job)
    assert scene.store.answer(
        item.handle, item.attempt, NotSent("looked up twice, and absent"), now_ms=scene.clock.now_ms()
    )
    scene.clock.advance(MINUTE_MS)
    assert [one.outcome for one in scene.dispatch_all()] == ["sent"]
    young = look(scene, after_ms=SETTLE_MS // 2)
    assert (young.left, young.orphans) == (1, ())
    [orphan] = look(scene).orphans
    kept = scene.one(job).atlas[0].atlas_id
    assert orphan.atlas_id != kept
    assert (statuses(scene)[orphan.atlas_id], statuses(scene)[kept]) == (4, 2)


def test_measurement_that_ended_here_and_still_runs_at_ripe_is_stopped(scene: Scene) -> None:
    job = sent(scene)
    pass_on(scene, Watch(), after_ms=11 * MINUTE_MS)
    assert scene.one(job).state == "done"
    at_ripe(scene, scene.one(job)).stop_ms = None
    [orphan] = look(scene).orphans
    assert orphan.why == "its measurement ended"
    assert scene.created()[0]["status"] == 4


def test_measurement_that_ended_early_and_holds_its_slot_is_left_to_the_follower(scene: Scene) -> None:
    job = sent(scene, measurement(probes=1))
    item = scene.one(job)
    one = at_ripe(scene, item)
    one.probes = one.probes or (1,)
    one.take_deliveries((ProbeDelivery(5_000, 1),))
    pass_on(scene, Watch(), after_ms=MINUTE_MS)
    assert scene.one(job).state == "done"
    assert look(scene).orphans == ()
    assert scene.created()[0]["status"] == 2


def test_lost_stop_of_an_orphan_is_reported_and_repeated(scene: Scene) -> None:
    create(scene, job="restored")
    scene.fault("error_before", method="DELETE")
    report = look(scene)
    assert ([one.stopped for one in report.orphans], len(report.troubles)) == ([False], 1)
    assert [one.stopped for one in look(scene).orphans] == [True]


def test_orphans_of_a_disabled_account_are_stopped(scene: Scene) -> None:
    create(scene, job="restored")
    put_account_spec(scene.store, "lab", AccountSpec(enabled=False))
    assert [one.stopped for one in look(scene).orphans] == [True]


def test_key_refused_while_reconciling_is_quarantined_and_reported(scene: Scene) -> None:
    scene.simulator.add_fault(Fault(kind="refuse_key", key=scene.secrets[0]))
    report = look(scene)
    assert (len(report.quarantined), [one.account for one in report.troubles]) == (1, ["lab"])
    assert scene.account().keys[0].state == "quarantined"


def test_status_429_ends_a_reconcile_pass(scene: Scene) -> None:
    scene.add_account("other")
    scene.fault("rate_limit", method="GET", retry_after_s=30)
    report = look(scene)
    assert report.paused_until_ms == scene.clock.now_ms() + 30_000
    assert asked(scene, "/my/") == 1

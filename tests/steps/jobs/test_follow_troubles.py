"""What goes wrong while measurements are followed: nothing is guessed, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas_replies import Delivered, Unanswered
from paceline.core.jobs.values import AccountSpec
from paceline.simulators.ripe_atlas import POOL_PERMISSIONS, Fault, Model, SimulatedGrant
from paceline.simulators.ripe_atlas.accounts import NON_PUBLIC, STOP
from paceline.steps.jobs import counting
from paceline.steps.jobs.accounts import add_key, put_account_spec, set_key_enabled
from paceline.steps.jobs.follow import FollowReport, Watch, follow
from tests.steps.support.atlas_scene import MINUTE_MS, SECOND_MS, START_MS, VAULT, Scene, a_scene, measurement
from tests.steps.support.follow_scene import (
    asked,
    at_ripe,
    charge,
    money,
    pass_on,
    sent,
    until_ended,
)

HOUR_MS = 60 * MINUTE_MS
SHY = Model(answering_share=0.5, scheduled_share=1.0)
"""Half of the probes never answer."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db", model=SHY) as scene:
        scene.add_account()
        yield scene


def test_lost_stop_request_is_repeated(scene: Scene) -> None:
    job = sent(scene)
    scene.store.cancel_measurement(scene.one(job).handle, now_ms=scene.clock.now_ms())
    scene.fault("error_before", method="DELETE")
    report = pass_on(scene)
    assert (report.stopped, len(report.troubles), scene.created()[0]["status"]) == (0, 1, 2)
    assert pass_on(scene).stopped == 1
    pass_on(scene)
    assert scene.one(job).state == "cancelled"


@pytest.mark.parametrize("kind", ["half_reply", "error_before", "wrong_json", "maintenance"])
def test_results_that_cannot_be_read_are_read_again_and_meanwhile_nothing_is_settled(scene: Scene, kind: str) -> None:
    job = sent(scene)
    scene.clock.advance(11 * MINUTE_MS)
    scene.fault(kind, method="GET", path="/results")
    watch = Watch()
    report = pass_on(scene, watch)
    item = scene.one(job)
    assert (item.state, item.atlas[0].status, len(report.troubles), money(scene)) == ("ongoing", 4, 1, (0, 60))
    pass_on(scene, watch)
    assert (scene.one(job).state, scene.one(job).settled) == ("done", charge(scene, item))


def test_measurement_without_readable_results_for_hours_is_settled_at_its_maximum_cost(scene: Scene) -> None:
    job = sent(scene)
    scene.fault("error_before", method="GET", path="/results", times=None)
    pass_on(scene, after_ms=6 * HOUR_MS)
    assert scene.one(job).state == "ongoing"
    pass_on(scene, after_ms=HOUR_MS)
    item = scene.one(job)
    assert (item.state, item.settled) == ("done", 60)
    assert "the most it can cost" in item.reason


def test_counts_that_fail_again_and_again_are_tried_less_and_less_often(scene: Scene) -> None:
    sent(scene)
    scene.fault("error_before", method="GET", path="/results", times=None)
    scene.clock.advance(11 * MINUTE_MS)
    watch = Watch()
    counted = sum(pass_on(scene, watch).counted for _ in range(120))
    assert 5 < counted < 15


def test_vanished_measurement_ends_failed_and_one_not_listed_yet_does_not(scene: Scene) -> None:
    job = sent(scene, measurement(), measurement())
    ghost, hidden = scene.measurements(job)
    world = scene.simulator.world
    del world.measurements[ghost.atlas[0].atlas_id]
    at_ripe(scene, hidden).created_ms += 12 * MINUTE_MS
    watch = Watch()
    report = pass_on(scene, watch)
    assert (report.missing, report.ended) == (2, ())
    for _ in range(18):
        pass_on(scene, watch)
    assert [item.state for item in scene.measurements(job)] == ["ongoing", "ongoing"]
    for _ in range(2):
        pass_on(scene, watch)
    assert [item.state for item in scene.measurements(job)] == ["failed", "ongoing"]
    assert "RIPE no longer lists it" in scene.one(job).reason
    assert "the most it can cost" in scene.one(job).reason
    until_ended(scene, watch, job)
    assert scene.one(job, 1).state == "done"


def test_an_account_without_a_key_is_followed_as_far_as_it_is_public(scene: Scene) -> None:
    job = sent(scene, measurement(), measurement(is_public=False))
    [key] = scene.store.keys("lab")
    set_key_enabled(scene.store, "lab", key.id, enabled=False)
    watch = Watch()
    pass_on(scene, watch, after_ms=11 * MINUTE_MS)
    assert [item.state for item in scene.measurements(job)] == ["done", "ongoing"]
    set_key_enabled(scene.store, "lab", key.id, enabled=True)
    pass_on(scene, watch)
    private = scene.one(job, 1)
    assert (private.state, private.settled) == ("done", charge(scene, private))


def test_key_refused_while_following_is_quarantined_and_another_key_is_used(tmp_path: Path) -> None:
    with a_scene(tmp_path / "store.db") as scene:
        scene.add_account(keys=2)
        job = sent(scene)
        used_key = scene.one(job).key
        [number] = [number for number, key in enumerate(scene.store.keys("lab")) if key.id == used_key]
        scene.simulator.add_fault(Fault(kind="refuse_key", key=scene.secrets[number]))
        report = pass_on(scene, after_ms=11 * MINUTE_MS)
        assert [(one.account, one.key) for one in report.quarantined] == [("lab", used_key)]
        assert "API key" in report.quarantined[0].reason
        assert sorted(key.state for key in scene.account().keys) == ["quarantined", "ready"]
        assert scene.one(job).state == "done"


def test_too_many_requests_end_the_pass_and_ripe_is_left_alone_for_as_long_as_it_says(scene: Scene) -> None:
    sent(scene)
    watch = Watch()
    scene.fault("rate_limit", method="GET", retry_after_s=90)
    report = pass_on(scene, watch)
    assert report.paused_until_ms == scene.clock.now_ms() + 90 * SECOND_MS
    before = asked(scene, "/measurements/")
    assert pass_on(scene, watch).paused_until_ms == report.paused_until_ms
    assert asked(scene, "/measurements/") == before
    assert pass_on(scene, watch, after_ms=MINUTE_MS).looked == 1


def test_repeated_refusals_of_a_follow_request_wait_longer_each_time(scene: Scene) -> None:
    sent(scene)
    watch = Watch()
    scene.fault("rate_limit", method="GET", times=4)
    pauses = []
    for _ in range(4):
        until_ms = pass_on(scene, watch).paused_until_ms
        assert until_ms is not None
        pauses.append((until_ms - scene.clock.now_ms()) // SECOND_MS)
        scene.clock.advance(until_ms - scene.clock.now_ms())
    assert pauses == [5, 10, 20, 40]
    assert pass_on(scene, watch).looked == 1
    assert watch.refusals == 0


def test_follow_pass_stops_reading_results_after_three_unanswered_requests(scene: Scene) -> None:
    job = sent(scene, *[measurement()] * 8)
    scene.fault("error_before", method="GET", path="/results", times=None)
    report = pass_on(scene, after_ms=11 * MINUTE_MS)
    assert (report.counted, asked(scene, "/results")) == (3, 3)
    assert {item.state for item in scene.measurements(job)} == {"ongoing"}


def test_price_that_differs_from_ours_is_reported(scene: Scene) -> None:
    job = sent(scene)
    at_ripe(scene, scene.one(job)).unit = 7
    report = pass_on(scene, after_ms=11 * MINUTE_MS)
    assert [(one.told, one.reckoned) for one in report.prices] == [(7, 6)]


def test_more_results_than_were_held_for_are_reported_and_not_charged(scene: Scene) -> None:
    job = sent(scene)
    ping = at_ripe(scene, scene.one(job))
    ping.take_deliveries(tuple(one for one in ping.deliveries for _ in range(4)))
    report = pass_on(scene, after_ms=11 * MINUTE_MS)
    item = scene.one(job)
    assert charge(scene, item) > 60
    assert (item.settled, report.ended[0].overrun) == (60, charge(scene, item) - 60)


class _Overtaken(RipeAtlas):
    """While this one reads results, another process comes by and does the whole pass."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.simulator.base_url)
        self._scene = scene
        self.other: FollowReport | None = None

    def results(
        self, key: str, measurement_id: int, take: Callable[[bytes], None], *, bytes_max: int
    ) -> Delivered | Unanswered:
        if self.other is None:
            with closing(self._scene.open_store()) as store:
                self.other = follow(store, self._scene.atlas, VAULT, Watch(), clock=self._scene.clock)
        return super().results(key, measurement_id, take, bytes_max=bytes_max)


def test_promise_8_exactly_one_of_two_follow_passes_settles(scene: Scene) -> None:
    job = sent(scene)
    scene.clock.advance(11 * MINUTE_MS)
    with closing(_Overtaken(scene)) as atlas:
        slow = follow(scene.store, atlas, VAULT, Watch(), clock=scene.clock)
        assert atlas.other is not None
        assert (len(atlas.other.ended), slow.ended) == (1, ())
    item = scene.one(job)
    assert money(scene) == (item.settled, 0) == (charge(scene, item), 0)


def test_stop_without_a_usable_key_is_reported_as_trouble(scene: Scene) -> None:
    job = sent(scene)
    [key] = scene.store.keys("lab")
    set_key_enabled(scene.store, "lab", key.id, enabled=False)
    scene.store.cancel_job(job.number, now_ms=scene.clock.now_ms())
    report = pass_on(scene)
    assert (report.stopped, [one.reason for one in report.troubles]) == (0, ["nothing can be stopped without a key"])
    pass_on(scene, after_ms=11 * MINUTE_MS)
    assert scene.one(job).state == "cancelled"


def test_key_without_stop_or_read_permission_stays_in_use_and_another_key_stops_or_reads(tmp_path: Path) -> None:
    with a_scene(tmp_path / "store.db") as scene:
        lesser = tuple(one for one in POOL_PERMISSIONS if one not in (STOP, NON_PUBLIC))
        scene.simulator.add_account("lab", keys=0)
        put_account_spec(scene.store, "lab", AccountSpec())
        for grants in (POOL_PERMISSIONS, lesser):  # the one that sent last is asked with first
            secret = scene.simulator.add_key("lab", grants=grants).uuid
            add_key(scene.store, VAULT, "lab", secret, now_ms=START_MS)
        job = sent(scene, measurement(is_public=False), measurement(is_public=False))
        scene.store.cancel_measurement(scene.one(job).handle, now_ms=scene.clock.now_ms())
        watch = Watch()
        assert pass_on(scene, watch).stopped == 1
        pass_on(scene, watch, after_ms=11 * MINUTE_MS)
        assert [item.state for item in scene.measurements(job)] == ["cancelled", "done"]
        assert [key.state for key in scene.account().keys] == ["ready", "ready"]


def test_vanished_cancelled_measurement_ends_cancelled_and_its_other_definitions_are_awaited(scene: Scene) -> None:
    job = sent(scene, measurement(), measurement(definitions=2))
    wanted, partly = scene.measurements(job)
    for item in (wanted, partly):
        del scene.simulator.world.measurements[item.atlas[0].atlas_id]
    at_ripe(scene, partly, 1).stop_ms = START_MS + 30 * MINUTE_MS
    scene.store.cancel_measurement(wanted.handle, now_ms=scene.clock.now_ms())
    watch = Watch()
    for _ in range(30):
        pass_on(scene, watch)
    assert [item.state for item in scene.measurements(job)] == ["cancelled", "ongoing"]
    until_ended(scene, watch, job)
    assert (scene.one(job, 1).state, "no longer lists" in scene.one(job, 1).reason) == ("failed", True)


def test_measurement_with_too_many_results_to_read_is_settled_at_its_maximum_cost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "COUNT_BYTES_MAX", 100)
    job = sent(scene)
    watch = Watch()
    for _ in range(4):
        pass_on(scene, watch)
    assert scene.one(job).state == "ongoing"
    pass_on(scene, watch, after_ms=10 * MINUTE_MS)
    assert (scene.one(job).state, scene.one(job).settled) == ("done", 60)
    assert "bytes of results" in scene.one(job).reason


def test_a_clock_that_was_set_back_does_not_keep_a_pause_for_ever(scene: Scene) -> None:
    sent(scene)
    watch = Watch()
    scene.fault("rate_limit", method="GET", retry_after_s=60)
    assert pass_on(scene, watch).paused_until_ms is not None
    scene.clock.at_ms -= 48 * HOUR_MS
    assert pass_on(scene, watch).paused_until_ms is None


def test_private_measurement_without_usable_key_times_out_instead_of_counting_as_vanished(scene: Scene) -> None:
    job = sent(scene, measurement(is_public=False))
    [key] = scene.store.keys("lab")
    set_key_enabled(scene.store, "lab", key.id, enabled=False)
    watch = Watch()
    pass_on(scene, watch, after_ms=30 * MINUTE_MS)
    assert asked(scene, "/results") == 0  # RIPE hides it, so asking by its id would say nothing
    report = pass_on(scene, watch, after_ms=2 * HOUR_MS)
    assert (scene.one(job).state, len(report.troubles), report.missing) == ("ongoing", 1, 1)
    pass_on(scene, watch, after_ms=5 * HOUR_MS)
    item = scene.one(job)
    assert (item.state, item.settled) == ("failed", 60)
    assert "the most it can cost" in item.reason


def test_measurement_that_never_ends_at_ripe_is_stopped_again_until_its_slot_is_free(scene: Scene) -> None:
    job = sent(scene)
    at_ripe(scene, scene.one(job)).stop_ms = None
    scene.fault("error_before", method="DELETE", times=2)
    reports = [pass_on(scene, after_ms=HOUR_MS), pass_on(scene), pass_on(scene), pass_on(scene)]
    assert scene.one(job).state == "done"
    assert [(one.stopped, one.freed) for one in reports] == [(0, 0), (0, 0), (1, 0), (0, 1)]


def test_listed_measurement_without_results_does_not_count_as_vanished(scene: Scene) -> None:
    job = sent(scene)
    scene.fault("error_before", method="GET", path="/results", status=404)
    watch = Watch()
    report = pass_on(scene, watch, after_ms=11 * MINUTE_MS)
    assert (scene.one(job).state, len(report.troubles), report.paused_until_ms) == ("ongoing", 1, None)
    pass_on(scene, watch)
    assert scene.one(job).state == "done"


def test_a_cancel_that_no_key_may_carry_out_says_so_and_ends_with_the_measurement(tmp_path: Path) -> None:
    with a_scene(tmp_path / "store.db", model=SHY) as scene:
        [secret] = scene.add_account()
        scene.simulator.world.registry.keys[secret].grants = tuple(
            SimulatedGrant(one) for one in POOL_PERMISSIONS if one != STOP
        )
        job, watch = sent(scene), Watch()
        scene.store.cancel_measurement(scene.one(job).handle, now_ms=scene.clock.now_ms())
        pass_on(scene, watch)
        item = scene.one(job)
        assert (item.state, item.stopping) == ("ongoing", True)
        assert item.reason == (
            "RIPE does not stop it: You do not have permission to perform this action. It ends when it has run its time"
        )
        until_ended(scene, watch, job)
        assert (scene.one(job).state, scene.one(job).reason) == ("cancelled", "cancelled")


def test_unreadable_results_are_reported_as_an_obstacle_and_read_when_a_key_allows_it(tmp_path: Path) -> None:
    with a_scene(tmp_path / "store.db", model=SHY) as scene:
        [secret] = scene.add_account()
        key = scene.simulator.world.registry.keys[secret]
        key.grants = tuple(SimulatedGrant(one) for one in POOL_PERMISSIONS if one != NON_PUBLIC)
        job, watch = sent(scene, measurement(is_public=False)), Watch()
        for _ in range(30):
            pass_on(scene, watch)
        item = scene.one(job)
        assert (item.state, item.reason.startswith("its results cannot be read: ")) == ("ongoing", True)
        key.grants = tuple(SimulatedGrant(one) for one in POOL_PERMISSIONS)
        until_ended(scene, watch, job)
        assert (scene.one(job).state, scene.one(job).reason) == ("done", "")

"""Sends whose answer was lost: looked up under the same account, twice, before anything is sent again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.vault import SecretVault
from paceline.core.jobs.accounts import enable_key
from paceline.core.jobs.atlas import Marker, client_id, request_body
from paceline.core.jobs.atlas_replies import Listed
from paceline.core.jobs.lookups import PART_LOOKS_MAX
from paceline.core.jobs.pool import LOOK_AGAIN_MS
from paceline.core.jobs.values import AccountSpec, StoredJob, StoredMeasurement
from paceline.core.leases import SEND_LEASE_MS
from paceline.simulators.ripe_atlas import SimulatorModel
from paceline.steps.jobs.atlas_keys import find_key, no_key_reason
from paceline.steps.jobs.lookup import LookedUp, look_up, lose_stale_sends
from tests.steps.support.atlas_scene import DESK, SECRET, SETTLE_MS, SITE, START_MS, VAULT, Scene, a_scene, measurement


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db") as scene:
        yield scene


def lost(scene: Scene, kind: str = "drop_after", *measurements: dict[str, Any]) -> StoredJob:
    """Makes a job whose first send had no answer."""
    job = scene.submit(*measurements)
    scene.fault(kind)
    assert scene.dispatch().outcome == "unknown"
    return job


def look_later(scene: Scene, ms: int = SETTLE_MS) -> LookedUp:
    scene.clock.advance(ms)
    return scene.look_up()


class Shown:
    """The real client, whose lists show only some of what there is."""

    def __init__(self, scene: Scene, shown: Sequence[int]) -> None:
        self._atlas, self._shown = scene.atlas, shown

    def find_by_marker(self, key: str, tag: str) -> Any:
        found = self._atlas.find_by_marker(key, tag)
        return tuple(one for place, one in enumerate(found) if place in self._shown and isinstance(one, Listed))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._atlas, name)


# -- there, or not


@pytest.mark.parametrize("kind", ["drop_after", "error_after", "half_reply", "no_ids", "wrong_json"])
def test_promise_9_existing_measurement_is_adopted_after_a_lost_reply(scene: Scene, kind: str) -> None:
    scene.add_account()
    job = lost(scene, kind, measurement(definitions=3))
    assert scene.look_up() == LookedUp()  # its time has not come
    assert look_later(scene) == LookedUp(adopted=1)
    adopted = scene.one(job)
    assert (adopted.state, adopted.attempt, adopted.reason) == ("ongoing", 1, "")
    assert [one.atlas_id for one in adopted.atlas] == [row["id"] for row in scene.created()]
    assert scene.dispatch_all() == []
    assert (scene.posts(), len(scene.created()), scene.account().concurrent.held) == (1, 3, 3)


@pytest.mark.parametrize("kind", ["drop_before", "error_before", "maintenance"])
def test_promise_9_measurement_that_never_arrived_is_sent_again_once_after_two_lookups(scene: Scene, kind: str) -> None:
    scene.add_account()
    job = lost(scene, kind)
    assert look_later(scene) == LookedUp(absent_once=1)
    assert (scene.one(job).state, scene.one(job).lookups) == ("unknown", 1)
    assert scene.dispatch_all() == []
    assert look_later(scene, SETTLE_MS - 1) == LookedUp()
    assert look_later(scene, 1) == LookedUp(sent_again=1)
    assert (scene.one(job).state, scene.account().concurrent.held) == ("queued", 0)
    assert [one.outcome for one in scene.dispatch_all()] == ["sent"]
    assert (scene.one(job).attempt, scene.posts(), len(scene.created())) == (2, 2, 1)


def test_promise_9_lagging_lists_of_ripe_do_not_double_a_measurement(tmp_path: Path) -> None:
    with a_scene(tmp_path / "store.db", model=SimulatorModel(index_lag_ms=90_000)) as scene:
        scene.add_account()
        job = lost(scene)
        assert look_later(scene) == LookedUp(absent_once=1)
        assert look_later(scene) == LookedUp(adopted=1)
        assert (scene.one(job).state, len(scene.created())) == ("ongoing", 1)


def test_repeatedly_lost_send_is_retried_less_and_less_often(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_before")
    waits = []
    for _ in range(3):
        look_later(scene)
        look_later(scene)
        waits.append((scene.one(job).next_ms or scene.clock.now_ms()) - scene.clock.now_ms())
        scene.clock.advance(waits[-1])
        scene.fault("drop_before")
        assert scene.dispatch().outcome == "unknown"
    assert waits == [0, 7_500, 15_000]


def test_lookup_asks_only_the_account_of_the_send(scene: Scene) -> None:
    scene.add_account("one")
    scene.add_account("two", spec=AccountSpec(daily_credits=900_000))
    job = lost(scene)
    held_by = scene.one(job).account
    assert held_by == "one"
    before = len(scene.simulator.latest)
    assert look_later(scene) == LookedUp(adopted=1)
    asked = [request.headers["authorization"] for request, _ in list(scene.simulator.latest)[before:]]
    assert asked == [f"Key {scene.secrets[0]}"]


def test_concurrent_lookups_of_two_processes_count_as_one(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_before")

    class Raced(Shown):
        """While this process asks, another asks too and has its answer first."""

        def find_by_marker(self, key: str, tag: str) -> Any:
            assert scene.look_up() == LookedUp(absent_once=1)
            return super().find_by_marker(key, tag)

    scene.clock.advance(SETTLE_MS)
    assert scene.look_up(atlas=Raced(scene, [])) == LookedUp(absent_once=1)
    assert (scene.one(job).state, scene.one(job).lookups) == ("unknown", 1)
    assert look_later(scene) == LookedUp(sent_again=1)


# -- parts, several attempts


def test_incomplete_measurement_is_neither_adopted_nor_sent_again(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_after", measurement(definitions=2))
    for shown in ([0], [0], []):
        # After parts of it were seen, a list without any of it does not mean that it is not there.
        scene.clock.advance(SETTLE_MS)
        assert scene.look_up(atlas=Shown(scene, shown)) == LookedUp(partly=1)
        assert scene.one(job).reason == f"RIPE lists {len(shown)} of its 2 definitions"
    assert look_later(scene) == LookedUp(adopted=1)
    assert len(scene.one(job).atlas) == len(scene.created()) == 2


def test_measurement_that_stays_incomplete_fails_with_its_reason(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_after", measurement(definitions=2))
    for _ in range(PART_LOOKS_MAX):
        scene.clock.advance(SETTLE_MS)
        assert scene.look_up(atlas=Shown(scene, [1])) == LookedUp(partly=1)
    scene.clock.advance(SETTLE_MS)
    assert scene.look_up(atlas=Shown(scene, [1])) == LookedUp(rejected=1)
    assert (scene.one(job).state, scene.account().concurrent.held) == ("failed", 0)
    assert scene.one(job).reason.startswith("RIPE lists 1 of its 2 definitions and never the rest")


def post_as(scene: Scene, item: StoredMeasurement, attempt: int) -> None:
    """What a sender that was thought dead does, hours later."""
    marker = Marker(SITE, item.job, item.index, attempt)
    body = request_body(item.measurement, marker, client=client_id("ann", SECRET), now_ms=START_MS)
    scene.atlas.create(scene.secrets[0], item.measurement, body)


def test_earliest_complete_attempt_is_adopted(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_before", measurement(definitions=2))
    look_later(scene)
    look_later(scene)
    scene.fault("drop_after")
    assert scene.dispatch().outcome == "unknown"
    post_as(scene, scene.one(job), attempt=1)
    second, first = scene.created()[:2], scene.created()[2:]
    assert look_later(scene) == LookedUp(adopted=1)
    assert [one.atlas_id for one in scene.one(job).atlas] == [row["id"] for row in first]
    assert len(second) == 2  # no attempt owns them now


def test_definitions_of_two_attempts_are_not_adopted_as_one(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_after", measurement(definitions=2))
    post_as(scene, scene.one(job), attempt=2)
    scene.clock.advance(SETTLE_MS)
    assert scene.look_up(atlas=Shown(scene, [1, 2])) == LookedUp(partly=1)
    assert look_later(scene) == LookedUp(adopted=1)
    assert [one.atlas_id for one in scene.one(job).atlas] == [row["id"] for row in scene.created()[:2]]


def test_a_description_that_was_changed_at_ripe_is_still_found_by_its_tag(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene)
    (there,) = scene.simulator.world.measurements.values()
    there.definition["description"] = "mine now"
    assert look_later(scene) == LookedUp(adopted=1)
    assert scene.one(job).state == "ongoing"


# -- no answer


@pytest.mark.parametrize(
    ("fault", "words", "wait_ms"),
    [
        ({"kind": "drop_before"}, "closed without an answer", LOOK_AGAIN_MS),
        ({"kind": "error_before"}, "500", LOOK_AGAIN_MS),
        ({"kind": "maintenance"}, "maintenance", LOOK_AGAIN_MS),
        ({"kind": "rate_limit", "retry_after_s": 77}, "429", 77_000),
    ],
)
def test_unanswered_lookup_is_not_taken_for_absence_and_postpones_the_others(
    scene: Scene, fault: dict[str, Any], words: str, wait_ms: int
) -> None:
    scene.add_account()
    jobs = []
    for _ in range(3):
        jobs.append(lost(scene, "drop_after"))
        scene.clock.advance(LOOK_AGAIN_MS)
    scene.clock.advance(SETTLE_MS)
    before = len(scene.simulator.latest)
    scene.fault(**fault, method="GET")
    assert scene.look_up() == LookedUp(unanswered=3)
    assert len(scene.simulator.latest) == before + 1
    for job in jobs:
        item = scene.one(job)
        assert (item.state, item.lookups, item.next_ms) == ("unknown", 0, scene.clock.now_ms() + wait_ms)
        assert words in item.reason
    assert look_later(scene, wait_ms) == LookedUp(adopted=3)
    assert len(scene.created()) == 3


def test_lookups_wait_during_a_pause_for_everybody(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_after")
    scene.submit()
    scene.clock.advance(SETTLE_MS)
    scene.fault("rate_limit", retry_after_s=600)
    assert scene.dispatch().outcome == "not_sent"
    before = len(scene.simulator.latest)
    assert scene.look_up() == LookedUp(unanswered=1)
    assert len(scene.simulator.latest) == before
    assert scene.one(job).next_ms == scene.clock.now_ms() + 600_000
    assert look_later(scene, 600_000) == LookedUp(adopted=1)


def test_a_key_that_is_refused_in_a_lookup_is_quarantined_and_another_is_asked(scene: Scene) -> None:
    first, _ = scene.add_account(keys=2)
    job = lost(scene, "drop_after")
    assert scene.one(job).key == "k1"
    scene.fault("refuse_key", key=first, method="")
    assert look_later(scene) == LookedUp(adopted=1)
    assert [key.state for key in scene.account().keys] == ["quarantined", "ready"]


def test_lookup_without_a_key_leaves_the_send_unknown_with_a_reason(scene: Scene) -> None:
    (secret,) = scene.add_account()
    job = lost(scene, "drop_after")
    scene.fault("refuse_key", key=secret, method="")
    assert look_later(scene) == LookedUp(unanswered=1)
    (key,) = scene.account().keys
    assert (key.state, "API key" in key.reason) == ("quarantined", True)
    scene.clock.advance(LOOK_AGAIN_MS)
    assert scene.look_up() == LookedUp(unanswered=1)
    item = scene.one(job)
    assert (item.state, item.next_ms) == ("unknown", scene.clock.now_ms() + LOOK_AGAIN_MS)
    assert item.reason.startswith("its account has no key that can be used: k1 is quarantined: ")
    scene.simulator.faults.clear()
    scene.store.change_key("lab", "k1", enable_key(enabled=True))
    assert look_later(scene, LOOK_AGAIN_MS) == LookedUp(adopted=1)


def test_lookup_with_a_key_sealed_with_another_secret_names_the_setting(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_after")
    scene.clock.advance(SETTLE_MS)
    wrong = SecretVault(b"another secret of this installation")
    looked = look_up(scene.store, scene.atlas, wrong, DESK, clock=scene.clock, chance=lambda: 0.5)
    assert looked == LookedUp(unanswered=1)
    assert "PACELINE_SECRET_KEY" in scene.one(job).reason
    assert find_key(scene.store, wrong, "lab") is None
    scene.store.change_key("lab", "k1", enable_key(enabled=False))
    assert no_key_reason(scene.store, VAULT, "lab").endswith(": k1 is disabled")
    scene.store.remove_key("lab", "k1")
    assert no_key_reason(scene.store, VAULT, "lab").endswith(": it has none")


# -- senders that died, users that cancel


def test_send_of_a_dead_sender_becomes_unknown_after_its_deadline_only(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit()
    (item,) = scene.store.next_to_send(now_ms=START_MS, users_max=1, each_max=1)
    assert isinstance(
        scene.store.begin_send(item, account="lab", key="k1", sending_max=1, now_ms=START_MS), StoredMeasurement
    )
    at_ms = START_MS + SEND_LEASE_MS
    assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=at_ms) == 0
    assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=at_ms + 1) == 1
    assert (scene.one(job).state, scene.one(job).next_ms) == ("unknown", at_ms + 1 + SETTLE_MS)


def test_cancelled_measurement_that_exists_at_ripe_is_adopted_and_stopped(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_after")
    scene.store.cancel_job(job.number, now_ms=scene.clock.now_ms())
    assert (scene.one(job).state, scene.one(job).stopping) == ("unknown", True)
    assert look_later(scene) == LookedUp(adopted=1)
    assert (scene.one(job).state, scene.one(job).stopping) == ("ongoing", True)


def test_cancelled_measurement_that_does_not_exist_at_ripe_ends_as_cancelled(scene: Scene) -> None:
    scene.add_account()
    job = lost(scene, "drop_before")
    scene.store.cancel_job(job.number, now_ms=scene.clock.now_ms())
    look_later(scene)
    look_later(scene)
    assert (scene.one(job).state, scene.one(job).settled) == ("cancelled", 0)
    assert scene.dispatch_all() == []
    assert scene.created() == []

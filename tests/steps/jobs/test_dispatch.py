"""Sending one measurement at a time: whose turn it is, what RIPE answers, and what follows from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.adapters.vault import SecretVault
from paceline.core.jobs.atlas import Answer, client_id
from paceline.core.jobs.measurement import Measurement
from paceline.core.jobs.pool import LOOK_AGAIN_MS
from paceline.core.jobs.send_order import OVERDUE
from paceline.core.jobs.values import AccountSpec, MeasurementEnd, StoredMeasurement
from paceline.steps.jobs.accounts import add_key
from paceline.steps.jobs.dispatch import BUSY_MS, dispatch_next
from paceline.steps.views.job_report import job_view
from tests.steps.support.atlas_scene import (
    DESK,
    MINUTE_MS,
    SECOND_MS,
    SECRET,
    SETTLE_MS,
    SITE,
    START_MS,
    VAULT,
    DrivenClock,
    Scene,
    a_scene,
    measurement,
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db") as scene:
        yield scene


# -- a send


def test_a_measurement_is_sent_with_its_marks_and_no_users_name(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit(measurement(definitions=2))
    sent = scene.dispatch()
    assert (sent.outcome, sent.next_ms, scene.one(job).state) == ("sent", 0, "ongoing")
    assert [one.atlas_id for one in scene.one(job).atlas] == [row["id"] for row in scene.created()]
    request = next(request for request, _ in scene.simulator.latest if request.method == "POST")
    body = msgspec.json.decode(request.body)
    for definition in body["definitions"]:
        assert definition["description"] == f"[paceline:{SITE}:{job.id}:0:1] a ping"
        assert definition["tags"] == [f"paceline-{SITE}", f"paceline-{SITE}-{job.id}-0"]
        assert definition["aggregator_client_id"] == client_id("ann", SECRET)
    assert b"ann" not in request.body
    assert scene.dispatch().next_ms is None


def test_dispatch_with_nothing_queued_returns_when_the_next_send_is_due(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(concurrent=0))
    assert (scene.dispatch().outcome, scene.dispatch().next_ms) == ("idle", None)


def test_intent_is_stored_before_the_post(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit()
    seen: list[StoredMeasurement] = []
    scene.dispatch(atlas=Watched(scene, lambda: seen.append(scene.one(job))))
    (then,) = seen
    assert (then.state, then.attempt, then.account, then.intent_ms) == ("sending", 1, "lab", START_MS)


class Watched:
    """The real client, with something that happens just before a creation, or just after it."""

    def __init__(self, scene: Scene, before: Any = None, after: Any = None) -> None:
        self._atlas, self._before, self._after = scene.atlas, before, after

    def create(self, key: str, wanted: Measurement, body: bytes) -> Answer:
        if self._before:
            self._before()
        answer = self._atlas.create(key, wanted, body)
        if self._after:
            self._after()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._atlas, name)


# -- waiting


def test_measurement_waits_while_there_is_no_account(scene: Scene) -> None:
    job = scene.submit()
    idle = scene.dispatch()
    assert (idle.outcome, idle.parked, idle.next_ms) == ("idle", 0, START_MS + LOOK_AGAIN_MS)
    assert (scene.one(job).state, idle.reason) == ("queued", "there is no account yet")
    scene.add_account()
    assert scene.dispatch().outcome == "sent"


def test_all_accounts_full_waits_30_seconds_or_for_the_earliest_release_if_that_is_sooner(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(concurrent=1))
    job = scene.submit(measurement(), measurement())
    scene.dispatch_all()
    idle = scene.dispatch()
    assert (idle.next_ms, scene.one(job, 1).state) == (START_MS + LOOK_AGAIN_MS, "queued")
    assert idle.reason == "every account is full: concurrent measurements: 1 of 1 in use, 1 needed"
    # Ten minutes after it was sent its slot is expected back.
    scene.clock.advance(10 * MINUTE_MS - 5 * SECOND_MS)
    assert scene.dispatch().next_ms == START_MS + 10 * MINUTE_MS


def test_dispatch_over_full_accounts_parks_no_measurement_however_many_wait(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(concurrent=1))
    scene.submit()
    scene.dispatch_all()
    jobs = [scene.submit(*[measurement()] * 50, owner=owner) for owner in ("ann", "bob")]
    idle = scene.dispatch()
    assert (idle.outcome, idle.next_ms, idle.parked) == ("idle", START_MS + LOOK_AGAIN_MS, 0)
    for job in jobs:
        assert {one.state for one in scene.measurements(job)} == {"queued"}


def test_large_measurement_lets_smaller_ones_pass_while_it_does_not_fit(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(daily_credits=200))
    scene.submit(*[measurement(probes=12)] * 2)
    scene.dispatch_all()
    job = scene.submit(*[measurement(probes=20)] * 5, measurement(probes=5))
    sent = scene.dispatch()
    assert (sent.outcome, sent.parked) == ("sent", 0)
    assert [one.state for one in scene.measurements(job)] == [*["queued"] * 5, "ongoing"]
    assert [one.passed_ms for one in scene.measurements(job)] == [START_MS, *[None] * 5]
    view = job_view(scene.store, job, now_ms=START_MS)
    assert isinstance(view.measurements, list)
    full = "every account is full: credits a day: 174 of 200 in use, 120 needed"
    assert [one.reason for one in view.measurements] == [*[full] * 5, ""]


def test_fitting_measurement_is_found_behind_many_that_do_not_fit(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(daily_credits=200))
    scene.submit(*[measurement(probes=12)] * 2)
    scene.dispatch_all()
    job = scene.submit(*[measurement(probes=20)] * 20, measurement(probes=5))
    assert scene.dispatch().outcome == "sent"
    assert scene.one(job, 20).state == "ongoing"


def test_measurement_that_no_account_allows_fails_with_its_reason(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(daily_credits=50))
    job = scene.submit()
    assert scene.dispatch().refused == 1
    assert (scene.one(job).state, scene.one(job).settled) == ("failed", 0)
    assert scene.one(job).reason == "no account allows it: it takes 60 credits a day, and the largest limit is 50"


def test_measurement_past_its_stop_time_fails_and_is_not_sent(scene: Scene) -> None:
    scene.add_account()
    stop_s = START_MS // 1_000 + 3_600
    late = measurement() | {"is_oneoff": False, "stop_time": stop_s}
    job = scene.submit(late, measurement())
    scene.clock.advance(3_600 * SECOND_MS)
    assert [one.outcome for one in scene.dispatch_all()] == ["sent"]
    assert [one.state for one in scene.measurements(job)] == ["failed", "ongoing"]
    assert scene.one(job).reason == OVERDUE


# -- whose turn it is


def test_thousand_measurements_of_one_user_do_not_starve_another_user(scene: Scene) -> None:
    scene.add_account()
    scene.submit(*[measurement(probes=1)] * 1_000)
    scene.dispatch()
    other = scene.submit(owner="bob")
    scene.dispatch()
    scene.dispatch()
    assert scene.one(other).state == "ongoing"


def test_thousand_measurements_of_a_full_target_do_not_starve_another_user(scene: Scene) -> None:
    scene.add_account()
    scene.simulator.world.others["192.0.2.66"] = 25
    scene.submit(*[measurement("192.0.2.66", probes=1)] * 1_000)
    other = scene.submit(owner="bob")
    assert [scene.dispatch().outcome for _ in range(2)] == ["not_sent", "sent"]
    assert scene.one(other).state == "ongoing"


# -- several processes


def test_dispatch_waits_while_the_limit_of_sends_in_progress_is_reached(scene: Scene) -> None:
    scene.add_account()
    scene.submit(measurement(), measurement())
    (first, _) = scene.store.next_to_send(now_ms=START_MS, users_max=1, each_max=2)
    begun = scene.store.begin_send(first, account="lab", key="k1", sending_max=1, now_ms=START_MS)
    assert isinstance(begun, StoredMeasurement)
    busy = scene.dispatch()
    assert (busy.outcome, busy.next_ms, scene.posts()) == ("idle", START_MS + BUSY_MS, 0)
    scene.desk = DESK._replace(sending_max=2)
    assert scene.dispatch().outcome == "sent"


def test_two_dispatchers_at_once_send_each_measurement_once(scene: Scene) -> None:
    scene.add_account("one", spec=AccountSpec(concurrent=15))
    scene.add_account("two", spec=AccountSpec(concurrent=15))
    job = scene.submit(*[measurement(f"192.0.2.{n}") for n in range(40)])
    together = threading.Barrier(2)

    def drive() -> None:
        with closing(scene.open_store()) as store, closing(scene.open_atlas()) as atlas:
            together.wait()
            for _ in range(200):
                if scene.dispatch(store=store, atlas=atlas).next_ms == START_MS + LOOK_AGAIN_MS:
                    return
            raise AssertionError("it never comes to rest")

    scene.desk = DESK._replace(sending_max=2)
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(drive) for _ in range(2)]:
            done.result()
    assert scene.posts() == len(scene.created()) == 30
    assert scene.simulator.audit()["doubled"] == {}
    assert [scene.account(name).concurrent.held for name in ("one", "two")] == [15, 15]
    assert sum(one.state == "ongoing" for one in scene.measurements(job)) == 30


def test_account_filled_by_another_process_is_skipped(scene: Scene) -> None:
    scene.add_account("one", spec=AccountSpec(concurrent=1))
    scene.add_account("two", spec=AccountSpec(concurrent=1, daily_credits=900_000))
    scene.submit(owner="bob")
    scene.submit()

    class Raced:
        """Between the look at the accounts and the intent, another process sends with the first."""

        def __init__(self) -> None:
            self.raced = False

        def accounts(self, **more: Any) -> Any:
            found = scene.store.accounts(**more)
            if not self.raced:
                self.raced = True
                assert scene.dispatch().outcome == "sent"
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.store, name)

    raced: Any = Raced()
    assert scene.dispatch(store=raced).outcome == "sent"
    assert sorted(row["account"] for row in scene.created()) == ["one", "two"]


# -- keys that do not open, senders that are held up


def test_key_sealed_with_another_secret_uses_no_attempt_and_names_the_setting(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit()
    wrong = SecretVault(b"another secret of this installation")
    idle = dispatch_next(scene.store, scene.atlas, wrong, DESK, clock=scene.clock, chance=lambda: 0.5)
    assert (idle.outcome, scene.posts()) == ("idle", 0)
    waiting = scene.one(job)
    assert (waiting.state, waiting.attempt) == ("queued", 0)
    assert "PACELINE_SECRET_KEY" in idle.reason
    assert scene.account().keys[0].state == "ready"
    scene.clock.advance(LOOK_AGAIN_MS)
    assert scene.dispatch().outcome == "sent"


def test_key_that_cannot_be_opened_does_not_block_other_accounts(scene: Scene) -> None:
    scene.add_account("other", spec=AccountSpec(daily_credits=900_000))
    (secret,) = scene.simulator.add_account("lab")
    scene.store.put_account("lab", AccountSpec())
    add_key(scene.store, SecretVault(b"another secret of this installation"), "lab", secret, now_ms=START_MS)
    job = scene.submit()
    assert scene.dispatch().outcome == "sent"
    assert (scene.one(job).account, scene.one(job).attempt) == ("other", 1)


def test_sender_suspended_after_its_intent_does_not_send(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit()

    class Suspended(DrivenClock):
        """Every look at it after the first is eleven seconds later: the process stood still after its intent."""

        def now_ms(self) -> int:
            now_ms, self.at_ms = self.at_ms, START_MS + 11 * SECOND_MS
            return now_ms

    held_up = dispatch_next(scene.store, scene.atlas, VAULT, DESK, clock=Suspended(), chance=lambda: 0.5)
    assert (held_up.outcome, scene.posts(), scene.one(job).state) == ("not_sent", 0, "queued")
    assert scene.dispatch().outcome == "sent"
    assert len(scene.created()) == 1


def test_an_answer_to_a_send_that_was_given_up_changes_nothing_and_the_lookup_adopts_it(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit()

    def give_up() -> None:
        assert scene.store.lose_sends(intent_before_ms=START_MS + 1, look_ms=START_MS + SETTLE_MS) == 1
        scene.clock.advance(SETTLE_MS)
        assert scene.look_up().adopted == 1

    late = scene.dispatch(atlas=Watched(scene, after=give_up))
    assert (late.outcome, late.reason) == ("unknown", "its answer came after it had been given up")
    assert scene.one(job).state == "ongoing"
    assert [one.atlas_id for one in scene.one(job).atlas] == [row["id"] for row in scene.created()]


def test_ended_measurements_give_their_room_back_to_those_that_wait(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(concurrent=1))
    job = scene.submit(measurement(), measurement())
    scene.dispatch_all()
    first = scene.one(job)
    scene.clock.advance(10 * MINUTE_MS)
    scene.store.end(
        [MeasurementEnd(first.handle, first.attempt, "done", "", 60, 10, frees_slot=True)], now_ms=scene.clock.now_ms()
    )
    assert [one.outcome for one in scene.dispatch_all()] == ["sent"]

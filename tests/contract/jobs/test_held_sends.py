"""Sends to RIPE whose store answers late: none is made late, none twice, on any engine and by the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.leases import SEND_LEASE_MS, SEND_MS_MAX
from paceline.ports import Store
from paceline.steps.jobs.lookup import lose_stale_sends
from tests.steps.support.atlas_scene import SECOND_MS, SETTLE_MS, START_MS, Scene, measurement

IN_TIME_MS = SEND_LEASE_MS - SEND_MS_MAX


class FileScene(Scene):
    def open_store(self) -> Store:
        return SqliteStore(self.path, synchronous="normal", clock=self.clock)


class AwsScene(Scene):
    def open_store(self) -> Store:
        from paceline.adapters.aws.store import AwsStore
        from tests.aws.support.ministack import make_tables, shared_clients

        clients, prefix = shared_clients(), Path(self.path).name
        make_tables(clients, prefix)
        return AwsStore(prefix, clients=clients, clock=self.clock)


@pytest.fixture(params=["sqlite", pytest.param("aws", marks=pytest.mark.aws)])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "sqlite":
        made: Scene = FileScene(tmp_path / "store.db")
    else:
        from tests.aws.support.ministack import fresh_prefix

        made = AwsScene(tmp_path / fresh_prefix())
    with closing(made):
        made.add_account()
        yield made
        assert made.simulator.defects == []
        assert made.store.verify() == []


class Slow:
    """A store whose replies to one kind of act come late: it was done at once, and then ``meanwhile`` happens."""

    def __init__(self, store: Store, act: str, meanwhile: Callable[[], object]) -> None:
        self._store, self._act, self._meanwhile = store, act, meanwhile

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name != self._act:
            return found

        def late(*args: Any, **more: Any) -> Any:
            answer = found(*args, **more)
            self._meanwhile()
            return answer

        return late


def slow(scene: Scene, act: str, meanwhile: Callable[[], object]) -> Any:
    return Slow(scene.store, act, meanwhile)


def test_send_with_a_late_confirmation_of_its_intent_is_skipped_and_then_made_once(scene: Scene) -> None:
    job = scene.submit()
    held = scene.dispatch(store=slow(scene, "begin_send", lambda: scene.clock.advance(IN_TIME_MS + 1)))
    assert (held.outcome, scene.posts(), scene.one(job).state) == ("not_sent", 0, "queued")
    assert scene.dispatch().outcome == "sent"
    assert (scene.posts(), len(scene.created())) == (1, 1)


def test_send_with_a_timely_confirmation_of_its_intent_is_made(scene: Scene) -> None:
    scene.submit()
    held = scene.dispatch(store=slow(scene, "begin_send", lambda: scene.clock.advance(IN_TIME_MS)))
    assert (held.outcome, scene.posts()) == ("sent", 1)


def test_send_that_was_given_up_while_its_sender_was_held_is_not_made_by_that_sender(scene: Scene) -> None:
    scene.submit()

    def give_up() -> None:
        scene.clock.advance(SEND_LEASE_MS + 1)
        assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=scene.clock.now_ms()) == 1

    assert scene.dispatch(store=slow(scene, "begin_send", give_up)).outcome == "not_sent"
    assert scene.posts() == 0
    scene.dispatch_all()
    assert (scene.posts(), len(scene.created())) == (1, 1)


def test_answer_that_is_written_late_is_kept_and_the_send_is_not_made_again(scene: Scene) -> None:
    """No process gives a send up while its answer may still arrive, and a late answer is accepted."""
    job = scene.submit()

    def hold() -> None:
        scene.clock.advance(IN_TIME_MS)
        assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=START_MS + SEND_LEASE_MS) == 0

    assert scene.dispatch(store=slow(scene, "begin_send", hold)).outcome == "sent"
    scene.clock.advance(SEND_LEASE_MS)
    assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=scene.clock.now_ms()) == 0
    assert (scene.dispatch_all(), scene.one(job).state, scene.posts()) == ([], "ongoing", 1)


def test_lease_of_a_send_counts_from_the_write_of_its_intent(scene: Scene) -> None:
    """Otherwise a store that answers slowly would never send anything."""
    job = scene.submit()
    asked_ms = scene.clock.now_ms()
    sent = scene.dispatch(store=slow(scene, "accounts", lambda: scene.clock.advance(2 * IN_TIME_MS)))
    assert (sent.outcome, scene.posts()) == ("sent", 1)
    assert scene.one(job).intent_ms == asked_ms + 2 * IN_TIME_MS


def test_send_is_not_made_when_the_clock_was_set_back_behind_its_intent(scene: Scene) -> None:
    scene.submit()
    back = scene.dispatch(store=slow(scene, "begin_send", lambda: scene.clock.advance(-IN_TIME_MS - SECOND_MS)))
    assert (back.outcome, scene.posts()) == ("not_sent", 0)


def test_slow_write_of_one_answer_lets_no_other_send_run_out(scene: Scene) -> None:
    """A dispatcher has one intent at a time, so while it writes an answer nothing else of it is leased."""
    job = scene.submit(measurement(), measurement(), measurement())
    sending = []

    def hold() -> None:
        sending.append(scene.store.send_counts().sending)
        scene.clock.advance(2 * SEND_LEASE_MS)
        assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=scene.clock.now_ms()) == 0

    for _ in range(3):
        assert scene.dispatch(store=slow(scene, "answer", hold)).outcome == "sent"
    assert sending == [0, 0, 0], "the answer was written, and no other intent was"
    assert [item.attempt for item in scene.measurements(job)] == [1, 1, 1]
    assert (scene.posts(), len(scene.created())) == (3, 3)


def test_answer_written_after_its_own_lease_is_kept_once_another_process_gave_the_send_up(scene: Scene) -> None:
    job = scene.submit()

    class Held(Slow):
        def __getattr__(self, name: str) -> Any:
            if name == "answer":
                scene.clock.advance(SEND_LEASE_MS + 1)
                assert lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=scene.clock.now_ms()) == 1
            return getattr(self._store, name)

    assert scene.dispatch(store=Held(scene.store, "", lambda: None)).outcome == "sent"
    assert (scene.one(job).state, scene.posts()) == ("ongoing", 1)
    scene.clock.advance(SETTLE_MS)
    assert not any(scene.look_up())
    assert (scene.dispatch_all(), scene.posts(), len(scene.created())) == ([], 1, 1)

"""A process is killed at every boundary of a send and of a lookup: before a read or write, and after its effect.

Whatever was killed, the processes that come after it bring every measurement to RIPE exactly once, and to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from paceline.core.jobs.atlas import Marker, marker_tag
from paceline.core.jobs.pool import Account
from paceline.core.jobs.values import AccountSpec, StoredJob
from paceline.simulators.ripe_atlas import SimulatedLimits
from paceline.steps.jobs.follow import Watch, finish, follow
from paceline.steps.jobs.lookup import lose_stale_sends
from paceline.steps.jobs.reconcile import reconcile
from tests.steps.support.atlas_scene import SECOND_MS, SETTLE_MS, SITE, VAULT, Scene, a_scene, measurement

Moment = Literal["before", "after"]
ROUND_MS = 60 * SECOND_MS
ROUNDS_MAX = 60
CALLS_MAX = 100


class Killed(BaseException):
    """Stands for ``kill -9``: nothing may catch it."""


class Death:
    """Comes at the nth call of whatever it is wrapped around. ``calls`` says where it has been."""

    def __init__(self, at: int, moment: Moment) -> None:
        self._at, self._moment = at, moment
        self.calls: list[str] = []

    def wrap(self, part: Any) -> Any:
        return Mortal(part, self)

    def call(self, name: str, method: Callable[..., Any], *args: Any, **more: Any) -> Any:
        now = len(self.calls) == self._at
        self.calls.append(name)
        if now and self._moment == "before":
            raise Killed(name)
        found = method(*args, **more)
        if now:
            raise Killed(name)
        return found


class Mortal:
    def __init__(self, part: Any, death: Death) -> None:
        self._part, self._death = part, death

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)
        return lambda *args, **more: self._death.call(name, method, *args, **more)


class Story:
    """What is set up, what the process does that is killed, and the calls that it must be killed at."""

    def __init__(self, prepare: Callable[[Scene], None], act: str, boundaries: set[str]) -> None:
        self.prepare, self.act, self.boundaries = prepare, act, boundaries


def one_account(scene: Scene) -> None:
    scene.add_account()


def lost_reply(scene: Scene) -> None:
    scene.add_account()
    scene.fault("drop_after")


def lost_order(scene: Scene) -> None:
    scene.add_account()
    scene.fault("drop_before")


def full_account(scene: Scene) -> None:
    scene.add_account("full", limits=SimulatedLimits(concurrent=1))
    scene.add_account("roomy")


def no_room(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(concurrent=2))
    scene.submit(measurement(definitions=2), owner="bob")
    assert scene.dispatch().outcome == "sent"


def full_target(scene: Scene) -> None:
    scene.add_account()
    scene.simulator.world.others["192.0.2.1"] = 25


def refused_key(scene: Scene) -> None:
    bad, _ = scene.add_account(keys=2)
    scene.fault("refuse_key", key=bad, method="")


def unknown_there(scene: Scene) -> None:
    lost_reply(scene)
    scene.submit(measurement(definitions=2), owner="bob")
    assert scene.dispatch().outcome == "unknown"
    scene.clock.advance(SETTLE_MS)


def unknown_nowhere(scene: Scene) -> None:
    lost_order(scene)
    scene.submit(measurement(definitions=2), owner="bob")
    assert scene.dispatch().outcome == "unknown"
    scene.clock.advance(SETTLE_MS)


def unknown_nowhere_for_the_second_time(scene: Scene) -> None:
    unknown_nowhere(scene)
    assert scene.look_up().absent_once == 1
    scene.clock.advance(SETTLE_MS)


SEND = {"next_to_send", "gates", "accounts", "sealed_key", "begin_send", "create", "answer"}
LOOK = {"gates", "to_look_up", "keys", "sealed_key", "find_by_marker", "answer"}
STORIES = [
    Story(one_account, "dispatch", SEND),
    Story(lost_reply, "dispatch", SEND),
    Story(lost_order, "dispatch", SEND),
    Story(full_account, "dispatch", SEND),
    Story(no_room, "dispatch", {"next_to_send", "gates", "accounts"}),
    Story(full_target, "dispatch", SEND),
    Story(refused_key, "dispatch", SEND),
    Story(unknown_there, "look_up", LOOK),
    Story(unknown_nowhere, "look_up", LOOK),
    Story(unknown_nowhere_for_the_second_time, "look_up", LOOK),
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.act} {story.prepare.__name__}")
def test_promise_10_a_kill_at_any_boundary_loses_nothing_and_doubles_nothing(
    tmp_path: Path, story: Story, moment: Moment
) -> None:
    seen: set[str] = set()
    for at in range(CALLS_MAX):
        with a_scene(tmp_path / f"{at}.db") as scene:
            story.prepare(scene)
            jobs = [scene.submit(measurement(definitions=2), measurement()), scene.submit(owner="bob")]
            death = Death(at, moment)
            killed = die(scene, story, death)
            seen.update(death.calls)
            if killed:
                scene.restart()
                assert scene.store.verify() == []
            live_on(scene)
            check_ending(scene, jobs)
        if not killed:
            assert story.boundaries <= seen
            return
    raise AssertionError("it never got through")


def die(scene: Scene, story: Story, death: Death) -> bool:
    act = getattr(scene, story.act)
    try:
        act(store=death.wrap(scene.store), atlas=death.wrap(scene.atlas))
    except Killed:
        return True
    return False


def live_on(scene: Scene) -> None:
    """The daemons that come after: each pass in turn, minutes apart, until every job has finished."""
    watch = Watch()
    for _ in range(ROUNDS_MAX):
        now_ms = scene.clock.now_ms()
        lose_stale_sends(scene.store, settle_ms=SETTLE_MS, now_ms=now_ms)
        scene.look_up()
        scene.dispatch_all()
        reconciled = reconcile(scene.store, scene.atlas, VAULT, site=SITE, settle_ms=SETTLE_MS, clock=scene.clock)
        assert reconciled.orphans == ()
        follow(scene.store, scene.atlas, VAULT, watch, clock=scene.clock)
        finish(scene.store, now_ms=now_ms)
        held = sum(account.concurrent.held for account in accounts(scene))
        if held == 0 and all(job.finished for job in scene.store.jobs(None, before=None, limit=100)):
            return
        counts = scene.store.send_counts()
        waiting = counts.queued + counts.parked + counts.sending + counts.unknown
        scene.clock.advance(ROUND_MS if waiting else 5 * ROUND_MS)
        scene.simulator.world.others.clear()
    raise AssertionError([scene.measurements(job) for job in scene.store.jobs(None, before=None, limit=100)])


def check_ending(scene: Scene, jobs: list[StoredJob]) -> None:
    """Each definition exists at RIPE once, and every line of the ledger is closed."""
    created = [row["tags"] for row in scene.created()]
    there = scene.store.jobs(None, before=None, limit=100)
    assert len(there) >= len(jobs)
    for job in there:
        assert job.success, scene.measurements(job)
        for item in scene.measurements(job):
            tag = marker_tag(Marker(SITE, job.id, item.index))
            assert sum(tag in tags for tags in created) == len(item.measurement.definitions), (tag, created)
    assert len(created) == sum(len(i.measurement.definitions) for job in there for i in scene.measurements(job))
    for account in accounts(scene):
        assert (account.concurrent.held, account.results.held, account.credits.held) == (0, 0, 0)
    for owner in ("ann", "bob"):
        budget = scene.store.budget(owner, now_ms=scene.clock.now_ms())
        assert budget is not None
        assert budget.held == 0


def accounts(scene: Scene) -> list[Account]:
    return scene.store.accounts(now_ms=scene.clock.now_ms(), releases_until_ms=scene.clock.now_ms())

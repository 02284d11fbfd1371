"""RIPE's counters beside ours: never less careful than either, under steady load too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas_replies import Credits, Unanswered
from paceline.core.jobs.meters import room
from paceline.core.jobs.values import AccountSpec
from paceline.simulators.ripe_atlas import Fault, SimulatedLimits, SimulatorModel
from paceline.steps.jobs.accounts import put_account_spec
from paceline.steps.jobs.follow import Watch
from paceline.steps.jobs.sync import Synced, sync_accounts
from tests.adapters.providers.support.atlas_stage import sent as sent_by_others
from tests.steps.support.atlas_scene import MINUTE_MS, SECOND_MS, SITE, VAULT, Scene, a_scene, measurement
from tests.steps.support.follow_scene import asked, pass_on, sent, used

HOUR_MS = 60 * MINUTE_MS
EVERY_MS = 30 * SECOND_MS


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db", model=SimulatorModel(answering_share=1.0, scheduled_share=1.0)) as scene:
        yield scene


def sync(scene: Scene, *, after_ms: int = EVERY_MS) -> Synced:
    scene.clock.advance(after_ms)
    return sync_accounts(scene.store, scene.atlas, VAULT, site=SITE, every_ms=EVERY_MS, clock=scene.clock)


def foreign(scene: Scene, account: str = "lab") -> tuple[int, int, int]:
    """What others use of concurrent, results and credits, as far as is known."""
    found = scene.account(account)
    return found.concurrent.foreign, found.results.foreign, found.credits.foreign


def test_lagging_counters_of_ripe_do_not_lower_our_own_usage(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(daily_credits=1_000))
    sent(scene, *[measurement()] * 5)
    watch = Watch()
    for _ in range(40):
        pass_on(scene, watch)
        report = sync(scene, after_ms=0)
    assert report.accounts[0].credits is not None
    assert report.accounts[0].credits.spent_day == 0
    assert (used(scene)["credits"], room(scene.account().credits)) == ((300, 0), 700)
    assert foreign(scene) == (0, 0, 0)


def test_promise_8_steady_load_with_a_synchronization_in_every_pass_exceeds_no_quota(scene: Scene) -> None:
    """RIPE allows more than we may use, so only our own count keeps us within the limit."""
    scene.add_account(spec=AccountSpec(concurrent=10, daily_credits=3_000, daily_results=400))
    scene.submit(*[measurement(f"192.0.2.{number}") for number in range(60)])
    watch = Watch()
    for _ in range(400):
        scene.dispatch_all()
        pass_on(scene, watch)
        sync(scene, after_ms=0)
        assert scene.account().credits.spent + scene.account().credits.held <= 3_000
    account = scene.simulator.audit()["accounts"]["lab"]
    assert account["past_day_credits"] <= 3_000
    assert account["past_day_results"] <= 400
    assert account["peaks"]["concurrent"] <= 10
    # All that fits was sent: our own usage was not counted as that of others.
    assert account["created"] == 40


def test_own_usage_counts_once_after_ripe_has_booked_it(scene: Scene) -> None:
    scene.add_account()
    sent(scene, *[measurement()] * 5)
    watch = Watch()
    pass_on(scene, watch, after_ms=11 * MINUTE_MS)
    report = sync(scene, after_ms=5 * HOUR_MS)
    assert report.accounts[0].credits is not None
    assert (report.accounts[0].credits.spent_day, foreign(scene)) == (300, (0, 0, 0))


def test_use_by_others_is_noticed_and_takes_room(scene: Scene) -> None:
    [secret] = scene.add_account(spec=AccountSpec(daily_credits=1_000))
    sent(scene, measurement())
    for number in range(3):
        sent_by_others(scene.atlas, secret, index=number)
    watch = Watch()
    pass_on(scene, watch, after_ms=2 * MINUTE_MS)
    sync(scene, after_ms=0)
    assert foreign(scene) == (3, 0, 0)
    pass_on(scene, watch, after_ms=5 * HOUR_MS)
    sync(scene, after_ms=0)
    assert foreign(scene) == (0, 15, 90)
    assert room(scene.account().credits) == 1_000 - 60 - 90


def test_measurement_not_listed_by_ripe_yet_is_counted_once_as_our_own(
    scene: Scene,
) -> None:
    [secret] = scene.add_account()
    sent_by_others(scene.atlas, secret)
    scene.clock.advance(2 * MINUTE_MS)
    sent(scene, measurement())
    for after_ms, running in ((SECOND_MS, 1), (EVERY_MS, 2), (EVERY_MS, 2)):
        report = sync(scene, after_ms=after_ms)
        assert report.accounts[0].in_flight == running
        assert (foreign(scene)[0], scene.account().concurrent.held) == (1, 1)


class _Meanwhile(RipeAtlas):
    """While RIPE says what was spent, another process sends something."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.simulator.base_url)
        self._scene = scene

    def credits(self, key: str) -> Credits | Unanswered:
        answer = super().credits(key)
        assert [one.outcome for one in self._scene.dispatch_all()] == ["sent"]
        return answer


def test_sends_during_a_synchronization_are_added_to_ripes_answer(scene: Scene) -> None:
    [secret] = scene.add_account(spec=AccountSpec(daily_credits=1_000))
    sent_by_others(scene.atlas, secret)
    scene.clock.advance(5 * HOUR_MS)
    scene.submit(measurement())
    with closing(_Meanwhile(scene)) as atlas:
        sync_accounts(scene.store, atlas, VAULT, site=SITE, every_ms=EVERY_MS, clock=scene.clock)
    assert foreign(scene) == (0, 5, 30)
    assert room(scene.account().credits) == 1_000 - 30 - 60


def test_each_account_is_synchronized_once_per_interval_by_one_process(scene: Scene) -> None:
    scene.add_account("a")
    scene.add_account("b")
    assert [one.account for one in sync(scene).accounts] == ["a", "b"]
    assert sync(scene, after_ms=SECOND_MS) == Synced()
    assert asked(scene, "/credits/") == 2
    assert len(sync(scene).accounts) == 2


def test_disabled_account_is_not_synchronized(scene: Scene) -> None:
    scene.add_account(spec=AccountSpec(enabled=False))
    assert sync(scene) == Synced()
    put_account_spec(scene.store, "lab", AccountSpec())
    assert len(sync(scene).accounts) == 1


def test_key_refused_while_synchronizing_is_quarantined_and_another_key_is_used(scene: Scene) -> None:
    first, _ = scene.add_account(keys=2)
    scene.simulator.add_fault(Fault(kind="refuse_key", key=first))
    report = sync(scene)
    assert (len(report.quarantined), len(report.accounts), report.troubles) == (1, 1, ())
    assert [key.state for key in scene.account().keys] == ["quarantined", "ready"]
    assert first not in repr(report)


def test_account_without_a_key_is_reported_and_the_others_are_synchronized(scene: Scene) -> None:
    put_account_spec(scene.store, "empty", AccountSpec())
    scene.add_account()
    report = sync(scene)
    assert [(one.account, one.reason) for one in report.troubles] == [
        ("empty", "its account has no key that can be used: it has none")
    ]
    assert [one.account for one in report.accounts] == ["lab"]


def test_partial_answer_of_ripe_counts_when_the_rest_is_lost(scene: Scene) -> None:
    [secret] = scene.add_account()
    sent_by_others(scene.atlas, secret)
    scene.clock.advance(5 * HOUR_MS)
    scene.fault("error_before", method="GET", path="/my/")
    report = sync(scene)
    assert (len(report.troubles), report.accounts[0].in_flight) == (1, None)
    assert foreign(scene) == (0, 5, 30)


def test_status_429_ends_a_synchronization_pass(scene: Scene) -> None:
    scene.add_account("a")
    scene.add_account("b")
    scene.fault("rate_limit", method="GET", retry_after_s=60)
    report = sync(scene)
    assert report.paused_until_ms == scene.clock.now_ms() + MINUTE_MS
    assert (report.accounts, asked(scene, "/credits/")) == ((), 1)


def test_synchronization_stops_after_a_few_unanswered_requests(scene: Scene) -> None:
    for name in "abcdef":
        scene.add_account(name)
    scene.fault("error_before", method="GET", times=None)
    assert len(sync(scene).troubles) == 3
    assert asked(scene, "/credits/") == 3


def test_a_limit_of_ripe_below_the_declared_one_is_reported(scene: Scene) -> None:
    scene.add_account(limits=SimulatedLimits(daily_credits=500_000))
    [lower] = sync(scene).lower_limits
    assert (lower.account, lower.told, lower.declared) == ("lab", 500_000, 1_000_000)
    assert scene.account().credits.limit == 1_000_000

"""Refusals of RIPE: their scope, and the consequences for the measurement and for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.core.jobs.answers import Gates, judge_answer
from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.pool import LOOK_AGAIN_MS
from paceline.core.jobs.values import AccountClosed, AccountSpec, NotSent, Paused, Rejected, TargetFull, Unsure
from paceline.simulators.ripe_atlas import SimulatedLimits
from paceline.steps.jobs.sync import sync_accounts
from paceline.steps.views.account_report import account_views
from paceline.steps.views.job_report import job_view
from tests.steps.support.atlas_scene import (
    MINUTE_MS,
    SECOND_MS,
    SETTLE_MS,
    SITE,
    START_MS,
    VAULT,
    Scene,
    a_scene,
    measurement,
)

DNS = {"query_class": "IN", "query_type": "A", "query_argument": "example.org"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path / "store.db") as scene:
        yield scene


@pytest.mark.parametrize(
    ("limits", "meter", "words"),
    [
        (SimulatedLimits(concurrent=1), "concurrent", "not permitted to run more than 1 concurrent"),
        (SimulatedLimits(daily_results=15), "results", "maximum daily results limit 15"),
        (SimulatedLimits(daily_credits=70), "credits", "maximum daily credits limit 70"),
    ],
)
def test_an_account_that_ripe_calls_full_gets_no_more_and_the_measurement_waits(
    scene: Scene, limits: SimulatedLimits, meter: str, words: str
) -> None:
    scene.add_account(limits=limits)
    job = scene.submit(measurement(), measurement())
    first, second = scene.dispatch_all()
    assert (first.outcome, second.outcome, scene.posts()) == ("sent", "not_sent", 2)
    assert words in second.reason
    assert scene.one(job, 1).state == "queued"
    idle = scene.dispatch()
    assert idle.next_ms is not None
    assert START_MS < idle.next_ms <= START_MS + LOOK_AGAIN_MS
    assert idle.reason.startswith("every account is full: ")
    full = getattr(scene.account(), meter)
    assert full.limit == getattr(limits, meter if meter == "concurrent" else f"daily_{meter}")
    assert scene.account().concurrent.held == 1  # what the refused one held is refunded


def test_next_account_is_used_after_a_refusal(scene: Scene) -> None:
    scene.add_account("full", limits=SimulatedLimits(concurrent=0))
    scene.add_account("roomy", spec=AccountSpec(daily_credits=900_000))
    job = scene.submit()
    assert [one.outcome for one in scene.dispatch_all()] == ["not_sent", "sent"]
    assert (scene.one(job).account, scene.one(job).attempt) == ("roomy", 2)


def test_measurement_of_a_full_target_is_parked_with_a_reason_and_blocks_no_other(scene: Scene) -> None:
    scene.add_account("one")
    scene.add_account("two")
    scene.simulator.world.others["192.0.2.66"] = 25
    job = scene.submit(*[measurement("192.0.2.66")] * 3, measurement("192.0.2.1"))
    other = scene.submit(owner="bob")
    outcomes = scene.dispatch_all()
    # One was tried at one account; the other two were not sent at all.
    assert sorted(one.outcome for one in outcomes) == ["not_sent", "sent", "sent"]
    assert scene.posts() == 3
    states = [one.state for one in (*scene.measurements(job), scene.one(other))]
    assert states == ["parked", "parked", "parked", "ongoing", "ongoing"]
    for one in scene.measurements(job)[:3]:
        assert one.reason.startswith("the target 192.0.2.66 is full: ")
        assert "do not allow more than 25 concurrent measurements to the same target" in one.reason
        assert one.next_ms == START_MS + 45 * SECOND_MS
    assert all(scene.account(name).closed_until_ms == 0 for name in ("one", "two"))


def test_a_target_that_stays_full_waits_longer_each_time_and_goes_when_it_is_free(scene: Scene) -> None:
    scene.add_account()
    scene.simulator.world.others["192.0.2.66"] = 25
    job = scene.submit(measurement("192.0.2.66"))
    waits = []
    for _ in range(3):
        scene.dispatch_all()
        next_ms = scene.one(job).next_ms
        assert next_ms is not None
        waits.append(next_ms - scene.clock.now_ms())
        scene.clock.advance(waits[-1])
    assert waits == [45_000, 90_000, 180_000]
    scene.simulator.world.others.clear()
    assert [one.outcome for one in scene.dispatch_all()] == ["sent"]
    assert scene.store.gates(["192.0.2.66"])[1] == []


def test_a_refused_key_is_quarantined_with_ripes_words_and_the_next_account_is_used(scene: Scene) -> None:
    (bad,) = scene.add_account("bad")
    scene.add_account("good", spec=AccountSpec(daily_credits=900_000))
    scene.fault("refuse_key", key=bad, method="")
    job = scene.submit(measurement(), measurement())
    assert [one.outcome for one in scene.dispatch_all()] == ["not_sent", "sent", "sent"]
    (key,) = scene.account("bad").keys
    assert (key.state, "API key" in key.reason) == ("quarantined", True)
    assert {one.account for one in scene.measurements(job)} == {"good"}


def test_account_uses_its_second_key_after_the_first_is_refused(scene: Scene) -> None:
    bad, _ = scene.add_account(keys=2)
    scene.fault("refuse_key", key=bad, method="")
    scene.submit(measurement(), measurement())
    assert [one.outcome for one in scene.dispatch_all()] == ["not_sent", "sent", "sent"]
    assert [key.state for key in scene.account().keys] == ["quarantined", "ready"]


def test_measurements_wait_with_a_reason_when_every_key_is_quarantined(scene: Scene) -> None:
    (bad,) = scene.add_account()
    scene.fault("refuse_key", key=bad, method="")
    job = scene.submit()
    scene.dispatch_all()
    assert scene.one(job).state == "queued"
    assert scene.dispatch().reason.startswith("no account can be used: its keys are quarantined: ")


def test_a_request_that_ripe_refuses_fails_alone_with_ripes_words(scene: Scene) -> None:
    scene.add_account()
    job = scene.submit(measurement("nowhere.invalid"), measurement())
    first, second = scene.dispatch_all()
    assert (first.outcome, second.outcome) == ("rejected", "sent")
    failed = scene.one(job)
    assert (failed.state, failed.settled) == ("failed", 0)
    assert "This target cannot be resolved" in failed.reason
    assert scene.account().concurrent.held == 1


def test_429_with_retry_after_stops_everybody_for_exactly_so_long(scene: Scene) -> None:
    scene.add_account("one")
    scene.add_account("two")
    scene.fault("rate_limit", retry_after_s=77)
    job = scene.submit()
    scene.submit(owner="bob")
    refused = scene.dispatch()
    assert (refused.outcome, refused.next_ms) == ("not_sent", START_MS + 77 * SECOND_MS)
    assert (scene.one(job).state, "429" in scene.one(job).reason) == ("queued", True)
    scene.clock.advance(77 * SECOND_MS - 1)
    idle = scene.dispatch()
    assert (idle.outcome, idle.next_ms, scene.posts()) == ("idle", START_MS + 77 * SECOND_MS, 1)
    scene.clock.advance(1)
    assert [one.outcome for one in scene.dispatch_all()] == ["sent", "sent"]


def test_429_without_retry_after_backs_off_longer_each_time_until_something_is_sent(scene: Scene) -> None:
    scene.add_account()
    scene.fault("rate_limit", times=3)
    scene.submit()
    waits = []
    for _ in range(3):
        next_ms = scene.dispatch().next_ms
        assert next_ms is not None
        waits.append(next_ms - scene.clock.now_ms())
        scene.clock.advance(waits[-1])
    assert waits == [3_750, 7_500, 15_000]
    assert scene.dispatch().outcome == "sent"
    paused, _ = scene.store.gates([])
    assert paused is not None
    assert paused.refusals == 0


def test_maintenance_page_pauses_all_sends_without_blaming_an_account(scene: Scene) -> None:
    scene.add_account()
    scene.fault("maintenance", status=403)
    job = scene.submit()
    refused = scene.dispatch()
    assert (refused.outcome, "Down for maintenance" in refused.reason) == ("not_sent", True)
    assert scene.account().keys[0].state == "ready"
    assert scene.one(job).state == "queued"
    assert scene.dispatch().outcome == "idle"


@pytest.mark.parametrize("status", [503, 200])
def test_html_page_after_a_send_makes_it_unknown_and_pauses_all_sends(scene: Scene, status: int) -> None:
    scene.add_account()
    scene.fault("maintenance", status=status)
    job = scene.submit(measurement(), measurement())
    lost = scene.dispatch()
    assert (lost.outcome, lost.next_ms) == ("unknown", START_MS + 3_750)
    assert scene.one(job).state == "unknown"
    assert scene.one(job).next_ms == START_MS + SETTLE_MS
    assert scene.account().concurrent.held == 1  # it may exist, so its slot is taken
    assert (scene.dispatch().outcome, scene.posts()) == ("idle", 1)


def test_refusal_of_the_account_without_a_meter_closes_it_for_a_while(scene: Scene) -> None:
    scene.add_account()
    item = scene.one(scene.submit())
    refused = Refused("account", "words")
    outcome = judge_answer(item, refused, Gates(None, {}), settle_ms=1, now_ms=START_MS, chance=0)
    assert outcome == (NotSent("words"), AccountClosed(START_MS + LOOK_AGAIN_MS, "words"))


def test_refusal_naming_another_target_is_applied_to_the_only_target(scene: Scene) -> None:
    item = scene.one(scene.submit(measurement("Example.org.")))
    refused = Refused("target", "words", target="198.51.100.7")
    before = Gates(None, {"example.org": TargetFull("example.org", 0, 2, "")})
    _, blame = judge_answer(item, refused, before, settle_ms=1, now_ms=START_MS, chance=1)
    assert blame == TargetFull("example.org", START_MS + 4 * MINUTE_MS, 3, "words")


def test_each_lost_answer_in_a_row_pauses_longer_and_ripes_own_time_counts(scene: Scene) -> None:
    item = scene.one(scene.submit())
    before = Gates(Paused(0, 2, ""), {})
    outcome, blame = judge_answer(item, Lost("gone"), before, settle_ms=7, now_ms=START_MS, chance=1)
    assert (outcome, blame) == (Unsure("gone", START_MS + 7), Paused(START_MS + 20_000, 3, "gone"))
    _, blame = judge_answer(item, Lost("gone", 90_000), before, settle_ms=7, now_ms=START_MS, chance=1)
    assert blame == Paused(START_MS + 90_000, 3, "gone")
    assert judge_answer(item, Refused("request", "w"), before, settle_ms=1, now_ms=0, chance=0) == (Rejected("w"), None)


def test_refusal_for_lack_of_credits_shows_the_balance_until_ripe_reports_more(scene: Scene) -> None:
    scene.add_account()
    scene.simulator.world.registry.accounts["lab"].balance = 50
    job = scene.submit()
    assert [one.outcome for one in scene.dispatch_all()] == ["not_sent"]
    waiting = job_view(scene.store, job, now_ms=START_MS, viewer="ann").waiting
    assert waiting is not None
    assert waiting.reason == "every account is full: credit balance at RIPE: 59 left, 60 needed"
    assert scene.account().credits.foreign == 0, "the credits of the day are not to blame"
    scene.simulator.world.registry.accounts["lab"].balance = 100_000
    scene.clock.advance(SECOND_MS)
    sync_accounts(scene.store, scene.atlas, VAULT, site=SITE, every_ms=1, clock=scene.clock)
    [view] = account_views(scene.store, now_ms=scene.clock.now_ms())
    assert view.usage.balance is not None
    assert (view.usage.balance.limit, view.usage.balance.left) == (100_000, 100_000)
    assert [one.outcome for one in scene.dispatch_all()] == ["sent"]
    [view] = account_views(scene.store, now_ms=scene.clock.now_ms())
    assert view.usage.balance is not None
    assert (view.usage.balance.held, view.usage.balance.left) == (60, 100_000 - 60)


def http(number: int) -> dict[str, Any]:
    return measurement(f"192.0.2.{number}") | {
        "definitions": [{"type": "http", "af": 4, "target": f"192.0.2.{number}", "description": "a page"}]
    }


def test_a_type_that_one_account_may_not_make_is_made_by_another(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.add_account(name)
    scene.simulator.world.registry.accounts["two"].http_allowed = True
    job = scene.submit(*[http(number) for number in range(1, 11)])
    outcomes = [one.outcome for one in scene.dispatch_all()]
    assert (outcomes.count("sent"), outcomes.count("not_sent") <= 1) == (10, True)
    assert {one.account for one in scene.measurements(job)} == {"two"}
    assert all(key.state == "ready" for name in ("one", "two") for key in scene.account(name).keys)
    other = scene.submit(*[measurement()] * 4)
    scene.dispatch_all()
    assert {one.account for one in scene.measurements(other)} == {"one"}, "which is free for all else"


def test_a_type_that_no_account_may_make_fails_and_says_so(scene: Scene) -> None:
    for name in ("one", "two"):
        scene.add_account(name)
        scene.simulator.world.registry.accounts[name].forbidden_types = {"dns"}
    dns = {"type": "dns", "af": 4, "target": "192.0.2.1", "description": "a name"} | DNS
    job = scene.submit(measurement() | {"definitions": [dns]}, measurement())
    assert [one.outcome for one in scene.dispatch_all()].count("not_sent") == 2
    assert [one.state for one in scene.measurements(job)] == ["failed", "ongoing"]
    words = "You are not permitted to create dns measurements."
    assert scene.one(job).reason == f"no account may make dns measurements: {words}"

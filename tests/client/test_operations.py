"""Every resource of both clients over the real API."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from paceline_client import (
    AlreadyExists,
    Client,
    Conflict,
    Duration,
    Forbidden,
    InvalidInput,
    NotFound,
    PreconditionFailed,
    Problem,
    StaleLease,
    Unauthenticated,
)
from tests.client.support.both import Connect
from tests.shells.api.conftest import World

WEB: Any = {"kind": "http", "url": "https://example.org/", "headers": {"x-key": "secret"}}
OUTGOING: Any = {"kind": "outgoing", "what": "look"}
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).date()


def fire(world: World, runs: int) -> None:
    """Ticks until this many runs were made: a first due time may lie a few milliseconds ahead."""
    until_s = time.monotonic() + 10
    while (runs := runs - world.fire()) > 0:
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_monitor_is_put_read_patched_paused_listed_and_removed(alice: Any) -> None:
    made = alice.monitors.put("home", check=WEB, every=timedelta(minutes=1), tags=["web"])
    assert (made.id, made.user, made.every, made.tags) == ("home", "alice", timedelta(minutes=1), ["web"])
    assert made.check["url"] == "https://example.org/"
    assert made.check["headers"] == {"x-key": "***"}
    assert isinstance(made.every, Duration)
    assert made.created_at.tzinfo is not None
    assert abs(made.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert alice.monitors.get("home").revision == made.revision
    assert alice.monitors.patch("home", cron="0 6 * * *", timezone="Europe/Vienna").every is None
    assert alice.monitors.pause("home").health == "paused"
    assert alice.monitors.resume("home").paused is False
    assert [one.id for one in alice.monitors.list()] == ["home"]
    alice.monitors.remove("home")
    with pytest.raises(NotFound) as caught:
        alice.monitors.get("home")
    assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_monitors_of_a_bulk_put_are_judged_one_by_one_with_progress(alice: Any) -> None:
    told: list[int] = []
    items = [{"id": f"m{number:04}", "check": OUTGOING, "every": "1h"} for number in range(1_500)]
    items[1_200]["every"] = "1ms"
    results = alice.monitors.put_many(iter(items), progress=told.append)
    assert len(results) == 1_500
    assert [place for place, one in enumerate(results) if one.disposition != "created"] == [1_200]
    assert results[1_200].error.code == "invalid_input"
    assert told == [1_000, 1_500]
    assert len(alice.monitors.list().to_list()) == 1_499
    assert [one.id for one in alice.monitors.list(limit=150)] == [f"m{number:04}" for number in range(150)]


def test_check_now_is_answered_with_its_run_and_next_times_are_shown(alice: Any) -> None:
    home = alice.monitors.put("home", check=OUTGOING, every="1h")
    run = alice.monitors.run("home").run
    assert run.startswith(f"alice/home#{home.schedule.generation}@")
    assert alice.monitors.run("home").run == run
    assert [one.run for one in alice.monitors.runs("home")] == [run]
    times = alice.monitors.next("home", count=3).items
    assert (len(times), times[2] - times[1]) == (3, timedelta(hours=1))
    alice.monitors.pause("home")
    assert (alice.monitors.next("home").items, alice.monitors.next("home").reason) == ([], "paused")


def test_monitors_are_listed_by_filters_and_in_order(alice: Any, admin: Any) -> None:
    alice.monitors.put("own", check=OUTGOING, every="1h", tags=["mine"])
    alice.monitors.put("web", check=WEB, every="60s", tags=["web"], paused=True)
    assert [one.id for one in alice.monitors.list(tag="web")] == ["web"]
    assert [one.id for one in alice.monitors.list(kind="outgoing", q="OW")] == ["own"]
    assert [one.id for one in alice.monitors.list(health="paused")] == ["web"]
    assert [one.id for one in alice.monitors.list(sort="next_due")] == ["own", "web"]
    assert [(one.user, one.id) for one in admin.monitors.list_all(q="we")] == [("alice", "web")]
    assert [one.id for one in admin.monitors.list_all(user="alice", limit=1)] == ["own"]


def test_bulk_put_of_an_empty_list_returns_an_empty_list(alice: Any) -> None:
    assert alice.monitors.put_many([]) == []


def test_list_with_a_limit_asks_for_no_more_than_that(alice: Any) -> None:
    alice.monitors.put_many([{"id": f"m{number}", "check": OUTGOING, "every": "1h"} for number in range(5)])
    found = alice.monitors.list(limit=3)
    assert [one.id for one in found] == ["m0", "m1", "m2"]
    assert [one.id for one in found] == ["m0", "m1", "m2"], "a second loop requests the pages again"
    assert list(alice.monitors.list(limit=0)) == []


@pytest.mark.parametrize("name", [".", "..", "/", "a/b", "%2e%2e", "..%2f..", "?x", "#x", "", " "])
def test_id_with_path_characters_reaches_no_other_resource(alice: Any, admin: Any, name: str) -> None:
    admin.batches.put("nightly")
    alice.monitors.put("home", check=OUTGOING, every="1h")
    asks: list[Callable[[], object]] = [
        lambda: admin.records.remove("nightly", name),
        lambda: admin.records.get("nightly", name),
        lambda: alice.monitors.remove(name),
        lambda: alice.tokens.revoke(name),
        lambda: alice.monitors.get(name),
    ]
    for ask in asks:
        with pytest.raises(NotFound):
            ask()
    assert (admin.batches.get("nightly").deleting, alice.monitors.get("home").id) == (None, "home")


def test_wrong_input_names_each_field(alice: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        alice.monitors.put("home", check={"kind": "http", "url": "nowhere"}, every="60s")
    assert (caught.value.status, caught.value.code) == (422, "invalid_input")
    assert [error.pointer for error in caught.value.errors] == ["/check/url"]
    assert "422 invalid_input" in str(caught.value)


def test_guarded_put_fails_when_the_monitor_has_changed(alice: Any) -> None:
    seen = alice.monitors.put("home", check=OUTGOING, every="60s")
    assert seen.etag
    assert alice.monitors.get_if_changed("home", if_none_match=seen.etag) is None
    alice.monitors.put("home", check=OUTGOING, every="90s")
    assert alice.monitors.get_if_changed("home", if_none_match=seen.etag).every == timedelta(seconds=90)
    with pytest.raises(PreconditionFailed):
        alice.monitors.put("home", check=OUTGOING, every="30s", if_match=seen.etag)
    with pytest.raises(PreconditionFailed):
        alice.monitors.put("home", check=OUTGOING, every="30s", if_none_match="*")


def test_edit_keeps_other_fields_and_retries_after_concurrent_changes(alice: Any) -> None:
    alice.monitors.put("home", check=WEB, every="60s", tags=["a"])
    rivals = iter(["b", "c"])

    def change(home: Any) -> Any:
        if (rival := next(rivals, None)) is not None:
            with Client(alice.connection.url, alice.connection.token) as other:
                other.monitors.patch("home", tags=[*home.tags, rival])
        return {"tags": [*home.tags, "mine"]}

    edited = alice.monitors.edit("home", change)
    assert edited.tags == ["a", "b", "c", "mine"]
    assert (edited.every, edited.check["headers"]) == (timedelta(seconds=60), {"x-key": "***"})
    assert alice.monitors.edit("home", lambda _: {"cron": "0 6 * * *"}).every is None
    assert alice.monitors.edit("home", lambda _: {"every": "30s"}).cron is None


def test_runs_of_an_outgoing_monitor_are_claimed_extended_and_reported(world: World, alice: Any) -> None:
    alice.monitors.put("one", check=OUTGOING, every="1h")
    alice.monitors.put("two", check=OUTGOING, every="1h")
    fire(world, 2)
    first, second = alice.outgoing.claim(max=10, lease="60s", wait="1s")
    assert first.check == OUTGOING
    until = alice.runs.extend(first.run, lease=first.lease, by=timedelta(minutes=5)).lease_until
    assert until > first.lease_until
    run = alice.runs.report(first.run, lease=first.lease, status="ok", detail={"found": 3})
    assert (run.state, run.detail["found"]) == ("ok", 3)
    with pytest.raises(StaleLease) as caught:
        alice.runs.report(first.run, lease=first.lease, status="ok")
    assert isinstance(caught.value, Conflict)
    (result,) = alice.outgoing.report([{"run": second.run, "lease": second.lease, "status": "failed"}])
    assert (result.disposition, result.state) == ("settled", "failed")
    assert alice.runs.get(second.run).state == "failed"
    assert [one.run for one in alice.monitors.runs("one", limit=10)] == [first.run]
    assert alice.outgoing.claim() == []


def test_single_run_is_claimed_by_its_id(world: World, alice: Any) -> None:
    alice.monitors.put("a+b", check=OUTGOING, every="1h")
    fire(world, 1)
    (run,) = alice.monitors.runs("a+b")
    claimed = alice.runs.claim(run.run, attempt=1, lease="30s")
    assert (claimed.run, claimed.monitor) == (run.run, "a+b")
    with pytest.raises(Conflict) as caught:
        alice.runs.claim(run.run)
    assert caught.value.code == "not_claimable"


def test_users_and_tokens_are_made_read_changed_and_removed(admin: Any, connect: Connect) -> None:
    made = admin.users.add("bob", daily_credits=500)
    bob = connect(admin.connection.url, made.token)
    assert bob.users.get().id == "bob"
    assert (bob.users.budget().limit, len(bob.users.webhook_secret()) > 10) == (500, True)
    token = bob.tokens.add(label="laptop")
    assert {one.label for one in bob.tokens.list()} >= {"laptop"}
    bob.tokens.revoke(token.id)
    with pytest.raises(Unauthenticated):
        connect(admin.connection.url, token.token).users.get()
    ends = datetime.now(timezone(timedelta(hours=2))).replace(microsecond=0) + timedelta(days=1)
    reader = bob.tokens.add(label="board", scope="read", expires=ends)
    assert (reader.scope, reader.expires) == ("read", ends)
    with pytest.raises(Forbidden) as caught:
        connect(admin.connection.url, reader.token).monitors.put("home", check=WEB, every="60s")
    assert caught.value.code == "out_of_scope"
    with pytest.raises(Forbidden):
        bob.users.list().to_list()
    assert admin.users.patch("bob", disabled=True).disabled
    assert {one.id for one in admin.users.list()} == {"root", "bob"}
    with pytest.raises(AlreadyExists):
        admin.users.add("bob")
    admin.users.remove("bob")
    assert [one.id for one in admin.users.list()] == ["root"]


def test_provider_batch_and_records_are_put_planned_and_reported(admin: Any) -> None:
    shop = admin.providers.put("shop", base_url="https://api.example.org/v2", rate="5/1s", timeout="20s")
    assert (shop.timeout, shop.retry.base, shop.standing.state) == (timedelta(seconds=20), timedelta(seconds=1), "open")
    assert admin.providers.edit("shop", lambda seen: {"max_in_flight": seen.max_in_flight + 1}).rate == "5/1s"
    assert admin.providers.edit("shop", lambda _: {"rate": None}).max_in_flight == 2
    assert admin.providers.pause("shop").paused
    batch = admin.batches.put("nightly", window=timedelta(hours=6))
    assert (batch.window, batch.start) == (timedelta(hours=6), "00:00")
    assert admin.batches.edit("nightly", lambda _: {"start": "01:30"}).window == timedelta(hours=6)
    put = admin.records.put("nightly", [{"id": "r1", "provider": "shop"}, {"id": "r2", "provider": "nobody"}])
    assert [one.disposition for one in put.items] == ["created", "refused"]
    assert admin.records.get("nightly", "r1").active
    assert admin.days.preview("nightly", TOMORROW).records == 1
    assert admin.days.plan("nightly", TOMORROW).enqueued == 1
    assert admin.days.plan("nightly", TOMORROW.isoformat()).already == 1
    day = admin.days.get("nightly", TOMORROW)
    assert (day.date, day.runs, day.totals["waiting"]) == (TOMORROW, 1, 1)
    assert [one.date for one in admin.days.list("nightly")] == [TOMORROW]
    (run,) = admin.days.runs("nightly", TOMORROW, state="waiting", provider="shop")
    assert (run.record, isinstance(run.date, date)) == ("r1", True)
    assert admin.runs.get_of_batch(run.run).state == "waiting"
    assert list(admin.days.export("nightly", TOMORROW)) == [run]
    assert [line.split(",")[0] for line in admin.days.export_csv("nightly", TOMORROW)] == ["run", run.run]
    assert admin.dead.list(batch="nightly", date=TOMORROW).to_list() == []
    assert admin.dead.redrive(batch="nightly", date=TOMORROW).redriven == 0
    assert admin.dead.discard(provider="shop").discarded == 0
    admin.records.remove("nightly", "r1")
    assert admin.records.list("nightly").to_list() == []
    assert [one.id for one in admin.batches.list()] == ["nightly"]
    assert admin.batches.pause("nightly").paused
    assert not admin.batches.resume("nightly").paused
    assert not admin.providers.resume("shop").paused
    with pytest.raises(Conflict):
        admin.providers.remove("shop")


def test_accounts_and_keys_are_put_edited_and_removed(admin: Any) -> None:
    lab = admin.accounts.put("lab", concurrent=10)
    assert (lab.concurrent, lab.state) == (10, "no_key")
    assert admin.accounts.edit("lab", lambda seen: {"concurrent": seen.concurrent * 2}).concurrent == 20
    key = admin.keys.add("lab", "a-secret-key-1234", label="mine", check=False)
    assert (key.last_four, key.unverified) == ("1234", None)
    assert not admin.keys.disable("lab", key.id).enabled
    assert admin.keys.enable("lab", key.id).enabled
    assert admin.keys.get("lab", key.id).label == "mine"
    assert [one.id for one in admin.accounts.list()] == ["lab"]
    admin.keys.remove("lab", key.id)
    assert admin.accounts.get("lab").keys == []
    assert admin.accounts.get_if_changed("lab", if_none_match=admin.accounts.get("lab").etag) is None


def test_service_reports_health_readiness_metrics_status_and_schedulers(admin: Any) -> None:
    admin.monitors.put("home", check=OUTGOING, every="1h")
    assert admin.alive().status == "ok"
    assert admin.ready().loops[0].turning
    assert "paceline_runs_total" in admin.metrics()
    assert (admin.status().monitors, admin.status().users) == (1, 1)
    (entry,) = admin.schedulers.list()
    assert (entry.owner, entry.key) == ("root", "root/home")


def test_problem_of_an_unknown_code_is_still_a_problem(alice: Any) -> None:
    with pytest.raises(Problem) as caught:
        alice.users.patch("alice", disabled=True)
    assert caught.value.status in (403, 404)

"""Claims of one run by its id, as made by a checker that received a message about it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from paceline.steps.monitors.define import get_monitor
from tests.contract.support.stage import make_runs
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, run_path
from tests.shells.api.test_outgoing import MONITORS, put_and_fire


def made(world: World, client: Client, name: str = "own") -> str:
    """Makes a waiting run and returns its id."""
    put_and_fire(world, client, name)
    (run,) = client("GET", f"{MONITORS}/{name}/runs").json["items"]
    return str(run["run"])


def claim_path(run: str) -> str:
    return f"{run_path(run)}/claim"


def test_a_run_is_claimed_by_its_id_and_settled_with_the_lease(world: World, alice: Client) -> None:
    run = made(world, alice)
    reply = alice("POST", claim_path(run), {"attempt": 1, "lease": "90s"})
    assert reply.status == 200
    item = reply.json
    assert set(item) == {"run", "lease", "check", "due", "attempt", "monitor", "user", "lease_until"}
    assert (item["run"], item["attempt"], item["monitor"], item["user"]) == (run, 1, "own", "alice")
    shown = alice("GET", run_path(run)).json
    assert (shown["state"], shown["until"]) == ("out", item["lease_until"])
    assert alice("POST", "/v1/outgoing/claim").json == {"items": []}
    settled = alice("POST", f"{run_path(run)}/outcome", {"lease": item["lease"], "status": "ok"})
    assert settled.json["state"] == "ok"


def test_run_is_claimed_without_a_body(world: World, alice: Client) -> None:
    run = made(world, alice)
    assert alice("POST", claim_path(run)).json["attempt"] == 1


def test_claim_of_a_leased_or_settled_run_says_why_and_what_to_do(world: World, alice: Client) -> None:
    run = made(world, alice)
    lease = alice("POST", claim_path(run), {"attempt": 1}).json["lease"]
    for body in ({"attempt": 1}, {}):
        out = alice("POST", claim_path(run), body)
        assert (out.status, out.code) == (409, "not_claimable")
        assert "it is out until " in out.json["detail"]
        assert "Delete the message" in out.json["detail"]
    alice("POST", f"{run_path(run)}/outcome", {"lease": lease, "status": "failed"})
    ended = alice("POST", claim_path(run), {"attempt": 1})
    assert (ended.status, ended.code) == (409, "not_claimable")
    assert "it has ended as 'failed'" in ended.json["detail"]
    assert alice("GET", run_path(run)).json["attempt"] == 1


def test_after_a_retry_only_the_next_attempt_can_be_claimed(world: World, alice: Client) -> None:
    run = made(world, alice)
    lease = alice("POST", claim_path(run), {"attempt": 1}).json["lease"]
    assert alice("POST", f"{run_path(run)}/outcome", {"lease": lease, "status": "retry"}).json["state"] == "retry"
    stale = alice("POST", claim_path(run), {"attempt": 1})
    assert (stale.status, stale.code) == (409, "not_claimable")
    assert "its next attempt is 2, not 1" in stale.json["detail"]
    while (reply := alice("POST", claim_path(run), {"attempt": 2})).status == 409:
        assert "it may not start before " in reply.json["detail"]
    assert (reply.status, reply.json["attempt"]) == (200, 2)


def test_run_behind_another_and_check_of_paceline_itself_cannot_be_claimed(world: World, alice: Client) -> None:
    assert alice("PUT", f"{MONITORS}/own", OUTGOING).status == 201
    store, now_ms = world.system.store, world.system.clock.now_ms()
    make_runs(store, get_monitor(store, "alice", "own"), 2, now_ms=now_ms)
    behind, first = (run["run"] for run in alice("GET", f"{MONITORS}/own/runs").json["items"])
    parked = alice("POST", claim_path(behind))
    assert (parked.status, parked.code) == (409, "not_claimable")
    assert "behind an earlier one" in parked.json["detail"]
    assert alice("PUT", f"{MONITORS}/web", HTTP).status == 201
    while not (runs := alice("GET", f"{MONITORS}/web/runs").json["items"]):
        world.fire()
    own = alice("POST", claim_path(runs[0]["run"]))
    assert (own.status, own.code) == (409, "not_claimable")
    assert "Paceline makes this check itself" in own.json["detail"]
    assert alice("POST", claim_path(first)).status == 200


def test_promise_12_run_of_another_user_is_not_found_and_an_admin_may_claim_it(
    world: World, alice: Client, bob: Client, admin: Client
) -> None:
    run = made(world, alice)
    stolen = bob("POST", claim_path(run))
    assert (stolen.status, stolen.code) == (404, "not_found")
    assert alice("GET", run_path(run)).json["state"] == "waiting"
    assert admin("POST", claim_path(run)).json["user"] == "alice"


def test_run_of_a_removed_monitor_is_gone_and_run_of_a_disabled_owner_is_held(
    world: World, alice: Client, admin: Client
) -> None:
    gone, held = made(world, alice, "gone"), made(world, alice, "held")
    assert alice("DELETE", f"{MONITORS}/gone").status == 204
    assert alice("POST", claim_path(gone)).code == "not_found"
    assert admin("PATCH", "/v1/users/alice", {"disabled": True}).status == 200
    reply = admin("POST", claim_path(held))
    assert (reply.status, reply.code) == (409, "not_claimable")
    assert "its owner is disabled" in reply.json["detail"]
    assert admin("PATCH", "/v1/users/alice", {"disabled": False}).status == 200
    assert alice("POST", claim_path(held)).status == 200


@pytest.mark.parametrize("run", ["x", "alice/own#1", "alice/own#1@x", "alice/nothing#1@0", "batch/record@2026-11-15"])
def test_text_that_is_no_run_id_is_not_found(alice: Client, admin: Client, run: str) -> None:
    for client in (alice, admin):
        assert client("POST", claim_path(run)).code == "not_found"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"attempt": 0}, "/attempt"),
        ({"attempt": "1"}, "/attempt"),
        ({"attempt": 10**10}, "/attempt"),
        ({"lease": "500ms"}, "/lease"),
        ({"lease": "13h"}, "/lease"),
        ({"max": 3}, "/max"),
    ],
)
def test_wrong_field_of_a_claim_is_named(alice: Client, body: dict[str, Any], pointer: str) -> None:
    reply = alice("POST", claim_path("alice/own#1@0"), body)
    assert (reply.status, reply.code) == (422, "invalid_input")
    assert [error["pointer"] for error in reply.json["errors"]] == [pointer]


def test_promise_5_one_of_ten_claims_of_the_same_run_gets_the_lease(world: World, alice: Client) -> None:
    run = made(world, alice)
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(alice("POST", claim_path(run), {"attempt": 1}).status))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [409] * 9


def test_a_run_that_has_used_up_its_attempts_ends_instead_of_going_out(world: World, alice: Client) -> None:
    run = made(world, alice)
    store, now_ms = world.system.store, world.system.clock.now_ms()
    (record,) = store.monitor_runs(get_monitor(store, "alice", "own"), before=None, limit=9, now_ms=now_ms)
    for attempt in range(1, world.system.retry_policy.attempts_max + 1):
        assert alice("POST", claim_path(run), {"attempt": attempt}).status == 200
        assert store.release([(record.handle, attempt)], now_ms=now_ms) == [True]
    reply = alice("POST", claim_path(run))
    assert (reply.status, reply.code) == (409, "not_claimable")
    assert "it has ended as 'dead'" in reply.json["detail"]

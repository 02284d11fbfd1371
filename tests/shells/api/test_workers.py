"""Workers of batches over REST: claim in order, report, extend, fences, and who may."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from paceline.core.batches.batch import RecordSpec
from tests.contract.support.call_stage import DATE, every, make_batch, plan, provide
from tests.contract.support.stage import HOUR_MS
from tests.shells.api.conftest import OUTGOING, Client, Reply, World, run_path

CLAIM = "/v1/outgoing/claim"
OUTCOMES = "/v1/outgoing/outcomes"
SHOP = {"kind": "outgoing", "retry": {"max_attempts": 2, "base": "1ms", "cap": "1ms"}}


def fill_shop(world: World, admin: Client, count: int, **policy: Any) -> list[str]:
    """A provider "shop" for workers, and so many runs that are due just now. Returns their ids in order."""
    assert admin("PUT", "/v1/providers/shop", SHOP | policy).status in (200, 201)
    store, now_ms = world.system.store, world.system.clock.now_ms()
    batch = make_batch(store)
    plan(store, batch, every(1, count, first_ms=now_ms - count), provider="shop", end_ms=now_ms + HOUR_MS)
    records = [RecordSpec(f"r{n}", "shop", f"/orders/{n}", f'{{"n": {n}}}') for n in range(count)]
    store.put_records(batch, records, now_ms=now_ms)
    return [f"daily/r{n}@{DATE}" for n in range(count)]


def take(client: Client, **body: Any) -> list[dict[str, Any]]:
    reply = client("POST", CLAIM, {"provider": "shop", **body})
    assert reply.status == 200, reply.body
    items: list[dict[str, Any]] = reply.json["items"]
    return items


def report(client: Client, item: dict[str, Any], status: str = "ok", **more: Any) -> Reply:
    return client("POST", f"{run_path(item['run'])}/outcome", {"lease": item["lease"], "status": status, **more})


def test_a_worker_gets_the_record_and_its_report_settles_the_run_once(world: World, admin: Client) -> None:
    (run,) = fill_shop(world, admin, 1)
    (item,) = take(admin, max=10, lease="60s")
    assert {"run", "lease", "record", "due", "attempt"} <= set(item)
    assert item["record"] == {"id": "r0", "provider": "shop", "endpoint": "/orders/0", "body": {"n": 0}}
    assert (item["run"], item["attempt"], item["batch"], item["date"]) == (run, 1, "daily", DATE)
    assert admin("GET", run_path(run)).json["until"] == item["lease_until"]
    settled = report(admin, item, detail={"latency_ms": 3, "reason": "as ordered", "id": 7})
    assert settled.status == 200
    assert settled.json == admin("GET", run_path(run)).json
    assert (settled.json["state"], settled.json["latency_ms"], settled.json["reason"]) == ("done", 3.0, "as ordered")
    assert settled.json["payload"] == '{"latency_ms":3,"reason":"as ordered","id":7}'
    again = report(admin, item, "failed")
    assert (again.status, again.code) == (409, "stale_lease")
    assert b'paceline_runs_total{kind="batch",outcome="done"} 1.0' in admin("GET", "/metrics").body


def test_runs_come_in_order_and_no_more_than_max_in_flight_are_out(world: World, admin: Client) -> None:
    runs = fill_shop(world, admin, 5, max_in_flight=2)
    first = take(admin)
    assert [item["run"] for item in first] == runs[:2]
    assert take(admin) == []
    assert admin("GET", run_path(runs[2])).json["reason"] == "waits for its turn at its provider"
    report(admin, first[0])
    assert admin("GET", run_path(runs[2])).json["reason"] == "waits for your worker"
    assert [item["run"] for item in take(admin, wait="5s")] == runs[2:3]


def test_a_retry_comes_again_after_its_pause_and_ends_as_a_dead_letter(world: World, admin: Client) -> None:
    (run,) = fill_shop(world, admin, 1)
    (item,) = take(admin)
    began_s = time.monotonic()
    retried = report(admin, item, "retry", after="700ms", detail={"reason": "sold out"})
    assert (retried.json["state"], retried.json["reason"]) == ("retry", "sold out")
    assert take(admin) == []
    (again,) = take(admin, wait="10s")
    assert time.monotonic() - began_s >= 0.7
    assert (again["run"], again["attempt"]) == (run, 2)
    assert report(admin, item).code == "stale_lease"
    ended = report(admin, again, "retry", detail={"reason": "sold out"}).json
    assert (ended["state"], ended["dead"], ended["reason"]) == ("failed", True, "sold out; given up after 2 attempts")
    assert admin("POST", "/v1/dead/redrive", {"provider": "shop"}).json == {"redriven": 1}
    (redriven,) = take(admin, wait="5s")
    assert (redriven["run"], redriven["attempt"]) == (run, 1)


def test_a_worker_that_wakes_after_its_lease_is_fenced(world: World, admin: Client) -> None:
    fill_shop(world, admin, 1)
    (frozen,) = take(admin, lease="1s")
    (awake,) = take(admin, wait="10s")
    assert (awake["run"], awake["attempt"]) == (frozen["run"], 2)
    assert report(admin, frozen).code == "stale_lease"
    late = admin("POST", f"{run_path(frozen['run'])}/extend", {"lease": frozen["lease"], "by": "60s"})
    assert (late.status, late.code) == (409, "stale_lease")
    longer = admin("POST", f"{run_path(awake['run'])}/extend", {"lease": awake["lease"], "by": "2h"})
    assert longer.json["lease_until"] > awake["lease_until"]
    assert report(admin, awake, "failed").json["state"] == "failed"


def test_a_long_poll_is_answered_when_a_report_frees_the_place(world: World, admin: Client) -> None:
    runs = fill_shop(world, admin, 2)
    (first,) = take(admin)
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(take(admin, wait="15s")))
    waiting.start()
    time.sleep(0.3)
    began_s = time.monotonic()
    report(admin, first)
    waiting.join(timeout=20)
    assert [item["run"] for item in found] == runs[1:]
    assert time.monotonic() - began_s < 10


def test_reports_of_monitors_and_batches_are_settled_in_one_list(world: World, admin: Client) -> None:
    runs = fill_shop(world, admin, 3, max_in_flight=3)
    assert admin("PUT", "/v1/users/me/monitors/own", OUTGOING).status == 201
    while not world.fire():
        pass
    done, failed, retried = take(admin)
    (check,) = admin("POST", CLAIM, {}).json["items"]
    items = [
        {"run": done["run"], "lease": done["lease"], "status": "ok"},
        {"run": check["run"], "lease": check["lease"], "status": "failed"},
        {"run": failed["run"], "lease": failed["lease"], "status": "failed"},
        {"run": retried["run"], "lease": retried["lease"], "status": "retry", "after": "1h"},
        {"run": done["run"], "lease": done["lease"], "status": "failed"},
        {"run": runs[0], "lease": failed["lease"], "status": "ok"},
        {"run": runs[0], "lease": "nonsense", "status": "ok", "after": "1s"},
    ]
    answer = admin("POST", OUTCOMES, {"items": items}).json["items"]
    told = [(one["disposition"], one.get("state"), one.get("error", {}).get("code")) for one in answer]
    assert told == [
        ("settled", "done", None),
        ("settled", "failed", None),
        ("settled", "failed", None),
        ("retried", None, None),
        ("stale", None, "stale_lease"),
        ("refused", None, "not_found"),
        ("refused", None, "invalid_input"),
    ]


def test_claim_of_a_provider_that_paceline_calls_itself_is_refused(world: World, admin: Client) -> None:
    provide(world.system.store, "ours")
    plan(world.system.store, make_batch(world.system.store), every(1, 1), provider="ours")
    refused = admin("POST", CLAIM, {"provider": "ours"})
    assert (refused.status, refused.code) == (409, "not_claimable")
    assert "kind 'http'" in refused.json["detail"]
    assert admin("POST", CLAIM, {"provider": "nobody"}).code == "not_found"
    by_name = admin("POST", f"{run_path(f'daily/r0@{DATE}')}/claim", {})
    assert (by_name.status, by_name.code) == (409, "not_claimable")


def test_a_run_is_claimed_by_its_id_in_its_turn_only(world: World, admin: Client) -> None:
    first, second = fill_shop(world, admin, 2)
    early = admin("POST", f"{run_path(second)}/claim", {"lease": "60s"})
    assert (early.status, early.code) == (409, "not_claimable")
    wrong = admin("POST", f"{run_path(first)}/claim", {"attempt": 2})
    assert wrong.code == "not_claimable"
    item = admin("POST", f"{run_path(first)}/claim", {"attempt": 1})
    assert (item.status, item.json["run"], item.json["record"]["id"]) == (200, first, "r0")
    twice = admin("POST", f"{run_path(first)}/claim", {})
    assert (twice.status, twice.code) == (409, "not_claimable")
    assert report(admin, item.json).status == 200
    assert admin("POST", f"{run_path(f'daily/r9@{DATE}')}/claim", {}).code == "not_found"


@pytest.mark.parametrize("path", ["outcome", "extend", "claim"])
def test_run_of_a_batch_is_not_found_for_plain_users(world: World, admin: Client, alice: Client, path: str) -> None:
    fill_shop(world, admin, 1)
    (item,) = take(admin)
    body = {"outcome": {"status": "ok"}, "extend": {"by": "60s"}, "claim": {}}[path]
    lease = {} if path == "claim" else {"lease": item["lease"]}
    refused = alice("POST", f"{run_path(item['run'])}/{path}", body | lease)
    assert (refused.status, refused.code) == (404, "not_found")
    assert report(admin, item).status == 200


def test_only_an_admin_claims_from_a_provider(world: World, admin: Client, alice: Client) -> None:
    fill_shop(world, admin, 1)
    refused = alice("POST", CLAIM, {"provider": "shop"})
    assert (refused.status, refused.code) == (403, "forbidden")
    wrong = admin("POST", CLAIM, {"provider": "shop", "user": "alice"})
    assert (wrong.status, wrong.pointers) == (422, ["/user"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("base_url", "http://example.org"), ("headers", {"X-Key": "1"}), ("method", "PUT"), ("look_up", "/c/{run}")],
)
def test_outgoing_provider_refuses_fields_that_only_calls_need(admin: Client, field: str, value: Any) -> None:
    refused = admin("PUT", "/v1/providers/shop", {"kind": "outgoing", field: value})
    assert (refused.status, refused.pointers) == (422, [f"/{field}"])


def test_an_http_provider_needs_its_base_url(admin: Client) -> None:
    for body in ({}, {"kind": "http"}):
        refused = admin("PUT", "/v1/providers/shop", body)
        assert (refused.status, refused.pointers) == (422, ["/base_url"])


def test_promise_12_user_settles_no_run_of_a_batch_alone_or_in_bulk(world: World, admin: Client, alice: Client) -> None:
    fill_shop(world, admin, 1)
    (item,) = take(admin)
    alone = report(alice, item, "failed")
    assert (alone.status, alone.code) == (404, "not_found")
    outcome = {"run": item["run"], "lease": item["lease"], "status": "failed"}
    (told,) = alice("POST", OUTCOMES, {"items": [outcome]}).json["items"]
    assert (told["disposition"], told["error"]["code"]) == ("refused", "not_found")
    (unknown,) = alice("POST", OUTCOMES, {"items": [outcome | {"lease": "1.1"}]}).json["items"]
    assert unknown == told, "the answer does not tell whether the lease is right"
    assert admin("GET", run_path(item["run"])).json["state"] == "out"
    assert report(admin, item).status == 200

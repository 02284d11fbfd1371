"""Monitors over REST: put, read, edit, pause, remove, with revisions that guard."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, run_path, serving

PATH = "/v1/users/me/monitors"


def test_put_monitor_creates_then_replaces_and_returns_the_whole_view(alice: Client) -> None:
    created = alice("PUT", f"{PATH}/web", HTTP)
    assert created.status == 201
    assert created.headers["location"] == "/v1/users/alice/monitors/web"
    body = created.json
    assert body["check"] == HTTP["check"]
    assert body["every"] == "60s"
    assert set(body["schedule"]) == {"key", "generation", "counter", "next_due"}
    assert body["schedule"]["key"] == "alice/web"
    assert body["schedule"]["next_due"].endswith("Z")
    assert (body["revision"], body["health"]) == (1, "new")
    assert created.headers["etag"] == f'"{body["schedule"]["generation"]}-1"'

    replaced = alice("PUT", f"{PATH}/web", {**HTTP, "every": "30s"})
    assert (replaced.status, replaced.json["revision"]) == (200, 2)
    unchanged = alice("PUT", f"{PATH}/web", {**HTTP, "every": "30s"})
    assert (unchanged.status, unchanged.json["revision"]) == (200, 2)
    assert alice("GET", f"{PATH}/web").json == unchanged.json


def test_every_kind_of_check_can_be_put(guest: Client) -> None:
    checks: list[dict[str, Any]] = [
        {"kind": "http", "url": "https://example.org/", "expect": {"status": [200], "body_contains": "ok"}},
        {"kind": "tcp", "host": "example.org", "port": 25},
        {"kind": "dns", "name": "example.org", "type": "MX"},
        {"kind": "tls", "host": "example.org", "min_days": 7},
        {"kind": "outgoing", "anything": {"goes": [1, None, "x"]}},
    ]
    for check in checks:
        reply = guest(
            "PUT", f"{PATH}/{check['kind']}", {"check": check, "cron": "*/5 * * * *", "timezone": "Asia/Tokyo"}
        )
        assert reply.status == 201, reply.body
        assert reply.json["check"] == check
        assert reply.json["timezone"] == "Asia/Tokyo"


def test_an_edit_wakes_the_loops_and_a_put_that_changes_nothing_does_not(world: World, alice: Client) -> None:
    alice("PUT", f"{PATH}/web", HTTP)
    woken = len(world.wakes)
    assert woken >= 1
    alice("PUT", f"{PATH}/web", HTTP)
    assert len(world.wakes) == woken
    alice("DELETE", f"{PATH}/web")
    assert len(world.wakes) == woken + 1


def test_patch_merges_fields_and_null_removes_them(alice: Client) -> None:
    alice("PUT", f"{PATH}/web", {**HTTP, "tags": ["a"], "jitter": "5s"})
    patched = alice("PATCH", f"{PATH}/web", {"check": {"timeout": "3s"}, "tags": ["b"], "jitter": None})
    assert patched.status == 200
    assert patched.json["check"] == {**HTTP["check"], "timeout": "3s"}
    assert (patched.json["tags"], patched.json["jitter"], patched.json["revision"]) == (["b"], "0s", 2)
    cron = alice("PATCH", f"{PATH}/web", {"cron": "0 4 * * *"}).json
    assert (cron["cron"], "every" in cron) == ("0 4 * * *", False)
    refused = alice("PATCH", f"{PATH}/web", {"owner": "bob"})
    assert (refused.status, refused.code, refused.pointers) == (422, "invalid_input", ["/owner"])
    assert alice("PATCH", f"{PATH}/none", {"paused": True}).status == 404


def test_pause_and_resume_are_edits(alice: Client) -> None:
    alice("PUT", f"{PATH}/web", HTTP)
    paused = alice("POST", f"{PATH}/web/pause")
    assert paused.status == 200
    assert (paused.json["paused"], paused.json["health"], paused.json["schedule"]["next_due"]) == (True, "paused", None)
    assert alice("POST", f"{PATH}/web/pause").headers["etag"] == paused.headers["etag"]
    resumed = alice("POST", f"{PATH}/web/resume").json
    assert (resumed["paused"], resumed["revision"]) == (False, 3)
    assert resumed["schedule"]["next_due"] is not None
    assert alice("POST", f"{PATH}/none/pause").status == 404


def test_a_removed_monitor_is_gone_and_comes_back_as_another_generation(alice: Client) -> None:
    first = alice("PUT", f"{PATH}/web", HTTP).json["schedule"]["generation"]
    removed = alice("DELETE", f"{PATH}/web")
    assert (removed.status, removed.body) == (204, b"")
    assert alice("GET", f"{PATH}/web").status == 404
    assert alice("DELETE", f"{PATH}/web").code == "not_found"
    again = alice("PUT", f"{PATH}/web", HTTP)
    assert again.status == 201
    assert again.json["schedule"]["generation"] > first


def test_concurrent_puts_share_commits_and_each_is_answered(world: World, alice: Client) -> None:
    statuses: list[int] = []

    def put(number: int) -> None:
        body = HTTP if number % 4 else {**HTTP, "every": "0s"}
        statuses.append(alice("PUT", f"{PATH}/m{number}", body).status)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(64)]
    store = world.system.store
    assert isinstance(store, SqliteStore)
    with store._db.write():  # nothing can be committed meanwhile, so the writes pile up
        for thread in threads:
            thread.start()
        while len(statuses) < 16:
            time.sleep(0.01)
        time.sleep(0.3)
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201] * 48 + [422] * 16
    assert len(alice("GET", PATH).json["items"]) == 48
    assert 1 <= len(world.wakes) <= 8


# -- guards


def test_if_match_guards_put_patch_delete_and_pause(guest: Client) -> None:
    old = guest("PUT", f"{PATH}/web", HTTP).headers["etag"]
    new = guest("PUT", f"{PATH}/web", {**HTTP, "every": "30s"}, headers={"If-Match": old}).headers["etag"]
    assert new != old
    for method, path, body in (
        ("PUT", f"{PATH}/web", HTTP),
        ("PATCH", f"{PATH}/web", {"paused": True}),
        ("DELETE", f"{PATH}/web", None),
        ("POST", f"{PATH}/web/pause", None),
    ):
        for stale in (old, f"W/{new}", '"x"', "garbage", new.strip('"')):
            reply = guest(method, path, body, headers={"If-Match": stale})
            assert (reply.status, reply.code) == (412, "revision_mismatch"), (method, stale)
    assert guest("GET", f"{PATH}/web").headers["etag"] == new
    assert guest("PATCH", f"{PATH}/web", {"paused": True}, headers={"If-Match": f'"x", {new}'}).status == 200
    assert guest("DELETE", f"{PATH}/web", headers={"If-Match": "*"}).status == 204


def test_if_match_of_an_earlier_generation_does_not_touch_the_re_created_monitor(alice: Client) -> None:
    old = alice("PUT", f"{PATH}/web", HTTP).headers["etag"]
    alice("DELETE", f"{PATH}/web")
    new = alice("PUT", f"{PATH}/web", {**HTTP, "every": "30s"}).headers["etag"]
    assert old.split("-")[1] == new.split("-")[1]
    assert alice("PUT", f"{PATH}/web", HTTP, headers={"If-Match": old}).status == 412
    assert alice("PATCH", f"{PATH}/web", {"paused": True}, headers={"If-Match": old}).status == 412
    assert alice("DELETE", f"{PATH}/web", headers={"If-Match": old}).status == 412
    assert alice("GET", f"{PATH}/web").json["every"] == "30s"


def test_star_in_if_match_means_exists_and_in_if_none_match_means_new(guest: Client) -> None:
    assert guest("PUT", f"{PATH}/web", HTTP, headers={"If-Match": "*"}).code == "revision_mismatch"
    assert guest("PUT", f"{PATH}/web", HTTP, headers={"If-None-Match": "*"}).status == 201
    assert guest("PUT", f"{PATH}/web", HTTP, headers={"If-None-Match": "*"}).code == "revision_mismatch"
    assert guest("PUT", f"{PATH}/web", {**HTTP, "every": "30s"}, headers={"If-Match": "*"}).status == 200
    assert guest("DELETE", f"{PATH}/none", headers={"If-Match": "*"}).code == "not_found"


def test_a_get_with_the_known_etag_answers_304(guest: Client) -> None:
    etag = guest("PUT", f"{PATH}/web", HTTP).headers["etag"]
    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        reply = guest("GET", f"{PATH}/web", headers={"If-None-Match": known})
        assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", etag)
    assert guest("GET", f"{PATH}/web", headers={"If-None-Match": '"x"'}).status == 200


def test_one_of_many_concurrent_guarded_edits_wins(alice: Client) -> None:
    etag = alice("PUT", f"{PATH}/web", HTTP).headers["etag"]
    statuses: list[int] = []

    def edit(number: int) -> None:
        reply = alice("PUT", f"{PATH}/web", {**HTTP, "every": f"{100 + number}s"}, headers={"If-Match": etag})
        statuses.append(reply.status)

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [412] * 11


def test_edits_with_if_match_star_do_not_refuse_each_other(alice: Client) -> None:
    alice("PUT", f"{PATH}/web", HTTP)
    statuses: list[int] = []

    def edit(number: int) -> None:
        reply = alice("PUT", f"{PATH}/web", {**HTTP, "every": f"{100 + number}s"}, headers={"If-Match": "*"})
        statuses.append(reply.status)

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 6
    assert alice("GET", f"{PATH}/web").json["revision"] == 7


# -- lists


def test_lists_come_in_pages_in_order_of_id(guest: Client) -> None:
    names = [f"m{number:02d}" for number in range(7)]
    guest("PUT", PATH, {"items": [{"id": name, **HTTP} for name in reversed(names)]})
    seen: list[str] = []
    path = f"{PATH}?limit=3"
    for expected in (3, 3, 1):
        page = guest("GET", path).json
        assert len(page["items"]) == expected
        seen += [item["id"] for item in page["items"]]
        path = f"{PATH}?limit=3&cursor={page['next_cursor']}"
    assert page["next_cursor"] is None
    assert seen == names
    assert guest("GET", f"{PATH}?limit=7").json["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/query/limit"),
        ("limit=-1", "/query/limit"),
        ("limit=1001", "/query/limit"),
        ("limit=1000000000", "/query/limit"),
        ("limit=99999999999999999999", "/query/limit"),
        ("limit=1.5", "/query/limit"),
        ("limit=", "/query/limit"),
        ("limit=%D9%A3", "/query/limit"),
        ("limit=1&limit=2", "/query/limit"),
        ("cursor=garbage", "/query/cursor"),
        ("cursor=%00%ff", "/query/cursor"),
        ("cursor=" + "A" * 5_000, "/query/cursor"),
        ("page_size=10", "/query/page_size"),
        ("owner=bob", "/query/owner"),
    ],
)
def test_wrong_query_parameter_is_named(guest: Client, query: str, pointer: str) -> None:
    reply = guest("GET", f"{PATH}?{query}")
    assert (reply.status, reply.code, reply.pointers) == (422, "invalid_input", [pointer])


def test_a_cursor_belongs_to_one_list_alone(alice: Client, bob: Client, admin: Client) -> None:
    for client in (alice, bob):
        client("PUT", PATH, {"items": [{"id": f"m{number}", **HTTP} for number in range(3)]})
    cursor = alice("GET", f"{PATH}?limit=1").json["next_cursor"]
    assert alice("GET", f"{PATH}?cursor={cursor}").status == 200
    assert admin("GET", f"/v1/users/alice/monitors?cursor={cursor}").status == 200
    for client, path in ((bob, PATH), (alice, f"{PATH}/m0/runs"), (alice, "/v1/users/me/tokens"), (admin, "/v1/users")):
        assert client("GET", f"{path}?cursor={cursor}").code == "invalid_input"


def test_routes_without_parameters_refuse_them(guest: Client) -> None:
    assert guest("PUT", f"{PATH}/web?dry_run=true", HTTP).pointers == ["/query/dry_run"]
    assert guest("GET", f"{PATH}/web").status == 404


def test_runs_are_listed_newest_first_with_outcome_and_latency(world: World, alice: Client) -> None:
    alice("PUT", f"{PATH}/own", {**OUTGOING, "every": "1s"})
    for _ in range(3):
        while not world.fire():
            time.sleep(0.02)
        (item,) = alice("POST", "/v1/outgoing/claim", {"wait": "2s"}).json["items"]
        outcome = {"lease": item["lease"], "status": "failed", "detail": {"reason": "broken", "latency_ms": 12.5}}
        assert alice("POST", f"{run_path(item['run'])}/outcome", outcome).status == 200
    page = alice("GET", f"{PATH}/own/runs?limit=2").json
    first, second = page["items"]
    assert first["due"] > second["due"]
    assert (first["state"], first["outcome"], first["reason"], first["latency_ms"]) == (
        "failed",
        "failed",
        "broken",
        12.5,
    )
    (third,) = alice("GET", f"{PATH}/own/runs?limit=2&cursor={page['next_cursor']}").json["items"]
    assert third["run"].endswith("@0")
    assert alice("GET", run_path(third["run"])).json == third
    assert alice("GET", f"{PATH}/own").json["health"] == "failing"
    assert alice("GET", f"{PATH}/none/runs").status == 404


# -- limits


def test_monitors_beyond_the_limit_of_a_user_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.shells.api.conftest import serving

    with serving(tmp_path_factory.mktemp("limit"), monitors_max=2, every_min="10s") as world:
        alice = world.add("alice")
        assert [alice("PUT", f"{PATH}/m{number}", HTTP).status for number in range(3)] == [201, 201, 403]
        assert alice("PUT", f"{PATH}/m2", HTTP).code == "limit_reached"
        assert alice("PUT", f"{PATH}/m1", {**HTTP, "every": "9s"}).pointers == ["/every"]
        bulk = alice("PUT", PATH, {"items": [{"id": "m0", **HTTP}, {"id": "m3", **HTTP}]}).json["items"]
        assert [item["disposition"] for item in bulk] == ["unchanged", "refused"]
        assert bulk[1]["error"]["code"] == "limit_reached"


def test_monitors_beyond_the_firing_limit_of_a_user_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, firings_per_second_max=2) as world:
        alice = world.add("alice")
        fast = {**HTTP, "every": "1s"}
        assert alice("PUT", f"{PATH}/a", fast).status == 201
        assert alice("PUT", f"{PATH}/b", {**fast, "paused": True}).status == 201
        assert alice("PUT", f"{PATH}/c", {**HTTP, "every": "2s"}).status == 201
        refused = alice("POST", f"{PATH}/b/resume")
        assert (refused.status, refused.code) == (403, "limit_reached")
        assert "at most 2 times a second" in refused.json["detail"]
        assert "would fire 2.5 times" in refused.json["detail"]
        assert alice("PATCH", f"{PATH}/c", {"every": "1s"}).status == 200
        assert alice("PATCH", f"{PATH}/c", {"cron": "* * * * *"}).status == 200
        bulk = alice("PUT", PATH, {"items": [{"id": "c", **fast}, {"id": "d", **fast}]}).json["items"]
        assert [item["disposition"] for item in bulk] == ["replaced", "refused"]
        assert alice("DELETE", f"{PATH}/a").status == 204
        assert alice("POST", f"{PATH}/b/resume").status == 200


def test_a_monitor_has_an_overlap_policy(tmp_path: Path) -> None:
    with serving(tmp_path) as world:
        alice = world.add("alice")
        assert alice("PUT", f"{PATH}/a", HTTP).json["overlap"] == "skip"
        assert alice("PATCH", f"{PATH}/a", {"overlap": "queue"}).json["overlap"] == "queue"
        assert alice("PATCH", f"{PATH}/a", {"overlap": "both"}).status == 422


def test_an_operator_may_ask_for_smaller_pages(tmp_path: Path) -> None:
    with serving(tmp_path, page_max=2) as world:
        alice = world.add("alice")
        for name in "abc":
            assert alice("PUT", f"{PATH}/{name}", HTTP).status == 201
        first = alice("GET", PATH).json
        assert [item["id"] for item in first["items"]] == ["a", "b"]
        assert [item["id"] for item in alice("GET", f"{PATH}?cursor={first['next_cursor']}").json["items"]] == ["c"]
        refused = alice("GET", f"{PATH}?limit=3")
        assert (refused.status, refused.pointers) == (422, ["/query/limit"])

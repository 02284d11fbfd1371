"""Batches over REST: definitions, records in bulk and by the line, and deletion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from paceline.steps.batches.deletion import go_on_deleting
from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import PROVIDER, plan, put

LINES = {"Content-Type": "application/x-ndjson"}


def test_a_batch_is_created_shown_and_replaced(admin: Client) -> None:
    created = admin("PUT", "/v1/batches/daily", {"start": "02:00", "timezone": "Europe/Berlin", "window": "6h"})
    assert (created.status, created.headers["location"]) == (201, "/v1/batches/daily")
    assert created.json["missed"] == "once"
    assert created.json["next_start"].endswith((":00:00.000Z",))
    etag = created.headers["etag"]
    assert admin("PUT", "/v1/batches/daily", {"window": "1h"}, headers={"If-Match": '"9-9"'}).status == 412
    replaced = admin("PUT", "/v1/batches/daily", {"window": "1h"}, headers={"If-Match": etag})
    assert (replaced.status, replaced.json["revision"], replaced.json["start"]) == (200, 2, "00:00")
    assert admin("GET", "/v1/batches").json["items"] == [admin("GET", "/v1/batches/daily").json]
    assert admin("POST", "/v1/batches/daily/pause").json["paused"] is True
    assert admin("POST", "/v1/batches/daily/resume").json["paused"] is False
    assert admin("POST", "/v1/batches/none/resume").code == "not_found"


def test_each_record_of_a_document_gets_its_disposition(daily: Client) -> None:
    put(daily, 2)
    reply = daily(
        "PUT",
        "/v1/batches/daily/records",
        {
            "items": [
                {"id": "r0", "provider": "a", "endpoint": "/0"},
                {"id": "r1", "provider": "b", "endpoint": "/new", "body": {"q": [1, None]}},
                {"id": "new", "provider": "a", "active": False},
                {"id": "a/b", "provider": "a"},
                {"id": "lost", "provider": "nobody"},
                {"id": "odd", "provider": "a", "endpoint": "https://elsewhere.org/"},
                {"provider": "a"},
                7,
            ]
        },
    )
    answer = reply.json
    assert [(item["id"], item["disposition"]) for item in answer["items"]][:3] == [
        ("r0", "unchanged"),
        ("r1", "replaced"),
        ("new", "created"),
    ]
    assert [item["disposition"] for item in answer["items"][3:]] == ["refused"] * 5
    pointers = [item["error"]["errors"][0]["pointer"] for item in answer["items"][3:]]
    assert pointers == ["/items/3/id", "/items/4/provider", "/items/5/endpoint", "/items/6/id", "/items/7"]
    assert {name: answer[name] for name in ("created", "replaced", "unchanged", "refused")} == {
        "created": 1,
        "replaced": 1,
        "unchanged": 1,
        "refused": 5,
    }
    assert daily("GET", "/v1/batches/daily/records/r1").json == {
        "id": "r1",
        "provider": "b",
        "endpoint": "/new",
        "body": {"q": [1, None]},
        "active": True,
    }
    assert [item["id"] for item in daily("GET", "/v1/batches/daily/records").json["items"]] == ["new", "r0", "r1"]


def test_options_of_a_record_are_shown_without_their_secrets(daily: Client) -> None:
    record: dict[str, Any] = {"id": "r", "provider": "a", "endpoint": "/", "body": None, "active": True}
    record |= {"method": "PUT", "headers": {"X-Key": "sesame"}, "timeout": "5s", "expect": {"done": ["2xx", 409]}}
    assert daily("PUT", "/v1/batches/daily/records", {"items": [record]}).json["created"] == 1
    shown = daily("GET", "/v1/batches/daily/records/r").json
    assert shown == record | {"headers": {"X-Key": "***"}}
    assert daily("GET", "/v1/batches/daily/records").json["items"] == [shown]
    assert daily("PUT", "/v1/batches/daily/records", {"items": [shown]}).json["unchanged"] == 1
    twice = record | {"expect": {"done": [409], "failed": [409]}}
    answer = daily("PUT", "/v1/batches/daily/records", {"items": [twice]}).json
    assert answer["items"][0]["error"]["errors"][0]["pointer"] == "/items/0/expect/failed/0"
    other = record | {"id": "s", "headers": {"X-Key": "***"}}
    answer = daily("PUT", "/v1/batches/daily/records", {"items": [other]}).json
    assert answer["items"][0]["error"]["errors"][0]["pointer"] == "/items/0/headers/X-Key"
    provider = daily("PUT", "/v1/providers/c", PROVIDER | {"expect": {"retry": [404]}})
    assert (provider.status, provider.json["expect"]) == (201, {"retry": [404]})
    assert daily("PUT", "/v1/providers/c", PROVIDER | {"expect": {"retry": ["404"]}}).json["errors"][0] == {
        "pointer": "/expect/retry/0",
        "detail": 'a status from 200 to 599, or a class from "2xx" to "5xx"',
    }


def test_order_priority_and_after_are_shown_and_wrong_ones_refused(daily: Client) -> None:
    assert daily("PUT", "/v1/providers/a", PROVIDER | {"order": "priority"}).json["order"] == "priority"
    assert daily("PUT", "/v1/providers/a", PROVIDER | {"order": "random"}).json["errors"][0]["pointer"] == "/order"
    items: list[dict[str, Any]] = [
        {"id": "one", "provider": "a", "priority": 3},
        {"id": "two", "provider": "b", "after": "one"},
        {"id": "three", "provider": "b", "after": "nobody"},
        {"id": "four", "provider": "b", "priority": 10**7},
    ]
    answer = daily("PUT", "/v1/batches/daily/records", {"items": items}).json
    assert [one["disposition"] for one in answer["items"]] == ["created", "created", "refused", "refused"]
    pointers = [one["error"]["errors"][0]["pointer"] for one in answer["items"][2:]]
    assert pointers == ["/items/2/after", "/items/3/priority"]
    assert "'nobody'" in answer["items"][2]["error"]["errors"][0]["detail"]
    shown = daily("GET", "/v1/batches/daily/records").json["items"]
    assert [(one.get("priority"), one.get("after")) for one in shown] == [(3, None), (None, "one")]
    circle = daily("PUT", "/v1/batches/daily/records", {"items": [items[0] | {"after": "two"}]}).json
    assert "one after two after one" in circle["items"][0]["error"]["errors"][0]["detail"]


def test_unknown_placeholder_is_refused_with_its_pointer_or_its_line(daily: Client) -> None:
    good = {"id": "good", "provider": "a", "endpoint": "/{date}/{{x}}", "body": {"n": [1.50, "{attempt}"]}}
    bad = {"id": "bad", "provider": "a", "body": {"a": {"b": "{day}"}}}
    answer = daily("PUT", "/v1/batches/daily/records", {"items": [good, bad]}).json
    (problem,) = answer["items"][1]["error"]["errors"]
    assert problem["pointer"] == "/items/1/body"
    assert "{day}" in problem["detail"]
    assert "{date}, {due}, {run}, {record}, {attempt}" in problem["detail"]
    assert daily("GET", "/v1/batches/daily/records/good").json == good | {"active": True}
    lines = "\n".join(json.dumps(item) for item in (good, bad)).encode()
    answer = daily("PUT", "/v1/batches/daily/records", raw=lines, headers=LINES).json
    assert (answer["unchanged"], [line["line"] for line in answer["refusals"]]) == (1, [2])
    refused = daily("PUT", "/v1/providers/c", PROVIDER | {"headers": {"X-A": "{nonsense}"}})
    assert refused.json["errors"][0]["pointer"] == "/headers/X-A"


def test_batch_is_deleted_whole(daily: Client) -> None:
    put(daily, 6)
    plan(daily)
    assert daily("DELETE", "/v1/batches/daily").status == 204
    assert daily("GET", "/v1/batches/daily").status == 404
    assert daily("DELETE", "/v1/batches/daily").status == 404
    assert daily("GET", "/v1/batches").json["items"] == []
    assert daily("PUT", "/v1/batches/daily", {}).status == 201
    assert daily("GET", "/v1/batches/daily/records").json["items"] == []
    assert daily("DELETE", "/v1/providers/a").status == 204


def test_large_batch_is_deleted_by_the_keeper_and_shows_how_far_that_is(daily: Client, world: World) -> None:
    lines = "\n".join(json.dumps({"id": f"r{i}", "provider": "a"}) for i in range(12_000))
    daily("PUT", "/v1/batches/daily/records", raw=lines.encode(), headers=LINES)
    reply = daily("DELETE", "/v1/batches/daily")
    assert (reply.status, reply.json["deleting"]["records"]) == (202, 5_000)
    assert daily("GET", "/v1/batches/daily").json["deleting"]["records"] == 5_000
    refused = daily("PUT", "/v1/batches/daily", {})
    assert (refused.status, refused.code) == (409, "already_exists")
    answer = daily("PUT", "/v1/batches/daily/records", {"items": [{"id": "x", "provider": "a"}]}).json
    assert (answer["refused"], answer["items"][0]["error"]["code"]) == (1, "not_found")
    now_ms = world.system.clock.now_ms()
    first, second = (go_on_deleting(world.system.store, now_ms=now_ms) for _ in range(2))
    assert ((first.records, first.more), (second.records, second.gone)) == ((5_000, True), (2_000, ["daily"]))
    assert daily("GET", "/v1/batches/daily").status == 404


def test_records_are_listed_by_provider_and_by_whether_they_run(daily: Client) -> None:
    put(daily, 6)
    daily("PUT", "/v1/batches/daily/records", {"items": [{"id": "r0", "provider": "a", "active": False}]})
    path = "/v1/batches/daily/records"
    assert [one["id"] for one in daily("GET", f"{path}?provider=a").json["items"]] == ["r0", "r2", "r4"]
    assert [one["id"] for one in daily("GET", f"{path}?provider=a&active=true").json["items"]] == ["r2", "r4"]
    assert [one["id"] for one in daily("GET", f"{path}?active=false").json["items"]] == ["r0"]
    first = daily("GET", f"{path}?provider=b&limit=2").json
    assert [one["id"] for one in first["items"]] == ["r1", "r3"]
    second = daily("GET", f"{path}?provider=b&limit=2&cursor={first['next_cursor']}").json
    assert ([one["id"] for one in second["items"]], second["next_cursor"]) == (["r5"], None)
    assert daily("GET", f"{path}?cursor={first['next_cursor']}").json["errors"][0]["pointer"] == "/query/cursor"
    assert daily("GET", f"{path}?active=maybe").json["errors"][0]["pointer"] == "/query/active"
    assert daily("GET", f"{path}?provider=nobody").json == {"items": [], "next_cursor": None}


def test_ndjson_records_are_put_as_they_arrive_and_refused_records_are_named(daily: Client) -> None:
    lines = [json.dumps({"id": f"r{i}", "provider": "ab"[i % 2]}) for i in range(2_500)]
    lines[10] = '{"id": "cut",'
    lines[20] = ""
    lines[1_999] = json.dumps({"id": "r1999", "provider": "nobody"})
    lines[2_100] = json.dumps({"id": "long", "provider": "a", "body": "x" * 300_000})
    reply = daily("PUT", "/v1/batches/daily/records", raw="\n".join(lines).encode(), headers=LINES)
    answer = reply.json
    assert (reply.status, answer["created"], answer["refused"]) == (200, 2_496, 3)
    assert [(line["line"], line["code"]) for line in answer["refusals"]] == [
        (11, "malformed_body"),
        (2_000, "invalid_input"),
        (2_101, "malformed_body"),
    ]
    assert "nobody" in answer["refusals"][1]["detail"]
    again = daily("PUT", "/v1/batches/daily/records", raw="\r\n".join(lines).encode() + b"\n", headers=LINES)
    assert again.json["unchanged"] == 2_496


def test_ndjson_import_may_exceed_the_body_size_limit(daily: Client, world: World) -> None:
    count = 120_000
    assert count * 90 > world.system.settings.body_bytes_max

    def lines() -> Iterator[bytes]:
        for first in range(0, count, 500):
            items = (
                {"id": f"record-{i}", "provider": "a", "endpoint": f"/a/long/path/{i}", "body": {"n": 1}}
                for i in range(first, first + 500)
            )
            yield "".join(f"{json.dumps(item)}\n" for item in items).encode()

    reply = daily("PUT", "/v1/batches/daily/records", raw=lines(), headers=LINES)
    assert (reply.status, reply.json["created"]) == (200, count)


def test_removed_record_is_not_found_and_can_be_put_again(daily: Client) -> None:
    put(daily, 1)
    assert daily("DELETE", "/v1/batches/daily/records/r0").status == 204
    assert daily("GET", "/v1/batches/daily/records/r0").code == "not_found"
    assert daily("DELETE", "/v1/batches/daily/records/r0").code == "not_found"
    put(daily, 1)
    assert daily("GET", "/v1/batches/daily/records/r0").status == 200

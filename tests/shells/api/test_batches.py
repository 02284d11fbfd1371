"""Batches over REST: records in bulk and by the line, plans, days, and their export."""

from __future__ import annotations

import csv
import gzip
import http.client
import io
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import PutProvider
from paceline.steps.batches.deletion import go_on_deleting
from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all, names

LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def daily(admin: Client) -> Client:
    """An admin who has the providers a and b, and the batch daily."""
    for name in ("a", "b"):
        assert admin("PUT", f"/v1/providers/{name}", PROVIDER).status == 201
    assert admin("PUT", "/v1/batches/daily", {}).status == 201
    return admin


def put(client: Client, count: int, *, first: int = 0) -> None:
    items = [{"id": f"r{i}", "provider": "ab"[i % 2], "endpoint": f"/{i}"} for i in range(first, first + count)]
    assert client("PUT", "/v1/batches/daily/records", {"items": items}).json["created"] == count


def plan(client: Client, date: str = TOMORROW, **query: str) -> Any:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return client("POST", f"/v1/batches/daily/plan?{asked}", {"date": date}).json


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


def test_plan_without_a_date_plans_the_running_day(daily: Client) -> None:
    put(daily, 3)
    today = daily("POST", "/v1/batches/daily/plan", {}).json
    assert today == {"enqueued": 3, "already": 0, "skipped": 0}
    (day,) = daily("GET", "/v1/batches/daily/days").json["items"]
    assert daily("POST", "/v1/batches/daily/plan", {"date": day["date"]}).json["already"] == 3
    assert daily("POST", "/v1/batches/daily/plan").json["already"] == 3
    assert daily("POST", "/v1/batches/daily/plan", {"date": None}).status == 422


@pytest.mark.parametrize(("missed", "enqueued", "skipped"), [("once", 3, 0), ("all", 3, 0), ("skip", 0, 3)])
def test_day_before_2026_is_planned(daily: Client, missed: str, enqueued: int, skipped: int) -> None:
    assert daily("PUT", "/v1/batches/daily", {"missed": missed}).status == 200
    items = [{"id": f"id{n}", "provider": provider} for n, provider in enumerate("aab", start=1)]
    daily("PUT", "/v1/batches/daily/records", {"items": items})
    answer = {"enqueued": enqueued, "already": 0, "skipped": skipped}
    assert plan(daily, "2025-08-14") == answer
    assert plan(daily, "2025-08-14")["already"] == 3
    runs = daily("GET", "/v1/batches/daily/days/2025-08-14/runs").json["items"]
    assert sorted(run["run"] for run in runs) == [f"daily/id{n}@2025-08-14" for n in (1, 2, 3)]
    assert daily("GET", "/v1/batches/daily/days/2025-08-14").json["runs"] == 3
    assert daily("POST", "/v1/batches/daily/plan", {"date": "1999-12-31"}).json["errors"][0]["pointer"] == "/date"


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


def test_rerun_enqueues_the_ended_runs_of_a_day_once(daily: Client, world: World) -> None:
    put(daily, 3)
    plan(daily)
    path = f"/v1/batches/daily/days/{TOMORROW}"
    assert daily("POST", f"{path}/rerun", {"state": "done"}).json == {"enqueued": 0, "rerun": 0}
    end_all(world, "done", provider="a", reason="")
    assert daily("POST", f"{path}/rerun", {"state": "done"}).json == {"enqueued": 2, "rerun": 1}
    assert daily("POST", f"{path}/rerun", {"state": "done"}).json == {"enqueued": 0, "rerun": 1}
    again = daily("GET", f"{path}~1").json
    assert (again["date"], again["rerun"], again["runs"]) == (TOMORROW, 1, 2)
    (one, _) = daily("GET", f"{path}~1/runs").json["items"]
    assert one["run"].endswith(f"@{TOMORROW}~1")
    assert daily("GET", f"/v1/runs/{quote(one['run'], safe='')}").json["state"] == "waiting"
    assert [day["rerun"] for day in daily("GET", "/v1/batches/daily/days").json["items"]] == [1, 0]
    assert daily("POST", f"{path}/rerun", {"records": ["nobody"]}).json["errors"][0]["pointer"] == "/records/0"
    assert daily("POST", f"{path}/rerun", {}).status == 422
    assert daily("POST", "/v1/batches/daily/days/2026-01-02/rerun", {"state": "done"}).status == 404


def test_providers_of_a_day_come_by_page(daily: Client, world: World) -> None:
    names_ = [f"p{n:03}" for n in range(105)]
    for name in names_:
        spec = ProviderSpec(base_url="https://shop.example.org")
        world.system.store.put_provider(PutProvider(name, spec), now_ms=world.system.clock.now_ms())
    items = [{"id": f"r{name}", "provider": name} for name in names_]
    assert daily("PUT", "/v1/batches/daily/records", {"items": items}).json["created"] == 105
    plan(daily)
    path = f"/v1/batches/daily/days/{TOMORROW}"
    day = daily("GET", path).json
    assert [one["provider"] for one in day["providers"]] == names_[:100]
    assert (len(day["histogram"]), day["histogram_window"]) == (96, "15m")
    rest = daily("GET", f"{path}/providers?cursor={day['next_cursor']}").json
    assert ([one["provider"] for one in rest["items"]], rest["next_cursor"]) == (names_[100:], None)
    first = daily("GET", f"{path}/providers?limit=2").json
    assert first["items"] == day["providers"][:2]
    second = daily("GET", f"{path}/providers?limit=2&cursor={first['next_cursor']}").json
    assert second["items"] == day["providers"][2:4]


def test_large_answers_are_compressed_and_those_the_client_has_are_not_sent_again(daily: Client) -> None:
    put(daily, 400)
    plan(daily)
    for path in (
        f"/v1/batches/daily/days/{TOMORROW}/runs?limit=400",
        f"/v1/batches/daily/days/{TOMORROW}/providers",
        f"/v1/batches/daily/days/{TOMORROW}",
        "/v1/batches/daily/days",
        "/v1/batches/daily/records?limit=400",
    ):
        plain = daily("GET", path)
        tag = plain.headers["etag"]
        assert daily("GET", path, headers={"If-None-Match": f'"other", {tag}'}).status == 304
        assert daily("GET", path, headers={"If-None-Match": '"other"'}).status == 200
        small = daily("GET", path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
        if len(plain.body) < 16_384:
            assert "content-encoding" not in small.headers
            continue
        assert (small.headers["content-encoding"], small.headers["vary"]) == ("gzip", "accept-encoding")
        assert len(small.body) < len(plain.body) / 4
        assert gzip.decompress(small.body) == plain.body
        assert "content-encoding" not in daily("GET", path, headers={"Accept-Encoding": "gzip;q=0"}).headers
    export = f"/v1/batches/daily/days/{TOMORROW}/export"
    streamed = daily("GET", export, headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(streamed.body) == daily("GET", export).body


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


def test_day_is_planned_once_however_often_the_request_is_repeated(daily: Client) -> None:
    put(daily, 10)
    assert plan(daily) == {"enqueued": 10, "already": 0, "skipped": 0}
    assert plan(daily) == {"enqueued": 0, "already": 10, "skipped": 0}
    put(daily, 3, first=10)
    assert plan(daily)["enqueued"] in (0, 3)  # put into the day at once, or by this
    report = daily("GET", f"/v1/batches/daily/days/{TOMORROW}").json
    assert report["totals"]["waiting"] == 13


def test_a_preview_shows_the_plan_and_changes_nothing(daily: Client) -> None:
    put(daily, 96)
    daily("PUT", "/v1/providers/a", {**PROVIDER, "rate": "1/1h"})
    shown = plan(daily, dry_run="true")
    assert (shown["records"], shown["already"], len(shown["histogram"])) == (96, 0, 96)
    assert [window["runs"] for window in shown["histogram"]] == [1] * 96
    assert ("a", "rate") in [(warning["provider"], warning["kind"]) for warning in shown["warnings"]]
    assert daily("GET", f"/v1/batches/daily/days/{TOMORROW}").code == "not_found"
    assert plan(daily, dry_run="perhaps")["code"] == "invalid_input"


def test_a_day_is_reported_by_state_and_provider_with_its_evenness(daily: Client) -> None:
    put(daily, 96)
    plan(daily)
    report = daily("GET", f"/v1/batches/daily/days/{TOMORROW}").json
    assert (report["runs"], report["state"], report["outside"]) == (96, "planned", 0)
    assert report["totals"] == {
        **dict.fromkeys(("out", "retry", "aside", "done", "failed", "unknown", "skipped"), 0),
        "waiting": 96,
    }
    assert [(one["provider"], one["runs"], one["totals"]["waiting"]) for one in report["providers"]] == [
        ("a", 48, 48),
        ("b", 48, 48),
    ]
    assert report["evenness"]["ratio"] <= 1.05
    assert all(one["evenness"]["ratio"] < 2 for one in report["providers"])
    assert [window["runs"] for window in report["histogram"]] == [1] * 96
    assert report["histogram"][0]["start"] == f"{TOMORROW}T00:00:00.000Z"
    (summary,) = daily("GET", "/v1/batches/daily/days").json["items"]
    assert (summary["date"], summary["enqueued"]) == (TOMORROW, 96)


def test_a_days_runs_are_filtered_and_come_in_pages(daily: Client, world: World) -> None:
    put(daily, 10)
    plan(daily)
    end_all(world, "failed", provider="a", reason="refused")
    path = f"/v1/batches/daily/days/{TOMORROW}/runs"
    everything: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = daily("GET", f"{path}?limit=3" + (f"&cursor={cursor}" if cursor else "")).json
        everything += page["items"]
        cursor = page["next_cursor"]
    assert names(everything) == sorted(f"daily/r{i}@{TOMORROW}" for i in range(10))
    failed = daily("GET", f"{path}?state=failed").json["items"]
    assert {run["provider"] for run in failed} == {"a"}
    assert {(run["state"], run["reason"], run["dead"]) for run in failed} == {("failed", "refused", True)}
    assert len(failed) == 5
    assert len(daily("GET", f"{path}?provider=b").json["items"]) == 5
    assert daily("GET", f"{path}?provider=b&state=failed").json["items"] == []
    assert daily("GET", f"{path}?provider=nobody").json["items"] == []
    assert daily("GET", f"{path}?state=lost").pointers == ["/query/state"]


def test_batch_run_is_found_by_its_id(daily: Client) -> None:
    daily("PUT", "/v1/batches/daily/records", {"items": [{"id": "r@home", "provider": "a"}]})
    plan(daily)
    run = f"daily/r%40home@{TOMORROW}"
    for path in (run, run.replace("/", "%2F").replace("%40", "%2540")):
        found = daily("GET", f"/v1/runs/{path}")
        assert (found.status, found.json["run"], found.json["state"]) == (200, run, "waiting")
    assert daily("GET", f"/v1/runs/daily/none@{TOMORROW}").code == "not_found"
    assert daily("GET", "/v1/runs/daily/none@2026-99-99").code == "not_found"


def test_a_plain_user_may_not_look_at_a_batchs_run_even_if_it_has_their_name(daily: Client, alice: Client) -> None:
    daily("PUT", "/v1/batches/alice", {})
    daily("PUT", "/v1/batches/alice/records", {"items": [{"id": "r", "provider": "a"}]})
    assert daily("POST", "/v1/batches/alice/plan", {"date": TOMORROW}).json["enqueued"] == 1
    assert daily("GET", f"/v1/runs/alice/r@{TOMORROW}").status == 200
    assert alice("GET", f"/v1/runs/alice/r@{TOMORROW}").code == "not_found"


def test_an_export_has_every_run_once_as_lines_or_as_csv(daily: Client, world: World) -> None:
    put(daily, 2_300)
    daily("PUT", "/v1/providers/c", PROVIDER)
    daily("PUT", "/v1/batches/daily/records", {"items": [{"id": name, "provider": "c"} for name in ("x", "y")]})
    plan(daily)
    end_all(world, "done", provider="c", reason="", payload='=cmd|"/c calc"!A1')
    path = f"/v1/batches/daily/days/{TOMORROW}/export"
    reply = daily("GET", path)
    assert reply.headers["content-type"] == "application/x-ndjson"
    runs = [json.loads(line) for line in reply.body.splitlines()]
    assert names(runs) == sorted(f"daily/{name}@{TOMORROW}" for name in ("x", "y", *(f"r{i}" for i in range(2_300))))
    assert {run["payload"] for run in runs} == {None, '=cmd|"/c calc"!A1'}
    table = daily("GET", f"{path}?format=csv&provider=c")
    assert table.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(table.body.decode(), newline="")))
    assert [row["record"] for row in rows] == ["x", "y"]
    assert {row["payload"] for row in rows} == {'\'=cmd|"/c calc"!A1'}
    assert {row["state"] for row in rows} == {"done"}
    assert daily("GET", f"{path}?format=xml").pointers == ["/query/format"]
    assert daily("GET", f"{path}?state=odd").pointers == ["/query/state"]
    head = daily("HEAD", path)
    assert (head.status, head.body) == (200, b"")


def test_export_whose_client_disconnects_causes_no_error(daily: Client, world: World) -> None:
    put(daily, 5_000)
    plan(daily)
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=30)
    headers = {"Authorization": f"Bearer {daily.token}"}
    connection.request("GET", f"/v1/batches/daily/days/{TOMORROW}/export", headers=headers)
    assert connection.getresponse().read(100)
    connection.close()
    assert daily("GET", "/healthz").status == 200
    assert "request_failed" not in world.log.getvalue()


@pytest.mark.parametrize("date", ["2026-13-01", "20261115", "1999-01-01", "2026-11-5", "today"])
def test_invalid_date_is_refused(daily: Client, date: str) -> None:
    assert daily("POST", "/v1/batches/daily/plan", {"date": date}).pointers == ["/date"]
    assert daily("GET", f"/v1/batches/daily/days/{date}").code == "invalid_input"


def test_concurrent_plans_of_one_day_plan_each_record_once(daily: Client) -> None:
    put(daily, 500)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(plan(daily))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answer["enqueued"] for answer in answers) == 500
    assert daily("GET", f"/v1/batches/daily/days/{TOMORROW}").json["runs"] == 500


def test_running_days_of_all_batches_say_how_far_they_are(admin: Client) -> None:
    admin("PUT", "/v1/providers/shop", PROVIDER)
    for batch in ("daily", "idle", "weekly"):
        admin("PUT", f"/v1/batches/{batch}", {"window": "24h", "missed": "all"})
    records = {"items": [{"id": f"r{number}", "provider": "shop"} for number in range(10)]}
    assert admin("GET", "/v1/days").json == {"items": [], "next_cursor": None}
    for batch in ("daily", "weekly"):
        admin("PUT", f"/v1/batches/{batch}/records", records)
        admin("POST", f"/v1/batches/{batch}/plan", {})
        admin("POST", f"/v1/batches/{batch}/plan", {"date": TOMORROW})
    admin("POST", "/v1/batches/weekly/pause")
    first = admin("GET", "/v1/days?limit=1")
    cursor = first.json["next_cursor"]
    (daily,) = first.json["items"]
    assert (daily["batch"], daily["runs"], daily["date"] < TOMORROW) == ("daily", 10, True)
    assert daily["totals"]["waiting"] == 10
    assert daily["eta"]["from"] <= daily["eta"]["to"]
    rest = admin("GET", f"/v1/days?limit=2&cursor={cursor}").json
    assert [(day["batch"], day["paused"], day["eta"]) for day in rest["items"]] == [("weekly", True, None)]
    assert rest["next_cursor"] is None
    again = admin("GET", "/v1/days?limit=1", headers={"If-None-Match": first.headers["etag"]})
    assert again.status == 304

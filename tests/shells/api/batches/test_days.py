"""Days of batches over REST: plans, reports, runs, reruns and export."""

from __future__ import annotations

import csv
import gzip
import http.client
import io
import json
import threading
from typing import Any
from urllib.parse import quote

import pytest

from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import PutProvider
from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all, names, plan, put


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


def test_run_of_a_batch_named_like_a_user_is_hidden_from_that_user(daily: Client, alice: Client) -> None:
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

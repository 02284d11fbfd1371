"""The uptime of a monitor over REST: as JSON, as CSV, and only for those who may see the monitor."""

from __future__ import annotations

import csv
import io
from datetime import datetime

import pytest

from tests.shells.api.conftest import OUTGOING, Client, World, run_path

MONITOR = "/v1/users/me/monitors/own"


def look(world: World, client: Client, status: str, **detail: object) -> None:
    """Fires once and reports what came of it."""
    while not world.fire():
        pass
    (item,) = client("POST", "/v1/outgoing/claim", {}).json["items"]
    outcome = {"lease": item["lease"], "status": status, "detail": detail}
    assert client("POST", f"{run_path(item['run'])}/outcome", outcome).status == 200


@pytest.fixture
def flapped(world: World, alice: Client) -> Client:
    """A monitor that was good, bad, and good again."""
    assert alice("PUT", MONITOR, {**OUTGOING, "every": "1s"}).status == 201
    for status in ("ok", "failed", "failed", "ok"):
        look(world, alice, status, latency_ms=40, reason="HTTP 503" if status == "failed" else "")
    return alice


def test_uptime_has_shares_latencies_incidents_and_days(flapped: Client) -> None:
    told = flapped("GET", f"{MONITOR}/uptime").json
    assert set(told) == {"1d", "7d", "30d", "90d", "since", "latency_ms", "incidents", "days"}
    assert 0 < told["1d"] < 1
    assert told["1d"] == told["7d"] == told["30d"] == told["90d"]
    since = {window: datetime.fromisoformat(text) for window, text in told["since"].items()}
    assert {text[10:] for text in told["since"].values()} == {"T00:00:00.000Z"}
    assert [(since["1d"] - since[window]).days for window in ("1d", "7d", "30d", "90d")] == [0, 6, 29, 89]
    assert told["latency_ms"]["p50"] == pytest.approx(40, rel=0.025)
    [incident] = told["incidents"]
    assert incident["reason"] == "HTTP 503"
    assert incident["began"] < incident["ended"]
    assert sum(day["ok"] for day in told["days"]) == sum(day["failed"] for day in told["days"]) == 2


def test_uptime_of_a_new_monitor_says_that_nothing_is_known(alice: Client) -> None:
    alice("PUT", MONITOR, OUTGOING)
    told = alice("GET", f"{MONITOR}/uptime").json
    nothing = {"p50": None, "p95": None, "p99": None}
    unknown = dict.fromkeys(("1d", "7d", "30d", "90d"))
    assert told == {**unknown, "since": told["since"], "latency_ms": nothing, "incidents": [], "days": []}


def test_incident_that_goes_on_has_no_end(world: World, flapped: Client) -> None:
    look(world, flapped, "failed", reason="refused")
    newest = flapped("GET", f"{MONITOR}/uptime").json["incidents"][0]
    assert (newest["ended"], newest["reason"]) == (None, "refused")


def test_uptime_as_csv_has_a_line_for_each_day(flapped: Client) -> None:
    answer = flapped("GET", f"{MONITOR}/uptime?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
    days = flapped("GET", f"{MONITOR}/uptime").json["days"]
    assert [row["date"] for row in rows] == [day["date"] for day in days]
    assert list(rows[0]) == list(days[0])
    assert sum(int(row["failed"]) for row in rows) == 2


def test_unknown_format_of_uptime_is_refused_with_the_choices(flapped: Client) -> None:
    refused = flapped("GET", f"{MONITOR}/uptime?format=xml")
    assert (refused.status, refused.json["errors"]) == (
        422,
        [{"pointer": "/query/format", "detail": "json or csv"}],
    )


def test_uptime_of_another_user_s_monitor_is_not_found(world: World, flapped: Client) -> None:
    del flapped
    other = world.add("mallory")
    assert other("GET", "/v1/users/alice/monitors/own/uptime").status == 404


def test_lists_have_figures_of_each_monitor_if_asked(world: World, flapped: Client) -> None:
    flapped("PUT", "/v1/users/me/monitors/new", OUTGOING)
    plain = flapped("GET", "/v1/users/me/monitors").json["items"]
    assert all("figures" not in one for one in plain)
    root = world.add("root", "admin")
    for client, path in ((flapped, "/v1/users/me/monitors"), (root, "/v1/monitors")):
        new, own = client("GET", f"{path}?figures=true").json["items"]
        nothing: list[None] = [None] * 30
        assert new["figures"] == {"uptime_30d": None, "p95_ms": None, "days": nothing, "p50_days": nothing}
        assert 0 < own["figures"]["uptime_30d"] < 1
        assert own["figures"]["p95_ms"] == pytest.approx(40, rel=0.025)
        days, medians = own["figures"]["days"], own["figures"]["p50_days"]
        assert len(days) == len(medians) == 30
        told = {
            day["date"]: day
            for day in client("GET", f"/v1/users/{own['user']}/monitors/{own['id']}/uptime").json["days"]
        }
        newest = told[max(told)]
        assert medians[-1] == newest["p50"]
        assert days[-1] == pytest.approx(newest["share"], abs=0.01)
    refused = flapped("GET", "/v1/users/me/monitors?figures=perhaps")
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "/query/figures")

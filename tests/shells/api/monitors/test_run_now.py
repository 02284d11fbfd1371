"""A check now, and the times of the next firings, over REST."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, run_path

MONITORS = "/v1/users/me/monitors"


def fire(world: World, alice: Client, monitor: str = "own") -> None:
    """Fires the monitor once and ends its run."""
    while not alice("GET", f"{MONITORS}/{monitor}/runs").json["items"]:
        world.fire()
    end(alice)


def end(alice: Client) -> None:
    (item,) = alice("POST", "/v1/outgoing/claim", {}).json["items"]
    assert alice("POST", f"{run_path(item['run'])}/outcome", {"lease": item["lease"], "status": "ok"}).status == 200


def test_run_checks_now_and_next_due_stays(world: World, alice: Client) -> None:
    alice("PUT", f"{MONITORS}/own", OUTGOING)
    fire(world, alice)
    before = alice("GET", f"{MONITORS}/own").json["schedule"]
    reply = alice("POST", f"{MONITORS}/own/run")
    assert reply.status == 202
    assert reply.json == {"run": f"alice/own#{before['generation']}@1"}
    assert alice("POST", f"{MONITORS}/own/run").json == reply.json, "the same run while it waits"
    assert alice("GET", f"{MONITORS}/own").json["schedule"] == {**before, "counter": 2}
    end(alice)
    assert alice("POST", f"{MONITORS}/own/run").json["run"].endswith("@2")
    assert alice("GET", f"{MONITORS}/own").json["schedule"]["next_due"] == before["next_due"]


def test_paused_monitor_runs_now_and_stays_paused(alice: Client) -> None:
    alice("PUT", f"{MONITORS}/own", {**OUTGOING, "paused": True})
    assert alice("POST", f"{MONITORS}/own/run").status == 202
    assert alice("GET", f"{MONITORS}/own").json["health"] == "paused"
    end(alice)
    assert alice("GET", f"{MONITORS}/own").json["schedule"]["next_due"] is None


def test_run_of_a_disabled_user_is_refused(admin: Client, alice: Client) -> None:
    alice("PUT", f"{MONITORS}/own", OUTGOING)
    admin("PATCH", "/v1/users/alice", {"disabled": True})
    refused = admin("POST", "/v1/users/alice/monitors/own/run")
    assert (refused.status, refused.code) == (409, "owner_disabled")
    assert admin("GET", "/v1/users/alice/monitors/own/next").json == {"items": [], "reason": "owner_disabled"}


def test_run_and_next_of_a_monitor_that_is_not_there_are_not_found(alice: Client) -> None:
    for method, path in (("POST", "run"), ("GET", "next")):
        assert alice(method, f"{MONITORS}/nothing/{path}").code == "not_found"


def test_next_previews_times_of_an_interval_and_of_a_cron(alice: Client) -> None:
    alice("PUT", f"{MONITORS}/web", HTTP)
    times = [datetime.fromisoformat(text) for text in alice("GET", f"{MONITORS}/web/next").json["items"]]
    assert len(times) == 5
    assert {(later - earlier).total_seconds() for earlier, later in pairwise(times[1:])} == {60}
    alice("PUT", f"{MONITORS}/cert", {**HTTP, "every": None, "cron": "30 6 * * *", "timezone": "Asia/Kolkata"})
    (only,) = alice("GET", f"{MONITORS}/cert/next?count=1").json["items"]
    assert "T01:00:00" in only
    assert only == alice("GET", f"{MONITORS}/cert").json["schedule"]["next_due"]


def test_next_of_a_paused_monitor_says_why_there_is_none(alice: Client) -> None:
    alice("PUT", f"{MONITORS}/web", {**HTTP, "paused": True})
    assert alice("GET", f"{MONITORS}/web/next").json == {"items": [], "reason": "paused"}


def test_next_refuses_a_wrong_count(alice: Client) -> None:
    alice("PUT", f"{MONITORS}/web", HTTP)
    for text in ("0", "1001", "x", "-1", "1.5", ""):
        reply = alice("GET", f"{MONITORS}/web/next?count={text}")
        assert (reply.status, reply.pointers) == (422, ["/query/count"]), text
    assert alice("GET", f"{MONITORS}/web/next?n=1").pointers == ["/query/n"]

"""Monitors over REST."""

from __future__ import annotations

from tests.shells.api.conftest import HTTP, OUTGOING, Client, World

PATH = "/v1/users/me/monitors"


def test_a_put_creates_then_replaces_and_answers_all_that_is_promised(alice: Client) -> None:
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

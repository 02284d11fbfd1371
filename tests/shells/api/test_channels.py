"""Channels, silences and alerts over REST."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.alerts.alert import Alert
from tests.shells.api.conftest import HTTP, Client, World

CHANNELS = "/v1/users/me/channels"
WEBHOOK: dict[str, Any] = {"kind": "webhook", "url": "https://hooks.example.org/canary-4711", "default": True}


def test_channel_is_created_replaced_shown_without_its_url_and_removed(world: World, alice: Client) -> None:
    created = alice("PUT", f"{CHANNELS}/ops", WEBHOOK)
    assert (created.status, created.headers["location"]) == (201, "/v1/users/alice/channels/ops")
    assert created.json["url"] == "***"
    assert alice("PUT", f"{CHANNELS}/ops", {**WEBHOOK, "url": "***", "default": False}).status == 200
    shown = alice("GET", f"{CHANNELS}/ops")
    assert (shown.json["kind"], shown.json["default"]) == ("webhook", False)
    assert [one["id"] for one in alice("GET", CHANNELS).json["items"]] == ["ops"]
    assert alice("DELETE", f"{CHANNELS}/ops").status == 204
    assert alice("GET", f"{CHANNELS}/ops").code == "not_found"
    assert "canary" not in world.log.getvalue()


def test_channel_is_replaced_only_as_it_was_seen_with_if_match(alice: Client) -> None:
    created = alice("PUT", f"{CHANNELS}/ops", WEBHOOK, headers={"If-None-Match": "*"})
    assert created.status == 201
    assert alice("PUT", f"{CHANNELS}/ops", WEBHOOK, headers={"If-None-Match": "*"}).status == 412
    seen = created.headers["etag"]
    assert alice("GET", f"{CHANNELS}/ops", headers={"If-None-Match": seen}).status == 304
    changed = alice("PUT", f"{CHANNELS}/ops", {**WEBHOOK, "default": False}, headers={"If-Match": seen})
    assert (changed.status, changed.json["default"]) == (200, False)
    assert alice("PUT", f"{CHANNELS}/ops", WEBHOOK, headers={"If-Match": seen}).code == "revision_mismatch"
    now = alice("GET", f"{CHANNELS}/ops", headers={"If-None-Match": seen})
    assert (now.status, now.headers["etag"], now.json["default"]) == (200, changed.headers["etag"], False)
    assert alice("PUT", f"{CHANNELS}/new", WEBHOOK, headers={"If-Match": seen}).status == 412


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({**WEBHOOK, "url": "ftp://example.org/"}, "/url"),
        ({**WEBHOOK, "url": "https://user:word@example.org/"}, "/url"),
        ({"kind": "apprise", "url": "file:///etc/passwd"}, "/url"),
        ({"kind": "apprise", "url": "dbus://"}, "/url"),
        ({"kind": "apprise", "url": "syslog://"}, "/url"),
        ({"kind": "apprise", "url": "mailto://a:b@example.org?pgpkey=/etc/passwd"}, "/url"),
        ({"kind": "apprise", "url": "workflows://a/b/c?template=/etc/passwd"}, "/url"),
        ({"kind": "apprise", "url": "example.org"}, "/url"),
        ({"kind": "pigeon", "url": "https://example.org/"}, "/kind"),
        ({"kind": "webhook"}, "/url"),
        ({**WEBHOOK, "colour": 1}, "/colour"),
    ],
)
def test_invalid_channel_is_refused_with_its_field_and_without_repeating_the_url(
    alice: Client, body: dict[str, Any], pointer: str
) -> None:
    refused = alice("PUT", f"{CHANNELS}/ops", body)
    assert (refused.status, refused.code, refused.pointers) == (422, "invalid_input", [pointer])
    assert "passwd" not in refused.body.decode()


def test_monitor_that_names_a_channel_that_is_not_there_is_refused(alice: Client) -> None:
    path = "/v1/users/me/monitors/home"
    wanted = {**HTTP, "alert": {"channels": ["ops", "gone"]}}
    alice("PUT", f"{CHANNELS}/ops", WEBHOOK)
    refused = alice("PUT", path, wanted)
    assert (refused.status, refused.pointers) == (422, ["/alert/channels/1"])
    bulk = alice("PUT", "/v1/users/me/monitors", {"items": [{"id": "a", **wanted}, {"id": "b", **HTTP}]}).json["items"]
    assert [one["disposition"] for one in bulk] == ["refused", "created"]
    assert bulk[0]["error"]["errors"][0]["pointer"] == "/items/0/alert/channels/1"
    assert alice("PUT", path, {**HTTP, "alert": {"channels": ["ops"]}}).status == 201
    patched = alice("PATCH", path, {"alert": {"channels": ["ops", "gone"]}})
    assert (patched.status, patched.pointers) == (422, ["/alert/channels/1"])


def test_monitor_whose_channel_was_removed_can_still_be_edited(alice: Client) -> None:
    alice("PUT", f"{CHANNELS}/ops", WEBHOOK)
    path = "/v1/users/me/monitors/home"
    alice("PUT", path, {**HTTP, "alert": {"channels": ["ops"]}})
    alice("DELETE", f"{CHANNELS}/ops")
    assert alice("PATCH", path, {"every": "30s"}).status == 200
    assert alice("POST", f"{path}/pause").status == 200


def test_test_of_a_channel_that_may_not_be_reached_says_why(alice: Client) -> None:
    alice("PUT", f"{CHANNELS}/ops", {**WEBHOOK, "url": "http://127.0.0.1:9/"})
    tried = alice("POST", f"{CHANNELS}/ops/test")
    assert (tried.status, tried.json["ok"]) == (200, False)
    assert "PACELINE_OUTBOUND_ALLOW" in tried.json["reason"]
    assert alice("POST", f"{CHANNELS}/none/test").code == "not_found"


def test_silences_are_begun_listed_and_ended(alice: Client) -> None:
    alice("PUT", "/v1/users/me/monitors/home", HTTP)
    begun = alice("POST", "/v1/users/me/monitors/home/silence", {"for": "2h", "reason": "moving"})
    assert (begun.status, begun.json["monitor"], begun.json["reason"]) == (201, "home", "moving")
    tag = alice("POST", "/v1/users/me/silences", {"tag": "web", "for": "1d"}).json
    listed = alice("GET", "/v1/users/me/silences").json["items"]
    assert {one["id"] for one in listed} == {begun.json["id"], tag["id"]}
    assert alice("DELETE", f"/v1/users/me/silences/{tag['id']}").status == 204
    assert alice("DELETE", f"/v1/users/me/silences/{tag['id']}").code == "not_found"
    assert alice("POST", "/v1/users/me/monitors/none/silence", {"for": "2h"}).code == "not_found"
    assert alice("POST", "/v1/users/me/silences", {"tag": "web", "for": "1s"}).pointers == ["/for"]
    assert alice("POST", "/v1/users/me/silences", {"tag": "", "for": "1h"}).pointers == ["/tag"]


def test_alerts_are_listed_newest_first_page_by_page(world: World, alice: Client) -> None:
    now_ms = world.system.clock.now_ms()
    world.system.store.add_alerts(
        [Alert(f"al_{n}", "monitor.failing", now_ms + n, "alice", "home", "answered 500") for n in range(3)]
    )
    ids, cursor = [], ""
    while True:
        page = alice("GET", f"/v1/users/me/alerts?limit=1{cursor}").json
        ids += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert ids == ["al_2", "al_1", "al_0"]
    first = alice("GET", "/v1/users/me/alerts").json["items"][0]
    assert (first["state"], first["deliveries"], first["subject"]) == ("new", [], "home")

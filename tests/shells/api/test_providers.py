"""Providers over REST: their policy, their secrets, and how they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.shells.api.conftest import Client, World
from tests.shells.api.support.day import TOMORROW, end_all

SPEC: dict[str, Any] = {"base_url": "https://shop.example.org/api", "headers": {"Authorization": "Bearer sesame"}}
FULL: dict[str, Any] = {
    "kind": "http",
    "base_url": "https://shop.example.org/api",
    "headers": {"X-Key": "k"},
    "method": "POST",
    "max_in_flight": 4,
    "rate": "5/1s",
    "timeout": "10s",
    "retry": {"max_attempts": 3, "base": "2s", "cap": "1m"},
    "breaker": {"failures": 4, "open_for": "30s"},
    "unknown": "look_up",
    "look_up": "/calls/{run}",
    "verify_tls": False,
    "paused": True,
}


def test_a_provider_is_created_shown_and_replaced(admin: Client) -> None:
    created = admin("PUT", "/v1/providers/shop", SPEC)
    assert (created.status, created.headers["location"]) == (201, "/v1/providers/shop")
    assert created.json["max_in_flight"] == 1
    assert created.json["standing"] == {
        "state": "open",
        "reason": "",
        "waiting": 0,
        "in_flight": 0,
        "failures": 0,
        "closed_until": None,
        "next_due": None,
    }
    replaced = admin("PUT", "/v1/providers/shop", FULL)
    assert (replaced.status, replaced.json["revision"]) == (200, 2)
    shown = admin("GET", "/v1/providers/shop").json
    assert {name: shown[name] for name in FULL} == {**FULL, "headers": {"X-Key": "***"}}
    assert admin("GET", "/v1/providers").json == {"items": [shown], "next_cursor": None}


def test_a_secret_is_neither_shown_nor_stored(admin: Client, world: World) -> None:
    reply = admin("PUT", "/v1/providers/shop", SPEC)
    assert b"sesame" not in reply.body + admin("GET", "/v1/providers").body
    file = Path(world.system.settings.store.removeprefix("sqlite:///"))
    stored = b"".join(part.read_bytes() for part in file.parent.glob(f"{file.name}*"))  # the log is a file of its own
    assert b"shop.example.org" in stored
    assert b"sesame" not in stored


def test_a_header_given_back_as_it_is_shown_keeps_its_value(admin: Client, world: World) -> None:
    admin("PUT", "/v1/providers/shop", SPEC)
    before = world.system.store.provider("shop")
    shown = {name: value for name, value in admin("GET", "/v1/providers/shop").json.items() if name in FULL}
    assert admin("PUT", "/v1/providers/shop", {**shown, "max_in_flight": 2}).status == 200
    after = world.system.store.provider("shop")
    assert before
    assert after
    assert world.system.vault.unseal(after.spec.headers["Authorization"]) == "Bearer sesame"
    assert after.spec.max_in_flight == 2
    unknown = admin("PUT", "/v1/providers/other", {**SPEC, "headers": {"X": "***"}})
    assert (unknown.code, unknown.pointers) == ("invalid_input", ["/headers/X"])


def test_provider_edit_with_a_stale_etag_is_refused(admin: Client) -> None:
    first = admin("PUT", "/v1/providers/shop", SPEC, headers={"If-None-Match": "*"})
    etag = first.headers["etag"]
    assert admin("PUT", "/v1/providers/shop", SPEC, headers={"If-None-Match": "*"}).code == "revision_mismatch"
    assert admin("GET", "/v1/providers/shop", headers={"If-None-Match": etag}).status == 304
    second = admin("PUT", "/v1/providers/shop", {**SPEC, "rate": "1/1s"}, headers={"If-Match": etag})
    assert second.status == 200
    late = admin("PUT", "/v1/providers/shop", {**SPEC, "rate": "2/1s"}, headers={"If-Match": etag})
    assert (late.status, late.code) == (412, "revision_mismatch")
    assert admin("GET", "/v1/providers/shop").json["rate"] == "1/1s"
    assert admin("PUT", "/v1/providers/new", SPEC, headers={"If-Match": "*"}).code == "revision_mismatch"


def test_pausing_and_resuming_change_nothing_else(admin: Client, world: World) -> None:
    admin("PUT", "/v1/providers/shop", SPEC)
    before = len(world.wakes)
    paused = admin("POST", "/v1/providers/shop/pause")
    assert (paused.json["paused"], paused.json["standing"]["state"]) == (True, "paused")
    resumed = admin("POST", "/v1/providers/shop/resume")
    assert (resumed.json["paused"], resumed.json["standing"]["state"]) == (False, "open")
    assert resumed.json["revision"] == 3
    assert len(world.wakes) >= before + 2
    assert admin("POST", "/v1/providers/nowhere/pause").code == "not_found"


def test_provider_is_removed_only_if_no_record_names_it(admin: Client) -> None:
    admin("PUT", "/v1/providers/shop", SPEC)
    admin("PUT", "/v1/batches/daily", {})
    admin("PUT", "/v1/batches/daily/records", {"items": [{"id": "r", "provider": "shop"}]})
    kept = admin("DELETE", "/v1/providers/shop")
    assert (kept.status, kept.code) == (409, "already_exists")
    admin("PUT", "/v1/providers/free", SPEC)
    assert admin("DELETE", "/v1/providers/free").status == 204
    assert admin("GET", "/v1/providers/free").code == "not_found"
    assert admin("DELETE", "/v1/providers/free").code == "not_found"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"base_url": "ftp://x"}, "/base_url"),
        ({"base_url": "https://x/?q=1"}, "/base_url"),
        ({"max_in_flight": 0}, "/max_in_flight"),
        ({"rate": "fast"}, "/rate"),
        ({"timeout": "1h"}, "/timeout"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ({"breaker": {"open_for": "soon"}}, "/breaker/open_for"),
        ({"unknown": "look_up"}, "/look_up"),
        ({"headers": {"Idempotency-Key": "x"}}, "/headers/Idempotency-Key"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_wrong_field_of_a_provider_is_named(chief: Client, change: dict[str, Any], pointer: str) -> None:
    reply = chief("PUT", "/v1/providers/wrong", {**SPEC, **change})
    assert (reply.status, reply.pointers) == (422, [pointer])
    assert chief("GET", "/v1/providers/wrong").code == "not_found"


def test_providers_come_in_pages(chief: Client) -> None:
    for name in ("page-a", "page-b", "page-c"):
        chief("PUT", f"/v1/providers/{name}", SPEC)
    first = chief("GET", "/v1/providers?limit=2").json
    second = chief("GET", f"/v1/providers?limit=2&cursor={first['next_cursor']}").json
    assert [item["id"] for item in first["items"] + second["items"]] == ["page-a", "page-b", "page-c"]
    assert second["next_cursor"] is None
    assert chief("GET", f"/v1/batches?cursor={first['next_cursor']}").code == "invalid_input"


def test_provider_list_has_latencies_if_figures_are_requested(world: World, admin: Client) -> None:
    for name in ("shop", "tax"):
        admin("PUT", f"/v1/providers/{name}", SPEC)
    admin("PUT", "/v1/batches/daily", {})
    admin("PUT", "/v1/batches/daily/records", {"items": [{"id": "r1", "provider": "shop"}]})
    assert admin("POST", "/v1/batches/daily/plan", {"date": TOMORROW}).json["enqueued"] == 1
    assert end_all(world, "done", provider="shop", reason="") == 1
    assert [one["latency_ms"] for one in admin("GET", "/v1/providers").json["items"]] == [None, None]
    asked = admin("GET", "/v1/providers?figures=true").json["items"]
    assert [(one["id"], one["latency_ms"]) for one in asked] == [("shop", 5.0), ("tax", None)]
    assert admin("GET", "/v1/providers?figures=perhaps").code == "invalid_input"

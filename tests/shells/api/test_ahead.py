"""The next hours over REST: of all users for admins, their own for users, and refusals that name the field."""

from __future__ import annotations

import pytest

from tests.shells.api.conftest import HTTP, Client, World

MONITORS = "/v1/users/me/monitors"


@pytest.fixture
def admin(world: World, alice: Client) -> Client:
    """Alice has a monitor that fires each minute, and one at a cron time."""
    assert alice("PUT", f"{MONITORS}/web", {**HTTP, "every": "60s"}).status == 201
    cron = {"check": HTTP["check"], "cron": f"17 {_hour(world)} * * *", "timezone": "UTC"}
    assert alice("PUT", f"{MONITORS}/nightly", cron).status == 201
    return world.add("root", "admin")


def _hour(world: World) -> int:
    """Far enough ahead, also if the test is slow."""
    return (world.system.clock.now_ms() // 3_600_000 + 3) % 24


def test_ahead_has_windows_worst_minutes_and_parts(world: World, admin: Client) -> None:
    told = admin("GET", "/v1/ahead").json
    assert (told["hours"], told["window"], told["user"], len(told["windows"])) == (24, "15m", None, 96)
    assert {"start", "monitors", "batches", "jobs", "capacity"} <= set(told["windows"][0])
    assert sum(window["monitors"] for window in told["windows"]) == 24 * 60 + 1
    assert told["worst"][0]["start"].endswith(f"T{_hour(world):02}:17:00.000Z")
    assert {part["name"] for part in told["parts"]} == {"every 1m", f"17 {_hour(world)} * * * UTC"}
    assert all(sum(part["windows"]) == part["starts"] for part in told["parts"])
    assert len(admin("GET", "/v1/ahead?hours=1").json["windows"]) == 60


def test_users_see_their_own_next_hours_and_admins_anybody_s(world: World, alice: Client, admin: Client) -> None:
    bob = world.add("bob")
    for client, query, user, firings in (
        (alice, "", "alice", 1_441),
        (bob, "", "bob", 0),
        (bob, "?user=me", "bob", 0),
        (admin, "?user=alice", "alice", 1_441),
        (admin, "?user=me", "root", 0),
    ):
        told = client("GET", f"/v1/ahead{query}").json
        assert (told["user"], sum(window["monitors"] for window in told["windows"])) == (user, firings)
    assert bob("GET", "/v1/ahead?user=alice").status == 404
    assert admin("GET", "/v1/ahead?user=nobody").status == 404


@pytest.mark.parametrize("hours", ["0", "49", "x", "-1", "1.5", "%D9%A3", ""])
def test_number_of_hours_out_of_range_is_refused_with_the_bounds(alice: Client, hours: str) -> None:
    refused = alice("GET", f"/v1/ahead?hours={hours}")
    assert refused.status == 422
    assert refused.json["errors"] == [{"pointer": "/query/hours", "detail": "a whole number from 1 to 48"}]


def test_names_of_accounts_and_calls_of_batches_are_for_admins(alice: Client, admin: Client) -> None:
    admin("PUT", "/v1/providers/shop", {"base_url": "https://example.org/"})
    admin("PUT", "/v1/batches/daily", {})
    admin("PUT", "/v1/batches/daily/records", {"items": [{"id": "r", "provider": "shop"}]})
    admin("PUT", "/v1/accounts/lab", {})
    assert b"shop" not in alice("GET", "/v1/ahead").body
    assert b"lab" not in alice("GET", "/v1/ahead").body
    assert sum(window["batches"] for window in alice("GET", "/v1/ahead").json["windows"]) == 0
    assert sum(window["batches"] for window in admin("GET", "/v1/ahead").json["windows"]) >= 1

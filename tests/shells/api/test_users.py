"""Users and tokens over REST."""

from __future__ import annotations

import pytest

from tests.shells.api.conftest import HTTP, OUTGOING, Client, World


def test_an_admin_adds_a_user_whose_token_works_at_once(world: World, admin: Client) -> None:
    made = admin("POST", "/v1/users", {"id": "carol", "role": "user", "daily_credits": 5})
    assert made.status == 201
    assert made.headers["location"] == "/v1/users/carol"
    assert set(made.json) == {"user", "token"}
    assert made.json["user"] == "carol"
    carol = world.client(made.json["token"])
    me = carol("GET", "/v1/users/me").json
    assert me == admin("GET", "/v1/users/carol").json
    assert (me["id"], me["role"], me["daily_credits"], me["disabled"], me["monitors"]) == ("carol", "user", 5, False, 0)
    assert me["created_at"].endswith("Z")
    assert admin("POST", "/v1/users", {"id": "carol"}).code == "already_exists"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/id"),
        ({"id": ""}, "/id"),
        ({"id": "me"}, "/id"),
        ({"id": "a/b"}, "/id"),
        ({"id": "x" * 129}, "/id"),
        ({"id": "a\u0000"}, "/id"),
        ({"id": 5}, "/id"),
        ({"id": "x", "role": "god"}, "/role"),
        ({"id": "x", "daily_credits": -1}, "/daily_credits"),
        ({"id": "x", "daily_credits": 10**16}, "/daily_credits"),
        ({"id": "x", "daily_credits": 1.5}, "/daily_credits"),
        ({"id": "x", "credits_spent": 0}, "/credits_spent"),
    ],
)
def test_a_wrong_user_is_refused_by_field(chief: Client, body: object, pointer: str) -> None:
    reply = chief("POST", "/v1/users", body)
    assert (reply.status, reply.code, reply.pointers) == (422, "invalid_input", [pointer])


def test_users_are_listed_in_pages(world: World, admin: Client) -> None:
    for name in ("c", "a", "b"):
        world.add(name)
    page = admin("GET", "/v1/users?limit=2").json
    assert [user["id"] for user in page["items"]] == ["a", "b"]
    rest = admin("GET", f"/v1/users?limit=2&cursor={page['next_cursor']}").json
    assert ([user["id"] for user in rest["items"]], rest["next_cursor"]) == (["c", "root"], None)


def test_an_admin_edits_and_removes_a_user(world: World, admin: Client, alice: Client) -> None:
    alice("PUT", "/v1/users/me/monitors/web", HTTP)
    edited = admin("PATCH", "/v1/users/alice", {"role": "admin", "daily_credits": 7})
    assert (edited.status, edited.json["role"], edited.json["daily_credits"]) == (200, "admin", 7)
    assert alice("GET", "/v1/users").status == 200
    assert admin("PATCH", "/v1/users/alice", {"role": None}).pointers == ["/role"]
    assert admin("PATCH", "/v1/users/alice", {"id": "x"}).pointers == ["/id"]
    assert admin("PATCH", "/v1/users/nobody", {"disabled": True}).code == "not_found"
    assert admin("DELETE", "/v1/users/alice").status == 204
    assert alice("GET", "/v1/users/me").code == "unauthenticated"
    assert admin("GET", "/v1/users/alice").code == "not_found"
    assert admin("DELETE", "/v1/users/alice").code == "not_found"
    assert world.system.store.status().monitors == 0


def test_disabled_user_is_refused_at_the_next_request_until_enabled(admin: Client, alice: Client) -> None:
    alice("PUT", "/v1/users/me/monitors/own", OUTGOING)
    assert admin("PATCH", "/v1/users/alice", {"disabled": True}).json["disabled"] is True
    assert alice("GET", "/v1/users/me").status == 401
    assert admin("GET", "/v1/users/alice/monitors/own").json["schedule"]["next_due"] is None
    assert admin("PATCH", "/v1/users/alice", {"disabled": False}).status == 200
    assert alice("GET", "/v1/users/me").status == 200
    assert alice("GET", "/v1/users/me/monitors/own").json["schedule"]["next_due"] is not None


def test_tokens_are_made_listed_without_their_secret_and_revoked_at_once(world: World, alice: Client) -> None:
    made = alice("POST", "/v1/users/me/tokens", {"label": "laptop"})
    assert made.status == 201
    assert set(made.json) == {"id", "label", "scope", "expires", "created_at", "token"}
    assert (made.json["scope"], made.json["expires"]) == (None, None)
    second = world.client(made.json["token"])
    assert second("GET", "/v1/users/me").json["id"] == "alice"
    listed = alice("GET", "/v1/users/me/tokens")
    assert {token["label"] for token in listed.json["items"]} == {"first", "laptop"}
    assert made.json["token"].encode() not in listed.body
    assert second("DELETE", f"/v1/users/me/tokens/{made.json['id']}").status == 204
    assert second("GET", "/v1/users/me").code == "unauthenticated"
    assert alice("DELETE", f"/v1/users/me/tokens/{made.json['id']}").code == "not_found"
    assert alice("GET", "/v1/users/me").status == 200


def test_a_token_needs_no_body_and_a_label_has_a_size(alice: Client, admin: Client) -> None:
    assert alice("POST", "/v1/users/me/tokens").json["label"] == ""
    assert alice("POST", "/v1/users/me/tokens", {"label": "x" * 101}).pointers == ["/label"]
    assert alice("POST", "/v1/users/me/tokens", {"label": "\u0000"}).pointers == ["/label"]
    assert admin("POST", "/v1/users/nobody/tokens").code == "not_found"
    assert admin("GET", "/v1/users/nobody/tokens").code == "not_found"
    page = alice("GET", "/v1/users/me/tokens?limit=1").json
    rest = alice("GET", f"/v1/users/me/tokens?limit=1&cursor={page['next_cursor']}").json
    assert (len(page["items"]), len(rest["items"]), rest["next_cursor"]) == (1, 1, None)


def test_tokens_beyond_the_limit_of_a_user_are_refused(alice: Client) -> None:
    statuses = [alice("POST", "/v1/users/me/tokens").status for _ in range(100)]
    assert statuses == [201] * 99 + [403]
    assert alice("POST", "/v1/users/me/tokens").code == "limit_reached"

"""Signing in: what the cookie is, what it may do, and when it ends."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path

from paceline.core.users import UserEdit
from tests.shells.api.conftest import HTTP, Client, Reply, World, serving

OWN = {"X-Paceline-Page": "1"}


def signed_in(world: World, token: str) -> dict[str, str]:
    """The headers of a browser that has signed in."""
    reply = world.client()("POST", "/ui/session", {"token": token}, headers=OWN)
    assert reply.status == 200, reply
    return {"Cookie": reply.headers["set-cookie"].partition(";")[0]}


def page(world: World, path: str, headers: dict[str, str]) -> Reply:
    return world.client()("GET", path, headers=headers)


def test_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_cannot_use(world: World) -> None:
    alice = world.add("alice")
    assert alice.token is not None
    reply = world.client()("POST", "/ui/session", {"token": alice.token}, headers=OWN)
    assert reply.json == {"user": "alice", "role": "user", "scope": None}
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"paceline-{world.port}=ps_")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert alice.token not in cookie
    assert page(world, "/ui/monitors", {"Cookie": cookie.partition(";")[0]}).status == 200


def test_cookie_is_secure_over_tls(tmp_path: Path) -> None:
    with serving(tmp_path, tls_self_signed=True) as world:
        trusting = ssl.create_default_context(cafile=str(next(tmp_path.glob("*ca*.pem"))))
        connection = http.client.HTTPSConnection("127.0.0.1", world.port, context=trusting, timeout=30)
        body = json.dumps({"token": world.add("alice").token})
        connection.request("POST", "/ui/session", body, OWN | {"Content-Type": "application/json"})
        cookie = connection.getresponse().getheader("set-cookie") or ""
        connection.close()
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Secure")


def test_cookie_is_secure_behind_a_proxy_that_ends_tls(world: World) -> None:
    proxied = OWN | {"X-Forwarded-Proto": "https", "Host": "paceline.example"}
    reply = world.client()("POST", "/ui/session", {"token": world.add("alice").token}, headers=proxied)
    assert reply.headers["set-cookie"].startswith("paceline=ps_")
    assert reply.headers["set-cookie"].endswith("; Secure")


def test_cookie_counts_on_the_api_only_for_requests_of_the_pages_own_script(world: World) -> None:
    cookie = signed_in(world, world.add("alice").token or "")
    put = "/v1/users/me/monitors/web"
    assert world.client()("PUT", put, HTTP, headers=cookie).status == 401
    assert world.client()("PUT", put, HTTP, headers=cookie | OWN | {"Sec-Fetch-Site": "cross-site"}).status == 401
    assert world.client()("PUT", put, HTTP, headers=cookie | OWN | {"Sec-Fetch-Site": "same-origin"}).status == 201
    assert world.client()("GET", put, headers=cookie).status == 401


def test_other_sites_can_neither_sign_in_nor_out_for_a_person(world: World) -> None:
    alice = world.add("alice")
    assert world.client()("POST", "/ui/session", {"token": alice.token}).status == 403
    foreign = OWN | {"Sec-Fetch-Site": "cross-site"}
    assert world.client()("POST", "/ui/session", {"token": alice.token}, headers=foreign).status == 403
    cookie = signed_in(world, alice.token or "")
    assert world.client()("DELETE", "/ui/session", headers=cookie).status == 401
    assert page(world, "/", cookie).status == 200


def test_session_ends_when_the_person_signs_out(world: World) -> None:
    token = world.add("alice").token or ""
    first, second = signed_in(world, token), signed_in(world, token)
    reply = world.client()("DELETE", "/ui/session", headers=first | OWN)
    assert (reply.status, "Max-Age=0" in reply.headers["set-cookie"]) == (204, True)
    assert page(world, "/ui/jobs", first).status == 303
    assert page(world, "/", second).status == 200


def test_session_ends_with_its_token_and_with_its_user(world: World) -> None:
    root, alice = world.add("root", "admin"), world.add("alice")
    made = alice("POST", "/v1/users/me/tokens", {"label": "browser"}).json
    cookie = signed_in(world, made["token"])
    assert page(world, "/", cookie).status == 200
    assert alice("DELETE", f"/v1/users/me/tokens/{made['id']}").status == 204
    assert page(world, "/ui/jobs", cookie).status == 303
    other = signed_in(world, alice.token or "")
    world.system.store.edit_user("alice", UserEdit(disabled=True))
    world_waits(root)
    assert page(world, "/ui/jobs", other).status == 303


def world_waits(client: Client) -> None:
    """A change by another process counts after a few milliseconds; a request takes longer than that."""
    for _ in range(20):
        client("GET", "/v1/users/me")


def test_read_token_signs_in_to_look_and_not_to_write(world: World) -> None:
    alice = world.add("alice")
    alice("PUT", "/v1/users/me/monitors/web", HTTP)
    made = alice("POST", "/v1/users/me/tokens", {"scope": "read"}).json
    cookie = signed_in(world, made["token"])
    shown = page(world, "/ui/monitors", cookie)
    assert b"web" in shown.body
    assert b"data-do" not in shown.body
    assert world.client()("POST", "/v1/users/me/monitors/web/pause", headers=cookie | OWN).code == "out_of_scope"
    assert world.client()("DELETE", "/ui/session", headers=cookie | OWN).status == 204


def test_checker_s_token_cannot_sign_in(world: World) -> None:
    made = world.add("alice")("POST", "/v1/users/me/tokens", {"scope": "checker"}).json
    reply = world.client()("POST", "/ui/session", {"token": made["token"]}, headers=OWN)
    assert reply.code == "out_of_scope"
    assert "set-cookie" not in reply.headers


def test_wrong_token_is_refused_and_guessing_is_slowed_down(tmp_path: Path) -> None:
    with serving(tmp_path, wrong_tokens_max=3) as world:
        token = world.add("alice").token
        tries = [world.client()("POST", "/ui/session", {"token": "pl_x_y"}, headers=OWN).status for _ in range(5)]
        assert tries == [401, 401, 401, 429, 429]
        assert world.client()("POST", "/ui/session", {"token": token}, headers=OWN).status == 200


def test_visitor_without_a_session_is_sent_to_the_sign_in_form_and_back(world: World) -> None:
    world.add("alice")
    reply = page(world, "/ui/monitors?cursor=x", {})
    assert (reply.status, reply.headers["location"]) == (303, "/ui/sign-in?next=%2Fui%2Fmonitors%3Fcursor%3Dx")
    assert b'data-next="/ui/monitors?cursor=x"' in page(world, reply.headers["location"], {}).body
    for elsewhere in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        form = page(world, f"/ui/sign-in?next={elsewhere}", {})
        assert b'data-next="/"' in form.body, elsewhere
    assert page(world, "/ui/monitors", OWN).status == 401
    assert b'data-next="/"' in page(world, "/", {}).body


def test_session_says_who_is_signed_in_to_our_own_pages_only(world: World) -> None:
    cookie = signed_in(world, world.add("alice").token or "")
    nobody = {"user": None, "role": None, "scope": None}
    assert page(world, "/ui/session", cookie | OWN).json["user"] == "alice"
    assert page(world, "/ui/session", cookie).json == nobody
    assert page(world, "/ui/session", OWN).json == nobody


def test_token_may_sign_in_many_times_and_the_oldest_session_ends(world: World) -> None:
    token = world.add("alice").token or ""
    first = signed_in(world, token)
    for _ in range(20):
        newest = signed_in(world, token)
    assert page(world, "/ui/jobs", first).status == 303
    assert page(world, "/", newest).status == 200


def test_pages_are_compressed_tagged_and_answer_304(world: World) -> None:
    alice = world.add("alice")
    for number in range(30):
        alice("PUT", f"/v1/users/me/monitors/m{number}", HTTP | {"paused": True})
    whole = alice("GET", "/ui/monitors", headers={"Accept-Encoding": "gzip"})
    part = alice("GET", "/ui/monitors", headers={"Accept-Encoding": "gzip"} | OWN)
    assert whole.headers["content-encoding"] == part.headers["content-encoding"] == "gzip"
    assert len(part.body) < len(whole.body) < 8_000
    again = alice("GET", "/ui/monitors", headers={"If-None-Match": part.headers["etag"]} | OWN)
    assert (again.status, again.body) == (304, b"")
    alice("PUT", "/v1/users/me/monitors/m1", HTTP | {"paused": True, "tags": ["x"], "every": "61s"})
    assert alice("GET", "/ui/monitors", headers={"If-None-Match": part.headers["etag"]} | OWN).status == 200


def test_policy_of_pages_allows_nothing_inline_and_nothing_from_elsewhere(world: World) -> None:
    alice = world.add("alice")
    reply = alice("GET", "/ui/monitors")
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    text = reply.body.decode()
    assert " style=" not in text
    assert "<style" not in text
    assert " onclick" not in text
    files = [part.split('"')[0] for part in text.split('src="')[1:] + text.split('rel="stylesheet" href="')[1:]]
    for file in files:
        found = world.client()("GET", file)
        assert (found.status, "immutable" in found.headers["cache-control"]) == (200, True)
        assert world.client()("GET", file, headers={"If-None-Match": found.headers["etag"]}).status == 304
    assert len(files) == 2

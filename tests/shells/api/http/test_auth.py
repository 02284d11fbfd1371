"""Authentication, and answers to wrong tokens."""

from __future__ import annotations

import pytest

from paceline.core.users import TokenUser
from paceline.shells.api.http.auth import ADDRESSES_MAX, TokenCache, WrongTokenLimit
from tests.shells.api.conftest import HTTP, Client, World, serving

ME = "/v1/users/me"


@pytest.mark.parametrize(
    "value", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Token x", "bearer", "\xff", "Bearer\tx"]
)
def test_request_without_a_bearer_token_gets_401_with_www_authenticate(house: World, value: str | None) -> None:
    reply = house.client()("GET", ME, headers={} if value is None else {"Authorization": value})
    assert (reply.status, reply.code) == (401, "unauthenticated")
    assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "token", ["x", "pl_", "pl__", "pl_x_y", "pl_\xff\xfe_x", "pl_" + "a" * 12 + "_" + "0" * 64, "x" * 10_000, "a b c"]
)
def test_a_wrong_token_is_a_401(world: World, alice: Client, token: str) -> None:
    assert world.client(token)("GET", ME).code == "unauthenticated"
    forged = world.tokens["alice"][:-1] + ("0" if world.tokens["alice"][-1] != "0" else "1")
    assert world.client(forged)("GET", ME).code == "unauthenticated"
    assert alice("GET", ME).status == 200


def test_bearer_scheme_is_case_insensitive(world: World, alice: Client) -> None:
    assert world.client()("GET", ME, headers={"Authorization": f"bEARER  {alice.token}"}).status == 200


def test_admin_routes_are_forbidden_to_users(alice: Client) -> None:
    for method, path, body in (
        ("GET", "/v1/users", None),
        ("POST", "/v1/users", {"id": "x"}),
        ("PATCH", ME, {"role": "admin"}),
        ("DELETE", ME, None),
        ("GET", "/v1/schedulers", None),
        ("GET", "/v1/status", None),
    ):
        reply = alice(method, path, body)
        assert (reply.status, reply.code) == (403, "forbidden"), path
    assert alice("GET", ME).json["role"] == "user"


def test_many_wrong_tokens_are_throttled_and_a_valid_token_is_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(tmp_path_factory.mktemp("flood"), wrong_tokens_max=5) as world:
        alice = world.add("alice")
        wrong = world.client("pl_aaaaaaaaaaaa_bad")
        assert [wrong("GET", ME).status for _ in range(7)] == [401] * 5 + [429] * 2
        throttled = wrong("GET", ME)
        assert throttled.code == "throttled"
        assert 1 <= int(throttled.headers["retry-after"]) <= 60
        assert alice("GET", ME).status == 200
        assert alice("PUT", f"{ME}/monitors/web", HTTP).status == 201
        assert world.client()("GET", ME).status == 401


def test_token_that_was_read_before_a_change_is_not_cached_after_it() -> None:
    """A remote store is read in a thread: a token may be revoked between the answer of the store and the cache."""
    tokens, user = TokenCache(), TokenUser(id="ann", role="user", daily_credits=0, disabled=False, created_ms=0)
    version = tokens.version
    tokens.forget()
    tokens.keep("secret", user, now_ms=1, version=version)
    assert tokens.user("secret", now_ms=1) is None
    tokens.keep("secret", user, now_ms=1, version=tokens.version)
    assert tokens.user("secret", now_ms=1) == user
    tokens.forget()
    assert tokens.user("secret", now_ms=1) is None


def test_wrong_token_limit_recovers_with_time_and_counts_each_address() -> None:
    brake = WrongTokenLimit(per_minute=2)
    assert [brake.count("192.0.2.1", now_ms=0) for _ in range(3)] == [None, None, 30]
    assert brake.count("192.0.2.2", now_ms=0) is None
    assert brake.count("192.0.2.1", now_ms=29_000) == 1
    assert brake.count("192.0.2.1", now_ms=30_001) is None
    assert brake.count("192.0.2.1", now_ms=10) is not None


def test_wrong_token_limit_counts_an_ipv6_network_as_one_and_forgets_the_oldest() -> None:
    brake = WrongTokenLimit(per_minute=1)
    assert brake.count("2001:db8::1", now_ms=0) is None
    assert brake.count("2001:db8::ffff:1", now_ms=0) is not None
    assert brake.count("2001:db8:0:1::1", now_ms=0) is None
    for number in range(ADDRESSES_MAX + 5):
        brake.count(f"host-{number}", now_ms=0)
    assert brake.count("2001:db8::1", now_ms=0) is None


def test_token_is_not_served_from_the_cache_once_it_has_expired() -> None:
    tokens = TokenCache()
    user = TokenUser("ann", "user", 0, disabled=False, created_ms=0, scope="read", expires_ms=5)
    tokens.keep("secret", user, now_ms=1, version=tokens.version)
    assert tokens.user("secret", now_ms=4) == user
    assert tokens.user("secret", now_ms=5) is None

from __future__ import annotations

import pytest

from paceline.core.users import UserEdit
from paceline.errors import AlreadyExists, InvalidInput, LimitReached, NotFound
from paceline.ports import Store
from paceline.steps.access import (
    DAILY_CREDITS_MAX,
    TOKENS_MAX,
    NewToken,
    add_token,
    add_user,
    authenticate,
    edit_user,
    get_user,
    remove_user,
    revoke_token,
)
from tests.steps.support.scene import T0_MS

KEY = b"k" * 32


def new_user(store: Store, user_id: str, *, seed: int = 1, daily_credits: int = 5) -> NewToken:
    _, token = add_user(
        store,
        user_id,
        role="user",
        daily_credits=daily_credits,
        token_bytes=bytes([seed]) * 32,
        secret_key=KEY,
        now_ms=T0_MS,
    )
    return token


def new_token(store: Store, user_id: str, *, seed: int, label: str = "another") -> NewToken:
    return add_token(store, user_id, label=label, token_bytes=bytes([seed]) * 32, secret_key=KEY, now_ms=T0_MS)


def whose(store: Store, secret: str, *, key: bytes = KEY) -> str | None:
    user = authenticate(store, secret, secret_key=key, now_ms=T0_MS)
    return None if user is None else user.id


def test_a_user_enters_with_the_token_that_was_shown_once(store: Store) -> None:
    token = new_user(store, "cem")
    assert whose(store, token.secret) == "cem"
    assert len(token.secret.rsplit("_", 1)[1]) == 64


def test_promise_12_the_secret_is_not_in_the_store(store: Store) -> None:
    token = new_user(store, "cem")
    (kept,) = store.tokens("cem")
    assert kept == token.token
    random_part = token.secret.rsplit("_", 1)[1]
    assert random_part not in repr(kept)
    assert kept.digest.hex() not in token.secret
    assert whose(store, token.secret, key=b"another key" * 3) is None


@pytest.mark.parametrize(
    "mangle",
    [
        lambda _: "",
        lambda secret: secret[:-1],
        lambda secret: secret + "0",
        lambda secret: secret.upper(),
        lambda secret: secret.replace("pl_", "xx_"),
        lambda secret: secret.replace("_", ""),
        lambda secret: secret[:16] + "0" * 64,
        lambda secret: " " + secret,
        lambda _: "pl__" + "0" * 64,
        lambda _: "pl_" + "x" * 100_000 + "_0",
        lambda _: "pl_\ud800_0",
        lambda _: "pl_\x00_0",
        lambda _: "pl_' OR 1=1 --_0",
    ],
)
def test_promise_12_altered_token_secret_is_refused(store: Store, mangle: object) -> None:
    token = new_user(store, "cem")
    assert callable(mangle)
    assert whose(store, mangle(token.secret)) is None


def test_promise_12_token_id_with_the_secret_of_another_user_is_refused(store: Store) -> None:
    one, two = new_user(store, "cem", seed=1), new_user(store, "dan", seed=2)
    mixed = f"pl_{two.token.id}_{one.secret.rsplit('_', 1)[1]}"
    assert whose(store, mixed) is None
    assert (whose(store, one.secret), whose(store, two.secret)) == ("cem", "dan")


def test_promise_12_a_revoked_token_is_refused_at_the_next_request(store: Store, second: Store) -> None:
    first = new_user(store, "cem")
    other = new_token(store, "cem", seed=9)
    revoke_token(second, "cem", first.token.id)
    assert whose(store, first.secret) is None
    assert whose(store, other.secret) == "cem"
    with pytest.raises(NotFound):
        revoke_token(store, "cem", first.token.id)
    with pytest.raises(NotFound):
        revoke_token(store, "ann", other.token.id)


def test_promise_12_a_disabled_user_is_refused_and_an_enabled_one_enters(store: Store, second: Store) -> None:
    token = new_user(store, "cem")
    edit_user(second, "cem", UserEdit(disabled=True), now_ms=T0_MS)
    assert whose(store, token.secret) is None
    edit_user(second, "cem", UserEdit(disabled=False), now_ms=T0_MS)
    assert whose(store, token.secret) == "cem"


def test_a_removed_user_s_token_is_refused_even_when_the_name_comes_back(store: Store) -> None:
    token = new_user(store, "cem")
    remove_user(store, "cem", now_ms=T0_MS)
    assert whose(store, token.secret) is None
    new_user(store, "cem", seed=2)
    assert whose(store, token.secret) is None


@pytest.mark.parametrize("user_id", ["me", "", "a b", "a/b", "../x", "\x00", "x" * 200])
def test_invalid_user_id_is_refused(store: Store, user_id: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        new_user(store, user_id)
    assert [problem.pointer for problem in caught.value.errors] == ["/id"]


@pytest.mark.parametrize("daily_credits", [-1, DAILY_CREDITS_MAX + 1])
def test_daily_credits_out_of_range_are_refused(store: Store, daily_credits: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        new_user(store, "cem", daily_credits=daily_credits)
    assert [problem.pointer for problem in caught.value.errors] == ["/daily_credits"]
    with pytest.raises(InvalidInput):
        edit_user(store, "ann", UserEdit(daily_credits=daily_credits), now_ms=T0_MS)


def test_user_id_cannot_be_used_twice(store: Store) -> None:
    new_user(store, "cem")
    with pytest.raises(AlreadyExists):
        new_user(store, "cem", seed=2)


def test_missing_user_and_token_are_not_found(store: Store) -> None:
    for act in (
        lambda: get_user(store, "nobody"),
        lambda: edit_user(store, "nobody", UserEdit(), now_ms=T0_MS),
        lambda: remove_user(store, "nobody", now_ms=T0_MS),
        lambda: new_token(store, "nobody", seed=3),
    ):
        with pytest.raises(NotFound, match="nobody"):
            act()


def test_token_label_that_is_too_long_or_has_a_nul_is_refused(store: Store) -> None:
    for label in ("x" * 101, "a\x00b"):
        with pytest.raises(InvalidInput) as caught:
            new_token(store, "ann", seed=3, label=label)
        assert [problem.pointer for problem in caught.value.errors] == ["/label"]


@pytest.mark.parametrize("name", ["me", "ME", "Me", "mE"])
def test_no_user_can_be_named_me_in_any_case(name: str, store: Store) -> None:
    with pytest.raises(InvalidInput, match="reserved"):
        add_user(store, name, role="user", daily_credits=0, token_bytes=b"x" * 32, secret_key=KEY, now_ms=T0_MS)


def test_tokens_of_a_user_are_limited_on_every_path(store: Store) -> None:
    for seed in range(TOKENS_MAX - len(store.tokens("ann"))):
        new_token(store, "ann", seed=seed)
    with pytest.raises(LimitReached, match="Revoke some first"):
        new_token(store, "ann", seed=255)

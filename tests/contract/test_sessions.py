"""Sessions of the dashboard last as long as their token, on both engines."""

from __future__ import annotations

from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps.access import TOKEN_BYTES, add_token, add_user, revoke_token
from paceline.steps.sessions import SESSION_BYTES, SESSION_MS, SESSIONS_MAX, begin_session, end_session, user_of_session

KEY = b"k" * 32
NOW_MS = 1_800_000_000_000


def begin(store: Store, secret: str, number: int = 1, *, now_ms: int = NOW_MS) -> str:
    made = number.to_bytes(SESSION_BYTES)
    return begin_session(store, secret, session_bytes=made, secret_key=KEY, now_ms=now_ms)


def who(store: Store, cookie: str, *, now_ms: int = NOW_MS) -> str | None:
    user = user_of_session(store, cookie, secret_key=KEY, now_ms=now_ms)
    return None if user is None else user.id


def test_session_lasts_as_long_as_its_token_its_user_and_two_weeks(store: Store, other: Store) -> None:
    _, first = add_user(
        store, "sessa", role="user", daily_credits=0, token_bytes=bytes(TOKEN_BYTES), secret_key=KEY, now_ms=NOW_MS
    )
    second = add_token(
        store, "sessa", label="", token_bytes=b"2" * TOKEN_BYTES, secret_key=KEY, now_ms=NOW_MS, scope="read"
    )
    one, two = begin(store, first.secret), begin(store, second.secret)
    assert (who(other, one), who(other, two)) == ("sessa", "sessa")
    found = user_of_session(other, two, secret_key=KEY, now_ms=NOW_MS)
    assert found is not None
    assert found.scope == "read"
    assert who(store, one, now_ms=NOW_MS + SESSION_MS) is None
    assert who(store, one[:-1] + ("0" if one[-1] != "0" else "1")) is None
    revoke_token(other, "sessa", second.token.id)
    assert (who(store, one), who(store, two)) == ("sessa", None)
    store.edit_user("sessa", UserEdit(disabled=True))
    assert who(other, one) is None
    store.edit_user("sessa", UserEdit(disabled=False))
    end_session(other, one, secret_key=KEY)
    assert who(store, one) is None


def test_further_session_of_a_token_ends_the_oldest(store: Store) -> None:
    _, made = add_user(
        store, "sessa", role="user", daily_credits=0, token_bytes=bytes(TOKEN_BYTES), secret_key=KEY, now_ms=NOW_MS
    )
    cookies = [begin(store, made.secret, number, now_ms=NOW_MS + number) for number in range(SESSIONS_MAX + 2)]
    assert [who(store, cookie) for cookie in cookies] == [None, None, *["sessa"] * SESSIONS_MAX]


def test_text_that_is_not_a_session_cookie_identifies_no_user(store: Store) -> None:
    for text in ("", "ps_", "ps__", "pl_x_y", "ps_a/b_c", "ps_ä_c", f"ps_{'a' * 100}_c", "ps_abc_def"):
        assert who(store, text) is None
        end_session(store, text, secret_key=KEY)

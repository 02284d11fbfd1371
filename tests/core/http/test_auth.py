"""Authentication of a request: the header that is sent, and values that cannot be sent."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.http.auth import Auth, BasicAuth, BearerAuth, auth_problems, authorization, with_values


@given(username=st.text(max_size=20).filter(lambda text: ":" not in text), password=st.text(max_size=20))
def test_basic_header_carries_user_name_and_password_apart(username: str, password: str) -> None:
    scheme, _, value = authorization(BasicAuth(username, password)).partition(" ")
    assert scheme == "Basic"
    assert b64decode(value).decode().split(":", 1) == [username, password]


def test_bearer_header_carries_the_token_as_it_is() -> None:
    assert authorization(BearerAuth("abc.def")) == "Bearer abc.def"


@pytest.mark.parametrize(
    ("auth", "pointers"),
    [
        (BasicAuth("ada", "secret: with colon"), []),
        (BasicAuth("a:b", "c"), ["/auth/username"]),
        (BasicAuth("ada\n", "b\r"), ["/auth/username", "/auth/password"]),
        (BearerAuth("abc"), []),
        (BearerAuth(""), ["/auth/token"]),
        (BearerAuth("two words"), ["/auth/token"]),
        (BearerAuth("b\u00fccher"), ["/auth/token"]),
    ],
)
def test_authentication_that_no_header_can_carry_is_refused_by_its_field(auth: Auth, pointers: list[str]) -> None:
    assert [problem.pointer for problem in auth_problems(auth, "/auth")] == pointers


def test_each_value_of_an_authentication_is_changed_by_its_name() -> None:
    changed = with_values(BasicAuth("ada", "secret"), lambda name, value: f"{name}={value}")
    assert changed == BasicAuth("username=ada", "password=secret")
    assert with_values(BearerAuth("abc"), lambda _, value: value.upper()) == BearerAuth("ABC")

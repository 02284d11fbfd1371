"""Secrets of checks: sealed when stored, masked when shown, kept when given back masked."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.http.auth import BasicAuth, BearerAuth
from paceline.core.monitors.check_secrets import (
    hides,
    is_clear,
    is_sealed,
    keep_hidden,
    open_check,
    seal_check,
    secrets_given,
)
from paceline.core.monitors.checks import HIDDEN, HttpCheck, TcpCheck
from paceline.errors import InvalidInput

TCP = TcpCheck(host="example.org", port=25)


def web(**more: Any) -> HttpCheck:
    return HttpCheck(url="https://example.org/", **more)


def seal(text: str) -> str:
    return f"sealed({text})"


def unseal(text: str) -> str:
    return text.removeprefix("sealed(").removesuffix(")")


FULL = web(headers={"X-Key": "a"}, body="b", auth=BearerAuth(token="c"))


def test_sealed_check_opens_to_the_original_and_is_sealed_only_once() -> None:
    assert is_clear(FULL)
    sealed = seal_check(FULL, seal)
    assert is_sealed(sealed)
    assert not is_clear(sealed)
    assert (sealed.headers, sealed.body, sealed.auth) == (
        {"X-Key": "sealed(a)"},
        "sealed(b)",
        BearerAuth(token="sealed(c)"),
    )
    assert seal_check(sealed, seal) is sealed
    assert open_check(sealed, unseal) == FULL


@pytest.mark.parametrize("check", [TCP, web()])
def test_check_without_secrets_stays_as_it_is(check: HttpCheck | TcpCheck) -> None:
    assert not is_clear(check)
    assert not is_sealed(check)
    assert not hides(check)
    assert not secrets_given(check)
    assert seal_check(check, seal) is check
    assert open_check(check, unseal) is check
    assert keep_hidden(check, None) is check


@pytest.mark.parametrize("part", [{"headers": {"X-Key": HIDDEN}}, {"body": HIDDEN}, {"auth": BearerAuth(token=HIDDEN)}])
def test_masked_value_keeps_the_stored_one_and_is_no_new_secret(part: dict[str, Any]) -> None:
    stored = seal_check(FULL, seal)
    given = seal_check(web(**part), seal)
    assert hides(given)
    assert not secrets_given(given)
    kept = keep_hidden(given, stored)
    (name,) = part
    assert getattr(kept, name) == getattr(stored, name)


def test_given_value_replaces_the_stored_one() -> None:
    assert secrets_given(FULL)
    assert secrets_given(web(body="b"))
    given = seal_check(web(headers={"X-Key": HIDDEN, "X-New": "n"}, auth=BearerAuth(token="d")), seal)
    kept = keep_hidden(given, seal_check(FULL, seal))
    assert kept.headers == {"X-Key": "sealed(a)", "X-New": "sealed(n)"}
    assert kept.auth == BearerAuth(token="sealed(d)")


def test_masked_values_that_nothing_is_stored_for_are_all_named() -> None:
    given = web(headers={"X/Key": HIDDEN}, body=HIDDEN, auth=BasicAuth(username="u", password=HIDDEN))
    with pytest.raises(InvalidInput) as refused:
        keep_hidden(given, replace(FULL, headers={}, body=None), pointer="/items/0")
    assert [problem.pointer for problem in refused.value.errors] == [
        "/items/0/check/headers/X~1Key",
        "/items/0/check/body",
        "/items/0/check/auth/password",
    ]
    with pytest.raises(InvalidInput):
        keep_hidden(given, TCP)

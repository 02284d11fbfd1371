"""Scopes of tokens, and tokens that end."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.scopes import SCOPE_PATTERN, scope_kind, scope_problem, worker_provider
from paceline.core.users import Token, no_user


@pytest.mark.parametrize(
    ("scope", "kind", "provider"),
    [("", None, None), ("read", "read", None), ("checker", "checker", None), ("worker:shop", "worker", "shop")],
)
def test_scope_has_one_kind_and_a_worker_its_provider(scope: str, kind: str | None, provider: str | None) -> None:
    assert scope_problem(scope, "/scope") is None
    assert (scope_kind(scope), worker_provider(scope)) == (kind, provider)


@pytest.mark.parametrize("scope", ["write", "worker:", "worker", "worker:a b", "READ", "worker:" + "a" * 129])
def test_wrong_scope_is_refused_with_the_rule(scope: str) -> None:
    problem = scope_problem(scope, "/scope")
    assert problem is not None
    assert (problem.pointer, "worker:" in problem.detail) == ("/scope", True)


@given(st.from_regex(SCOPE_PATTERN, fullmatch=True) | st.text(max_size=20).map("worker:".__add__))
def test_pattern_of_scopes_allows_what_the_rule_allows(scope: str) -> None:
    assert (re.fullmatch(SCOPE_PATTERN, scope) is not None) == (scope_problem(scope, "") is None)


def test_token_has_expired_from_its_end_on() -> None:
    token = Token("t1", "ann", "", b"", 0, expires_ms=5)
    assert [token.has_expired(now_ms) for now_ms in (4, 5, 6)] == [False, True, True]
    assert not Token("t1", "ann", "", b"", 0).has_expired(1 << 60)


def test_error_for_a_missing_user_names_no_more_than_an_id_may_have() -> None:
    assert len(no_user("a" * 1_000).detail) < 200

"""Authentication of requests: basic and bearer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import assert_never

import msgspec
from msgspec.structs import asdict

from paceline.core.parsing import line_problem
from paceline.core.targets import header_problem
from paceline.errors import FieldProblem

VALUE_CHARS_MAX = 2_048
AUTHORIZATION = "Authorization"


class BasicAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="basic"):
    """User name and password. Both are sealed, and shown as `***`."""

    username: str
    password: str


class BearerAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="bearer"):
    """A token. It is sealed, and shown as `***`."""

    token: str


Auth = BasicAuth | BearerAuth


def authorization(auth: Auth) -> str:
    """Return the value of the header ``Authorization``."""
    match auth:
        case BasicAuth(username=username, password=password):
            return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"
        case BearerAuth(token=token):
            return f"Bearer {token}"
        case never:
            assert_never(never)


def auth_problems(auth: Auth, pointer: str) -> list[FieldProblem]:
    problems = []
    for name, value in asdict(auth).items():
        if problem := line_problem(value, f"{pointer}/{name}", chars_max=VALUE_CHARS_MAX):
            problems.append(problem)
    if isinstance(auth, BasicAuth) and ":" in auth.username:
        problems.append(FieldProblem(f"{pointer}/username", "a user name of basic authentication has no colon"))
    if isinstance(auth, BearerAuth):
        detail = header_problem(AUTHORIZATION, auth.token)
        if detail or not auth.token or " " in auth.token:
            problems.append(FieldProblem(f"{pointer}/token", detail or "a token without blanks"))
    return problems


def with_values(auth: Auth, change: Callable[[str, str], str]) -> Auth:
    """Return the authentication with each value changed; ``change`` gets the name and the value."""
    return type(auth)(**{name: change(name, value) for name, value in asdict(auth).items()})

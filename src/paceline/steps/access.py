"""Users, their tokens, and the check of a token."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import NamedTuple, assert_never

from msgspec.structs import asdict

from paceline.core.ids import id_problem
from paceline.core.instants import parse_instant_ms
from paceline.core.parsing import line_problem
from paceline.core.scopes import scope_problem
from paceline.core.users import Role, Token, TokenUser, User, UserEdit, no_user
from paceline.errors import AlreadyExists, FieldProblem, InvalidInput, LimitReached, NotFound
from paceline.ports import Store
from paceline.steps.alerts.channels import remove_channels
from paceline.steps.alerts.silences import remove_silences
from paceline.steps.history.notes import note_disabled, note_limit
from paceline.steps.jobs.refusals import remove_refusals
from paceline.steps.monitors.react import react_to_all

TOKEN_BYTES = 32
TOKEN_ID_CHARS = 12
LABEL_CHARS_MAX = 100
DAILY_CREDITS_DEFAULT = 1_000_000
DAILY_CREDITS_MAX = 10**15
TOKENS_MAX = 100
"""Maximum number of tokens of one user."""
RESERVED_IDS = frozenset({"me"})
"""Reserved in upper and lower case: "ME" in a path would be read as "me"."""


class NewToken(NamedTuple):
    """A new token. ``secret`` is what the user sends; it is shown once and stored nowhere."""

    token: Token
    secret: str


def add_user(
    store: Store,
    user_id: str,
    *,
    role: Role,
    daily_credits: int,
    token_bytes: bytes,
    secret_key: bytes,
    now_ms: int,
) -> tuple[User, NewToken]:
    """Add a user with a first token."""
    problem = id_problem(user_id, "/id")
    if problem is None and user_id.lower() in RESERVED_IDS:
        problem = FieldProblem("/id", f"{user_id!r} is reserved; choose another id")
    if problem is None:
        problem = credits_problem(daily_credits)
    if problem:
        raise InvalidInput.of(problem)
    user = User(id=user_id, role=role, daily_credits=daily_credits, disabled=False, created_ms=now_ms)
    if not store.add_user(user):
        raise AlreadyExists(f"There is a user {user_id!r} already. Choose another id, or give that user a new token.")
    return user, add_token(store, user_id, label="first", token_bytes=token_bytes, secret_key=secret_key, now_ms=now_ms)


def add_token(
    store: Store,
    user_id: str,
    *,
    label: str,
    token_bytes: bytes,
    secret_key: bytes,
    now_ms: int,
    scope: str = "",
    expires: str | None = None,
) -> NewToken:
    """Add a token of 32 random bytes; raise LimitReached if the user has TOKENS_MAX.

    ``scope``: what it may do (``core.scopes``). ``expires``: when it ends, ISO 8601 in UTC with Z.
    """
    assert len(token_bytes) == TOKEN_BYTES
    expires_ms = parse_instant_ms(expires) if expires is not None else None
    problems = [line_problem(label, "/label", chars_max=LABEL_CHARS_MAX), scope_problem(scope, "/scope")]
    if expires is not None and (expires_ms is None or expires_ms <= now_ms):
        problems.append(FieldProblem("/expires", "a time to come, ISO 8601 in UTC with Z"))
    if found := [problem for problem in problems if problem is not None]:
        raise InvalidInput.of(*found)
    token_id = sha256(b"id" + token_bytes).hexdigest()[:TOKEN_ID_CHARS]
    secret = f"pl_{token_id}_{token_bytes.hex()}"
    token = Token(token_id, user_id, label, digest(secret, secret_key), now_ms, scope, expires_ms)
    match store.add_token(token, tokens_max=TOKENS_MAX):
        case "added":
            return NewToken(token, secret)
        case "no_user":
            raise no_user(user_id)
        case "full":
            raise LimitReached(f"User {user_id!r} has {TOKENS_MAX} tokens, the most there may be. Revoke some first.")
        case never:
            assert_never(never)


def revoke_token(store: Store, user_id: str, token_id: str) -> None:
    if not store.remove_token(user_id, token_id):
        raise NotFound(f"User {user_id!r} has no token {token_id[:64]!r}.")


def authenticate(store: Store, secret: str, *, secret_key: bytes, now_ms: int) -> TokenUser | None:
    """Return the token's user, or None. A wrong token takes the same time as a right one."""
    parts = secret.split("_", 2)
    token_id = parts[1] if len(parts) == 3 and parts[0] == "pl" else ""
    found = store.token(token_id) if 0 < len(token_id) <= 64 and token_id.isascii() else None
    expected = found[0].digest if found else bytes(32)
    matches = hmac.compare_digest(digest(secret, secret_key), expected)
    if not matches or found is None or found[1].disabled or found[0].has_expired(now_ms):
        return None
    return user_of_token(*found)


def user_of_token(token: Token, user: User) -> TokenUser:
    """Return the user with the token's scope. The token must have been checked."""
    return TokenUser(**asdict(user), scope=token.scope, expires_ms=token.expires_ms)


def edit_user(store: Store, user_id: str, edit: UserEdit, *, now_ms: int) -> User:
    if edit.daily_credits is not None and (problem := credits_problem(edit.daily_credits)):
        raise InvalidInput.of(problem)
    before = store.user(user_id) if edit.daily_credits is not None else None
    if before is not None and before.daily_credits != edit.daily_credits:
        note_limit(store, user_id, daily_credits=before.daily_credits, now_ms=now_ms)
    user = store.edit_user(user_id, edit)
    if user is None:
        raise no_user(user_id)
    if edit.disabled is not None:
        note_disabled(store, user_id, disabled=edit.disabled, now_ms=now_ms)
        react_to_all(store, now_ms=now_ms)
    return user


def remove_user(store: Store, user_id: str, *, now_ms: int) -> None:
    if not store.remove_user(user_id):
        raise no_user(user_id)
    # A later user of the same name does not see what a crash here leaves behind: it is older than that user.
    remove_channels(store, user_id)
    remove_silences(store, user_id)
    remove_refusals(store, user_id)
    react_to_all(store, now_ms=now_ms)


def get_user(store: Store, user_id: str) -> User:
    user = store.user(user_id)
    if user is None:
        raise no_user(user_id)
    return user


def credits_problem(daily_credits: int) -> FieldProblem | None:
    if 0 <= daily_credits <= DAILY_CREDITS_MAX:
        return None
    return FieldProblem("/daily_credits", f"must be from 0 to {DAILY_CREDITS_MAX}")


def digest(secret: str, secret_key: bytes) -> bytes:
    return hmac.digest(secret_key, secret.encode("utf-8", "surrogatepass"), "sha256")

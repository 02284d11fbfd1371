"""Users and their API tokens, as a store keeps them."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.errors import NotFound

Role = Literal["admin", "user"]


TokenAdded = Literal["added", "no_user", "full"]


class User(msgspec.Struct, frozen=True):
    id: str
    role: Role
    daily_credits: int
    disabled: bool
    created_ms: int
    monitors: int = 0
    """Number of the user's monitors; kept by the store."""


class TokenUser(User, frozen=True):
    """User of a token that was checked, with the token's scope (``core.scopes``)."""

    scope: str = ""
    expires_ms: int | None = None


class UserEdit(msgspec.Struct, frozen=True):
    """Edit of a user. None leaves a field as it is."""

    role: Role | None = None
    daily_credits: int | None = None
    disabled: bool | None = None


class Token(msgspec.Struct, frozen=True):
    """A token's record. The secret itself is never stored: ``digest`` is its keyed hash."""

    id: str
    user: str
    label: str
    digest: bytes
    created_ms: int
    scope: str = ""
    """Scope of the token, by ``core.scopes``; empty: it may do all that its user may."""
    expires_ms: int | None = None

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and self.expires_ms <= now_ms


def no_user(user_id: str) -> NotFound:
    return NotFound(f"There is no user {user_id[:128]!r}.")

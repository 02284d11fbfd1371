"""Users and their API tokens, as a store keeps them."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["admin", "user"]


TokenAdded = Literal["added", "no_user", "full"]


class User(msgspec.Struct, frozen=True):
    id: str
    role: Role
    daily_credits: int
    disabled: bool
    created_ms: int
    monitors: int = 0
    """How many monitors the user has; kept by the store."""


class UserEdit(msgspec.Struct, frozen=True):
    """None leaves a field as it is."""

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

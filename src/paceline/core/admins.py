"""Rule that the last admin stays one: at least one user must be able to give rights."""

from __future__ import annotations

from typing import NamedTuple


class Standing(NamedTuple):
    """The facts that decide whether a user can act as an admin."""

    role: str
    disabled: bool

    @property
    def is_active_admin(self) -> bool:
        return self.role == "admin" and not self.disabled


def gives_up_admin(before: Standing, after: Standing | None) -> bool:
    """Return whether a change takes an active admin away, who must not be the last.

    ``after`` None: the user is removed.
    """
    return before.is_active_admin and not (after is not None and after.is_active_admin)


def last_admin_words(user: str) -> str:
    return f"User {user[:128]!r} is the last admin. Make another user an admin first, then change this one."

"""Age of a user: things that were made before it belonged to another user of the same name."""

from __future__ import annotations

from paceline.core.users import no_user
from paceline.ports import Store


def since_ms(store: Store, user: str) -> int:
    """Return when the user was made; raise NotFound if there is no such user."""
    found = store.user(user)
    if found is None:
        raise no_user(user)
    return found.created_ms

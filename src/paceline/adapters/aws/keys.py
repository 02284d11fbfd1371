"""Keys of items that several parts of the store read."""

from __future__ import annotations

from paceline.adapters.aws.client.items import Key, joined


def user_key(user_id: str) -> Key:
    """In ``items``: role, daily_credits, disabled, created_ms, monitors (how many the user has)."""
    return Key(joined("user", user_id), "-")

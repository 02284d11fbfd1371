"""Keys of items that several parts of the store read."""

from __future__ import annotations

from paceline.adapters.aws.client.items import DynamoKey, joined


def user_key(user_id: str) -> DynamoKey:
    """Return the key of a user in ``items``: role, daily_credits, disabled, created_ms, monitors (their number)."""
    return DynamoKey(joined("user", user_id), "-")

"""Items in one table."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.sqlite.database import Connection
from paceline.ports.items import ANYTHING, LAST_KEY, ItemKey, ItemWrite

EXPIRED_MAX = 1_000


class ItemsInside:
    """Items inside a transaction that is already open."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def get_items(self, keys: Sequence[ItemKey]) -> dict[ItemKey, bytes]:
        return get_items(self._db, keys)

    def items_after(self, kind: str, *, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        return items_after(self._db, kind, after=after, before=before, limit=limit)

    def write_items(self, writes: Sequence[ItemWrite]) -> dict[ItemKey, bytes | None]:
        return write_items(self._db, writes)


def get_items(db: Connection, keys: Sequence[ItemKey]) -> dict[ItemKey, bytes]:
    return {at: value for at in keys if (value := _value(db, at)) is not None}


def items_after(db: Connection, kind: str, *, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
    rows = db.execute(
        "SELECT key, value FROM item WHERE kind = ? AND key > ? AND key < ? ORDER BY key LIMIT ?",
        (kind, after, before or LAST_KEY, limit),
    )
    return [(key, value) for key, value in rows]


def write_items(db: Connection, writes: Sequence[ItemWrite]) -> dict[ItemKey, bytes | None]:
    found = {one.at: _value(db, one.at) for one in writes if one.believed is not ANYTHING}
    wrong = {one.at: found[one.at] for one in writes if one.at in found and found[one.at] != one.believed}
    if wrong:
        return wrong
    for one in writes:
        if one.value is None:
            db.execute("DELETE FROM item WHERE kind = ? AND key = ?", one.at)
        else:
            db.execute(
                """INSERT INTO item (kind, key, value, expires_ms) VALUES (?, ?, ?, ?)
                   ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, expires_ms = excluded.expires_ms""",
                (*one.at, one.value, one.expires_ms),
            )
    return {}


def delete_expired(db: Connection, *, now_ms: int) -> None:
    """Delete a bounded number of expired items; DynamoDB does that by itself."""
    db.execute(
        """DELETE FROM item WHERE (kind, key) IN
               (SELECT kind, key FROM item WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)""",
        (now_ms, EXPIRED_MAX),
    )


def _value(db: Connection, at: ItemKey) -> bytes | None:
    row = db.execute("SELECT value FROM item WHERE kind = ? AND key = ?", at).fetchone()
    return row[0] if row else None

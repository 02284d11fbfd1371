"""Recorded changes of definitions that their entries have not followed yet."""

from __future__ import annotations

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import ITEMS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.entries import read_entries, to_entry
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.users import expand
from paceline.core.monitors.values import Change

COUNTED_MAX = 100_000


def changes(store: MonitorParts, *, limit: int, now_ms: int) -> list[Change]:
    """Return changes with definition and entry. A change is read first: a newer definition has a change of its own."""
    del now_ms
    db = store.db
    rows = _recorded(db, limit=limit)
    if fans := [row for row in rows if row["sk"].startswith(keys.FAN)]:
        for fan in fans:
            expand(store, fan)
        rows = [row for row in _recorded(db, limit=limit) if not row["sk"].startswith(keys.FAN)]
    rows = sorted(rows, key=lambda row: int(row["generation"]))[:limit]
    item_keys = [
        key for row in rows for key in (keys.monitor_key(row["user"], row["monitor"]), keys.user_key(row["owner"]))
    ]
    found = db.get_many(ITEMS, item_keys)
    items = read_entries(db, [row["generation"] for row in rows])
    changes: list[Change] = []
    for row in rows:
        generation, user = row["generation"], found.get(keys.user_key(row["owner"]))
        monitor = found.get(keys.monitor_key(row["user"], row["monitor"]))
        entry = items.get(generation)
        if not is_there(monitor, user, generation=generation, number=row["user"]):
            monitor = user = None
        changes.append(
            Change(
                seq=row["seq"],
                generation=generation,
                monitor=keys.to_monitor(row["owner"], monitor) if monitor else None,
                owner_disabled=bool(user and user["disabled"]),
                entry=to_entry(entry) if entry else None,
            )
        )
    return changes


def count_changes(db: DynamoDatabase) -> int:
    def count(shard: int) -> int:
        return db.count(ITEMS, keys.changes_of(shard), limit=COUNTED_MAX, first="0")

    return sum(db.threads.fan_out(count, range(keys.CHANGE_SHARDS)))


def is_there(monitor: Item | None, user: Item | None, *, generation: int, number: int) -> bool:
    """Return True if the definition exists. A monitor is gone with its user, even while its item is still there."""
    return monitor is not None and user is not None and monitor["generation"] == generation and user["number"] == number


def _recorded(db: DynamoDatabase, *, limit: int) -> list[Item]:
    shards = range(keys.CHANGE_SHARDS)
    pages = db.threads.fan_out(lambda shard: db.page(ITEMS, keys.changes_of(shard), limit=limit), shards)
    return [row for page in pages for row in page]

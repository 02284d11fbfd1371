"""Monitors as their users declared them, and the record of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.core.definition import Monitor, MonitorSpec, encode_spec, parse_stored_spec
from paceline.ports import PutMonitor, PutResult, RemoveMonitor, RemoveResult

_RECORD = "INSERT INTO change (generation) VALUES (?) ON CONFLICT (generation) DO UPDATE SET number = number + 1"
read_spec = lru_cache(maxsize=8_192)(parse_stored_spec)


def put(db: Connection, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int) -> list[PutResult]:
    owners = _owners(db, {item.owner for item in puts})
    results = [_put_one(db, item, owners, monitors_max=monitors_max, now_ms=now_ms) for item in puts]
    db.executemany("UPDATE user SET monitors = ? WHERE id = ?", [(count, owner) for owner, count in owners.values()])
    return results


def remove(db: Connection, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
    return [_remove_one(db, item) for item in removes]


def monitor(db: Connection, owner: str, name: str) -> Monitor | None:
    row = db.execute(
        """SELECT generation, revision, spec, monitor.created_ms, updated_ms
           FROM monitor JOIN user ON user.id = monitor.owner WHERE user.name = ? AND monitor.name = ?""",
        (owner, name),
    ).fetchone()
    return _monitor(owner, name, row) if row else None


def monitors(db: Connection, owner: str, *, after: str, limit: int) -> list[Monitor]:
    rows = db.execute(
        """SELECT monitor.name, generation, revision, spec, monitor.created_ms, updated_ms
           FROM monitor JOIN user ON user.id = monitor.owner
           WHERE user.name = ? AND monitor.name > ? ORDER BY monitor.name LIMIT ?""",
        (owner, after, limit),
    )
    return [_monitor(owner, row[0], row[1:]) for row in rows]


def _put_one(
    db: Connection, item: PutMonitor, owners: dict[str, list[int]], *, monitors_max: int, now_ms: int
) -> PutResult:
    owner = owners.get(item.owner)
    if owner is None:
        return PutResult("no_owner")
    row = db.execute(
        "SELECT generation, revision, spec, created_ms, updated_ms FROM monitor WHERE owner = ? AND name = ?",
        (owner[0], item.id),
    ).fetchone()
    if item.expected_revision is not None and item.expected_revision != (row[1] if row else 0):
        return PutResult("revision_mismatch", _monitor(item.owner, item.id, row) if row else None)
    text = encode_spec(item.spec).decode()
    if row is None:
        if owner[1] >= monitors_max:
            return PutResult("limit_reached")
        return PutResult("created", _insert(db, item, owner, text, now_ms))
    if row[2] == text:
        return PutResult("unchanged", _monitor(item.owner, item.id, row))
    return PutResult("replaced", _replace(db, item, row, text, now_ms))


def _insert(db: Connection, item: PutMonitor, owner: list[int], text: str, now_ms: int) -> Monitor:
    db.execute(
        "INSERT INTO monitor (owner, name, revision, spec, created_ms, updated_ms) VALUES (?, ?, 1, ?, ?, ?)",
        (owner[0], item.id, text, now_ms, now_ms),
    )
    generation = db.last_insert_rowid()
    db.execute(_RECORD, (generation,))
    owner[1] += 1
    return Monitor(item.owner, item.id, generation, 1, item.spec, created_ms=now_ms, updated_ms=now_ms)


def _replace(db: Connection, item: PutMonitor, row: tuple[Any, ...], text: str, now_ms: int) -> Monitor:
    generation, revision, _, created_ms, _ = row
    db.execute(
        "UPDATE monitor SET revision = ?, spec = ?, updated_ms = ? WHERE generation = ?",
        (revision + 1, text, now_ms, generation),
    )
    db.execute(_RECORD, (generation,))
    return Monitor(item.owner, item.id, generation, revision + 1, item.spec, created_ms=created_ms, updated_ms=now_ms)


def _remove_one(db: Connection, item: RemoveMonitor) -> RemoveResult:
    row = db.execute(
        """SELECT generation, revision, monitor.owner FROM monitor JOIN user ON user.id = monitor.owner
           WHERE user.name = ? AND monitor.name = ?""",
        (item.owner, item.id),
    ).fetchone()
    if row is None:
        return "not_found"
    generation, revision, owner = row
    if item.expected_revision is not None and item.expected_revision != revision:
        return "revision_mismatch"
    db.execute("DELETE FROM monitor WHERE generation = ?", (generation,))
    db.execute("UPDATE user SET monitors = monitors - 1 WHERE id = ?", (owner,))
    db.execute(_RECORD, (generation,))
    return "removed"


def _owners(db: Connection, names: set[str]) -> dict[str, list[int]]:
    """Name to [id, number of monitors]; the number is kept up while putting."""
    owners: dict[str, list[int]] = {}
    for name in names:
        row = db.execute("SELECT id, monitors FROM user WHERE name = ?", (name,)).fetchone()
        if row is not None:
            owners[name] = list(row)
    return owners


def _monitor(owner: str, name: str, row: tuple[Any, ...]) -> Monitor:
    generation, revision, text, created_ms, updated_ms = row
    spec: MonitorSpec = read_spec(text)
    return Monitor(owner, name, generation, revision, spec, created_ms=created_ms, updated_ms=updated_ms)

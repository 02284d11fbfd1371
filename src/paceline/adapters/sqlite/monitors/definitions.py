"""Monitors as their users declared them, and the changes that entries have to follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from paceline.adapters.sqlite.database import Connection
from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.monitors.definition import Monitor, encode_spec
from paceline.core.monitors.load import load_of
from paceline.core.monitors.put import NewFacts, OwnerFacts, OwnerLimits, decide_put, decide_remove
from paceline.core.monitors.stored import StoredMonitor, read_spec
from paceline.core.monitors.values import PutMonitor, PutResult, RemoveMonitor, RemoveResult


def record_changes(db: Connection, generations: Sequence[int]) -> None:
    """Record that the entries of these monitors have to follow."""
    number = last_change(db) + 1
    db.execute("UPDATE tally SET value = ? WHERE name = 'changes'", (number,))
    db.executemany(
        """INSERT INTO change (generation, number) VALUES (?, ?)
           ON CONFLICT (generation) DO UPDATE SET number = excluded.number""",
        [(generation, number) for generation in generations],
    )


def last_change(db: Connection) -> int:
    """Return the number of the last write that recorded changes."""
    return int(db.execute("SELECT value FROM tally WHERE name = 'changes'").get)


def put(
    db: Connection, puts: Sequence[PutMonitor], *, monitors_max: int, firings_max: int = 0, now_ms: int
) -> list[PutResult]:
    batch = _Batch(db, puts, OwnerLimits(monitors_max, firings_max), now_ms=now_ms)
    results = [batch.judge(item) for item in puts]
    batch.write(db)
    return results


def rewrite_specs(db: Connection, rewritten: Sequence[Monitor]) -> int:
    """Replace specs, and zero the overwritten text in the file. Return how many were replaced."""
    db.pragma("secure_delete", 1)
    try:
        return sum(_rewrite(db, one) for one in rewritten)
    finally:
        db.pragma("secure_delete", 0)


def _rewrite(db: Connection, one: Monitor) -> bool:
    db.execute(
        "UPDATE monitor SET spec = ? WHERE generation = ? AND revision = ?",
        (encode_spec(one.spec).decode(), one.generation, one.revision),
    )
    return db.changes() == 1


def remove(db: Connection, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
    gone: list[int] = []
    results = [_remove_one(db, item, gone) for item in removes]
    if gone:
        record_changes(db, gone)
    return results


def monitor(db: Connection, owner: str, name: str) -> Monitor | None:
    row = db.execute(
        """SELECT generation, revision, spec, monitor.created_ms, updated_ms
           FROM monitor JOIN user ON user.id = monitor.owner WHERE user.name = ? AND monitor.name = ?""",
        (owner, name),
    ).fetchone()
    return StoredMonitor(*row).monitor(owner, name) if row else None


def monitors(db: Connection, owner: str, *, after: str, limit: int) -> list[Monitor]:
    rows = db.execute(
        """SELECT monitor.name, generation, revision, spec, monitor.created_ms, updated_ms
           FROM monitor JOIN user ON user.id = monitor.owner
           WHERE user.name = ? AND monitor.name > ? ORDER BY monitor.name LIMIT ?""",
        (owner, after, limit),
    )
    return [StoredMonitor(*row[1:]).monitor(owner, row[0]) for row in rows]


class _Batch:
    """Puts judged one by one against the stored monitors, and written together."""

    def __init__(self, db: Connection, puts: Sequence[PutMonitor], limits: OwnerLimits, *, now_ms: int) -> None:
        self._limits = limits
        self._owners = _owners(db, {item.owner for item in puts})
        self._current = _current(db, puts, self._owners)
        last = int(db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'monitor'").get)
        self._number = last_change(db) + 1
        self._new = NewFacts(now_ms, self._number, last + 1)
        self._inserts: list[tuple[Any, ...]] = []
        self._updates: list[tuple[Any, ...]] = []

    def judge(self, item: PutMonitor) -> PutResult:
        if item.owner not in self._owners:
            return PutResult("no_owner")
        owner, facts = self._owners[item.owner]
        before = self._current.get((item.owner, item.id))
        decided = decide_put(item, before, facts, self._limits, self._new)
        stored = decided.stored
        if stored is not None:
            self._owners[item.owner] = (owner, decided.owner)
            self._current[item.owner, item.id] = stored
            generation, text, updated_ms = stored.generation, stored.text, stored.updated_ms
            if before is None:
                self._new = NewFacts(self._new.now_ms, self._number, generation + 1)
                self._inserts.append((generation, owner, item.id, text, stored.created_ms, updated_ms))
            else:
                self._updates.append((stored.revision, text, updated_ms, generation))
        return decided.result

    def write(self, db: Connection) -> None:
        if not self._inserts and not self._updates:
            return
        db.executemany(
            """INSERT INTO monitor (generation, owner, name, revision, spec, created_ms, updated_ms)
               VALUES (?, ?, ?, 1, ?, ?, ?)""",
            self._inserts,
        )
        db.executemany("UPDATE monitor SET revision = ?, spec = ?, updated_ms = ? WHERE generation = ?", self._updates)
        if self._inserts:
            # The new generations are neighbours and have no change yet: one statement records all of them.
            db.execute(
                "INSERT INTO change (generation, number) SELECT generation, ? FROM monitor WHERE generation >= ?",
                (self._number, self._inserts[0][0]),
            )
        record_changes(db, [row[3] for row in self._updates])
        counts = [(facts.monitors, facts.load, owner) for owner, facts in self._owners.values()]
        db.executemany("UPDATE user SET monitors = ?, load = ? WHERE id = ?", counts)


def _remove_one(db: Connection, item: RemoveMonitor, gone: list[int]) -> RemoveResult:
    row = db.execute(
        """SELECT generation, revision, monitor.owner, spec FROM monitor JOIN user ON user.id = monitor.owner
           WHERE user.name = ? AND monitor.name = ?""",
        (item.owner, item.id),
    ).fetchone()
    result = decide_remove(item, row[:2] if row else None)
    if result == "removed":
        generation, _, owner, text = row
        db.execute("DELETE FROM monitor WHERE generation = ?", (generation,))
        db.execute(
            "UPDATE user SET monitors = monitors - 1, load = load - ? WHERE id = ?", (load_of(read_spec(text)), owner)
        )
        gone.append(generation)
    return result


def _owners(db: Connection, names: set[str]) -> dict[str, tuple[int, OwnerFacts]]:
    """Return owners by name, with their numbers; their counts are kept up to date while putting."""
    owners: dict[str, tuple[int, OwnerFacts]] = {}
    for name in names:
        row = db.execute("SELECT id, monitors, disabled, load FROM user WHERE name = ?", (name,)).fetchone()
        if row is not None:
            number, monitors, disabled, load = row
            load = _load(db, number) if load is None else load
            owners[name] = number, OwnerFacts(monitors, load, disabled == 1, _queues(db, number))
    return owners


def _queues(db: Connection, owner: int) -> frozenset[str]:
    rows = db.execute("SELECT queue FROM lane WHERE owner = ? AND outgoing = 1 AND queue <> ?", (owner, DEFAULT_QUEUE))
    return frozenset(row[0] for row in rows)


def _load(db: Connection, owner: int) -> int:
    """Return the load of a user, added up once for a store that did not count it yet."""
    return sum(load_of(read_spec(row[0])) for row in db.execute("SELECT spec FROM monitor WHERE owner = ?", (owner,)))


def _current(
    db: Connection, puts: Sequence[PutMonitor], owners: dict[str, tuple[int, OwnerFacts]]
) -> dict[tuple[str, str], StoredMonitor]:
    """Return the stored monitors that the puts name."""
    names: dict[str, list[str]] = {}
    for item in puts:
        if item.owner in owners:
            names.setdefault(item.owner, []).append(item.id)
    return {
        (owner, row[0]): StoredMonitor(*row[1:])
        for owner, wanted in names.items()
        for row in db.execute(
            """SELECT name, generation, revision, spec, created_ms, updated_ms FROM monitor
               WHERE owner = ? AND name IN carray(?)""",
            (owners[owner][0], apsw.carray(tuple(wanted))),
        )
    }

"""Monitors as their users declared them, and the record of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from paceline.adapters.sqlite.database import Connection
from paceline.core.definition import Monitor, MonitorSpec, encode_spec, parse_stored_spec
from paceline.core.load import exceeds, load_of
from paceline.ports import Change, PutMonitor, PutResult, RemoveMonitor, RemoveResult


class _Specs:
    """Specs by their text: the same text is read by the change that follows a put, and by every claim.

    Two halves: when the young one is full it becomes the old one, so what is in use stays.
    """

    HALF_MAX = 8_192

    def __init__(self) -> None:
        self._young: dict[str, MonitorSpec] = {}
        self._old: dict[str, MonitorSpec] = {}

    def read(self, text: str) -> MonitorSpec:
        spec = self._young.get(text)
        if spec is None:
            spec = self._old.get(text) or parse_stored_spec(text)
            self.keep(text, spec)
        return spec

    def keep(self, text: str, spec: MonitorSpec) -> None:
        if len(self._young) >= self.HALF_MAX:
            self._old, self._young = self._young, {}
        self._young[text] = spec


_specs = _Specs()
read_spec = _specs.read


def record_changes(db: Connection, generations: Sequence[int]) -> None:
    """Notes that the entries of these monitors have to follow."""
    number = last_change(db) + 1
    db.execute("UPDATE tally SET value = ? WHERE name = 'changes'", (number,))
    db.executemany(
        """INSERT INTO change (generation, number) VALUES (?, ?)
           ON CONFLICT (generation) DO UPDATE SET number = excluded.number""",
        [(generation, number) for generation in generations],
    )


def last_change(db: Connection) -> int:
    """The number of the last act that recorded changes."""
    return int(db.execute("SELECT value FROM tally WHERE name = 'changes'").get)


def put(
    db: Connection, puts: Sequence[PutMonitor], *, monitors_max: int, firings_max: int = 0, now_ms: int
) -> list[PutResult]:
    batch = _Batch(db, puts, monitors_max=monitors_max, firings_max=firings_max, now_ms=now_ms)
    results = [batch.judge(item) for item in puts]
    batch.write(db)
    return results


def rewrite_specs(db: Connection, rewritten: Sequence[Monitor]) -> int:
    """What is overwritten is zeroed in the file."""
    db.pragma("secure_delete", 1)
    try:
        before = db.total_changes()
        db.executemany(
            "UPDATE monitor SET spec = ? WHERE generation = ? AND revision = ?",
            [(encode_spec(one.spec).decode(), one.generation, one.revision) for one in rewritten],
        )
        return db.total_changes() - before
    finally:
        db.pragma("secure_delete", 0)


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
    return _monitor(owner, name, row) if row else None


def monitors(db: Connection, owner: str, *, after: str, limit: int) -> list[Monitor]:
    rows = db.execute(
        """SELECT monitor.name, generation, revision, spec, monitor.created_ms, updated_ms
           FROM monitor JOIN user ON user.id = monitor.owner
           WHERE user.name = ? AND monitor.name > ? ORDER BY monitor.name LIMIT ?""",
        (owner, after, limit),
    )
    return [_monitor(owner, row[0], row[1:]) for row in rows]


class _Batch:
    """Puts judged one by one against what is there, and written together."""

    def __init__(
        self, db: Connection, puts: Sequence[PutMonitor], *, monitors_max: int, firings_max: int, now_ms: int
    ) -> None:
        self._monitors_max = monitors_max
        self._firings_max = firings_max
        self._now_ms = now_ms
        self._owners = _owners(db, {item.owner for item in puts})
        self._current = _current(db, puts, self._owners)
        self._generation = int(
            db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'monitor'").get
        )
        self._number = last_change(db) + 1
        self._inserts: list[tuple[Any, ...]] = []
        self._updates: list[tuple[Any, ...]] = []

    def judge(self, item: PutMonitor) -> PutResult:
        owner = self._owners.get(item.owner)
        if owner is None:
            return PutResult("no_owner")
        row = self._current.get((item.owner, item.id))
        if row is None:
            if not _as_expected(item, None, 0):
                return PutResult("revision_mismatch")
            if owner[1] >= self._monitors_max:
                return PutResult("limit_reached")
            return self._refuse(item, owner, 0) or self._insert(item, owner)
        if not _as_expected(item, row[0], row[1]):
            return PutResult("revision_mismatch", _monitor(item.owner, item.id, row))
        text = encode_spec(item.spec).decode()
        if row[2] == text:
            return PutResult("unchanged", _monitor(item.owner, item.id, row))
        return self._refuse(item, owner, load_of(read_spec(row[2])), row) or self._replace(item, row, text)

    def _refuse(
        self, item: PutMonitor, owner: list[int], before: int, row: tuple[Any, ...] | None = None
    ) -> PutResult | None:
        """None: the owner's monitors do not fire too often with this one, and they are counted."""
        load = owner[3] - before + load_of(item.spec)
        if exceeds(load, before=owner[3], firings_per_second_max=self._firings_max):
            return PutResult("rate_reached", _monitor(item.owner, item.id, row) if row else None, load=load)
        owner[3] = load
        return None

    def write(self, db: Connection) -> None:
        db.executemany(
            """INSERT INTO monitor (generation, owner, name, revision, spec, created_ms, updated_ms)
               VALUES (?, ?, ?, 1, ?, ?, ?)""",
            self._inserts,
        )
        db.executemany("UPDATE monitor SET revision = ?, spec = ?, updated_ms = ? WHERE generation = ?", self._updates)
        if self._inserts:
            # The new generations are neighbours, and nothing is recorded of them yet: one statement for all of them.
            db.execute(
                "INSERT INTO change (generation, number) SELECT generation, ? FROM monitor WHERE generation >= ?",
                (self._number, self._inserts[0][0]),
            )
        if self._inserts or self._updates:
            record_changes(db, [row[3] for row in self._updates])
        if self._inserts or self._updates:
            counts = [(count, load, owner) for owner, count, _, load in self._owners.values()]
            db.executemany("UPDATE user SET monitors = ?, load = ? WHERE id = ?", counts)

    def _insert(self, item: PutMonitor, owner: list[int]) -> PutResult:
        self._generation = generation = self._generation + 1
        owner[1] += 1
        made_ms, text = self._now_ms if item.created_ms is None else item.created_ms, encode_spec(item.spec).decode()
        self._inserts.append((generation, owner[0], item.id, text, made_ms, made_ms))
        self._current[item.owner, item.id] = (generation, 1, text, made_ms, made_ms)
        monitor = Monitor(item.owner, item.id, generation, 1, item.spec, made_ms, made_ms)
        return PutResult("created", monitor, Change(self._number, generation, monitor, owner[2] == 1, None))

    def _replace(self, item: PutMonitor, row: tuple[Any, ...], text: str) -> PutResult:
        generation, revision, _, created_ms, _ = row
        _specs.keep(text, item.spec)  # the change that follows will read it
        self._updates.append((revision + 1, text, self._now_ms, generation))
        self._current[item.owner, item.id] = row = (generation, revision + 1, text, created_ms, self._now_ms)
        return PutResult("replaced", _monitor(item.owner, item.id, row))


def _remove_one(db: Connection, item: RemoveMonitor, gone: list[int]) -> RemoveResult:
    row = db.execute(
        """SELECT generation, revision, monitor.owner, spec FROM monitor JOIN user ON user.id = monitor.owner
           WHERE user.name = ? AND monitor.name = ?""",
        (item.owner, item.id),
    ).fetchone()
    if row is None:
        return "not_found"
    generation, revision, owner, text = row
    if not _as_expected(item, generation, revision):
        return "revision_mismatch"
    db.execute("DELETE FROM monitor WHERE generation = ?", (generation,))
    db.execute(
        "UPDATE user SET monitors = monitors - 1, load = load - ? WHERE id = ?", (load_of(read_spec(text)), owner)
    )
    gone.append(generation)
    return "removed"


def _as_expected(item: PutMonitor | RemoveMonitor, generation: int | None, revision: int) -> bool:
    if item.expected_revision is not None and item.expected_revision != revision:
        return False
    return item.expected_generation is None or item.expected_generation == generation


def _owners(db: Connection, names: set[str]) -> dict[str, list[int]]:
    """Name to [id, number of monitors, disabled, load]; the number and the load are kept up while putting."""
    owners: dict[str, list[int]] = {}
    for name in names:
        row = db.execute("SELECT id, monitors, disabled, load FROM user WHERE name = ?", (name,)).fetchone()
        if row is not None:
            owners[name] = [*row[:3], _load(db, row[0]) if row[3] is None else row[3]]
    return owners


def _load(db: Connection, owner: int) -> int:
    """Added up once, for a user of a store that did not count it yet."""
    return sum(load_of(read_spec(row[0])) for row in db.execute("SELECT spec FROM monitor WHERE owner = ?", (owner,)))


def _current(
    db: Connection, puts: Sequence[PutMonitor], owners: dict[str, list[int]]
) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The rows that the puts name, as they are."""
    names: dict[str, list[str]] = {}
    for item in puts:
        if item.owner in owners:
            names.setdefault(item.owner, []).append(item.id)
    return {
        (owner, row[0]): row[1:]
        for owner, wanted in names.items()
        for row in db.execute(
            """SELECT name, generation, revision, spec, created_ms, updated_ms FROM monitor
               WHERE owner = ? AND name IN carray(?)""",
            (owners[owner][0], apsw.carray(tuple(wanted))),
        )
    }


def _monitor(owner: str, name: str, row: tuple[Any, ...]) -> Monitor:
    generation, revision, text, created_ms, updated_ms = row
    return Monitor(owner, name, generation, revision, read_spec(text), created_ms=created_ms, updated_ms=updated_ms)

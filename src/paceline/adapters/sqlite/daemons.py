"""Rows of the processes that work on the store, and the leases that have not ended."""

from __future__ import annotations

from paceline.adapters.sqlite.database import Connection
from paceline.core.daemons import Daemon
from paceline.ports import Leases


def beat(db: Connection, daemon: Daemon) -> None:
    db.execute(
        """INSERT INTO daemon (id, kind, host, pid, url, started_ms, beat_ms, every_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (id) DO UPDATE SET beat_ms = excluded.beat_ms""",
        (
            daemon.id,
            daemon.kind,
            daemon.host,
            daemon.pid,
            daemon.url,
            daemon.started_ms,
            daemon.beat_ms,
            daemon.every_ms,
        ),
    )


def daemons(db: Connection, *, limit: int) -> list[Daemon]:
    rows = db.execute(
        """SELECT id, kind, host, pid, url, started_ms, beat_ms, every_ms FROM daemon
           ORDER BY beat_ms DESC, id LIMIT ?""",
        (limit,),
    )
    return [Daemon(*row) for row in rows]


def forget(db: Connection, daemon_id: str) -> None:
    db.execute("DELETE FROM daemon WHERE id = ?", (daemon_id,))


def forget_before(db: Connection, *, before_ms: int) -> int:
    db.execute("DELETE FROM daemon WHERE beat_ms < ?", (before_ms,))
    return db.changes()


def leases(db: Connection, *, now_ms: int) -> Leases:
    found = db.execute("SELECT count(*), max(at_ms) FROM open WHERE state = 'out' AND at_ms > ?", (now_ms,)).fetchone()
    return Leases(*found)

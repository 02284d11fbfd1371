"""The check value of the secret key."""

from __future__ import annotations

from paceline.adapters.sqlite.database import Connection


def proof(db: Connection) -> str | None:
    row = db.execute("SELECT proof FROM secret WHERE id = 1").fetchone()
    return row[0] if row else None


def keep_proof(db: Connection, text: str, *, was: str | None) -> bool:
    if was is None:
        db.execute("INSERT INTO secret (id, proof) VALUES (1, ?) ON CONFLICT DO NOTHING", (text,))
    else:
        db.execute("UPDATE secret SET proof = ? WHERE id = 1 AND proof = ?", (text, was))
    return db.changes() == 1

"""Alerts in one table: one index finds those to be told, another lists those of a user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.core.alerts.alert import Alert
from paceline.core.alerts.record import (
    COUNTED_MAX,
    AlertCounts,
    AlertRecord,
    decode_record,
    encode_record,
    following,
    new_record,
    place_of,
)
from paceline.core.try_turns import DuePosition
from paceline.ports.alerts import ListPlace


def add(db: Connection, alerts: Iterable[Alert]) -> list[bool]:
    """Store new alerts inside the caller's transaction. Return False for each whose id exists already."""
    return [_add(db, new_record(alert)) for alert in alerts]


def _add(db: Connection, record: AlertRecord) -> bool:
    alert = record.alert
    db.execute(
        """INSERT INTO alert (id, user, at_ms, part, place_ms, version, record) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (id) DO NOTHING""",
        (alert.id, alert.user, alert.at_ms, *place_of(record), record.version, encode_record(record)),
    )
    return db.changes() == 1


def due(db: Connection, *, now_ms: int, limit: int, after: DuePosition[str] | None = None) -> list[DuePosition[str]]:
    # ``id`` is in the index, as the key of its table.
    if after is None:
        rows = db.execute(
            "SELECT place_ms, id FROM alert WHERE part = 'open' AND place_ms <= ? ORDER BY place_ms, id LIMIT ?",
            (now_ms, limit),
        )
    else:
        rows = db.execute(
            """SELECT place_ms, id FROM alert WHERE part = 'open' AND place_ms <= ? AND (place_ms, id) > (?, ?)
               ORDER BY place_ms, id LIMIT ?""",
            (now_ms, *after, limit),
        )
    return [DuePosition(*row) for row in rows]


def by_ids(db: Connection, alert_ids: Sequence[str]) -> list[AlertRecord]:
    wanted = msgspec.json.encode(list(alert_ids)).decode()
    return _records(db, "SELECT record FROM alert WHERE id IN (SELECT value FROM json_each(?))", (wanted,))


def open_after(db: Connection, at_ms: int, *, limit: int) -> list[AlertRecord]:
    return _records(
        db, "SELECT record FROM alert WHERE part = 'open' AND place_ms > ? ORDER BY place_ms LIMIT ?", (at_ms, limit)
    )


def write(db: Connection, records: Sequence[AlertRecord]) -> list[bool]:
    won = []
    for record in records:
        after = following(record)
        db.execute(
            "UPDATE alert SET part = ?, place_ms = ?, version = ?, record = ? WHERE id = ? AND version = ?",
            (*place_of(after), after.version, encode_record(after), record.alert.id, record.version),
        )
        won.append(db.changes() == 1)
    return won


def alert(db: Connection, alert_id: str) -> AlertRecord | None:
    found = _records(db, "SELECT record FROM alert WHERE id = ?", (alert_id,))
    return found[0] if found else None


def alerts(db: Connection, user: str, *, since_ms: int, before: ListPlace | None, limit: int) -> list[AlertRecord]:
    if before is None:
        return _records(
            db,
            "SELECT record FROM alert WHERE user = ? AND at_ms >= ? ORDER BY at_ms DESC, id DESC LIMIT ?",
            (user, since_ms, limit),
        )
    return _records(
        db,
        """SELECT record FROM alert WHERE user = ? AND at_ms >= ? AND (at_ms, id) < (?, ?)
           ORDER BY at_ms DESC, id DESC LIMIT ?""",
        (user, since_ms, *before, limit),
    )


def counts(db: Connection) -> AlertCounts:
    return AlertCounts(_count(db, "open"), _count(db, "failed"))


def _count(db: Connection, part: str) -> int:
    row = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM alert WHERE part = ? LIMIT ?)", (part, COUNTED_MAX)
    ).fetchone()
    return int(row[0])


def purge(db: Connection, *, at_before_ms: int, limit: int) -> int:
    db.execute(
        """DELETE FROM alert WHERE id IN
               (SELECT id FROM alert WHERE part IN ('over', 'failed') AND place_ms < ? LIMIT ?)""",
        (at_before_ms, limit),
    )
    return db.changes()


def _records(db: Connection, sql: str, values: tuple[object, ...]) -> list[AlertRecord]:
    return [decode_record(row[0]) for row in db.execute(sql, values)]

"""Cadences, each stored once: a due row holds its number, memory holds the value."""

from __future__ import annotations

from msgspec.structs import astuple

from paceline.adapters.sqlite.database import Connection
from paceline.core.monitors.schedule import Cadence


class Cadences:
    """The cadence table in memory. Rows are never changed or deleted, so the copy stays true."""

    def __init__(self) -> None:
        self._by_id: dict[int, Cadence] = {}
        self._ids: dict[Cadence, int] = {}

    def known(self, db: Connection, wanted: set[int]) -> dict[int, Cadence]:
        """Return all known cadences, after reading those that another process may have added."""
        if not wanted <= self._by_id.keys():
            self._by_id |= {
                row[0]: Cadence(*row[1:])
                for row in db.execute("SELECT id, every_ms, cron, timezone, jitter_ms, missed, overlap FROM cadence")
            }
        return self._by_id

    def number(self, db: Connection, cadence: Cadence) -> int:
        """Return the number of a cadence, a new one if it has none.

        If the transaction fails, ``forget`` must be called.
        """
        number = self._ids.get(cadence)
        if number is None:
            values = astuple(cadence)
            db.execute(
                """INSERT INTO cadence (every_ms, cron, timezone, jitter_ms, missed, overlap) VALUES (?, ?, ?, ?, ?, ?)
                   ON CONFLICT DO NOTHING""",
                values,
            )
            number = int(
                db.execute(
                    """SELECT id FROM cadence
                       WHERE every_ms = ? AND cron = ? AND timezone = ? AND jitter_ms = ? AND missed = ?
                         AND overlap = ?""",
                    values,
                ).get
            )
            self._ids[cadence] = number
        return number

    def forget(self) -> None:
        self._ids.clear()
        self._by_id = {}

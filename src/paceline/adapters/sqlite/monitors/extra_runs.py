"""Extra runs: each is made beside the cadence of its entry, whose due time stays."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS, due_key
from paceline.adapters.sqlite.monitors.advance_on_time import BUSY
from paceline.core.monitors.due import ExtraRun


def make(db: Connection, extra: Sequence[ExtraRun], *, now_ms: int) -> list[bool]:
    del now_ms  # nobody has to be told when a run is due
    return [_make(db, one) for one in extra]


def _make(db: Connection, extra: ExtraRun) -> bool:
    entry = extra.entry
    k = due_key(entry.due_ms, entry.generation)
    place = db.execute(
        f"SELECT lane, last_run FROM due WHERE k = ? AND counter = ? AND revision = ? AND NOT {BUSY}",  # noqa: S608
        (k, entry.counter, entry.revision),
    ).fetchone()
    if place is None:
        return False
    lane, last_run = place
    row = db.execute("UPDATE lane SET tail = tail + 1, ready_ms = 0 WHERE id = ? RETURNING tail", (lane,)).fetchall()
    if not row:  # the user was removed, and the entry goes with the user
        return False
    handle = lane << LANE_BITS | row[0][0]
    db.execute(
        "INSERT INTO run (handle, generation, counter, due_ms, previous) VALUES (?, ?, ?, ?, ?)",
        (handle, entry.generation, entry.counter, extra.due_ms, last_run),
    )
    db.execute("INSERT INTO extra (handle, last_due_ms) VALUES (?, ?)", (handle, entry.last_due_ms))
    db.execute("UPDATE due SET counter = counter + 1, last_run = ?, overlapped = 0 WHERE k = ?", (handle, k))
    return True

"""Meters and postings on SQLite: ``core.jobs.meters`` decides, one transaction writes it.

Inside this module a meter is named by its number, and a hold by the integer of ``core.jobs.names.hold_of``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.core.jobs.meters import Hold, Meter, MeterRelease, Posting, Short, Window, close, expire, refund, take


def ensure_meter(db: Connection, name: str, *, window: Window, limit: int) -> int:
    """Return the number of the meter of that name; it is created, or its limit updated."""
    row = db.execute('SELECT id, "limit" FROM meter WHERE name = ?', (name,)).fetchone()
    if row is None:
        db.execute('INSERT INTO meter (name, "window", "limit") VALUES (?, ?, ?)', (name, window, limit))
        return db.last_insert_rowid()
    if row[1] != limit:
        set_limit(db, row[0], limit)
    return int(row[0])


def fresh(db: Connection, number: int, *, now_ms: int) -> Meter:
    """Return the meter without amounts that have left its window.

    They are posted here, so the caller must be in a write.
    """
    meter = read_meter(db, number, releases_until_ms=now_ms)
    if not meter.releases:
        return meter
    # One posting for each release, named by its time, so that each expires once. After the clock was set back, a minute
    # may have a second release; its amount is added.
    db.executemany(
        """INSERT INTO posting (hold, meter, kind, amount, at_ms) VALUES (?, ?, 'expire', ?, ?)
           ON CONFLICT (hold, meter, kind) DO UPDATE SET amount = amount + excluded.amount""",
        [(-release.at_ms, number, release.amount, now_ms) for release in meter.releases],
    )
    db.execute("DELETE FROM release WHERE meter = ? AND at_ms <= ?", (number, now_ms))
    after, _ = expire(meter, now_ms=now_ms)
    db.execute("UPDATE meter SET spent = ? WHERE id = ?", (after.spent, number))
    return after


def read_meter(db: Connection, number: int, *, releases_until_ms: int) -> Meter:
    """Return the meter as it is stored, with the releases until that time."""
    row = db.execute(
        'SELECT id, "limit", "window", spent, held, "foreign", read_ms FROM meter WHERE id = ?', (number,)
    ).fetchone()
    return _meter(row, _releases(db, number, releases_until_ms) if row[2] == "sliding" else ())


def take_all(db: Connection, hold: int, amounts: Mapping[int, int], *, now_ms: int) -> Short | None:
    """Hold all of the amounts, by meter number, or none. Return the meter that is short; None if all are held."""
    meters = {str(number): fresh(db, number, now_ms=now_ms) for number in amounts}
    named = {str(number): amount for number, amount in amounts.items()}
    found = take(str(hold), named, meters, now_ms=now_ms)
    if isinstance(found, Short):
        return found
    _write(db, found.meters.values())
    _post(db, found.postings)
    return None


def close_lines(db: Connection, hold: int, actual: Mapping[int, int], *, now_ms: int) -> dict[int, int]:
    """Settle the lines of these meters once and refund the rest. Return what was used beyond the hold, by meter."""
    lines = _open_lines(db, hold)
    named = {str(number): amount for number, amount in actual.items() if str(number) in lines}
    meters = {number: fresh(db, int(number), now_ms=now_ms) for number in named}
    closed = close(Hold(str(hold), lines, now_ms), named, meters, now_ms=now_ms)
    _write(db, closed.meters.values())
    _post(db, closed.postings)
    return {int(number): amount for number, amount in closed.overrun.items()}


def refund_all(db: Connection, hold: int, *, now_ms: int) -> None:
    """Refund all open lines of the hold in full (``core.jobs.meters.refund``)."""
    lines = _open_lines(db, hold)
    meters = {number: fresh(db, int(number), now_ms=now_ms) for number in lines}
    closed = refund(Hold(str(hold), lines, now_ms), meters, now_ms=now_ms)
    _write(db, closed.meters.values())
    _post(db, closed.postings)


def set_limit(db: Connection, number: int, limit: int) -> None:
    db.execute('UPDATE meter SET "limit" = ?1 WHERE id = ?2 AND "limit" <> ?1', (limit, number))


def set_foreign(db: Connection, number: int, meter: Meter) -> None:
    db.execute('UPDATE meter SET "foreign" = ?, read_ms = ? WHERE id = ?', (meter.foreign, meter.read_ms, number))


def _open_lines(db: Connection, hold: int) -> dict[str, int]:
    rows = db.execute(
        """SELECT meter, amount FROM posting AS line WHERE hold = ? AND kind = 'hold' AND NOT EXISTS
               (SELECT 1 FROM posting WHERE hold = line.hold AND meter = line.meter AND kind = 'settle')""",
        (hold,),
    )
    return {str(meter): amount for meter, amount in rows}


def _releases(db: Connection, number: int, until_ms: int) -> tuple[MeterRelease, ...]:
    rows = db.execute(
        "SELECT at_ms, amount FROM release WHERE meter = ? AND at_ms <= ? ORDER BY at_ms", (number, until_ms)
    )
    return tuple(MeterRelease(*row) for row in rows)


def _meter(row: Sequence[Any], releases: tuple[MeterRelease, ...]) -> Meter:
    number, limit, window, spent, held, foreign, read_ms = row
    return Meter(str(number), limit, window, spent, held, releases, foreign, read_ms)


def view(db: Connection, number: int, name: str, *, now_ms: int, releases_until_ms: int) -> Meter:
    """Return the meter as if amounts that have left its window were posted; for readers."""
    meter, _ = expire(read_meter(db, number, releases_until_ms=releases_until_ms), now_ms=now_ms)
    return msgspec.structs.replace(meter, name=name)


def _write(db: Connection, meters: Iterable[Meter]) -> None:
    """Write meters that were fresh: each release that they have now is new."""
    for meter in meters:
        number = int(meter.name)
        db.execute("UPDATE meter SET spent = ?, held = ? WHERE id = ?", (meter.spent, meter.held, number))
        for release in meter.releases:
            db.execute(
                """INSERT INTO release (meter, at_ms, amount) VALUES (?, ?, ?)
                   ON CONFLICT (meter, at_ms) DO UPDATE SET amount = amount + excluded.amount""",
                (number, release.at_ms, release.amount),
            )


def _post(db: Connection, postings: Sequence[Posting]) -> None:
    # A second posting of the same name violates the primary key: the transaction is rolled back, nothing counts twice.
    db.executemany(
        "INSERT INTO posting (hold, meter, kind, amount, at_ms) VALUES (?, ?, ?, ?, ?)",
        [(int(one.hold), int(one.meter), one.kind, one.amount, one.at_ms) for one in postings],
    )

"""Health records of monitors, written with the outcomes that change them, in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.sqlite import alerts
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.monitors.alerting.found import Remembered
from paceline.core.monitors.alerting.observe import all_but_good, observe
from paceline.core.monitors.alerting.record import HealthRecord, Subject, after_outcome, hour_ends_ms
from paceline.core.monitors.alerting.stored import HealthChange, decode_health, encode_health, is_unchanged
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.stored import StoredMonitor, read_spec
from paceline.core.monitors.values import Settlement


def follow(db: Connection, settlements: Sequence[Settlement]) -> None:
    """Update health after outcomes that were just recorded. Most are good, of monitors without a record."""
    wanted = {item.handle: item for item in all_but_good(settlements)}
    if db.execute("SELECT EXISTS (SELECT 1 FROM health)").get:
        items = {item.handle: item for item in settlements}
        rows = db.execute(
            """SELECT run.handle FROM carray(?) AS one CROSS JOIN run ON run.handle = one.value
               CROSS JOIN health ON health.generation = run.generation""",
            (integers(items),),
        )
        wanted |= {row[0]: items[row[0]] for row in rows}
    if wanted:
        _follow(db, wanted)


def _follow(db: Connection, wanted: dict[int, Settlement]) -> None:
    rows = db.execute(
        """SELECT run.handle, run.counter, user.name, monitor.name, run.generation, monitor.spec, health.record
           FROM run JOIN monitor ON monitor.generation = run.generation JOIN user ON user.id = monitor.owner
                LEFT JOIN health ON health.generation = run.generation
           WHERE run.handle IN carray(?) ORDER BY run.counter""",
        (integers(wanted),),
    ).fetchall()
    records: dict[int, HealthRecord] = {}
    for handle, counter, owner, name, generation, text, stored in rows:
        spec = read_spec(text)
        seen = observe(wanted[handle], counter=counter, check=spec.check)
        if seen is None:
            continue
        before = records.get(generation, decode_health(stored))
        followed = after_outcome(before, Subject(owner, name, generation, spec.alert), seen)
        records[generation] = followed.record
        if followed.record != before:
            _write(db, generation, followed.record)
        alerts.add(db, followed.alerts)


def change(db: Connection, changes: Sequence[HealthChange]) -> list[bool]:
    won = []
    for item in changes:
        there = db.execute("SELECT EXISTS (SELECT 1 FROM monitor WHERE generation = ?)", (item.generation,)).get
        happens = bool(there) and _is_open(db, item.open_run) and is_unchanged(item, records(db, [item.generation]))
        if happens:
            _write(db, item.generation, item.after)
            alerts.add(db, item.alerts)
        won.append(happens)
    return won


def _is_open(db: Connection, handle: int | None) -> bool:
    """Return True if the run has not ended, or if no run is given."""
    return handle is None or bool(
        db.execute(
            """SELECT EXISTS (SELECT 1 FROM run WHERE handle = ?1)
                      AND NOT EXISTS (SELECT 1 FROM outcome WHERE handle = ?1)""",
            (handle,),
        ).get
    )


def _write(db: Connection, generation: int, record: HealthRecord) -> None:
    text = encode_health(record)
    if text is None:
        db.execute("DELETE FROM health WHERE generation = ?", (generation,))
        return
    db.execute(
        """INSERT INTO health (generation, owner, name, failing, closes_ms, record)
           SELECT generation, owner, name, ?, ?, ? FROM monitor WHERE generation = ?
           ON CONFLICT (generation) DO UPDATE
           SET failing = excluded.failing, closes_ms = excluded.closes_ms, record = excluded.record""",
        (int(record.failing), hour_ends_ms(record), text, generation),
    )


def records(db: Connection, generations: Sequence[int]) -> dict[int, HealthRecord]:
    rows = db.execute("SELECT generation, record FROM health WHERE generation IN carray(?)", (integers(generations),))
    return {generation: decode_health(text) for generation, text in rows}


def failing(db: Connection, owner: str, *, after: str, limit: int) -> list[Monitor]:
    rows = db.execute(
        """SELECT monitor.name, monitor.generation, revision, spec, monitor.created_ms, updated_ms
           FROM user JOIN health ON health.owner = user.id AND health.failing = 1
                JOIN monitor ON monitor.generation = health.generation
           WHERE user.name = ? AND health.name > ? ORDER BY health.name LIMIT ?""",
        (owner, after, limit),
    )
    return [StoredMonitor(*row[1:]).monitor(owner, row[0]) for row in rows]


def to_close(db: Connection, *, now_ms: int, limit: int) -> list[Remembered]:
    rows = db.execute(
        """SELECT user.name, monitor.name, monitor.generation, revision, spec, monitor.created_ms, updated_ms, record
           FROM health JOIN monitor USING (generation) JOIN user ON user.id = monitor.owner
           WHERE closes_ms <= ? ORDER BY closes_ms LIMIT ?""",
        (now_ms, limit),
    )
    return [Remembered(StoredMonitor(*row[2:7]).monitor(row[0], row[1]), decode_health(row[7])) for row in rows]

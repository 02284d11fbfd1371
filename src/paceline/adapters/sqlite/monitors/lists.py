"""Indexes for lists of monitors: by tag, by kind, and by parts of id and address.

They are updated after the definitions. Monitors that the indexes lack are read beside them, as long as they are few: so
an answer is never out of date.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import tally
from paceline.adapters.sqlite.keys import GENERATION_BITS, GENERATION_MASK, LANE_BITS, RESTING_SLOT, due_bound
from paceline.adapters.sqlite.monitors import definitions
from paceline.adapters.sqlite.monitors.alerting import health
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.lists.query import FAILING, Facet, MonitorQuery, facets_of, search_text, trigrams
from paceline.core.monitors.stored import StoredMonitor

PENDING_MAX = 1_000
"""If more monitors than this are missing from the indexes, lists do without the indexes."""
OPEN_LOOKED_MAX = 5_000
"""Open runs that are searched for late monitors; if there are more, the search is given up."""

_MONITOR = """SELECT user.name, monitor.name, generation, revision, spec, monitor.created_ms, updated_ms
              FROM monitor JOIN user ON user.id = monitor.owner"""


def monitors_by_generation(db: Connection, generations: Sequence[int]) -> dict[int, Monitor]:
    rows = db.execute(f"{_MONITOR} WHERE generation IN carray(?)", (integers(generations),))
    found = [StoredMonitor(*row[2:]).monitor(row[0], row[1]) for row in rows]
    return {monitor.generation: monitor for monitor in found}


def monitors(db: Connection, owner: str, *, after: str, limit: int, having: Facet | None = None) -> list[Monitor]:
    if having == FAILING:
        return health.failing(db, owner, after=after, limit=limit)
    pending = _pending(db) if having is not None else None
    if having is None or pending is None:
        return definitions.monitors(db, owner, after=after, limit=limit)
    user = db.execute("SELECT id FROM user WHERE name = ?", (owner,)).get
    found = db.execute(
        """SELECT generation FROM facet CROSS JOIN monitor USING (generation)
           WHERE facet.owner = ? AND facet.facet = ? AND facet.name > ? ORDER BY facet.name LIMIT ?""",
        (user, _text(having), after, limit),
    ).fetchall()
    if pending:
        found += db.execute(
            """SELECT generation FROM monitor WHERE generation IN carray(?) AND owner = ? AND name > ?
               ORDER BY name LIMIT ?""",
            (integers(pending), user, after, limit),
        ).fetchall()
    there = monitors_by_generation(db, [row[0] for row in found]).values()
    return sorted(there, key=lambda one: one.id)[:limit]


def narrowed(db: Connection, query: MonitorQuery, *, limit: int, late_before_ms: int) -> list[Monitor] | None:
    """Return the monitors that match the text, else those of the health, if few do; None if there are too many."""
    found = _with_text(db, query.q, limit=limit) if query.q is not None else None
    if found is None:
        match query.health:
            case "late":
                found = _late(db, late_before_ms=late_before_ms, limit=limit)
            case "failing":
                found = _failing(db, limit=limit)
            case "paused":
                found = _resting(db, limit=limit)
            case _:
                pass
    if found is None or len(found) > limit:
        return None
    monitors = monitors_by_generation(db, list(found)).values()
    return [one for one in monitors if query.owner in (None, one.owner)]


def is_behind(db: Connection) -> bool:
    """Return True if the indexes lack the newest state of a monitor."""
    return bool(
        db.execute(
            """SELECT EXISTS (SELECT 1 FROM unlisted) OR EXISTS (
                   SELECT 1 FROM monitor WHERE generation > (SELECT value FROM tally WHERE name = 'listed'))"""
        ).get
    )


def index(db: Connection, *, limit: int) -> bool:
    """Update the indexes for up to ``limit`` monitors. Return True if there is more to do."""
    again = [row[0] for row in db.execute("SELECT generation FROM unlisted ORDER BY generation LIMIT ?", (limit,))]
    listed = tally(db, "listed")
    new = [
        row[0]
        for row in db.execute(
            "SELECT generation FROM monitor WHERE generation > ? ORDER BY generation LIMIT ?",
            (listed, limit - len(again)),
        )
    ]
    if again:
        _forget(db, again)
    # A monitor may be both new and edited: it is then added with the new ones, now or in a later pass.
    _add(db, dict.fromkeys([*(one for one in again if one <= listed), *new]))
    if new:
        db.execute("UPDATE tally SET value = ? WHERE name = 'listed'", (new[-1],))
    return len(again) + len(new) == limit


def _add(db: Connection, generations: dict[int, None]) -> None:
    monitors = monitors_by_generation(db, list(generations)).values()
    numbers: dict[int, int] = dict(
        db.execute("SELECT generation, owner FROM monitor WHERE generation IN carray(?)", (integers(generations),))
    )
    db.executemany(
        "INSERT INTO facet (generation, facet, owner, name) VALUES (?, ?, ?, ?)",
        [
            (one.generation, _text(facet), numbers[one.generation], one.id)
            for one in monitors
            for facet in facets_of(one)
        ],
    )
    db.executemany(
        "INSERT INTO search (rowid, text) VALUES (?, ?)",
        [(one.generation, search_text(one).casefold()) for one in monitors],
    )


def _forget(db: Connection, generations: Sequence[int]) -> None:
    these = (integers(generations),)
    db.execute("DELETE FROM facet WHERE generation IN carray(?)", these)
    db.execute("DELETE FROM search WHERE rowid IN carray(?)", these)
    db.execute("DELETE FROM unlisted WHERE generation IN carray(?)", these)


def _pending(db: Connection) -> list[int] | None:
    """Return monitors whose newest state is not in the indexes; None if they are too many to be read."""
    rows = db.execute(
        """SELECT generation FROM unlisted
           UNION ALL SELECT generation FROM monitor WHERE generation > (SELECT value FROM tally WHERE name = 'listed')
           LIMIT ?""",
        (PENDING_MAX + 1,),
    ).fetchall()
    return None if len(rows) > PENDING_MAX else [row[0] for row in rows]


def _with_text(db: Connection, text: str, *, limit: int) -> set[int] | None:
    wanted = trigrams(text)
    pending = _pending(db) if wanted else None
    if pending is None:
        return None  # too short for this index, or the index is not up to date
    match = " AND ".join('"' + one.replace('"', '""') + '"' for one in wanted)
    rows = db.execute("SELECT rowid FROM search WHERE search MATCH ? LIMIT ?", (match, limit + 1)).fetchall()
    return {row[0] for row in rows}.union(pending)


def _failing(db: Connection, *, limit: int) -> set[int]:
    rows = db.execute("SELECT generation FROM health WHERE failing = 1 LIMIT ?", (limit + 1,)).fetchall()
    return {row[0] for row in rows}


def _resting(db: Connection, *, limit: int) -> set[int]:
    """Return entries that do not fire, and those that have not followed a change of their definition yet."""
    rows = db.execute(
        """SELECT k & ? FROM due WHERE k >= ? UNION ALL SELECT generation FROM change LIMIT ?""",
        (GENERATION_MASK, RESTING_SLOT << GENERATION_BITS, limit + 1),
    ).fetchall()
    return {row[0] for row in rows}


def _late(db: Connection, *, late_before_ms: int, limit: int) -> set[int] | None:
    """Return entries whose firing is late, and those with a late open run; None if too many runs are open."""
    due = db.execute(
        "SELECT k & ? FROM due WHERE k < ? LIMIT ?", (GENERATION_MASK, due_bound(late_before_ms), limit + 1)
    ).fetchall()
    looked = db.execute(
        """SELECT generation, due_ms FROM (SELECT handle FROM open LIMIT ?1) JOIN run USING (handle)
           UNION ALL
           SELECT generation, due_ms FROM lane JOIN run
                  ON run.handle > lane.id << ?2 | lane.position AND run.handle <= (lane.id << ?2 | lane.tail)
           WHERE lane.position < lane.tail LIMIT ?1""",
        (OPEN_LOOKED_MAX + 1, LANE_BITS),
    ).fetchall()
    if len(looked) > OPEN_LOOKED_MAX:
        return None
    return {row[0] for row in due} | {generation for generation, due_ms in looked if due_ms < late_before_ms}


def _text(facet: Facet) -> str:
    return f"{facet.name}:{facet.value}"

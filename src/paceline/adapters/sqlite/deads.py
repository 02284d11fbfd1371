"""Dead letters: runs that failed or are unknown, until somebody puts them back or lets them go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.free_keys import free_keys
from paceline.adapters.sqlite.providers import Policies
from paceline.adapters.sqlite.results import runs_by_key
from paceline.adapters.sqlite.run_keys import RECORD_BITS, due_ms_of, provider_bounds, queue_key
from paceline.adapters.sqlite.tallies import add
from paceline.ports import CallRun, DeadChoice

CHUNK_ROWS = 1_000
DAYS_MAX = 20_000
"""More days than a batch can have."""
BEYOND = 1 << 62


class Dead(NamedTuple):
    """``target``: the provider it would go to, None if there is none any more."""

    k: int
    run: int
    ended_ms: int
    unknown: int
    target: int | None


# What may have arrived stays with whom it was sent to; what has not goes where its record points now.
_TARGET = """COALESCE(CASE WHEN result.state = 'unknown' THEN sent.id END,
                      CASE WHEN NOT record.deleted THEN named.id END, sent.id)"""
_DEAD = f"""SELECT result.k, result.run, result.ended_ms, result.state = 'unknown', {_TARGET}
            FROM {{}} JOIN record ON record.id = result.run & 2147483647
            LEFT JOIN provider AS sent ON sent.id = result.k >> 40 AND NOT sent.deleted
            LEFT JOIN provider AS named ON named.id = record.provider AND NOT named.deleted
            WHERE result.dead = 1 AND result.k > ?1 AND result.k < ?2"""  # noqa: S608  fixed texts
_ALL = _DEAD.format("result INDEXED BY result_dead") + " ORDER BY result.k LIMIT ?3"
_NAMED = (
    _DEAD.format("planned JOIN result ON result.k = planned.k AND result.run = planned.run")
    + " AND planned.run IN carray(?4) ORDER BY result.k LIMIT ?3"
)


def dead(db: Connection, choice: DeadChoice, *, after: int, limit: int) -> tuple[list[CallRun], int | None]:
    """In order of provider and due time."""
    found = list(islice(_chosen(db, choice, after=after), limit + 1))
    page = found[:limit]
    by_run = {run.handle: run for run in runs_by_key(db, [item.run for item in page])}
    return [by_run[item.run] for item in page], page[-1].k if len(found) > limit else None


def redrive(db: Connection, policies: Policies, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
    wanted = (item for item in _chosen(db, choice) if item.target is not None and item.ended_ms <= now_ms)
    items = sorted(islice(wanted, limit), key=lambda item: (item.target, item.k & (1 << 40) - 1))
    if not items:
        return 0
    db.execute("DELETE FROM result WHERE k IN carray(?)", (integers([item.k for item in items]),))
    add(db, "dead_letters", -len(items))
    add(db, "calls_waiting", len(items))
    for target, group in groupby(items, key=lambda item: item.target):
        assert target is not None
        _redrive_at(db, policies, target, list(group), gap_ms=gap_ms, now_ms=now_ms)
    return len(items)


def discard(db: Connection, choice: DeadChoice, *, limit: int) -> int:
    keys = [item.k for item in islice(_chosen(db, choice), limit)]
    db.execute("UPDATE result SET dead = 0 WHERE k IN carray(?) AND dead = 1", (integers(keys),))
    discarded = db.changes()
    add(db, "dead_letters", -discarded)
    return discarded


def _redrive_at(
    db: Connection, policies: Policies, provider: int, items: Sequence[Dead], *, gap_ms: int, now_ms: int
) -> None:
    _, policy = policies.policy(db, provider)
    gap_ms = max(gap_ms, -(-policy.rate_gap_us // 1_000), 1)
    begin_ms = max(now_ms, db.execute("SELECT redriven_ms FROM pace WHERE provider = ?", (provider,)).get)
    keys = free_keys(db, [queue_key(provider, begin_ms + index * gap_ms) for index in range(len(items))])
    pairs = list(zip(keys, items, strict=True))
    # A person has decided to send it again; only where the provider can be asked it is asked first.
    asks = policy.unknown == "look_up"
    db.executemany(
        "INSERT INTO queue (k, run, lost, reason) VALUES (?, ?, ?, 'redriven')",
        [(key, item.run, 1 if asks and item.unknown else 0) for key, item in pairs],
    )
    db.executemany("UPDATE planned SET k = ? WHERE run = ?", [(key, item.run) for key, item in pairs])
    db.execute(
        "UPDATE pace SET redriven_ms = ?, ready_ms = min(ready_ms, ?) WHERE provider = ?",
        (due_ms_of(keys[-1]) + gap_ms, due_ms_of(keys[0]), provider),
    )


def _chosen(db: Connection, choice: DeadChoice, *, after: int = 0) -> Iterator[Dead]:
    """Read in chunks, each complete before it is used: what follows may change what was read."""
    bounds = _bounds(db, choice)
    days = _days(db, choice)
    if bounds is None or days == set():
        return
    after, beyond = max(after, bounds[0] - 1), bounds[1]
    handles = integers(choice.handles) if choice.handles is not None else None
    while True:
        statement, more = (_ALL, ()) if handles is None else (_NAMED, (handles,))
        rows = [Dead._make(row) for row in db.execute(statement, (after, beyond, CHUNK_ROWS, *more)).fetchall()]
        for item in rows:
            if days is None or item.run >> RECORD_BITS in days:
                yield item
        if len(rows) < CHUNK_ROWS:
            return
        after = rows[-1].k


def _bounds(db: Connection, choice: DeadChoice) -> tuple[int, int] | None:
    """The keys among which to look; None if there is no such provider."""
    if choice.provider is None:
        return 0, BEYOND
    row = db.execute("SELECT id FROM provider WHERE name = ?", (choice.provider,)).fetchone()
    return provider_bounds(row[0]) if row else None


def _days(db: Connection, choice: DeadChoice) -> set[int] | None:
    """The days that are meant; None for all."""
    if choice.batch is None and choice.date is None:
        return None
    rows = db.execute(
        """SELECT day.id FROM day JOIN batch ON batch.id = day.batch
           WHERE (?1 IS NULL OR batch.name = ?1) AND (?2 IS NULL OR day.date = ?2) LIMIT ?3""",
        (choice.batch, choice.date, DAYS_MAX),
    )
    return {row[0] for row in rows}

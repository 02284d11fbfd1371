"""Dead letters: listed, put back into the queue, or discarded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from paceline.adapters.sqlite.batches.free_keys import free_keys
from paceline.adapters.sqlite.batches.providers import SqlitePolicyCache
from paceline.adapters.sqlite.batches.results import runs_by_key
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.redrive import (
    BEYOND,
    CHUNK_ROWS,
    DAYS_MAX,
    REDRIVEN,
    asks_first,
    redrive_dues_ms,
    redrive_gap_ms,
    redrive_target,
)
from paceline.core.batches.run_keys import (
    RECORD_BITS,
    RECORD_MASK,
    TIME_BITS,
    TIME_MASK,
    due_ms_of,
    provider_bounds,
    provider_of,
    queue_key,
)
from paceline.core.batches.values import CallRun, DeadChoice


class DeadLetterRow(NamedTuple):
    """A dead letter. ``sent``: the provider it was sent to; ``named``: the one that its record names now.

    Each is None if that provider was removed; ``named`` also if the record was deleted.
    """

    k: int
    run: int
    ended_ms: int
    unknown: int
    sent: int | None
    named: int | None

    @property
    def target(self) -> int | None:
        there = {self.sent, self.named}
        return redrive_target(sent=provider_of(self.k), named=self.named, unknown=bool(self.unknown), there=there)


_DEAD = f"""SELECT result.k, result.run, result.ended_ms, result.state = 'unknown', sent.id,
                CASE WHEN NOT record.deleted THEN named.id END
            FROM {{}} JOIN record ON record.id = result.run & {RECORD_MASK}
            LEFT JOIN provider AS sent ON sent.id = result.k >> {TIME_BITS} AND NOT sent.deleted
            LEFT JOIN provider AS named ON named.id = record.provider AND NOT named.deleted
            WHERE result.dead = 1 AND result.k > ?1 AND result.k < ?2"""  # noqa: S608  fixed texts
_ALL = _DEAD.format("result INDEXED BY result_dead") + " ORDER BY result.k LIMIT ?3"
_NAMED = (
    _DEAD.format("planned JOIN result ON result.k = planned.k AND result.run = planned.run")
    + " AND planned.run IN carray(?4) ORDER BY result.k LIMIT ?3"
)


def dead(db: Connection, choice: DeadChoice, *, after: int, limit: int) -> tuple[list[CallRun], int | None]:
    found = list(islice(_chosen(db, choice, after=after), limit + 1))
    page = found[:limit]
    by_run = {run.handle: run for run in runs_by_key(db, [item.run for item in page])}
    return [by_run[item.run] for item in page], page[-1].k if len(found) > limit else None


def redrive(
    db: Connection, policies: SqlitePolicyCache, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int
) -> int:
    dead = (item for item in _chosen(db, choice) if item.ended_ms <= now_ms)
    wanted = ((target, item) for item in dead if (target := item.target) is not None)
    pairs = sorted(islice(wanted, limit), key=lambda pair: (pair[0], pair[1].k & TIME_MASK))
    if not pairs:
        return 0
    add(db, "dead_letters", -len(pairs))
    add(db, "calls_waiting", len(pairs))
    for target, group in groupby(pairs, key=itemgetter(0)):
        _redrive_at(db, policies, target, [item for _, item in group], gap_ms=gap_ms, now_ms=now_ms)
    # Deleted last, so that no run gets a key that it or another of these runs had.
    db.execute("DELETE FROM result WHERE k IN carray(?)", (integers([item.k for _, item in pairs]),))
    return len(pairs)


def discard(db: Connection, choice: DeadChoice, *, limit: int) -> int:
    keys = [item.k for item in islice(_chosen(db, choice), limit)]
    db.execute("UPDATE result SET dead = 0 WHERE k IN carray(?) AND dead = 1", (integers(keys),))
    discarded = db.changes()
    add(db, "dead_letters", -discarded)
    return discarded


def _redrive_at(
    db: Connection,
    policies: SqlitePolicyCache,
    provider: int,
    items: Sequence[DeadLetterRow],
    *,
    gap_ms: int,
    now_ms: int,
) -> None:
    _, policy = policies.policy(db, provider)
    gap_ms = redrive_gap_ms(gap_ms, policy)
    redriven_ms = db.execute("SELECT redriven_ms FROM pace WHERE provider = ?", (provider,)).get
    dues_ms = redrive_dues_ms(len(items), gap_ms=gap_ms, redriven_ms=redriven_ms, now_ms=now_ms)
    keys = free_keys(db, [queue_key(provider, due_ms) for due_ms in dues_ms])
    pairs = list(zip(keys, items, strict=True))
    db.executemany(
        "INSERT INTO queue (k, run, lost, reason) VALUES (?, ?, ?, ?)",
        [(key, item.run, asks_first(policy, unknown=bool(item.unknown)), REDRIVEN) for key, item in pairs],
    )
    db.executemany("UPDATE planned SET k = ? WHERE run = ?", [(key, item.run) for key, item in pairs])
    db.execute(
        "UPDATE pace SET redriven_ms = ?, ready_ms = min(ready_ms, ?) WHERE provider = ?",
        (due_ms_of(keys[-1]) + gap_ms, due_ms_of(keys[0]), provider),
    )


def _chosen(db: Connection, choice: DeadChoice, *, after: int = 0) -> Iterator[DeadLetterRow]:
    """Yield dead letters in chunks. Each chunk is read whole before it is used, because the caller may change rows."""
    bounds = _bounds(db, choice)
    days = _days(db, choice)
    if bounds is None or days == set():
        return
    after, beyond = max(after, bounds[0] - 1), bounds[1]
    handles = integers(choice.handles) if choice.handles is not None else None
    while True:
        statement, more = (_ALL, ()) if handles is None else (_NAMED, (handles,))
        rows = [
            DeadLetterRow._make(row) for row in db.execute(statement, (after, beyond, CHUNK_ROWS, *more)).fetchall()
        ]
        for item in rows:
            if days is None or item.run >> RECORD_BITS in days:
                yield item
        if len(rows) < CHUNK_ROWS:
            return
        after = rows[-1].k


def _bounds(db: Connection, choice: DeadChoice) -> tuple[int, int] | None:
    """Return the range of keys to search; None if there is no such provider."""
    if choice.provider is None:
        return 0, BEYOND
    row = db.execute("SELECT id FROM provider WHERE name = ?", (choice.provider,)).fetchone()
    return provider_bounds(row[0]) if row else None


def _days(db: Connection, choice: DeadChoice) -> set[int] | None:
    """Return the numbers of the chosen days; None for all."""
    if choice.batch is None and choice.date is None:
        return None
    rows = db.execute(
        """SELECT day.id FROM day JOIN batch ON batch.id = day.batch
           WHERE (?1 IS NULL OR batch.name = ?1) AND (?2 IS NULL OR day.date = ?2 OR day.date GLOB ?2 || '~*')
           LIMIT ?3""",
        (choice.batch, choice.date, DAYS_MAX),
    )
    return {row[0] for row in rows}

"""What a claim reads: providers that are ready, their first runs, and what each run's record and batch want now."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from paceline.adapters.sqlite.database import Connection, Rows
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.run_keys import NEVER_MS, TIME_BITS, due_ms_of, provider_bounds, queue_key
from paceline.core.batch import BatchSpec, parse_stored_batch
from paceline.core.pace import Backlog, Lane

GAPS_MAX = 16
"""The usual gap between a provider's runs is the mean of so many."""
HELD_MAX = 2_000

# `active`: its record is there and wants to run.
_RECORD = "JOIN record ON record.id = queue.run & 2147483647"
_WANTS = """queue.attempt, queue.lost, record.name, record.provider, record.active AND NOT record.deleted,
            record.endpoint, record.body"""
_RUN = f"queue.k, queue.run, queue.state, queue.at_ms, {_WANTS}"

# One statement for all that are ready: for a provider with nothing in flight its head is all that a claim must know.
_LOOKS = f"""SELECT pace.provider, pace.revision,
                 EXISTS (SELECT 1 FROM queue AS held WHERE held.state <> 'waiting'
                         AND held.k >= pace.provider << 40 AND held.k < pace.provider + 1 << 40),
                 pace.rate_us, pace.paced_ms, pace.closed_until_ms, pace.failures, pace.staggered,
                 queue.k, queue.run, {_WANTS}
             FROM pace
             LEFT JOIN queue ON queue.k = (SELECT head.k FROM queue AS head WHERE head.k >= pace.provider << 40
                                           AND head.k < pace.provider + 1 << 40 ORDER BY head.k LIMIT 1)
             LEFT {_RECORD}
             WHERE pace.ready_ms <= ? AND pace.ready_ms < {NEVER_MS} ORDER BY pace.ready_ms LIMIT ?"""  # noqa: S608
_HELD = f"""SELECT {_RUN} FROM queue INDEXED BY queue_held {_RECORD}
            WHERE queue.state <> 'waiting' AND queue.k >= ? AND queue.k < ? ORDER BY queue.k LIMIT ?"""  # noqa: S608
_WAITING = f"""SELECT {_RUN} FROM queue {_RECORD}
               WHERE queue.state = 'waiting' AND queue.k >= ? AND queue.k < ? ORDER BY queue.k LIMIT ?"""  # noqa: S608


class Run(NamedTuple):
    """A run that has not ended, with its record as it is now."""

    k: int
    run: int
    state: Literal["waiting", "out", "retry"]
    at_ms: int
    attempt: int
    lost: int
    record: str
    record_provider: int
    active: int
    endpoint: str
    body: str | None


class DayFacts(NamedTuple):
    """What a run's day and batch say of it."""

    batch: str
    batch_number: int
    date: str
    start_ms: int
    end_ms: int
    paused: bool
    skips: bool
    """What was missed is not caught up."""


class Days(dict[int, DayFacts]):
    """Days by number, each read once in a transaction."""

    def __init__(self, db: Connection) -> None:
        super().__init__()
        self._db = db

    def __missing__(self, number: int) -> DayFacts:
        name, batch, date, start_ms, end_ms, text = self._db.execute(
            """SELECT batch.name, batch.id, day.date, day.start_ms, day.end_ms, batch.spec
               FROM day JOIN batch ON batch.id = day.batch WHERE day.id = ?""",
            (number,),
        ).fetchone()
        spec = _spec(text)
        facts = DayFacts(name, batch, date, start_ms, end_ms, spec.paused, spec.missed == "skip")
        self[number] = facts
        return facts


def looks(db: Connection, *, now_ms: int, limit: int) -> Rows:
    """Providers that are ready, those first that have been for longest: (provider, revision, held, lane, head).

    ``revision`` is None if it was removed; ``held`` says whether runs are out or in back-off. The lane has five
    columns, the head those of ``Run`` without ``state`` and ``at_ms``, for where none is held it waits; all of them are
    None if there is none. They are left as they are read: of all that Paceline does for a run, this is done most often.
    """
    return db.execute(_LOOKS, (now_ms, limit))


def lanes_of(db: Connection, providers: Iterable[int]) -> tuple[dict[int, Lane], dict[int, int | None]]:
    """The lanes of some providers, and when each is to be looked at."""
    rows = db.execute(
        """SELECT provider, ready_ms, rate_us, paced_ms, closed_until_ms, failures, staggered FROM pace
           WHERE provider IN carray(?)""",
        (integers(providers),),
    ).fetchall()
    return {row[0]: Lane(*row[2:]) for row in rows}, {row[0]: row[1] for row in rows}


def front_of(db: Connection, provider: int, places: int, *, limit: int) -> list[Run]:
    """All of a provider's runs out or in back-off, and the first waiting ones: as many as have a place."""
    bounds = provider_bounds(provider)
    held = [Run._make(row) for row in db.execute(_HELD, (*bounds, HELD_MAX))]
    if len(held) >= places:
        return held
    waiting = waiting_of(db, provider, limit=min(places - len(held), limit))
    return sorted(held + waiting)


def waiting_of(db: Connection, provider: int, *, limit: int) -> list[Run]:
    return [Run._make(row) for row in db.execute(_WAITING, (*provider_bounds(provider), limit))]


def backlog_of(db: Connection, k: int, *, end_ms: int) -> Backlog:
    """The usual gap among the runs from this one on, in its own day's window as long as that lasts."""
    provider, due_ms = k >> TIME_BITS, due_ms_of(k)
    beyond = queue_key(provider, end_ms) if due_ms < end_ms else provider_bounds(provider)[1]
    keys = db.execute(
        "SELECT k FROM queue WHERE k >= ? AND k < ? ORDER BY k LIMIT ?", (k, beyond, GAPS_MAX + 1)
    ).fetchall()
    if len(keys) < 2:
        return Backlog(max(end_ms - due_ms, 1), end_ms)  # alone: it has all the time that is left
    return Backlog(max((keys[-1][0] - keys[0][0]) // (len(keys) - 1), 1), end_ms)


@lru_cache(maxsize=256)
def _spec(text: str) -> BatchSpec:
    return parse_stored_batch(text)

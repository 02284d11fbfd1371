"""Reads of a claim: ready providers, their first runs, and what each run's record and batch say now."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from paceline.adapters.sqlite.database import Connection, Rows
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.batch import BatchSpec, parse_stored_batch
from paceline.core.batches.claim import GAPS_MAX, backlog, backlog_until_ms
from paceline.core.batches.pace import Backlog, Pace
from paceline.core.batches.provider import Policy
from paceline.core.batches.run_keys import (
    EPOCH_MS,
    NEVER_MS,
    RECORD_BITS,
    RECORD_MASK,
    TIME_BITS,
    TIME_MASK,
    due_ms_of,
    provider_bounds,
    provider_of,
    queue_key,
)
from paceline.core.batches.unwanted import DayFacts, Predecessor
from paceline.core.why.queued import ProviderQueue, QueuedRun, queued_call

HELD_MAX = 2_000

# The column after `record.provider` is true if the record is there and active.
_RECORD = f"JOIN record ON record.id = queue.run & {RECORD_MASK}"
_WANTS = """queue.attempt, queue.lost, record.name, record.provider, record.active AND NOT record.deleted,
            record.endpoint, record.body, record.options"""
_DUE_MS = f"(queue.k & {TIME_MASK}) + {EPOCH_MS}"

# One statement reads all ready providers: for one with nothing in flight, its first run is all that a claim needs.
_PROVIDERS = f"""SELECT pace.provider, pace.revision,
                 EXISTS (SELECT 1 FROM queue AS held WHERE held.state <> 'waiting'
                         AND held.k >= pace.provider << {TIME_BITS} AND held.k < pace.provider + 1 << {TIME_BITS}),
                 pace.rate_us, pace.paced_ms, pace.closed_until_ms, pace.failures, pace.staggered,
                 queue.k, queue.run, {_WANTS}
             FROM pace
             LEFT JOIN queue ON queue.k = (SELECT head.k FROM queue AS head WHERE head.k >= pace.provider << {TIME_BITS}
                                           AND head.k < pace.provider + 1 << {TIME_BITS} ORDER BY head.k LIMIT 1)
             LEFT {_RECORD}"""  # noqa: S608
_READY = f"""{_PROVIDERS} WHERE pace.outgoing = 0 AND pace.ready_ms <= ? AND pace.ready_ms < {NEVER_MS}
             ORDER BY pace.ready_ms LIMIT ?"""
_READY_FOR_WORKERS = f"{_PROVIDERS} WHERE pace.provider = ? AND pace.outgoing = 1 AND pace.ready_ms <= ?"
_HELD = f"""SELECT queue.k, queue.run, queue.state, {_DUE_MS}, queue.at_ms, {_WANTS}
            FROM queue INDEXED BY queue_held {_RECORD}
            WHERE queue.state <> 'waiting' AND queue.k >= ? AND queue.k < ? ORDER BY queue.k LIMIT ?"""  # noqa: S608
_WAITING = f"""SELECT queue.k, queue.run, queue.state, {_DUE_MS}, {_DUE_MS}, {_WANTS} FROM queue {_RECORD}
               WHERE queue.state = 'waiting' AND queue.k >= ? AND queue.k < ? ORDER BY queue.k LIMIT ?"""  # noqa: S608


class OpenCallRun(NamedTuple):
    """An open run with its record as it is now. ``at_ms``: due time, next try, or end of the lease."""

    k: int
    run: int
    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int
    attempt: int
    lost: int
    record: str
    record_provider: int
    active: int
    endpoint: str
    body: str | None
    options: str | None


class ReadyProvider(NamedTuple):
    """A ready provider, with its pace and its first run; the columns from ``k`` on are None if it has no run.

    ``revision`` is None if the provider was removed; ``held`` is true if runs are out or in back-off. If none is held,
    the first run waits.
    """

    provider: int
    revision: int | None
    held: int
    rate_us: int
    paced_ms: int
    closed_until_ms: int
    failures: int
    staggered: int
    k: int | None
    run: int
    attempt: int
    lost: int
    record: str
    record_provider: int
    active: int
    endpoint: str
    body: str | None
    options: str | None

    @property
    def pace(self) -> Pace:
        return Pace(self.rate_us, self.paced_ms, self.closed_until_ms, self.failures, bool(self.staggered))

    @property
    def head(self) -> OpenCallRun | None:
        if self.k is None:
            return None
        due_ms = due_ms_of(self.k)
        wants = (self.attempt, self.lost, self.record, self.record_provider, self.active)
        texts = (self.endpoint, self.body, self.options)
        return OpenCallRun(self.k, self.run, "waiting", due_ms, due_ms, *wants, *texts)


class Days(dict[int, DayFacts]):
    """Days by number; each is read once in a transaction."""

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


def ready_providers(db: Connection, *, now_ms: int, limit: int) -> Rows:
    """Return providers that are ready, the longest ready first, as rows with the columns of ``ReadyProvider``.

    The rows stay plain tuples: nothing else is done as often for a run.
    """
    return db.execute(_READY, (now_ms, limit))


def ready_for_workers(db: Connection, provider: int, *, now_ms: int) -> Rows:
    """Return the provider, if it is ready and workers claim its runs, with the same columns."""
    return db.execute(_READY_FOR_WORKERS, (provider, now_ms))


def paces_of(db: Connection, providers: Iterable[int]) -> tuple[dict[int, Pace], dict[int, int | None]]:
    """Return the paces of some providers, and when each is ready."""
    rows = db.execute(
        """SELECT provider, ready_ms, rate_us, paced_ms, closed_until_ms, failures, staggered FROM pace
           WHERE provider IN carray(?)""",
        (integers(providers),),
    ).fetchall()
    return {provider: Pace(*pace) for provider, _, *pace in rows}, {provider: ready for provider, ready, *_ in rows}


def held_of(db: Connection, provider: int) -> list[OpenCallRun]:
    """Return all runs of a provider that are out or in back-off, in due order."""
    return [OpenCallRun._make(row) for row in db.execute(_HELD, (*provider_bounds(provider), HELD_MAX))]


def waiting_of(db: Connection, provider: int, *, limit: int) -> list[OpenCallRun]:
    """Return a provider's first waiting runs, in due order."""
    return [OpenCallRun._make(row) for row in db.execute(_WAITING, (*provider_bounds(provider), limit))]


def provider_queue(db: Connection, number: int, policy: Policy, *, limit: int) -> ProviderQueue:
    days, paces = Days(db), paces_of(db, [number])[0]
    waiting = waiting_of(db, number, limit=limit + 1)
    found = [
        queued_call(
            QueuedRun(
                row.run,
                row.state,
                row.due_ms,
                row.at_ms,
                number,
                row.record_provider if row.active else None,
                row.options,
            ),
            days[row.run >> RECORD_BITS],
            policy,
        )
        for row in sorted([*held_of(db, number), *waiting[:limit]])
    ]
    return ProviderQueue(paces.get(number, Pace()), found, len(waiting) > limit)


def predecessor_of(db: Connection, run: int, record: str, *, batch: int) -> Predecessor:
    """Return the state of another record's run on the same day."""
    row = db.execute(
        """SELECT COALESCE(queue.state, result.state, 'aside'), planned.k FROM record
           JOIN planned ON planned.run = ?1 | record.id
           LEFT JOIN queue ON queue.k = planned.k AND queue.run = planned.run
           LEFT JOIN result ON result.k = planned.k AND result.run = planned.run
           WHERE record.batch = ?2 AND record.name = ?3""",
        (run & ~RECORD_MASK, batch, record),
    ).fetchone()
    return Predecessor(record, row[0], due_ms_of(row[1])) if row else Predecessor(record)


def backlog_of(db: Connection, k: int, *, end_ms: int) -> Backlog:
    """Return the usual gap between a provider's runs, counted from a late one."""
    until_ms = backlog_until_ms(due_ms_of(k), end_ms=end_ms)
    rows = db.execute(
        "SELECT k FROM queue WHERE k >= ? AND k < ? ORDER BY k LIMIT ?",
        (k, queue_key(provider_of(k), until_ms), GAPS_MAX + 1),
    )
    return backlog([due_ms_of(key) for (key,) in rows], end_ms=end_ms)


@lru_cache(maxsize=256)
def _spec(text: str) -> BatchSpec:
    return parse_stored_batch(text)

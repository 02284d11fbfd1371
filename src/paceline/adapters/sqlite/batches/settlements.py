"""Ends of leases of batches' runs: settled, given back, or pulled back after the clock was set back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from paceline.adapters.sqlite.batches.claim_reads import paces_of
from paceline.adapters.sqlite.batches.providers import SqlitePolicyCache
from paceline.adapters.sqlite.batches.unwanted_runs import end
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.pace import Pace, pace_after, pace_pulled_back
from paceline.core.batches.run_keys import EPOCH_MS, NEVER_MS, TIME_BITS, TIME_MASK
from paceline.core.batches.settle import DEAD_STATES, RELEASED, is_plain, look_ms

NO_LEASE = (-1, 0, 0)

# Fast path of core.batches.settle.first_ready_ms, without the provider's closed time; ?1 is the time now.
_OF_PROVIDER = f"k >= provider << {TIME_BITS} AND k < provider + 1 << {TIME_BITS}"
_HELD_MS = f"SELECT min(at_ms) FROM queue INDEXED BY queue_held WHERE state <> 'waiting' AND {_OF_PROVIDER}"  # noqa: S608
_NEXT_MS = f"""coalesce((SELECT iif(due_ms <= ?1, due_ms, min(due_ms, coalesce(({_HELD_MS}), due_ms)))
                         FROM (SELECT (k & {TIME_MASK}) + {EPOCH_MS} AS due_ms FROM queue
                               WHERE {_OF_PROVIDER} AND state = 'waiting' ORDER BY k LIMIT 1)),
                        ({_HELD_MS}), {NEVER_MS})"""  # noqa: S608


def settle(db: Connection, policies: SqlitePolicyCache, settlements: Sequence[CallSettlement]) -> list[bool]:
    """Record the settlements that count. Fast path of core.batches.settle.counts: no value is made for each run."""
    rows = db.execute(
        "SELECT k, attempt, at_ms, run FROM carray(?) AS asked JOIN queue ON queue.k = asked.value WHERE state = 'out'",
        (integers([item.handle for item in settlements]),),
    )
    leases = {k: (attempt, until_ms, run) for k, attempt, until_ms, run in rows}
    settling = _Settling(db, policies, {item.handle >> TIME_BITS for item in settlements if not is_plain(item)})
    won: list[bool] = []
    for item in settlements:
        attempt, until_ms, run = leases.get(item.handle, NO_LEASE)
        if attempt != item.attempt or item.ended_ms > until_ms:
            won.append(False)
            continue
        del leases[item.handle]  # if there are two with the right fence, the first counts
        won.append(True)
        settling.settle(item, run)
    settling.write()
    return won


class _Settling:
    """Settlements that count, and the paces that they change.

    ``involved`` are the providers whose pace must be read for that. For all others it is enough to write.
    """

    def __init__(self, db: Connection, policies: SqlitePolicyCache, involved: Collection[int]) -> None:
        self._db = db
        self._paces, self._ready = paces_of(db, involved) if involved else ({}, {})
        self._known = policies.of(db, list(involved)) if involved else {}
        self._ended_ms: dict[int, int] = {}
        self._paced: list[tuple[int, int]] = []
        self._ended: list[tuple[Any, ...]] = []
        self._again: list[tuple[Any, ...]] = []

    def settle(self, item: CallSettlement, run: int) -> None:
        k = item.handle
        if item.state == "retry":
            self._again.append((item.not_before_ms, item.lost, item.reason, k))
        else:
            self._ended.append(_result_row(k, run, item))
        provider = k >> TIME_BITS
        if provider in self._paces:
            self._move(provider, item)
        else:
            self._paced.append((item.ended_ms, provider))

    def _move(self, provider: int, item: CallSettlement) -> None:
        policy = self._known[provider].policy
        pace = pace_after(
            self._paces[provider],
            policy,
            verdict=item.verdict,
            closed_until_ms=item.closed_until_ms,
            now_ms=item.ended_ms,
        )
        self._paces[provider] = pace
        self._ended_ms[provider] = max(self._ended_ms.get(provider, 0), item.ended_ms)
        self._ready[provider] = look_ms(item, policy, pace, ready_ms=self._ready[provider] or 0)

    def write(self) -> None:
        db, paces = self._db, self._paces
        end(db, self._ended)
        db.executemany(
            f"""UPDATE pace SET ready_ms = max({_NEXT_MS}, closed_until_ms), paced_ms = max(paced_ms, ?1),
                    failures = 0 WHERE provider = ?2""",  # noqa: S608  a fixed text
            self._paced,
        )
        if not paces:
            return
        db.executemany("UPDATE queue SET state = 'retry', at_ms = ?, lost = ?, reason = ? WHERE k = ?", self._again)
        db.executemany(
            f"""UPDATE pace SET ready_ms = coalesce(?2, max({_NEXT_MS}, ?4)), paced_ms = ?3, closed_until_ms = ?4,
                    failures = ?5 WHERE provider = ?6""",  # noqa: S608  a fixed text
            [
                (ended_ms, self._ready[provider], pace.paced_ms, pace.closed_until_ms, pace.failures, provider)
                for provider, pace in paces.items()
                if (ended_ms := self._ended_ms.get(provider)) is not None
            ],
        )


def release(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    """Give back runs whose attempt never began. Fast path of core.batches.settle.released."""
    released = []
    for k, attempt in fences:
        db.execute(
            """UPDATE queue SET attempt = attempt - 1, started_ms = NULL, reason = ?4,
                   state = iif(attempt = 1, 'waiting', 'retry'), at_ms = iif(attempt = 1, 0, ?3)
               WHERE k = ?1 AND attempt = ?2 AND state = 'out'""",
            (k, attempt, now_ms, RELEASED),
        )
        released.append(db.changes() == 1)
    given_back = {k >> TIME_BITS for (k, _), won in zip(fences, released, strict=True) if won}
    db.executemany(
        "UPDATE pace SET ready_ms = ?2 WHERE provider = ?1 AND ready_ms > ?2",
        [(provider, now_ms) for provider in given_back],
    )
    return released


def extend(db: Connection, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    """Extend a lease. Fast path of core.batches.settle.extended."""
    db.execute(
        "UPDATE queue SET at_ms = ?3 WHERE k = ?1 AND attempt = ?2 AND state = 'out' AND at_ms >= ?4",
        (handle, attempt, until_ms, now_ms),
    )
    extended = db.changes() == 1
    if extended:
        db.execute("UPDATE pace SET ready_ms = min(ready_ms, ?2) WHERE provider = ?1", (handle >> TIME_BITS, until_ms))
    return extended


def pull_back(db: Connection, policies: SqlitePolicyCache, *, now_ms: int, wait_ms_max: int) -> int:
    """Pull back times that lie in the future.

    Fast path of core.batches.settle.pulled_back: statements move the runs, and paces are moved one by one.
    """
    held = f"SELECT k >> {TIME_BITS} FROM queue INDEXED BY queue_held WHERE state <> 'waiting'"  # noqa: S608
    db.execute(f"UPDATE pace SET ready_ms = min(ready_ms, ?) WHERE provider IN ({held})", (now_ms,))  # noqa: S608
    db.execute(
        """UPDATE queue INDEXED BY queue_held SET at_ms = ?1 + (at_ms - started_ms), started_ms = ?1
           WHERE state <> 'waiting' AND state = 'out' AND started_ms > ?1""",
        (now_ms,),
    )
    moved = db.changes()
    db.execute(
        """UPDATE queue INDEXED BY queue_held SET at_ms = ?1
           WHERE state <> 'waiting' AND state = 'retry' AND at_ms > ?1""",
        (now_ms + wait_ms_max,),
    )
    moved += db.changes()
    return moved + _pull_back_paces(db, policies, now_ms=now_ms, wait_ms_max=wait_ms_max)


def _pull_back_paces(db: Connection, policies: SqlitePolicyCache, *, now_ms: int, wait_ms_max: int) -> int:
    rows = db.execute(
        """SELECT provider, rate_us, paced_ms, closed_until_ms, failures, staggered FROM pace
           WHERE rate_us > ?1 * 1000 OR paced_ms > ?1 OR closed_until_ms > ?1""",
        (now_ms,),
    ).fetchall()
    known = policies.of(db, [provider for provider, *_ in rows])
    moved = []
    for provider, *facts in rows:
        pace = Pace(*facts)
        if provider in known:
            back = pace_pulled_back(pace, known[provider].policy, now_ms=now_ms, wait_ms_max=wait_ms_max)
            if back != pace:
                moved.append((now_ms, back.rate_us, back.paced_ms, back.closed_until_ms, provider))
    db.executemany(
        """UPDATE pace SET ready_ms = min(ready_ms, ?), rate_us = ?, paced_ms = ?, closed_until_ms = ?
           WHERE provider = ?""",
        moved,
    )
    return len(moved)


def _result_row(k: int, run: int, item: CallSettlement) -> tuple[Any, ...]:
    return (
        k,
        run,
        item.state,
        item.attempt,
        item.started_ms,
        item.ended_ms,
        item.latency_ms,
        item.code,
        item.reason,
        item.payload,
        1 if item.state in DEAD_STATES else 0,
    )

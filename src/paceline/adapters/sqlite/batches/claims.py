"""Claims of batches' runs: which providers are ready, which runs start at each, and the leases of these runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from paceline.adapters.sqlite.batches.claim_reads import (
    Days,
    OpenCallRun,
    ReadyProvider,
    backlog_of,
    held_of,
    predecessor_of,
    ready_for_workers,
    ready_providers,
    waiting_of,
)
from paceline.adapters.sqlite.batches.providers import SqlitePolicyCache
from paceline.adapters.sqlite.batches.unwanted_runs import UnwantedRuns
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.claim import PASSES_MAX, PROVIDERS_MIN, divide_budget, first_late, in_turn, startable
from paceline.core.batches.pace import Backlog, FirstRun, decide_starts, starts_at_once
from paceline.core.batches.provider import KnownPolicy
from paceline.core.batches.records.options import call_timeout_ms, parse_options
from paceline.core.batches.run_keys import EPOCH_MS, NEVER_MS, RECORD_BITS, TIME_BITS, TIME_MASK
from paceline.core.batches.unwanted import RunFacts, judge_run, may_have_arrived
from paceline.core.batches.values import ClaimedCall

TAKEN_OUT_MAX = 500
"""Waiting runs of a provider that one pass removes from its queue at most."""


def claim(
    db: Connection, policies: SqlitePolicyCache, *, now_ms: int, runs_max: int, lease_ms: int
) -> list[ClaimedCall]:
    claiming = _Claiming(db, policies, now_ms=now_ms, lease_ms=lease_ms)
    passes = []
    divided = False
    for _ in range(PASSES_MAX):
        left = runs_max - len(claiming.claimed)
        rows = ready_providers(db, now_ms=now_ms, limit=max(left, PROVIDERS_MIN)).fetchall() if left > 0 else []
        if not rows:
            break
        others = [ReadyProvider._make(row) for row in rows[:left] if not claiming.start_head(row)]
        if others:
            claiming.open_all(others, runs_max=runs_max - len(claiming.claimed))
            divided = True
        claiming.write()
        passes.append(rows)
    return in_turn(claiming.claimed, (row[0] for rows in passes for row in rows)) if divided else claiming.claimed


def claim_for_worker(
    db: Connection,
    policies: SqlitePolicyCache,
    provider: int,
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    run: int | None = None,
) -> list[ClaimedCall]:
    claiming = _Claiming(db, policies, now_ms=now_ms, lease_ms=lease_ms, only=run)
    for _ in range(PASSES_MAX):
        left = (runs_max if run is None else 1) - len(claiming.claimed)
        row = ready_for_workers(db, provider, now_ms=now_ms).fetchone() if left > 0 and not claiming.refused else None
        if row is None:
            break
        if not claiming.start_head(row):
            claiming.open_all([ReadyProvider._make(row)], runs_max=left)
        claiming.write()
    return claiming.claimed


def next_ms(db: Connection) -> int | None:
    row = db.execute(
        f"""SELECT ready_ms FROM pace WHERE outgoing = 0 AND ready_ms < {NEVER_MS}
            ORDER BY ready_ms LIMIT 1"""  # noqa: S608  a number
    ).fetchone()
    return row[0] if row else None


def next_for_worker_ms(db: Connection, provider: int) -> int | None:
    row = db.execute(
        "SELECT ready_ms FROM pace WHERE provider = ? AND outgoing = 1 AND ready_ms < ?", (provider, NEVER_MS)
    ).fetchone()
    return row[0] if row else None


class _Queue(NamedTuple):
    """A provider that may start runs, with its runs that are out or in back-off."""

    ready: ReadyProvider
    known: KnownPolicy
    held: list[OpenCallRun]


class _Claiming:
    """One claim. Its decisions are written pass by pass, all in the caller's transaction.

    ``only``: the number in the ledger of the one run that is wanted; ``refused``: another run would start first.
    """

    def __init__(
        self, db: Connection, policies: SqlitePolicyCache, *, now_ms: int, lease_ms: int, only: int | None = None
    ) -> None:
        self.claimed: list[ClaimedCall] = []
        self.refused = False
        self._only = only
        self._db = db
        self._policies = policies
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._days = Days(db)
        self._unwanted = UnwantedRuns(self._days, now_ms=now_ms)
        # Keyed by the end of the lease and by the next look: most share one moment and are written by one statement.
        self._heads: defaultdict[int, list[int]] = defaultdict(list)
        self._out: defaultdict[int, list[int]] = defaultdict(list)
        self._ready: defaultdict[int, list[int]] = defaultdict(list)
        self._paces: list[tuple[int, int, int, bool, int]] = []

    def start_head(self, row: tuple[Any, ...]) -> bool:
        """Start a provider's first run if nothing else has to be decided; ``row`` has the columns of ReadyProvider.

        Fast path of core.batches.unwanted.judge_run and core.batches.pace.decide_starts.
        """
        (provider, revision, held, _, _, closed_until_ms, _, staggered, k, number, attempt, lost, record, target,
         active, *request) = row  # fmt: skip
        if held or k is None or revision is None or not active or target != provider:
            return False
        if self._only not in (None, number):
            return False
        if request[2] is not None and parse_options(request[2]).after is not None:
            return False
        _, policy, _ = self._policies.at(self._db, provider, revision)
        batch, _, date, _, _, paused, skips = self._days[number >> RECORD_BITS]
        now_ms = self._now_ms
        due_ms = (k & TIME_MASK) + EPOCH_MS
        if paused or skips or not starts_at_once(policy, due_ms, closed_until_ms, now_ms, staggered=staggered):
            return False
        until_ms = now_ms + call_timeout_ms(request[2], policy) + self._lease_ms
        self._heads[until_ms].append(k)
        self.claimed.append(
            ClaimedCall(k, attempt + 1, provider, revision, batch, record, date, due_ms, until_ms, lost == 1, *request)
        )
        return True

    def open_all(self, providers: Sequence[ReadyProvider], *, runs_max: int) -> None:
        """Start runs at each provider, as many as its share of the budget allows."""
        queues = [queue for ready in providers if (queue := self._queue(ready)) is not None]
        now_ms = self._now_ms
        startables = [
            startable(
                queue.known.policy,
                held=len(queue.held),
                held_due=sum(run.at_ms <= now_ms for run in queue.held),
            )
            for queue in queues
        ]
        for queue, share in zip(queues, divide_budget(runs_max, startables), strict=True):
            self._open(queue, runs_max=share)

    def _queue(self, ready: ReadyProvider) -> _Queue | None:
        """Return the provider's queue.

        None if it was removed or is paused: then it is not ready until it is put again.
        """
        known = None if ready.revision is None else self._policies.at(self._db, ready.provider, ready.revision)
        if known is None or known.policy.paused:
            self._ready[NEVER_MS].append(ready.provider)
            return None
        return _Queue(ready, known, held_of(self._db, ready.provider) if ready.held else [])

    def _open(self, queue: _Queue, *, runs_max: int) -> None:
        ready, known, _ = queue
        runs = self._first_runs(queue, runs_max=runs_max)
        if any(judge_run(self._facts(run), self._days[run.run >> RECORD_BITS], now_ms=self._now_ms) for run in runs):
            self._take_out(queue)  # the next pass looks again
            return
        front = [FirstRun(run.k, run.state, run.due_ms, run.at_ms) for run in runs]
        pace = ready.pace
        starts, ready_ms, after = decide_starts(
            known.policy,
            pace,
            front,
            now_ms=self._now_ms,
            runs_max=runs_max,
            backlog=self._backlog(runs, front),
            phase=known.phase,
        )
        if self._only is not None and not any(self._is_only(runs, start) for start in starts):
            self.refused = True
            return
        if starts:
            ready_ms = min(ready_ms, self._start(runs, starts, known))
        if after is pace:
            self._ready[ready_ms].append(ready.provider)
        else:
            self._paces.append((ready_ms, after.rate_us, after.paced_ms, after.staggered, ready.provider))

    def _is_only(self, runs: Sequence[OpenCallRun], start: FirstRun) -> bool:
        return any(run.k == start.handle and run.run == self._only for run in runs)

    def _first_runs(self, queue: _Queue, *, runs_max: int) -> list[OpenCallRun]:
        """Return a provider's runs that are out or in back-off, and the first waiting ones, one for each free place."""
        ready, known, held = queue
        places = known.policy.max_in_flight - len(held)
        if places == 1 and not held:
            return [ready.head] if ready.head is not None else []
        return sorted(held + waiting_of(self._db, ready.provider, limit=min(places, runs_max))) if places > 0 else held

    def write(self) -> None:
        db, now_ms = self._db, self._now_ms
        for until_ms, keys in self._heads.items():
            self._out[until_ms] += keys
            self._ready[until_ms] += [k >> TIME_BITS for k in keys]  # nothing else starts before its lease ends
        for until_ms, keys in self._out.items():
            db.execute(
                """UPDATE queue SET state = 'out', at_ms = ?1, attempt = attempt + 1, lost = lost OR state = 'out',
                       started_ms = ?2, reason = '' WHERE k IN carray(?3)""",
                (until_ms, now_ms, integers(keys)),
            )
        for ready_ms, providers in self._ready.items():
            db.execute("UPDATE pace SET ready_ms = ? WHERE provider IN carray(?)", (ready_ms, integers(providers)))
        if self._paces:
            db.executemany(
                "UPDATE pace SET ready_ms = ?, rate_us = ?, paced_ms = ?, staggered = ? WHERE provider = ?",
                self._paces,
            )
        self._unwanted.write(db)
        self._heads.clear()
        self._out.clear()
        self._ready.clear()
        self._paces.clear()

    def _start(self, runs: Sequence[OpenCallRun], starts: Sequence[FirstRun], known: KnownPolicy) -> int:
        """Lease the runs that start. Return when the first of the leases ends."""
        handles = {start.handle for start in starts}
        first_ms = NEVER_MS
        for run in runs:
            if run.k not in handles:
                continue
            day = self._days[run.run >> RECORD_BITS]
            until_ms = self._now_ms + call_timeout_ms(run.options, known.policy) + self._lease_ms
            first_ms = min(first_ms, until_ms)
            self._out[until_ms].append(run.k)
            self.claimed.append(
                ClaimedCall(
                    run.k,
                    run.attempt + 1,
                    run.k >> TIME_BITS,
                    known.revision,
                    day.batch,
                    run.record,
                    day.date,
                    run.due_ms,
                    until_ms,
                    may_have_arrived(run.state, run.lost),
                    run.endpoint,
                    run.body,
                    run.options,
                )
            )
        return first_ms

    def _backlog(self, runs: Sequence[OpenCallRun], front: Sequence[FirstRun]) -> Backlog | None:
        """Return the backlog behind the first late run; None if no run is late."""
        late = first_late(front, now_ms=self._now_ms)
        if late is None:
            return None
        return backlog_of(self._db, runs[late].k, end_ms=self._days[runs[late].run >> RECORD_BITS].end_ms)

    def _take_out(self, queue: _Queue) -> None:
        """Remove unwanted runs from a provider's queue, as many as one pass looks at."""
        for run in (*queue.held, *waiting_of(self._db, queue.ready.provider, limit=TAKEN_OUT_MAX)):
            verdict = judge_run(self._facts(run), self._days[run.run >> RECORD_BITS], now_ms=self._now_ms)
            if verdict is not None:
                self._unwanted.add(run, verdict)

    def _facts(self, run: OpenCallRun) -> RunFacts:
        record_provider = run.record_provider if run.active else None
        after = parse_options(run.options).after
        before = None
        if after is not None and run.at_ms <= self._now_ms:
            before = predecessor_of(self._db, run.run, after, batch=self._days[run.run >> RECORD_BITS].batch_number)
        provider = run.k >> TIME_BITS
        return RunFacts(run.state, run.due_ms, run.at_ms, run.attempt, run.lost, provider, record_provider, before)

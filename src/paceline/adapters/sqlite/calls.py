"""Batches' runs between being planned and being ended: claims per provider, leases, fencing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.fronts import Days, Run, backlog_of, front_of, lanes_of, looks, waiting_of
from paceline.adapters.sqlite.keys import EPOCH_MS
from paceline.adapters.sqlite.providers import Policies
from paceline.adapters.sqlite.run_keys import NEVER_MS, RECORD_BITS, TIME_BITS, TIME_MASK
from paceline.adapters.sqlite.sidings import Sidings, end
from paceline.core.calls import CallSettlement
from paceline.core.pace import (
    LATE_MS,
    Backlog,
    Front,
    Lane,
    ends_well,
    lane_after,
    lane_pulled_back,
    open_lane,
    starts_at_once,
)
from paceline.core.shares import Claimant, fair_shares
from paceline.ports import ClaimedCall

DEAD_STATES = frozenset({"failed", "unknown"})
PASSES_MAX = 8
"""A claim that finds too little looks at further providers so often at most."""
LOOKS_MIN = 64
SIFTED_MAX = 500
"""So many of a provider's runs at most are looked through in one pass for those that are not to run."""


def claim(db: Connection, policies: Policies, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
    claiming = _Claiming(db, policies, now_ms=now_ms, lease_ms=lease_ms)
    passes = []
    divided = False
    for _ in range(PASSES_MAX):
        left = runs_max - len(claiming.claimed)
        found = looks(db, now_ms=now_ms, limit=max(left, LOOKS_MIN)).fetchall() if left > 0 else []
        if not found:
            break
        wide = [row for row in found[:left] if not claiming.start_head(row)]
        if wide:
            room = runs_max - len(claiming.claimed)  # at least one for each
            shares = fair_shares(room, [Claimant(claiming.startable(row)) for row in wide])
            for row, share in zip(wide, shares, strict=True):
                claiming.open(row, runs_max=share)
        divided |= bool(wide)
        claiming.write()
        passes.append(found)
    if divided:
        # Who has more than one place, or something taken out of its way, is opened later, and keeps its turn.
        turns = {provider: place for place, (provider, *_) in reversed(list(enumerate(chain.from_iterable(passes))))}
        claiming.claimed.sort(key=lambda call: turns[call.provider])
    return claiming.claimed


def next_ms(db: Connection) -> int | None:
    row = db.execute(
        f"SELECT ready_ms FROM pace WHERE ready_ms < {NEVER_MS} ORDER BY ready_ms LIMIT 1"  # noqa: S608  a number
    ).fetchone()
    return row[0] if row else None


class _Claiming:
    """One claim: what it decides is written pass by pass, all in the caller's transaction."""

    def __init__(self, db: Connection, policies: Policies, *, now_ms: int, lease_ms: int) -> None:
        self.claimed: list[ClaimedCall] = []
        self.sifted = False
        self._db = db
        self._policies = policies
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._days = Days(db)
        self._sidings = Sidings(self._days, now_ms=now_ms)
        # By when the lease ends and by when to look again: most share a moment, and are written with one statement.
        self._heads: defaultdict[int, list[int]] = defaultdict(list)
        self._out: defaultdict[int, list[int]] = defaultdict(list)
        self._ready: defaultdict[int, list[int]] = defaultdict(list)
        self._lanes: list[tuple[int, int, int, bool, int]] = []

    def start_head(self, row: tuple[Any, ...]) -> bool:
        """Starts a provider's head if that is all there is to decide."""
        (provider, revision, held, _, _, closed_until_ms, _, staggered, k, number, attempt, lost, record, target,
         active, endpoint, body) = row  # fmt: skip
        if held or k is None or revision is None or not active or target != provider:
            return False
        _, policy, _ = self._policies.at(self._db, provider, revision)
        batch, _, date, _, _, paused, skips = self._days[number >> RECORD_BITS]
        now_ms = self._now_ms
        due_ms = (k & TIME_MASK) + EPOCH_MS
        if paused or skips or not starts_at_once(policy, due_ms, closed_until_ms, now_ms, staggered=staggered):
            return False
        until_ms = now_ms + policy.timeout_ms + self._lease_ms
        self._heads[until_ms].append(k)
        self.claimed.append(
            ClaimedCall(
                k, attempt + 1, provider, revision, batch, record, date, due_ms, until_ms, lost == 1, endpoint, body
            )
        )
        return True

    def startable(self, row: tuple[Any, ...]) -> int:
        """How many of a provider's runs may start at once at most."""
        provider, revision = row[:2]
        return 1 if revision is None else self._policies.at(self._db, provider, revision).policy.max_in_flight

    def open(self, row: tuple[Any, ...], *, runs_max: int) -> None:
        """Starts what may start at one provider."""
        provider, revision, held = row[:3]
        lane = Lane(*row[3:8])
        if revision is None or (known := self._policies.at(self._db, provider, revision)).policy.paused:
            self._ready[NEVER_MS].append(provider)
            return
        if held or known.policy.max_in_flight > 1:
            runs = front_of(self._db, provider, known.policy.max_in_flight, limit=runs_max)
        else:
            runs = [Run(row[8], row[9], "waiting", 0, *row[10:])] if row[8] is not None else []
        takes = self._sidings.takes
        front: list[Front] = []
        for run in runs:
            if takes(run):
                self._sift(provider, runs)  # and the next pass looks again
                return
            due_ms = (run.k & TIME_MASK) + EPOCH_MS
            front.append(Front(run.k, run.state, due_ms, run.at_ms or due_ms))
        starts, ready_ms, after = open_lane(
            known.policy,
            lane,
            front,
            now_ms=self._now_ms,
            runs_max=runs_max,
            backlog=self._backlog(runs, front),
            phase=known.phase,
        )
        if starts:
            until_ms = self._now_ms + known.policy.timeout_ms + self._lease_ms
            ready_ms = min(ready_ms, until_ms)
            self._start(runs, starts, revision, until_ms)
        if after is lane:
            self._ready[ready_ms].append(provider)
        else:
            self._lanes.append((ready_ms, after.rate_us, after.paced_ms, after.staggered, provider))

    def write(self) -> None:
        db, now_ms = self._db, self._now_ms
        for until_ms, keys in self._heads.items():
            self._out[until_ms] += keys
            self._ready[until_ms] += [k >> TIME_BITS for k in keys]  # nothing else before its lease ends
        for until_ms, keys in self._out.items():
            db.execute(
                """UPDATE queue SET state = 'out', at_ms = ?1, attempt = attempt + 1, lost = lost OR state = 'out',
                       started_ms = ?2, reason = '' WHERE k IN carray(?3)""",
                (until_ms, now_ms, integers(keys)),
            )
        for ready_ms, providers in self._ready.items():
            db.execute("UPDATE pace SET ready_ms = ? WHERE provider IN carray(?)", (ready_ms, integers(providers)))
        if self._lanes:
            db.executemany(
                "UPDATE pace SET ready_ms = ?, rate_us = ?, paced_ms = ?, staggered = ? WHERE provider = ?",
                self._lanes,
            )
        self._sidings.write(db)
        self._heads.clear()
        self._out.clear()
        self._ready.clear()
        self._lanes.clear()

    def _start(self, runs: Sequence[Run], starts: Sequence[Front], revision: int, until_ms: int) -> None:
        handles = {start.handle for start in starts} if len(runs) > 1 else ()
        for run in runs:
            k, number, state, _, attempt, lost, record, _, _, endpoint, body = run
            if handles and k not in handles:
                continue
            again = lost == 1 or state == "out"
            day = self._days[number >> RECORD_BITS]
            due_ms = (k & TIME_MASK) + EPOCH_MS
            names = (day.batch, record, day.date)
            self._out[until_ms].append(k)
            self.claimed.append(
                ClaimedCall(k, attempt + 1, k >> TIME_BITS, revision, *names, due_ms, until_ms, again, endpoint, body)
            )

    def _backlog(self, runs: Sequence[Run], front: Sequence[Front]) -> Backlog | None:
        """Of the first run that is late, if one is."""
        late_ms = self._now_ms - LATE_MS
        for run, place in zip(runs, front, strict=True):
            if place.at_ms < late_ms:
                return backlog_of(self._db, run.k, end_ms=self._days[run.run >> RECORD_BITS].end_ms)
        return None

    def _sift(self, provider: int, runs: Sequence[Run]) -> None:
        """Takes out of the way what is not to run, as far as one pass looks."""
        self.sifted = True
        held = [run for run in runs if run.state != "waiting"]
        for run in (*held, *waiting_of(self._db, provider, limit=SIFTED_MAX)):
            if self._sidings.takes(run):
                self._sidings.take(run)


def settle(db: Connection, policies: Policies, settlements: Sequence[CallSettlement]) -> list[bool]:
    rows = db.execute(
        "SELECT k, attempt, at_ms, run FROM carray(?) AS asked JOIN queue ON queue.k = asked.value WHERE state = 'out'",
        (integers([item.handle for item in settlements]),),
    )
    leases = {row[0]: row for row in rows}
    settling = _Settling(db, policies, {item.handle >> TIME_BITS for item in settlements if not _is_plain(item)})
    won: list[bool] = []
    for item in settlements:
        row = leases.get(item.handle)
        if row is None or row[1] != item.attempt or item.ended_ms > row[2]:
            won.append(False)
            continue
        del leases[item.handle]  # of two that are right, the first counts
        won.append(True)
        settling.settle(item, row[3])
    settling.write()
    return won


def _is_plain(item: CallSettlement) -> bool:
    return item.state == "done" and ends_well(item.verdict, item.closed_until_ms)


# The first of those left says when to look again: if it is not due yet, then none of them is, but for those that were
# tried before the clock was set back. ?1 is now.
_HELD_MS = """SELECT min(at_ms) FROM queue INDEXED BY queue_held
              WHERE state <> 'waiting' AND k >= provider << 40 AND k < provider + 1 << 40"""
_NEXT_MS = f"""coalesce((SELECT iif(due_ms <= ?1, due_ms, min(due_ms, coalesce(({_HELD_MS}), due_ms)))
                         FROM (SELECT (k & {TIME_MASK}) + {EPOCH_MS} AS due_ms FROM queue
                               WHERE k >= provider << 40 AND k < provider + 1 << 40 ORDER BY k LIMIT 1)),
                        {NEVER_MS})"""  # noqa: S608


class _Settling:
    """Settlements that count, with the lanes they move.

    ``involved`` are the providers whose lanes must be known for that. For all others it is enough to write.
    """

    def __init__(self, db: Connection, policies: Policies, involved: Collection[int]) -> None:
        self._db = db
        self._lanes, self._ready = lanes_of(db, involved) if involved else ({}, {})
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
        if provider in self._lanes:
            self._move(provider, item)
        else:
            self._paced.append((item.ended_ms, provider))

    def _move(self, provider: int, item: CallSettlement) -> None:
        policy = self._known[provider].policy
        lane = lane_after(
            self._lanes[provider],
            policy,
            verdict=item.verdict,
            closed_until_ms=item.closed_until_ms,
            now_ms=item.ended_ms,
        )
        self._lanes[provider] = lane
        self._ended_ms[provider] = item.ended_ms
        # One at a time: what comes next is known. Else: look at once, for a place may be free.
        if policy.max_in_flight > 1:
            self._ready[provider] = min(self._ready[provider] or 0, item.ended_ms)
        elif item.state == "retry":
            self._ready[provider] = max(item.not_before_ms, lane.closed_until_ms)
        else:
            self._ready[provider] = None

    def write(self) -> None:
        db = self._db
        end(db, self._ended)
        db.executemany(
            f"""UPDATE pace SET ready_ms = max({_NEXT_MS}, closed_until_ms), paced_ms = max(paced_ms, ?1),
                    failures = 0 WHERE provider = ?2""",  # noqa: S608  a fixed text
            self._paced,
        )
        if not self._lanes:
            return
        db.executemany("UPDATE queue SET state = 'retry', at_ms = ?, lost = ?, reason = ? WHERE k = ?", self._again)
        db.executemany(
            f"""UPDATE pace SET ready_ms = coalesce(?2, max({_NEXT_MS}, ?4)), paced_ms = ?3, closed_until_ms = ?4,
                    failures = ?5 WHERE provider = ?6""",  # noqa: S608  a fixed text
            [
                (
                    self._ended_ms.get(provider, 0),
                    self._ready[provider],
                    lane.paced_ms,
                    lane.closed_until_ms,
                    lane.failures,
                    provider,
                )
                for provider, lane in self._lanes.items()
            ],
        )


def release(db: Connection, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    """An attempt that never began does not count."""
    released = []
    for k, attempt in fences:
        db.execute(
            """UPDATE queue SET attempt = attempt - 1, started_ms = NULL, reason = 'given back before it started',
                   state = iif(attempt = 1, 'waiting', 'retry'), at_ms = iif(attempt = 1, 0, ?3)
               WHERE k = ?1 AND attempt = ?2 AND state = 'out'""",
            (k, attempt, now_ms),
        )
        released.append(db.changes() == 1)
    look_at(db, {k >> TIME_BITS for (k, _), won in zip(fences, released, strict=True) if won}, now_ms=now_ms)
    return released


def pull_back(db: Connection, policies: Policies, *, now_ms: int, wait_ms_max: int) -> int:
    held = "SELECT k >> 40 FROM queue INDEXED BY queue_held WHERE state <> 'waiting'"
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
    return moved + _pull_back_lanes(db, policies, now_ms=now_ms, wait_ms_max=wait_ms_max)


def _pull_back_lanes(db: Connection, policies: Policies, *, now_ms: int, wait_ms_max: int) -> int:
    rows = db.execute(
        """SELECT provider, rate_us, paced_ms, closed_until_ms, failures, staggered FROM pace
           WHERE rate_us > ?1 * 1000 OR paced_ms > ?1 OR closed_until_ms > ?1""",
        (now_ms,),
    ).fetchall()
    known = policies.of(db, [row[0] for row in rows])
    moved = []
    for provider, *facts in rows:
        lane = Lane(*facts)
        if provider in known:
            back = lane_pulled_back(lane, known[provider].policy, now_ms=now_ms, wait_ms_max=wait_ms_max)
            if back != lane:
                moved.append((now_ms, back.rate_us, back.paced_ms, back.closed_until_ms, provider))
    db.executemany(
        """UPDATE pace SET ready_ms = min(ready_ms, ?), rate_us = ?, paced_ms = ?, closed_until_ms = ?
           WHERE provider = ?""",
        moved,
    )
    return len(moved)


def look_at(db: Connection, providers: Iterable[int], *, now_ms: int) -> None:
    """Lets the next claim look at these providers."""
    db.executemany(
        "UPDATE pace SET ready_ms = ?2 WHERE provider = ?1 AND ready_ms > ?2",
        [(provider, now_ms) for provider in providers],
    )


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

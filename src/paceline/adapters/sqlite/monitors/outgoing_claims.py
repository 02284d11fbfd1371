"""Claims of outgoing runs: whose turn it is, how many each owner gets, and which runs start or park.

Each owner has a queue of these. The rules are ``core.monitors.places``; this module reads waiting runs, applies the
rules, and writes leases. Its cost depends on the number of claimed runs and of owners with waiting runs, not on how
many runs wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import CHECKS_LANE, LANE_BITS, NEVER_MS, is_outgoing, queue_of
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.adapters.sqlite.monitors.owner_queues import (
    LANE,
    LOOKED_GROWTH,
    LOOKED_MIN,
    OwnerQueue,
    OwnerQueues,
    looked_max,
)
from paceline.adapters.sqlite.monitors.runs import count_out, out_of
from paceline.core.monitors.checks import Check
from paceline.core.monitors.claim import HOLD_MS, TakeFacts, may_start, may_take
from paceline.core.monitors.places import OwnerDemand, Seats, target_of
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import Claimed, RunQueue
from paceline.core.monitors.wait_reasons import HELD
from paceline.core.monitors.waiting_checks import Rank

ROUNDS_MAX = 5
"""Rounds of one claim: if runs were only parked, it looks again, each time at more runs."""
SEQUENCE_MASK = (1 << LANE_BITS) - 1
_HANDLE = itemgetter(0)

# A run is clear to start if the run before it in its monitor is settled, or so old that its row is gone.
CLEAR = """(run.previous = 0 OR EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.previous)
            OR NOT EXISTS (SELECT 1 FROM run AS earlier WHERE earlier.handle = run.previous))"""
BEHIND = "coalesce(open.behind, run.previous)"  # not the run before it, if those between were superseded
OPEN_CLEAR = CLEAR.replace("run.previous", BEHIND)
# A run that is caught up later may be out or settled while its handle is still in the tail.
TOUCHED = """(EXISTS (SELECT 1 FROM open WHERE open.handle = run.handle)
              OR EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle))"""
# The columns by which a claim judges a run.
FACTS = f"""run.handle, run.generation, run.counter, run.due_ms, run.previous, {CLEAR},
            monitor.name, monitor.spec, user.name, user.disabled"""
OPEN_FACTS = FACTS.replace("run.previous", BEHIND) + ", open.attempt, open.lost OR open.state = 'out'"
OWNER = "LEFT JOIN monitor ON monitor.generation = run.generation LEFT JOIN user ON user.id = monitor.owner"


# A run that is parked after its moment has come keeps that moment in ``started_ms``: it has waited since then.
_WRITE_OPEN = f"""
INSERT OR REPLACE INTO open
    (handle, lane, state, at_ms, attempt, lost, behind, started_ms, reason, generation, counter)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, iif(?3 <> 'parked', ?8,
            (SELECT iif(state <> 'held' AND at_ms > 0 AND at_ms < {NEVER_MS}, at_ms, started_ms)
             FROM open WHERE handle = ?1)), ?9, ?10, ?11)"""  # noqa: S608  a number of our own


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A run that may be claimed, with its earlier attempts."""

    handle: int
    generation: int
    counter: int
    due_ms: int
    previous: int
    clear: int
    monitor: str | None
    spec: str | None
    owner: str | None
    disabled: int | None
    attempt: int = 0
    lost: int = 0


def claim(
    db: Connection, queues: OwnerQueues, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int
) -> list[Claimed]:
    """Claim outgoing runs of one owner, or of all, from the queue of this name."""
    if queue.owner is not None:
        query = f"{LANE} WHERE user.name = ?3 AND lane.outgoing = 1 AND lane.queue = ?4"
        values = (now_ms, looked_max(runs_max), queue.owner, queue.name)
        picked = [OwnerQueue(*row) for row in db.execute(query, values)]
    else:
        picked = queues.pick(db, queue.name, now_ms=now_ms, runs_max=runs_max)
    _rest_disabled(db, picked, now_ms)
    picked = [lane for lane in picked if not lane.disabled]
    claimed = _serve(db, picked, Seats(runs_max), ClaimDecisions(now_ms=now_ms, lease_ms=lease_ms))
    if queue.owner is None:
        queues.note(picked)
    _write_lanes(db, picked)
    return claimed


def take(db: Connection, handle: int, attempt: int | None, *, now_ms: int, lease_ms: int) -> Claimed | None:
    """Claim one run of an outgoing lane out of turn.

    Later claims skip it in the tail, like every open or settled run.
    """
    row = db.execute(
        f"""SELECT {OPEN_FACTS}, open.state, open.at_ms,
                   EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)
            FROM run LEFT JOIN open ON open.handle = run.handle {OWNER} WHERE run.handle = ?""",  # noqa: S608
        (handle,),
    ).fetchone()
    lane = handle >> LANE_BITS
    if row is None or not is_outgoing(lane):
        return None
    *facts, attempts, lost, state, at_ms, settled = row
    run = Candidate(*(*facts, attempts or 0, lost or 0))
    found = TakeFacts(
        state or "waiting",
        at_ms or 0,
        run.attempt,
        clear=bool(run.clear),
        disabled=bool(run.disabled),
        defined=run.spec is not None,
    )
    if settled or may_take(found, attempt=attempt, now_ms=now_ms) != "take":
        return None
    leases = ClaimDecisions(now_ms=now_ms, lease_ms=lease_ms)
    leases.lease(run)
    (claimed,) = leases.write(db)
    db.execute("UPDATE lane SET ready_ms = min(ready_ms, ?) WHERE id = ?", (now_ms + lease_ms, lane))
    return claimed


class ClaimDecisions:
    """Decisions of a claim: runs that are leased, parked behind another of their monitor, or held. Written together."""

    def __init__(self, *, now_ms: int, lease_ms: int) -> None:
        self.now_ms = now_ms
        self.until_ms = now_ms + lease_ms
        self.claimed: list[Claimed] = []
        self.first: list[int] = []
        self._opened: list[tuple[Any, ...]] = []

    def start(self, run: Candidate) -> bool:
        """Lease, park or hold a run whose time has come. Return True if it is claimed."""
        match may_start(clear=bool(run.clear), disabled=bool(run.disabled)):
            case "lease":
                self.lease(run)
                return True
            case "park":
                self.park(run)
            case "hold":
                self.hold(run)
        return False

    def lease(self, run: Candidate) -> None:
        if run.attempt or run.lost:
            self._open(run, "out", self.until_ms, attempts=1, started_ms=self.now_ms)
        else:
            self.first.append(run.handle)
        check, _, attempts = check_of(run.spec) if run.spec is not None else (None, "", 1)
        self.claimed.append(
            Claimed(
                run.handle,
                run.attempt + 1,
                run.owner or "",
                run.monitor or "",
                run.generation,
                run.counter,
                run.due_ms,
                self.until_ms,
                lost=bool(run.lost),
                check=check,
                attempts=attempts,
            )
        )

    def park(self, run: Candidate) -> None:
        """Park a run until the run before it has ended."""
        self._open(run, "parked", NEVER_MS, behind=run.previous)

    def hold(self, run: Candidate, *, reason: str = HELD) -> None:
        self._open(run, "held", self.now_ms + HOLD_MS, reason=reason)

    def _open(
        self,
        run: Candidate,
        state: str,
        at_ms: int,
        *,
        attempts: int = 0,
        behind: int | None = None,
        started_ms: int | None = None,
        reason: str = "",
    ) -> None:
        lane = queue_of(run.handle)
        row = (run.handle, lane, state, at_ms, run.attempt + attempts, run.lost, behind, started_ms, reason)
        queued = (run.generation, run.counter) if state == "parked" else (None, None)
        self._opened.append((*row, *queued))

    def write(self, db: Connection) -> list[Claimed]:
        """Write the decisions since the last call. Return the claimed runs."""
        if self.first:
            # First attempts, which are nearly all, differ only in their handle: one statement writes all of them.
            lane = queue_of(self.first[0])
            number = str(lane) if lane == CHECKS_LANE else f"value >> {LANE_BITS}"
            db.execute(
                f"""INSERT OR REPLACE INTO open (handle, lane, state, at_ms, attempt, lost, behind, started_ms, reason)
                    SELECT value, {number}, 'out', ?, 1, 0, NULL, ?, ''
                    FROM carray(?)""",  # noqa: S608  numbers of our own
                (self.until_ms, self.now_ms, integers(self.first)),
            )
        come = self.first
        if self._opened:
            come = come + [row[0] for row in self._opened if row[2] == "out"]
            count_out(db, gone=out_of(db, [row[0] for row in self._opened]))  # their leases have expired
            db.executemany(_WRITE_OPEN, self._opened)
        count_out(db, come=come)
        claimed = self.claimed
        self.claimed, self.first, self._opened = [], [], []
        return claimed


def _serve(db: Connection, lanes: Sequence[OwnerQueue], seats: Seats, leases: ClaimDecisions) -> list[Claimed]:
    claimed: list[Claimed] = []
    for _ in range(ROUNDS_MAX):
        shares = seats.shares([OwnerDemand(lane.owner, lane.wanted) for lane in lanes])
        served = [(lane, share) for lane, share in zip(lanes, shares, strict=True) if share]
        if not served:
            break
        before = {lane.id: lane.got for lane, _ in served}
        _look(db, served, leases)
        claimed += leases.write(db)
        for lane, share in served:
            got = lane.got - before[lane.id]
            seats.take(lane.owner, "", got)
            if got < share:
                lane.more = max(LOOKED_MIN, LOOKED_GROWTH * lane.more)
    return claimed


def _look(db: Connection, served: Sequence[tuple[OwnerQueue, int]], leases: ClaimDecisions) -> None:
    """Claim up to its share from each queue: runs that come back and new ones, in order of due time."""
    tails = _read_tails(db, served)
    for (lane, share), tail in zip(served, tails, strict=True):
        lane.changed = True
        back = _read_back(db, lane, leases.now_ms, limit=looked_max(share) + lane.more) if lane.back else []
        runs = sorted([*back, *tail.runs], key=_rank) if back else tail.runs
        judged: set[int] = set()
        rest = share
        for run in runs:
            if rest <= 0:
                break
            judged.add(run.handle)
            rest -= _judge(run, lane, leases)
        lane.back = max(0, lane.back - sum(run.handle in judged for run in back)) if back else 0
        left = min((run.handle for run in tail.runs if run.handle not in judged), default=tail.end + 1)
        lane.position = (left - 1) & SEQUENCE_MASK
        lane.touched |= left <= tail.end  # runs behind this one may be claimed already


def _read_back(db: Connection, lane: OwnerQueue, now_ms: int, *, limit: int) -> list[Candidate]:
    """Return runs that come back: retries, expired leases, caught-up and unparked runs."""
    rows = db.execute(
        f"""SELECT {OPEN_FACTS} FROM open JOIN run ON run.handle = open.handle {OWNER}
            WHERE open.lane = ? AND open.at_ms <= ? ORDER BY open.at_ms LIMIT ?""",  # noqa: S608  fixed texts
        (lane.id, now_ms, limit),
    )
    return [Candidate(*row) for row in rows.fetchall()]


class _Tail(NamedTuple):
    """The next runs of a queue's tail, up to ``end``, that no claim has looked at, in order of due time."""

    runs: list[Candidate]
    end: int


def _read_tails(db: Connection, served: Sequence[tuple[OwnerQueue, int]]) -> list[_Tail]:
    """Read the tails of all these queues together. A missing run was settled and deleted."""
    touched = TOUCHED if any(lane.touched for lane, _ in served) else "0"
    spans = []
    for lane, share in served:
        begin = lane.id << LANE_BITS
        spans.append((begin | lane.position, begin | min(lane.tail, lane.position + share + lane.more)))
    rows = db.execute(
        f"""SELECT {FACTS}, {touched} FROM json_each(?) AS span CROSS JOIN run
                ON run.handle > span.value ->> 0 AND run.handle <= span.value ->> 1 {OWNER}""",  # noqa: S608
        (msgspec.json.encode(sorted(spans)).decode(),),
    ).fetchall()
    tails: list[_Tail] = []
    for position, end in spans:
        first, behind = (bisect_right(rows, bound, key=_HANDLE) for bound in (position, end))
        runs = [Candidate(*facts) for *facts, touched in rows[first:behind] if not touched]
        tails.append(_Tail(sorted(runs, key=_rank), end))
    return tails


def _rank(run: Candidate) -> Rank:
    return run.due_ms, run.generation


def _judge(run: Candidate, lane: OwnerQueue, leases: ClaimDecisions) -> int:
    """Start the run if it may. Return 1 if it is claimed, else 0."""
    got = int(leases.start(run))
    lane.got += got
    return got


def _rest_disabled(db: Connection, lanes: Sequence[OwnerQueue], now_ms: int) -> None:
    """Put off a disabled owner's queues for a while; enabling the owner makes them ready at once."""
    disabled = [lane.id for lane in lanes if lane.disabled]
    if disabled:
        db.execute("UPDATE lane SET ready_ms = ? WHERE id IN carray(?)", (now_ms + HOLD_MS, integers(disabled)))


def _write_lanes(db: Connection, lanes: Sequence[OwnerQueue]) -> None:
    """Write the position of each queue, and when it is looked at next."""
    db.executemany(
        """UPDATE lane SET position = ?1, ready_ms = iif(?1 < tail, 0, coalesce(
               (SELECT min(open.at_ms) FROM open WHERE open.lane = lane.id AND open.at_ms < ?2), ?2)) WHERE id = ?3""",
        [(lane.position, NEVER_MS, lane.id) for lane in lanes if lane.changed or not lane.wanted],
    )


@lru_cache(maxsize=65_536)
def check_of(spec: str) -> tuple[Check, str, int]:
    """Return the check, its target and its attempts. Cached: each claim of a monitor reads the same text."""
    read = read_spec(spec)
    return read.check, target_of(read.check), read.attempts

"""Claims of runs: whose turn it is, who gets how many places, and which runs start, park or wait.

The rules are ``core.places``; this module reads what waits, asks them, and writes leases. Its cost depends on how many
are claimed and on how many owners have something waiting, not on how much waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.definitions import read_spec
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.keys import LANE_BITS, NEVER_MS, is_outgoing
from paceline.adapters.sqlite.lanes import LANE, LOOKED_GROWTH, LOOKED_MIN, Lane, Lanes, looked_max
from paceline.adapters.sqlite.runs import count_out, out_of
from paceline.core.checks import Check
from paceline.core.places import ALL_TAKEN, Places, Seats, Wish, target_of
from paceline.core.waits import HELD
from paceline.ports import Claimed, Queue

HOLD_MS = 30_000
ASIDE_MS = 30_000
"""After this time a run that waits for a place at its target is looked at again in any case. A process takes it up as
soon as it has a place there."""
ROUNDS_MAX = 5
"""A claim looks again where runs only parked or were set aside: up to so many times, each time at more of them."""
SEQUENCE_MASK = (1 << LANE_BITS) - 1
_HANDLE = itemgetter(0)

# A run is clear to start when the run before it in its group is settled, or so old that its record is gone.
CLEAR = """(run.previous = 0 OR EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.previous)
            OR NOT EXISTS (SELECT 1 FROM run AS earlier WHERE earlier.handle = run.previous))"""
_BEHIND = "coalesce(open.behind, run.previous)"  # other than the one before it, if those between were superseded
# A run that is caught up later may be out or settled while it still stands in the tail.
TOUCHED = """(EXISTS (SELECT 1 FROM open WHERE open.handle = run.handle)
              OR EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle))"""
# The columns that a claim judges a run by.
_FACTS = f"""run.handle, run.generation, run.counter, run.due_ms, run.previous, {CLEAR},
             monitor.name, monitor.spec, user.name, user.disabled"""
_OPEN_FACTS = _FACTS.replace("run.previous", _BEHIND)
_OWNER = "LEFT JOIN monitor ON monitor.generation = run.generation LEFT JOIN user ON user.id = monitor.owner"


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A run that may be claimed, and what is known of earlier attempts."""

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
    db: Connection,
    queue: Queue,
    lanes: Lanes,
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    places: Places | None = None,
) -> list[Claimed]:
    seats = Seats(runs_max, places)
    if queue.owner is not None:
        query = f"{LANE} WHERE user.name = ?3 AND lane.outgoing = 1"
        picked = [Lane(*row) for row in db.execute(query, (now_ms, looked_max(runs_max), queue.owner))]
    else:
        if places is not None:
            lanes.wake(db, seats)
        held = len(places.held) if places else 0
        picked = lanes.pick(db, outgoing=queue.outgoing, now_ms=now_ms, runs_max=runs_max, held=held)
    _rest_disabled(db, picked, now_ms)
    picked = [lane for lane in picked if not lane.disabled]
    claimed = _Claim(db, seats, now_ms=now_ms, lease_ms=lease_ms).serve(picked)
    lanes.note(picked, now_ms)
    _write_lanes(db, picked, seats)
    return claimed


def next_run_ms(db: Connection) -> int | None:
    """0 while something waits that nobody has looked at: whether it may start is for the claim to see."""
    next_ms = db.execute("SELECT min(ready_ms) FROM lane WHERE outgoing = 0 AND ready_ms < ?", (NEVER_MS,)).get
    return None if next_ms is None else int(next_ms)


def take(db: Connection, handle: int, attempt: int | None, *, now_ms: int, lease_ms: int) -> Claimed | None:
    """One run of an outgoing lane, out of turn: the tail passes over it later, as over all that is open or settled."""
    row = db.execute(
        f"""SELECT {_OPEN_FACTS}, open.attempt, open.lost OR open.state = 'out', open.state, open.at_ms,
                   EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)
            FROM run LEFT JOIN open ON open.handle = run.handle {_OWNER} WHERE run.handle = ?""",  # noqa: S608
        (handle,),
    ).fetchone()
    lane = handle >> LANE_BITS
    if row is None or not is_outgoing(lane):
        return None
    *facts, attempts, lost, state, at_ms, settled = row
    run = Candidate(*(*facts, attempts or 0, lost or 0))
    pausing = state in ("out", "retry", "later", "parked") and at_ms > now_ms
    if settled or pausing or not run.clear or run.disabled or run.spec is None:
        return None
    if attempt not in (None, run.attempt + 1):
        return None
    taking = _Claim(db, Seats(1), now_ms=now_ms, lease_ms=lease_ms)
    taking.judge(run)
    (claimed,) = taking.write()
    db.execute("UPDATE lane SET ready_ms = min(ready_ms, ?) WHERE id = ?", (now_ms + lease_ms, lane))
    return claimed


class _Claim:
    """One claim: leases what may start, parks what is behind another of its group, sets aside what lacks a place."""

    def __init__(self, db: Connection, seats: Seats, *, now_ms: int, lease_ms: int) -> None:
        self._db = db
        self._seats = seats
        self._now_ms = now_ms
        self._until_ms = now_ms + lease_ms
        self._claimed: list[Claimed] = []
        self._first: list[int] = []
        self._opened: list[tuple[Any, ...]] = []
        self._free: dict[tuple[str, str], int] = {}
        self._room: dict[tuple[str, str], int] = {}

    def serve(self, lanes: Sequence[Lane]) -> list[Claimed]:
        claimed: list[Claimed] = []
        granted = 0
        for _ in range(ROUNDS_MAX):
            if claimed and 2 * len(claimed) > granted:
                break  # what is left is used by the next claim, which comes soon
            shares = self._seats.shares([Wish(lane.owner, lane.wish) for lane in lanes])
            served = [(lane, share) for lane, share in zip(lanes, shares, strict=True) if share]
            granted = granted or sum(shares)
            if not served:
                break
            before = {lane.id: lane.got for lane, _ in served}
            self._look(served)
            claimed += self.write()
            for lane, share in served:
                if lane.got - before[lane.id] < share:
                    lane.more = max(LOOKED_MIN, LOOKED_GROWTH * lane.more)
        return claimed

    def _look(self, served: Sequence[tuple[Lane, int]]) -> None:
        """What comes back (retries, run-out leases, caught-up and unparked runs) first, then the untouched tail."""
        left: list[tuple[Lane, int]] = []
        for lane, share in served:
            lane.changed = True
            rest = share
            if lane.back:
                rows = self._back(lane, limit=share + lane.more)
                used = 0
                for run in rows:
                    if rest <= 0:
                        break
                    rest -= self.judge(run, lane)
                    if lane.blocked:
                        break
                    used += 1
                lane.back = max(0, lane.back - used) if rows else 0
                self._seat()
            if rest > 0 and not lane.blocked and lane.position < lane.tail:
                left.append((lane, rest))
        self._sift(left)

    def _back(self, lane: Lane, *, limit: int) -> list[Candidate]:
        rows = self._db.execute(
            f"""SELECT {_OPEN_FACTS}, open.attempt, open.lost OR open.state = 'out'
                FROM open JOIN run ON run.handle = open.handle {_OWNER}
                WHERE open.lane = ? AND open.at_ms <= ? ORDER BY open.at_ms LIMIT ?""",  # noqa: S608  fixed texts
            (lane.id, self._now_ms, limit),
        ).fetchall()
        return [Candidate(*row) for row in rows]

    def _sift(self, served: Sequence[tuple[Lane, int]]) -> None:
        """The next runs of these tails. A run that is not there any more was settled and removed."""
        if not served:
            return
        touched = TOUCHED if any(lane.touched for lane, _ in served) else "0"
        spans = []
        for lane, share in served:
            begin = lane.id << LANE_BITS
            spans.append((begin | lane.position, begin | min(lane.tail, lane.position + share + lane.more)))
        rows = self._db.execute(
            f"""SELECT {_FACTS}, {touched} FROM json_each(?) AS span CROSS JOIN run
                    ON run.handle > span.value ->> 0 AND run.handle <= span.value ->> 1 {_OWNER}""",  # noqa: S608
            (msgspec.json.encode(sorted(spans)).decode(),),
        ).fetchall()
        for (lane, share), (_, end) in zip(served, spans, strict=True):
            first, behind = (bisect_right(rows, bound, key=_HANDLE) for bound in (lane.id << LANE_BITS, end))
            stopped_at = self._pass_over(lane, rows[first:behind], share)
            lane.position = (end if stopped_at is None else stopped_at - 1) & SEQUENCE_MASK
            self._seat()

    def _pass_over(self, lane: Lane, rows: Sequence[tuple[Any, ...]], share: int) -> int | None:
        """Claims from the tail of one queue. Returns the run before which it stopped.

        The hottest path there is: what may simply start, which is nearly all, is leased in place, as ``judge`` would.
        """
        rest, free_at = share, self._free
        for row in rows:
            handle, generation, counter, due_ms, _, clear, monitor, spec, owner, disabled, touched = row
            if touched:
                continue
            if rest <= 0:
                return int(handle)
            if clear and not disabled and spec is not None:
                check, target = _check_of(spec)
                free = free_at.get((owner, target)) or self._free_at(owner, target)
                if free > 0:
                    free_at[owner, target] = free - 1
                    self._first.append(handle)
                    self._claimed.append(
                        Claimed(
                            handle,
                            1,
                            owner,
                            monitor,
                            generation,
                            counter,
                            due_ms,
                            self._until_ms,
                            lost=False,
                            check=check,
                        )
                    )
                    lane.got += 1
                    rest -= 1
                    continue
            rest -= self.judge(Candidate(*row[:-1]), lane)
            if lane.blocked:
                return int(handle)
        return None

    def _seat(self) -> None:
        """What one queue has taken counts before the next one is looked at: they share targets."""
        for (owner, target), free in self._free.items():
            self._seats.take(owner, target, self._room[owner, target] - free)
        self._free.clear()

    def _free_at(self, owner: str, target: str) -> int:
        """How many more checks of the owner may start at the target, until it is seated anew."""
        place = (owner, target)
        free = self._free.get(place)
        if free is None:
            free = self._free[place] = self._room[place] = self._seats.room_at(owner, target)
        return free

    def judge(self, run: Candidate, queue: Lane | None = None) -> int:
        """1 if it is claimed. Without a place it is set aside, if that is allowed; else it blocks its queue."""
        lane, owner = run.handle >> LANE_BITS, run.owner or ""
        if not run.clear:
            self._open(run, lane, "parked", NEVER_MS, behind=run.previous)
            return 0
        if run.disabled:
            self._open(run, lane, "held", self._now_ms + HOLD_MS, reason=HELD)
            return 0
        check, target = _check_of(run.spec) if run.spec is not None else (None, "")
        free = self._free_at(owner, target)
        if free <= 0:
            self._seat()  # else what this claim has taken would not be among the reasons
            reason = self._seats.refusal(owner, target)
            if queue is not None and not queue.asides:
                queue.blocked = reason or ALL_TAKEN
                return 0
            if queue is not None:
                queue.asides -= 1
            self._open(run, lane, "held", self._now_ms + ASIDE_MS, reason=reason, target=target)
            return 0
        self._free[owner, target] = free - 1
        if run.attempt or run.lost:
            self._open(run, lane, "out", self._until_ms, attempts=1, started_ms=self._now_ms)
        else:
            self._first.append(run.handle)
        self._claimed.append(_claimed(run, check, self._until_ms))
        if queue is not None:
            queue.got += 1
        return 1

    def _open(
        self,
        run: Candidate,
        lane: int,
        state: str,
        at_ms: int,
        *,
        attempts: int = 0,
        behind: int | None = None,
        started_ms: int | None = None,
        reason: str = "",
        target: str | None = None,
    ) -> None:
        row = (run.handle, lane, state, at_ms, run.attempt + attempts, run.lost, behind, started_ms, reason, target)
        queued = (run.generation, run.counter) if state == "parked" else (None, None)
        self._opened.append((*row, *queued))

    def write(self) -> list[Claimed]:
        """Writes what was decided since the last time. Returns what is claimed."""
        if self._first:
            # First attempts, which are nearly all, differ in nothing but their handle: one statement for all of them.
            self._db.execute(
                f"""INSERT OR REPLACE INTO open (handle, lane, state, at_ms, attempt, lost, behind, started_ms, reason)
                    SELECT value, value >> {LANE_BITS}, 'out', ?, 1, 0, NULL, ?, ''
                    FROM carray(?)""",  # noqa: S608  numbers of our own
                (self._until_ms, self._now_ms, integers(self._first)),
            )
        come = self._first
        if self._opened:
            come = come + [row[0] for row in self._opened if row[2] == "out"]
            count_out(self._db, gone=out_of(self._db, [row[0] for row in self._opened]))  # their leases ran out
            self._db.executemany(
                """INSERT OR REPLACE INTO open
                       (handle, lane, state, at_ms, attempt, lost, behind, started_ms, reason, target, generation,
                        counter)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                self._opened,
            )
        count_out(self._db, come=come)
        claimed = self._claimed
        self._claimed, self._first, self._opened = [], [], []
        return claimed


def _rest_disabled(db: Connection, lanes: Sequence[Lane], now_ms: int) -> None:
    """A disabled owner's queues are not looked at for a while; enabling the owner ends that at once."""
    disabled = [lane.id for lane in lanes if lane.disabled]
    if disabled:
        db.execute("UPDATE lane SET ready_ms = ? WHERE id IN carray(?)", (now_ms + HOLD_MS, integers(disabled)))


def _write_lanes(db: Connection, lanes: Sequence[Lane], seats: Seats) -> None:
    """Where each queue stands now, when it is looked at next, and why its runs wait if they lack a place."""
    rows = []
    for lane in lanes:
        reason = lane.blocked or seats.wait_reason(lane.owner) if lane.wanted else ""
        if lane.changed or not lane.wanted or reason != lane.reason:
            rows.append((lane.position, reason, NEVER_MS, lane.id))
    db.executemany(
        """UPDATE lane SET position = ?1, reason = ?2, ready_ms = iif(?1 < tail, 0, coalesce(
               (SELECT min(open.at_ms) FROM open WHERE open.lane = lane.id AND open.at_ms < ?3), ?3)) WHERE id = ?4""",
        rows,
    )


@lru_cache(maxsize=8_192)
def _check_of(spec: str) -> tuple[Check, str]:
    """The check and its target. Memoised: each claim of a monitor reads the same text."""
    check = read_spec(spec).check
    return check, target_of(check)


def _claimed(run: Candidate, check: Check | None, until_ms: int) -> Claimed:
    return Claimed(
        run.handle,
        run.attempt + 1,
        run.owner or "",
        run.monitor or "",
        run.generation,
        run.counter,
        run.due_ms,
        until_ms,
        lost=bool(run.lost),
        check=check,
    )

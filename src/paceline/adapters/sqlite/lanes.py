"""Owners' queues as a claim sees them, and which of them are asked next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS
from paceline.core.places import Seats, Turns

STUCK_MS, ASIDE_MAX = 1_000, 256
"""A queue whose next run lacks a place at its target is left as it stands, since a place may be free soon. If it stands
so for this time, its runs are set aside, so many in one claim: other targets may wait behind them."""
LOOKED_MIN = 64
LOOKED_GROWTH = 4
LANES_MAX = 256
TARGETS_MAX = 64
"""So many queues, and so many targets of owners that wait for places there, one claim asks; the next goes on behind."""

# ?1 is the time, ?2 how many of what comes back are counted at most.
LANE = f"""SELECT lane.id, coalesce(user.name, ''), coalesce(user.disabled, 0), lane.position, lane.tail, lane.reason,
                   (SELECT count(*) FROM (SELECT 1 FROM open WHERE open.lane = lane.id AND open.at_ms <= ?1 LIMIT ?2)),
                   lane.position < lane.tail AND (
                       EXISTS (SELECT 1 FROM open WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                                                    AND handle < (lane.id + 1 << {LANE_BITS}))
                       OR EXISTS (SELECT 1 FROM outcome WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                                                          AND handle < (lane.id + 1 << {LANE_BITS})))
            FROM lane LEFT JOIN user ON user.id = lane.owner"""  # noqa: S608  numbers of our own


class Lane(msgspec.Struct):
    """One owner's queue while it is claimed from. ``back``: how many come back; ``touched``: its tail may be, too."""

    id: int
    owner: str
    disabled: int
    position: int
    tail: int
    reason: str
    back: int
    touched: int
    changed: bool = False
    asides: int = 0
    """How many of its runs may be set aside."""
    blocked: str = ""
    """Why its next run lacks a place; it is not set aside, so this claim takes no more of the queue."""
    got: int = 0
    more: int = 0
    """How many runs are looked at beyond its share: those before them only parked, or were set aside."""

    @property
    def wanted(self) -> int:
        return self.back + self.tail - self.position

    @property
    def wish(self) -> int:
        return 0 if self.blocked else self.wanted


class Lanes:
    """Which queues are asked next: this process' memory of its turns."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._after = {0: 0, 1: 0}
        self._target = ("", 0)
        self._stuck: dict[int, tuple[int, int]] = {}
        """Queues whose next run lacks a place at its target: their position, and since when."""

    def pick(self, db: Connection, *, outgoing: bool, now_ms: int, runs_max: int, held: int) -> list[Lane]:
        """Queues that may have something to claim, those first that were served longest ago.

        ``held``: how many queues more are read, since so many owners at most may be at their ceiling.
        """
        limit, after = LANES_MAX + held, self._after[outgoing]
        ready = f"{LANE} WHERE lane.outgoing = ?3 AND lane.ready_ms"
        values = (now_ms, looked_max(runs_max), int(outgoing))
        rows = db.execute(f"{ready} = 0 AND lane.id > ?4 ORDER BY lane.id LIMIT ?5", (*values, after, limit)).fetchall()
        full = len(rows) == limit
        if not full and after:
            left = limit - len(rows)
            rows += db.execute(f"{ready} = 0 AND lane.id <= ?4 ORDER BY lane.id LIMIT ?5", (*values, after, left))
        self._after[outgoing] = rows[-1][0] if full else 0
        later = f"{ready} > 0 AND lane.ready_ms <= ?1 ORDER BY lane.ready_ms LIMIT ?4"
        rows += db.execute(later, (*values, limit)).fetchall()
        order = self._turns.order([str(row[0]) for row in rows])
        lanes = [Lane(*rows[position]) for position in order]
        for lane in lanes:
            position, since_ms = self._stuck.get(lane.id, (lane.position, now_ms))
            if position == lane.position and abs(now_ms - since_ms) >= STUCK_MS:
                lane.asides = ASIDE_MAX
        return lanes

    def note(self, lanes: Sequence[Lane], now_ms: int) -> None:
        """Remembers who had a turn, and whose runs could not start."""
        self._turns.serve([str(lane.id) for lane in lanes if lane.changed])
        for lane in lanes:
            if not lane.blocked:
                self._stuck.pop(lane.id, None)
                continue
            position, since_ms = self._stuck.get(lane.id, (-1, now_ms))
            if position != lane.position:
                self._stuck[lane.id] = (lane.position, now_ms if lane.got else since_ms)

    def wake(self, db: Connection, seats: Seats) -> None:
        """Runs that wait for a place at their target come back where there is one by now."""
        query = """SELECT open.target, open.lane, user.name
                   FROM open INDEXED BY open_target CROSS JOIN lane ON lane.id = open.lane
                   LEFT JOIN user ON user.id = lane.owner
                   WHERE open.target IS NOT NULL AND (open.target, open.lane) > (?, ?)
                   ORDER BY open.target, open.lane LIMIT 1"""
        for _ in range(TARGETS_MAX):
            row = db.execute(query, self._target).fetchone()
            if row is None:
                self._target = ("", 0)
                break
            target, lane, owner = row
            self._target = (target, lane)
            places = seats.room_at(owner or "", target)
            if places > 0:
                db.execute(
                    """UPDATE open SET at_ms = 0, target = NULL WHERE handle IN
                           (SELECT handle FROM open WHERE target = ? AND lane = ? ORDER BY handle LIMIT ?)""",
                    (target, lane, places),
                )
                db.execute("UPDATE lane SET ready_ms = 0 WHERE id = ?", (lane,))


def looked_max(runs_max: int) -> int:
    """How many of the runs that come back to one queue a claim looks at: some of them only park again."""
    return LOOKED_GROWTH * runs_max + LOOKED_MIN

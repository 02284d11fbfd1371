"""Owners' queues of outgoing runs, as far as a claim needs them, and the order in which they are read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS
from paceline.core.monitors.places import Turns

LOOKED_MIN = 64
LOOKED_GROWTH = 4
LANES_MAX = 256
"""Queues that one claim reads; the next claim goes on after them."""

# ?1 is the time; ?2 limits the count of runs that come back.
LANE = f"""SELECT lane.id, coalesce(user.name, ''), coalesce(user.disabled, 0), lane.position, lane.tail,
                   (SELECT count(*) FROM (SELECT 1 FROM open WHERE open.lane = lane.id AND open.at_ms <= ?1 LIMIT ?2)),
                   lane.position < lane.tail AND (
                       EXISTS (SELECT 1 FROM open WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                                                    AND handle < (lane.id + 1 << {LANE_BITS}))
                       OR EXISTS (SELECT 1 FROM outcome WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                                                          AND handle < (lane.id + 1 << {LANE_BITS})))
            FROM lane LEFT JOIN user ON user.id = lane.owner"""  # noqa: S608  numbers of our own


class OwnerQueue(msgspec.Struct):
    """One owner's queue during a claim.

    ``back``: how many runs come back; ``touched``: some of the tail may be open or settled.
    """

    id: int
    owner: str
    disabled: int
    position: int
    tail: int
    back: int
    touched: int
    changed: bool = False
    got: int = 0
    more: int = 0
    """Runs that are read beyond the queue's share, because those before them were only parked."""

    @property
    def wanted(self) -> int:
        return self.back + self.tail - self.position


class OwnerQueues:
    """The order in which queues are read: this process's memory of their turns."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._after: dict[str, int] = {}
        """The lane that was read last, by the queue's name, if there were more lanes than one claim reads."""

    def pick(self, db: Connection, name: str, *, now_ms: int, runs_max: int) -> list[OwnerQueue]:
        """Return owners' queues of this name that may have runs to claim; the one served longest ago comes first."""
        after = self._after.pop(name, 0)
        ready = f"{LANE} WHERE lane.outgoing = 1 AND lane.queue = ?3 AND lane.ready_ms"
        values = (now_ms, looked_max(runs_max), name)
        rows = db.execute(f"{ready} = 0 AND lane.id > ?4 ORDER BY lane.id LIMIT ?5", (*values, after, LANES_MAX))
        found = rows.fetchall()
        full = len(found) == LANES_MAX
        if not full and after:
            left = LANES_MAX - len(found)
            found += db.execute(f"{ready} = 0 AND lane.id <= ?4 ORDER BY lane.id LIMIT ?5", (*values, after, left))
        if full:
            self._after[name] = found[-1][0]
        later = f"{ready} > 0 AND lane.ready_ms <= ?1 ORDER BY lane.ready_ms LIMIT ?4"
        found += db.execute(later, (*values, LANES_MAX)).fetchall()
        found.sort()  # among queues that never had a turn, the oldest user comes first
        order = self._turns.order([str(row[0]) for row in found])
        return [OwnerQueue(*found[position]) for position in order]

    def note(self, lanes: Sequence[OwnerQueue]) -> None:
        """Remember whose turn it was."""
        self._turns.serve([str(lane.id) for lane in lanes if lane.got])


def looked_max(runs_max: int) -> int:
    """Return how many of the runs that come back to one queue a claim reads: some of them are only parked again."""
    return LOOKED_GROWTH * runs_max + LOOKED_MIN

"""Owners' queues of outgoing runs as a claim sees them, and which of them are asked next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS
from paceline.core.monitors.places import Turns

LOOKED_MIN = 64
LOOKED_GROWTH = 4
LANES_MAX = 256
"""So many queues one claim asks; the next goes on behind."""

# ?1 is the time, ?2 how many of what comes back are counted at most.
LANE = f"""SELECT lane.id, coalesce(user.name, ''), coalesce(user.disabled, 0), lane.position, lane.tail,
                   (SELECT count(*) FROM (SELECT 1 FROM open WHERE open.lane = lane.id AND open.at_ms <= ?1 LIMIT ?2)),
                   lane.position < lane.tail AND (
                       EXISTS (SELECT 1 FROM open WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                                                    AND handle < (lane.id + 1 << {LANE_BITS}))
                       OR EXISTS (SELECT 1 FROM outcome WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                                                          AND handle < (lane.id + 1 << {LANE_BITS})))
            FROM lane LEFT JOIN user ON user.id = lane.owner"""  # noqa: S608  numbers of our own


class OwnerQueue(msgspec.Struct):
    """One owner's queue while it is claimed from. ``back``: how many come back; ``touched``: its tail may be, too."""

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
    """How many runs are looked at beyond its share: those before them only parked."""

    @property
    def wanted(self) -> int:
        return self.back + self.tail - self.position


class OwnerQueues:
    """Which queues are asked next: this process' memory of its turns."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._after: dict[str, int] = {}
        """By the queue's name: the lane that was asked last, where there were more than one claim asks."""

    def pick(self, db: Connection, name: str, *, now_ms: int, runs_max: int) -> list[OwnerQueue]:
        """Owners' queues of this name that may have something to claim, those first that were served longest ago."""
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
        found.sort()  # of those that never had a turn, the oldest user comes first
        order = self._turns.order([str(row[0]) for row in found])
        return [OwnerQueue(*found[position]) for position in order]

    def note(self, lanes: Sequence[OwnerQueue]) -> None:
        """Remembers who had a turn."""
        self._turns.serve([str(lane.id) for lane in lanes if lane.got])


def looked_max(runs_max: int) -> int:
    """How many of the runs that come back to one queue a claim looks at: some of them only park again."""
    return LOOKED_GROWTH * runs_max + LOOKED_MIN

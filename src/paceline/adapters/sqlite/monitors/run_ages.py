"""Ages of waiting runs for the status: fast paths of ``core.monitors.wait_reasons`` over each queue's first runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS, NEVER_MS
from paceline.adapters.sqlite.monitors.outgoing_claims import BEHIND, CLEAR, OPEN_CLEAR, TOUCHED

LANES_MAX = 10_000
"""Queues with waiting runs that are read."""
HEADS_MAX = 100
"""Runs at the start of a queue that are read to find the oldest."""

# The first runs of a queue that no claim has looked at.
_TAIL = f"""(SELECT handle FROM run WHERE handle > (lane.id << {LANE_BITS} | lane.position)
                 AND handle < lane.id + 1 << {LANE_BITS} ORDER BY handle LIMIT {HEADS_MAX}) AS few
            JOIN run USING (handle) WHERE NOT {TOUCHED}"""  # noqa: S608  fixed texts
# The first runs that a claim has looked at: in the order in which they were made, and in the order of their times.
_OPEN = f"""(SELECT handle FROM (SELECT handle FROM open WHERE handle > lane.id << {LANE_BITS}
                                     AND handle < lane.id + 1 << {LANE_BITS} AND state <> 'out' AND state <> 'later'
                                 ORDER BY handle LIMIT {HEADS_MAX}) AS few
             UNION SELECT handle FROM (SELECT handle FROM open WHERE open.lane = lane.id AND at_ms < {NEVER_MS}
                                       ORDER BY at_ms LIMIT {HEADS_MAX}) AS few) AS few
            JOIN open USING (handle) JOIN run USING (handle) WHERE 1"""  # noqa: S608  fixed texts
_OUT_BEFORE = "EXISTS (SELECT 1 FROM open AS before WHERE before.handle = {} AND before.state = 'out')"
# A check whose monitor is gone starts, and ends at once; an outgoing run stays in the queue of its disabled owner.
_ENABLED = """NOT EXISTS (SELECT 1 FROM user WHERE user.disabled AND user.id IN
                          (lane.owner, (SELECT owner FROM monitor WHERE monitor.generation = run.generation)))"""
# A run that was parked or set aside after its moment or its next try had come keeps that time in ``started_ms``.
_MOMENT = f"(state = 'later' OR (state = 'parked' AND at_ms > 0 AND at_ms < {NEVER_MS}))"
_SINCE = f"""CASE WHEN {_MOMENT} THEN at_ms WHEN state = 'out' THEN NULL
                  WHEN attempt = 0 THEN coalesce(started_ms, due_ms) ELSE due_ms END"""
START = f"""CASE WHEN state = 'out' OR state = 'retry' OR {_MOMENT} THEN at_ms
                  ELSE coalesce(started_ms, due_ms) END"""
_HEADS = f"""SELECT outgoing,
    (SELECT min(due_ms) FROM {_TAIL} AND ({CLEAR} OR {_OUT_BEFORE.format("run.previous")})),
    (SELECT min({_SINCE}) FROM {_OPEN} AND ({OPEN_CLEAR} OR {_OUT_BEFORE.format(BEHIND)})),
    (SELECT min(due_ms) FROM {_TAIL} AND {CLEAR} AND {_ENABLED}),
    (SELECT min({START}) FROM {_OPEN} AND {OPEN_CLEAR} AND {_ENABLED})
    FROM lane WHERE tail > ended LIMIT {LANES_MAX}"""  # noqa: S608  fixed texts


class Ages(NamedTuple):
    """The earliest time of each kind; None if there is none."""

    waiting_since_ms: int | None
    check_start_ms: int | None
    outgoing_start_ms: int | None


def read_ages(db: Connection) -> Ages:
    """Return since when the oldest run has waited, and since when the first of each kind could have started."""
    waiting: list[int | None] = []
    starts: tuple[list[int | None], list[int | None]] = ([], [])
    for outgoing, tail_since_ms, open_since_ms, *starts_ms in db.execute(_HEADS):
        waiting += (tail_since_ms, open_since_ms)
        starts[outgoing].extend(starts_ms)
    return Ages(_first(waiting), _first(starts[0]), _first(starts[1]))


def _first(times_ms: Iterable[int | None]) -> int | None:
    return min((ms for ms in times_ms if ms is not None), default=None)

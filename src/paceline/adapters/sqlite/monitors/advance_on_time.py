"""Fast path of core.monitors.due.advance: entries that are on time advance together, not one statement for each.

Reading, comparing and writing happen in one transaction, so no race can be lost. Entries with a cron, late entries, and
those whose run would queue behind another are left to ``advances.commit``.
"""

from __future__ import annotations

from collections import Counter

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import EPOCH_MS, GENERATION_BITS, GENERATION_MASK, LANE_BITS, due_bound, due_key
from paceline.core.monitors.due import OnTime
from paceline.core.monitors.schedule import SLOT_MS
from paceline.core.monitors.values import Moved

# The batch is a temporary table of this connection: each entry's row now, its next row, and the handle of its run.
_CREATE = """CREATE TEMP TABLE IF NOT EXISTS stride (
    n INTEGER PRIMARY KEY, k INTEGER, counter INTEGER, revision INTEGER, cadence INTEGER, lane INTEGER,
    last_run INTEGER, next_k INTEGER, handle INTEGER, overlapped INTEGER, busy INTEGER)"""

# True if an entry's newest run is not settled. Its outcome is looked up first: nearly always there is one. A run so old
# that its row is gone has ended. Entries that are due together had their runs made together, so these are neighbours.
BUSY = """(due.last_run <> 0 AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = due.last_run)
           AND EXISTS (SELECT 1 FROM run WHERE run.handle = due.last_run))"""

# The conditions of OnTime.covers and core.overlap.is_skipped: busy entries are gathered only if they skip. The first
# two conditions bound the scan, so that it does not walk over late entries.
_GATHER = f"""
INSERT INTO stride (k, counter, revision, cadence, lane, last_run, next_k, overlapped, busy)
SELECT due.k, due.counter, due.revision, due.cadence, due.lane, due.last_run,
       due.k + (iif(due.lead_ms, due.lead_ms, cadence.every_ms) / {SLOT_MS} << {GENERATION_BITS}), due.overlapped,
       {BUSY}
FROM due CROSS JOIN cadence ON cadence.id = due.cadence
WHERE due.k >= ? AND due.k < ?
  AND iif(due.lead_ms, due.lead_ms, cadence.every_ms) > ? - ((due.k >> {GENERATION_BITS}) * {SLOT_MS} + {EPOCH_MS})
  AND (cadence.overlap = 'skip' OR NOT {BUSY})
ORDER BY due.k LIMIT ?"""  # noqa: S608  numbers of our own

# Most often all go to one lane and none is busy: then a handle is the entry's number in the batch plus a constant.
_SUM_UP = "SELECT min(lane), max(lane), sum(busy), min(k), max(k) FROM stride"
_PLAIN = "n + ?1"
_RANKED = "handle"
_RANK = f"""
UPDATE stride SET handle = ranked.handle
FROM (SELECT stride.n, lane.id << {LANE_BITS} | (lane.tail + row_number() OVER (PARTITION BY lane ORDER BY n)) AS handle
      FROM stride JOIN lane ON lane.id = stride.lane WHERE NOT busy) AS ranked
WHERE ranked.n = stride.n"""  # noqa: S608  numbers of our own

_MAKE_RUNS = f"""
INSERT INTO run (handle, generation, counter, due_ms, previous)
SELECT %s, k & {GENERATION_MASK}, counter, (k >> {GENERATION_BITS}) * {SLOT_MS} + {EPOCH_MS}, last_run
FROM stride WHERE NOT busy"""  # noqa: S608  numbers of our own

_COUNT_BETWEEN = "SELECT count(*) FROM due WHERE k BETWEEN ? AND ?"
_LEAVE_BETWEEN = "DELETE FROM due WHERE k BETWEEN ? AND ?"
_LEAVE = "DELETE FROM due WHERE k IN (SELECT k FROM stride)"
_ARRIVE = """
INSERT INTO due (k, counter, revision, cadence, lane, last_run, overlapped)
SELECT next_k, counter + NOT busy, revision, cadence, lane, iif(busy, last_run, %s), iif(busy, overlapped + 1, 0)
FROM stride ORDER BY next_k"""

_COUNT = f"""
SELECT (k >> {GENERATION_BITS}) * {SLOT_MS} + {EPOCH_MS} AS due_ms, count(*)
FROM stride WHERE NOT busy GROUP BY due_ms"""  # noqa: S608  numbers of our own


def advance_on_time(db: Connection, rule: OnTime, *, limit: int) -> Moved:
    """Advance at most ``limit`` entries that ``rule`` covers, with the same result as ``core.monitors.due.advance``."""
    db.execute(_CREATE)
    db.execute("DELETE FROM stride")
    earliest = due_key(rule.now_ms - rule.grace_ms + SLOT_MS - 1, 0)
    db.execute(_GATHER, (earliest, due_bound(rule.now_ms), rule.now_ms, limit))
    gathered = db.changes()
    if not gathered:
        return Moved(Counter(), 0)
    first_lane, last_lane, skipped, *keys = db.execute(_SUM_UP).fetchone()
    if first_lane == last_lane and not skipped:
        tail = db.execute("SELECT tail FROM lane WHERE id = ?", (first_lane,)).get
        handle, numbers, made = _PLAIN, [first_lane << LANE_BITS | tail], [(gathered, first_lane)]
    else:
        db.execute(_RANK)
        handle, numbers = _RANKED, []
        made = db.execute("SELECT count(*), lane FROM stride WHERE NOT busy GROUP BY lane").fetchall()
    db.execute(_MAKE_RUNS % handle, numbers)
    if db.execute(_COUNT_BETWEEN, keys).get == gathered:
        db.execute(_LEAVE_BETWEEN, keys)  # no other row is between them
    else:
        db.execute(_LEAVE)
    db.execute(_ARRIVE % handle, numbers)
    db.executemany("UPDATE lane SET tail = tail + ?, ready_ms = 0 WHERE id = ?", made)
    return Moved(Counter(dict(db.execute(_COUNT).fetchall())), skipped)

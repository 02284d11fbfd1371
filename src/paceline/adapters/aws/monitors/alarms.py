"""Entries by their alarms, and the sweep that sends missing alarms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from paceline.adapters.aws.client.database import in_pages
from paceline.adapters.aws.client.items import DynamoKey, update
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.client.tables import DUE_INDEX, LEDGER, SCHEDULERS
from paceline.adapters.aws.monitors.entries import read_entries, to_due, with_lanes
from paceline.adapters.aws.monitors.keys import GENERATION_MAX, due_ms_of, due_of, due_shards
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.reoffer import offer_again
from paceline.core.monitors.due import Due
from paceline.ports.queue_messages import DELAY_MS_MAX, Alarm

LATE_MS = 60_000
"""An entry overdue by this much has lost its alarm, or the ticks are behind: then one more does no harm."""
LATE_MAX = 10_000
"""Overdue entries that get an alarm in one pass, the earliest first; after an outage all are overdue."""
OVERLAP_MS = 10_000
"""Time that a pass looks back: for entries that a slow clock armed beyond the horizon, or not in the index before."""
SWEPT_PAGE = 1_000
_CURSOR = DynamoKey("alarms", "-")


class AwsSwept(NamedTuple):
    armed: int
    """Entries that came into their last 15 minutes."""
    late: int
    """Entries that are overdue."""
    offered: int = 0
    """Outgoing runs that were offered once more."""


def alarmed_entries(store: MonitorParts, alarms: Sequence[Alarm], *, now_ms: int) -> list[Due]:
    """Return the entries of these alarms that are due and still as their alarm says, for ``commit`` to advance.

    An alarm that came early is sent once more. Any other is stale: its entry has moved and has its own alarm. The
    second of two alarms of one entry finds it moved, or loses in ``commit``.
    """
    items = read_entries(store.db, [alarm.generation for alarm in alarms])
    believed = [
        alarm
        for alarm in dict.fromkeys(alarms)
        if (item := items.get(alarm.generation)) is not None
        and (item["counter"], item.get("due_ms")) == (alarm.counter, alarm.due)
    ]
    store.alarms.send([alarm for alarm in believed if alarm.due > now_ms], now_ms=now_ms)
    return with_lanes(store.db, [to_due(items[alarm.generation]) for alarm in believed if alarm.due <= now_ms])


def sweep_alarms(store: MonitorParts, *, now_ms: int, late_ms: int = LATE_MS) -> AwsSwept:
    """Send alarms of entries that came into their last 15 minutes or lost their own, and offer runs once more.

    Call it at least every ten minutes.

    A cursor stores how far ahead entries were armed, so that an entry gets one alarm and not one for each pass. An
    entry due before the horizon has its alarm from its own reaction or commit. A pass that dies is repeated.
    """
    db = store.db
    item = db.get(LEDGER, _CURSOR)
    horizon_ms, overdue_ms = now_ms + DELAY_MS_MAX, now_ms - late_ms
    swept_ms = min(item["swept_ms"], horizon_ms) if item else overdue_ms
    late = _send_alarms(store, first_ms=0, last_ms=overdue_ms, now_ms=now_ms, most=LATE_MAX)
    first_ms = max(swept_ms - OVERLAP_MS, overdue_ms) + 1
    armed = _send_alarms(store, first_ms=first_ms, last_ms=horizon_ms, now_ms=now_ms, most=sys.maxsize)
    # Always to this pass's own horizon: after the clock was set back, the cursor has to move back, too.
    db.write(update(LEDGER, _CURSOR, "SET #swept_ms = :swept_ms", when="", swept_ms=horizon_ms))
    return AwsSwept(armed, late, offer_again(store, now_ms=now_ms))


def _send_alarms(store: MonitorParts, *, first_ms: int, last_ms: int, now_ms: int, most: int) -> int:
    if first_ms > last_ms:
        return 0
    db = store.db
    shards = due_shards(last_generation(db))
    most_each = -(-most // len(shards))

    def send(shard: str) -> int:
        sent = 0
        first, last = due_of(first_ms, 0), due_of(last_ms, GENERATION_MAX)
        size = min(SWEPT_PAGE, most_each)
        walk = db.walk(SCHEDULERS, shard, size=size, index=DUE_INDEX, first=first, last=last)
        for rows in in_pages(walk, size):
            alarms = [Alarm(int(row["pk"]), row["counter"], due_ms_of(row["due"])) for row in rows]
            store.alarms.send(alarms, now_ms=now_ms)
            sent += len(alarms)
            if sent >= most_each:
                break
        return sent

    return sum(db.threads.fan_out(send, shards))

"""Offers outgoing runs again, so that a checker that reads the queue misses none for long.

A message is sent when a run may start: after the write that made it, or that moved it to the front. The message can get
lost with its sender, and a checker that took the run can die. A pass therefore looks at the fronts of all outgoing
queues: a run whose lease expired is offered at once, and one that nobody took is offered at a few ages, ever further
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from paceline.adapters.aws.client.database import PAGE_MAX, DynamoDatabase
from paceline.adapters.aws.client.items import DynamoKey, Item, key_of, update
from paceline.adapters.aws.client.tables import ITEMS, LEDGER, READY_INDEX, RUNS
from paceline.adapters.aws.monitors.keys import all_queues, owners_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.core.monitors.checks import DEFAULT_QUEUE

PASS_MS = 50_000
"""Minimum time between two passes of all processes together: they share the cursor."""
FAR_MS = 300_000
"""Minimum time between two passes over runs that nobody took."""
AGES_MS = (900_000, 3_600_000, 14_400_000, 57_600_000)
LAG_MS = 10_000
"""A pass ends this long before now: rows that the index does not show yet are left to the next pass."""
FRONTS_MAX = 100_000
"""Fronts of one queue that are read; it has one for each of its monitors."""
_CURSOR = DynamoKey("offers", "-")

Span = tuple[int, int]
"""A span of time: after the first moment, up to the last."""


def offer_again(store: MonitorParts, *, now_ms: int, beside: Callable[[], int] = lambda: 0) -> int:
    """Make a pass if one is due. Return how many runs were offered.

    A pass that dies is repeated as a whole. Two passes at once offer twice, which does no harm. ``beside`` offers
    something else in the same pass, and returns how many.
    """
    db = store.db
    if not store.alarms.offers:
        return 0
    cursor = db.get(LEDGER, _CURSOR) or {}
    near_ms, far_ms = cursor.get("near_ms"), cursor.get("far_ms")
    if near_ms is not None and abs(now_ms - near_ms) < PASS_MS:
        return 0
    shards = [shard for row in owners(db) for shard in all_queues(row)]
    seen: dict[str, int] = {"near_ms": now_ms}
    offered = beside() + _offer(store, shards, _near(near_ms, now_ms), lambda run: run["state"] == "out", now_ms=now_ms)
    if far_ms is None or abs(now_ms - far_ms) >= FAR_MS:
        seen["far_ms"] = now_ms
        for span in _far(far_ms, now_ms):
            offered += _offer(store, shards, span, lambda run: run["state"] != "held", now_ms=now_ms)
    change = "SET " + ", ".join(f"#{name} = :{name}" for name in seen)
    # Always to this pass's own end: after the clock was set back, the cursor has to move back, too.
    db.write(update(LEDGER, _CURSOR, change, when="", **seen))
    return offered


def owners(db: DynamoDatabase) -> Iterator[Item]:
    """Yield all users who have had outgoing runs, page by page."""
    return db.walk(ITEMS, owners_of(DEFAULT_QUEUE), size=PAGE_MAX)


def owners_after(db: DynamoDatabase, queue: str, last: str, *, limit: int) -> list[Item]:
    """Return users who have had outgoing runs in the queue of this name; the default one lists all of them."""
    return db.page(ITEMS, owners_of(queue), limit=limit, after=last)


def _near(near_ms: int | None, now_ms: int) -> Span:
    """Return the span in which leases expired since the last pass."""
    return (near_ms if near_ms is not None else now_ms - AGES_MS[0]) - LAG_MS, now_ms - LAG_MS


def _far(far_ms: int | None, now_ms: int) -> Iterator[Span]:
    """Yield the spans of runs that reached one of the ages since the last pass; after a long pause, once each."""
    for age_ms, older_ms in pairwise((*AGES_MS, now_ms)):
        first_ms = now_ms - older_ms
        if far_ms is not None:
            first_ms = max(first_ms, far_ms - age_ms)
        yield first_ms, now_ms - age_ms


def _offer(store: MonitorParts, shards: list[str], span: Span, wanted: Callable[[Item], bool], *, now_ms: int) -> int:
    db = store.db
    first = max(span[0] + 1, 0)

    def offer(shard: str) -> int:
        rows = db.page(RUNS, shard, limit=FRONTS_MAX, index=READY_INDEX, first=first, last=span[1])
        found = db.get_many(RUNS, map(key_of, rows)).values()
        runs = [run for run in found if span[0] < run.get("at", -1) <= span[1] and wanted(run)]
        store.alarms.offer(runs, now_ms=now_ms)
        return len(runs)

    return sum(db.threads.fan_out(offer, shards)) if span[0] < span[1] else 0

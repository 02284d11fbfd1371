"""Runs for reports to people and programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item, padded
from paceline.adapters.aws.client.tables import ITEMS, RUNS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.claim_memory import Reasons, read_reasons
from paceline.adapters.aws.monitors.claims import facts_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.core.monitors.alerting.stored import decode_health
from paceline.core.monitors.checks import Check
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.health import Glance
from paceline.core.monitors.leases import TERMINAL
from paceline.core.monitors.overlap import QUEUED
from paceline.core.monitors.places import noted_reason, target_of
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import Run
from paceline.core.monitors.wait_reasons import OpenRun, show_open


def runs(store: MonitorParts, handles: Sequence[int], *, now_ms: int) -> dict[int, Run]:
    """Read runs with their lanes, then their definitions and owners: a few requests for a hundred runs."""
    db = store.db
    item_keys = {handle: keys.run_key(*keys.split_handle(handle)) for handle in handles}
    found = db.get_many(
        RUNS, {*item_keys.values(), *(keys.lane_key(keys.split_handle(handle)[0]) for handle in item_keys)}
    )
    items = {handle: found[key] for handle, key in item_keys.items() if key in found}
    facts = facts_of(db, list(items.values()))
    noted = _NotedReasons(db)
    shown: dict[int, Run] = {}
    for handle, item in items.items():
        generation = item["generation"]
        user = facts[generation].user
        if user is not None:
            lane = found.get(keys.lane_key(generation))
            monitor = facts[generation].monitor
            check = read_spec(monitor["spec"]).check if monitor else None
            why = partial(noted.of, item["owner"], check)
            [shown[handle]] = _shown([item], lane, disabled=user["disabled"], place_reason=why, now_ms=now_ms)
    return shown


def find_run(
    store: MonitorParts, owner: str, monitor_id: str, *, generation: int, counter: int, now_ms: int
) -> Run | None:
    db = store.db
    user = db.get(ITEMS, keys.user_key(owner))
    monitor = db.get(ITEMS, keys.monitor_key(user["number"], monitor_id)) if user else None
    if monitor is None or monitor["generation"] != generation or not 0 <= counter <= keys.COUNTER_MASK:
        return None
    handle = keys.handle_of(generation, counter)
    return runs(store, [handle], now_ms=now_ms).get(handle)


def monitor_runs(store: MonitorParts, monitor: Monitor, *, before: int | None, limit: int, now_ms: int) -> list[Run]:
    db = store.db
    generation, counter = (
        keys.split_handle(before) if before is not None else (monitor.generation, keys.COUNTER_MASK + 1)
    )
    if generation != monitor.generation or counter == 0:
        return []
    items = newest_runs(db, generation, below=counter, limit=limit)
    user = db.get(ITEMS, keys.user_key(monitor.owner))
    lane = db.get(RUNS, keys.lane_key(generation))
    why = partial(_NotedReasons(db).of, monitor.owner, monitor.spec.check)
    disabled = bool(user and user["disabled"])
    return _shown(items, lane, disabled=disabled, place_reason=why, now_ms=now_ms)


class _NotedReasons:
    """The stored reasons why checks lack a place. Read once for each owner."""

    def __init__(self, db: DynamoDatabase) -> None:
        self._db = db
        self._noted: dict[str, Reasons] = {}

    def of(self, owner: str, check: Check | None) -> str:
        if owner not in self._noted:
            self._noted[owner] = read_reasons(self._db, owner)
        return noted_reason(self._noted[owner], target_of(check))


def newest_runs(db: DynamoDatabase, generation: int, *, below: int, limit: int) -> list[Item]:
    first, last = padded(0), padded(below - 1)
    return db.page(RUNS, keys.runs_of(generation), limit=limit, newest_first=True, first=first, last=last)


def glances(store: MonitorParts, generations: Sequence[int], *, now_ms: int) -> dict[int, Glance]:
    """Return the facts that health is judged by: the lane has the last outcome, the front run its due time."""
    del now_ms
    db = store.db
    lanes = db.get_many(RUNS, [keys.lane_key(generation) for generation in generations]).values()
    fronts = fronts_of(db, lanes)
    return {
        lane["generation"]: Glance(
            open_due_ms=fronts[lane["generation"]]["due_ms"] if lane["generation"] in fronts else None,
            settled=lane.get("settled"),
            record=decode_health(lane.get("health")),
        )
        for lane in lanes
    }


def fronts_of(db: DynamoDatabase, lanes: Iterable[Item]) -> dict[int, Item]:
    """Return the first open run of each lane that has one, by generation."""
    item_keys = [keys.run_key(lane["generation"], lane["front"]) for lane in lanes if lane["front"] <= lane["newest"]]
    return {item["generation"]: item for item in db.get_many(RUNS, item_keys).values()}


def _shown(
    items: Sequence[Item], lane: Item | None, *, disabled: bool, place_reason: Callable[[], str], now_ms: int
) -> list[Run]:
    """Return runs of one monitor as they are shown."""
    front = lane["front"] if lane else 0
    shown: list[Run] = []
    for item in items:
        run = _to_run(item)
        if item["state"] not in TERMINAL:
            found = _open_run(item, behind=item["counter"] > front)
            outgoing = keys.is_outgoing(item["queue"])
            run = show_open(run, found, disabled=disabled, outgoing=outgoing, place_reason=place_reason, now_ms=now_ms)
        shown.append(run)
    return shown


def _open_run(item: Item, *, behind: bool) -> OpenRun:
    reason = item.get("reason", QUEUED if behind and item.get("queued") else "")
    return OpenRun(item["state"], behind, item.get("at", item["from_ms"]), item.get("started_ms"), reason)


def _to_run(item: Item) -> Run:
    generation, counter, state = item["generation"], item["counter"], item["state"]
    return Run(
        keys.handle_of(generation, counter),
        item["owner"],
        item["monitor"],
        generation,
        counter,
        item["due_ms"],
        state=state,
        attempt=item["attempt"],
        **(_ended(item) if state in TERMINAL else {}),
    )


def _ended(item: Item) -> dict[str, Any]:
    latency_ms = item.get("latency_ms")
    return {
        "reason": item.get("reason", ""),
        "started_ms": item.get("started_ms"),
        "ended_ms": item["ended_ms"],
        "latency_ms": float(latency_ms) if latency_ms is not None else None,
        "code": item.get("code"),
        "detail": msgspec.json.decode(item.get("detail", "{}")),
    }

"""Runs as they are reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item, padded
from paceline.adapters.aws.monitors_claims import facts_of
from paceline.adapters.aws.monitors_keys import (
    COUNTER_MASK,
    handle_of,
    is_outgoing,
    lane_key,
    monitor_key,
    read_spec,
    run_key,
    runs_of,
    split_handle,
    user_key,
)
from paceline.adapters.aws.monitors_reasons import Reasons, read_reasons
from paceline.adapters.aws.monitors_runs import TERMINAL
from paceline.adapters.aws.tables import ITEMS, RUNS
from paceline.core.checks import Check
from paceline.core.definition import Monitor
from paceline.core.health import Glance
from paceline.core.overlap import QUEUED
from paceline.core.places import noted_reason, target_of
from paceline.core.waits import HELD, wait_reason
from paceline.ports import Run


def run(db: Database, handle: int) -> Run | None:
    return runs(db, [handle]).get(handle)


def runs(db: Database, handles: Sequence[int]) -> dict[int, Run]:
    """Three requests for a hundred: runs and their lanes, and whose they are."""
    keys = {handle: run_key(*split_handle(handle)) for handle in handles}
    found = db.get_many(RUNS, {*keys.values(), *(lane_key(split_handle(handle)[0]) for handle in keys)})
    items = {handle: found[key] for handle, key in keys.items() if key in found}
    facts = facts_of(db, list(items.values()))
    places = _Places(db)
    shown: dict[int, Run] = {}
    for handle, item in items.items():
        generation = item["generation"]
        user = facts[generation].user
        if user is not None:
            lane = found.get(lane_key(generation))
            [one] = _shown(db, [item], lane, disabled=user["disabled"])
            monitor = facts[generation].monitor
            check = read_spec(monitor["spec"]).check if monitor else None
            shown[handle] = places.explain(one, check, is_outgoing(item["queue"]))
    return shown


def find_run(db: Database, owner: str, monitor_id: str, *, generation: int, counter: int) -> Run | None:
    user = db.get(ITEMS, user_key(owner))
    monitor = db.get(ITEMS, monitor_key(user["number"], monitor_id)) if user else None
    if monitor is None or monitor["generation"] != generation or not 0 <= counter <= COUNTER_MASK:
        return None
    return run(db, handle_of(generation, counter))


def monitor_runs(db: Database, monitor: Monitor, *, before: int | None, limit: int) -> list[Run]:
    generation, counter = split_handle(before) if before is not None else (monitor.generation, COUNTER_MASK + 1)
    if generation != monitor.generation or counter == 0:
        return []
    items = newest_runs(db, generation, below=counter, limit=limit)
    user = db.get(ITEMS, user_key(monitor.owner))
    lane = db.get(RUNS, lane_key(generation))
    shown = _shown(db, items, lane, disabled=bool(user and user["disabled"]))
    places, check = _Places(db), monitor.spec.check
    return [places.explain(one, check, is_outgoing(item["queue"])) for one, item in zip(shown, items, strict=True)]


class _Places:
    """Says of checks that wait for which place they do, as whoever claims has noted it; asks once for each owner."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._noted: dict[str, Reasons] = {}

    def explain(self, run: Run, check: Check | None, outgoing: bool) -> Run:  # noqa: FBT001  of a queue
        if run.state != "waiting" or outgoing:
            return run
        if run.owner not in self._noted:
            self._noted[run.owner] = read_reasons(self._db, run.owner)
        reason = noted_reason(self._noted[run.owner], target_of(check))
        return replace(run, reason=reason) if reason else run


def newest_runs(db: Database, generation: int, *, below: int, limit: int) -> list[Item]:
    where = "#pk = :pk AND #sk BETWEEN :first AND :last"
    bounds: dict[str, Any] = {"first": padded(0), "last": padded(below - 1)}
    return db.query(RUNS, where, limit=limit, newest_first=True, pk=runs_of(generation), **bounds)


def glances(db: Database, generations: Sequence[int]) -> dict[int, Glance]:
    """The lane knows how the last settled run ended; when its front was due, the front knows."""
    lanes = db.get_many(RUNS, [lane_key(generation) for generation in generations]).values()
    fronts = fronts_of(db, lanes)
    return {
        lane["generation"]: Glance(
            open_due_ms=fronts[lane["generation"]]["due_ms"] if lane["generation"] in fronts else None,
            settled=lane.get("settled"),
        )
        for lane in lanes
    }


def fronts_of(db: Database, lanes: Iterable[Item]) -> dict[int, Item]:
    """The first run that is not settled, of each lane that has one."""
    keys = [run_key(lane["generation"], lane["front"]) for lane in lanes if lane["front"] <= lane["newest"]]
    return {item["generation"]: item for item in db.get_many(RUNS, keys).values()}


def _shown(db: Database, items: Sequence[Item], lane: Item | None, *, disabled: bool) -> list[Run]:
    front = lane["front"] if lane else 0
    behind = any(item["counter"] > front and item["state"] == "waiting" for item in items)
    held_up = behind and lane is not None and _holds_up(db, items, lane)
    return [_to_run(item, parked=held_up and item["counter"] > front, disabled=disabled) for item in items]


def _holds_up(db: Database, items: Sequence[Item], lane: Item) -> bool:
    """Whether those behind the front wait for it, and not for somebody to claim."""
    known = [item for item in items if item["counter"] == lane["front"]]
    front = known[0] if known else db.get(RUNS, run_key(lane["generation"], lane["front"]))
    return front is not None and front["state"] in {"out", "retry"}


def _to_run(item: Item, *, parked: bool, disabled: bool) -> Run:
    generation, counter, state = item["generation"], item["counter"], item["state"]
    shown = Run(
        handle_of(generation, counter),
        item["owner"],
        item["monitor"],
        generation,
        counter,
        item["due_ms"],
        state="waiting",
        attempt=item["attempt"],
    )
    if state in TERMINAL:
        return replace(shown, state=state, **_ended(item))
    if disabled and state != "out":
        return replace(shown, state="held", reason=HELD)
    if state == "waiting" and item.get("queued") and "shard" not in item:
        return replace(shown, state="parked", reason=QUEUED)
    outgoing = is_outgoing(item["queue"])
    if state == "waiting":
        state = "parked" if parked else "waiting"
        return replace(shown, state=state, reason=wait_reason(state, outgoing=outgoing))
    until_ms = item.get("at", item["from_ms"])
    started_ms = item.get("started_ms")
    reason = item.get("reason") or wait_reason(state, outgoing=outgoing)
    return replace(shown, state=state, reason=reason, until_ms=until_ms, started_ms=started_ms)


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

"""Extends and gives back leases of runs. Settling is in ``settlements``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item, key_of, update
from paceline.adapters.aws.client.tables import RUNS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.claims import AS_SEEN, as_seen
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.transactions import in_waves, transact_acts
from paceline.core.monitors.leases import GIVEN_BACK, TERMINAL

AS_LEASED = "#state = :out AND #attempt = :attempt"
"""Together with ``#at >= :time`` it is the condition of ``core.monitors.leases.holds``."""


def unhold(db: DynamoDatabase, generations: Sequence[int]) -> list[Item]:
    """End the hold of runs whose owner was enabled. Return the fronts that may start, now or at their time."""
    lanes = db.get_many(RUNS, [keys.lane_key(generation) for generation in generations])
    fronts = db.get_many(RUNS, [keys.run_key(lane["generation"], lane["front"]) for lane in lanes.values()])
    held = [run for run in fronts.values() if run["state"] == "held"]
    change = "SET #at = #from_ms, #state = :waiting REMOVE #reason"
    acts = [[update(RUNS, key_of(run), change, when=AS_SEEN, waiting="waiting", **as_seen(run))] for run in held]
    transact_acts(db, acts)
    return [run for run in fronts.values() if run["state"] not in TERMINAL | {"out"} and "at" in run]


# -- leases


def extend(store: MonitorParts, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    when = f"{AS_LEASED} AND #at >= :now"
    values: dict[str, Any] = {"out": "out", "attempt": attempt, "now": now_ms, "until": until_ms}
    return store.db.write(
        update(RUNS, keys.run_key(*keys.split_handle(handle)), "SET #at = :until", when=when, **values)
    ).won


def release(store: MonitorParts, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    change = "SET #state = :retry, #at = :now, #reason = :reason"
    values: dict[str, Any] = {"retry": "retry", "now": now_ms, "reason": GIVEN_BACK, "out": "out"}

    def write(some: list[tuple[int, int]]) -> list[bool]:
        runs = [(keys.run_key(*keys.split_handle(handle)), attempt) for handle, attempt in some]
        acts = [[update(RUNS, key, change, when=AS_LEASED, attempt=attempt, **values)] for key, attempt in runs]
        return transact_acts(store.db, acts)

    released = in_waves(fences, lambda fence: fence[0], write)
    for (handle, _), happened in zip(fences, released, strict=True):
        if happened:
            generation, _ = keys.split_handle(handle)
            store.ready_checks.moved(keys.check_queue(generation), keys.runs_of(generation), now_ms)
    store.change_counter.bump()
    return released

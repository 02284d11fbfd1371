"""Measurements that were sent and are followed: the few moves that such scenes are made of."""

from __future__ import annotations

from typing import Any

from paceline.core.jobs.values import StoredJob, StoredMeasurement
from paceline.simulators.ripe_atlas.measurements import SimulatedMeasurement
from paceline.steps.jobs.follow import FollowReport, Watch, follow
from tests.steps.support.atlas_scene import SECOND_MS, VAULT, Scene

EVERY_MS = 30 * SECOND_MS
LAG_MS = 6 * SECOND_MS
"""Longer than the simulator's lists lag."""
PERIODIC: dict[str, Any] = {"is_oneoff": False, "interval": 60}


def sent(scene: Scene, *measurements: dict[str, Any], owner: str = "ann") -> StoredJob:
    """Submits and sends a job, up to RIPE's ids."""
    job = scene.submit(*measurements, owner=owner)
    assert {one.outcome for one in scene.dispatch_all()} == {"sent"}
    return job


def pass_on(scene: Scene, watch: Watch | None = None, *, after_ms: int = EVERY_MS) -> FollowReport:
    """Makes the next pass this much later. Without a watch it is the pass of a process that has just started."""
    scene.clock.advance(after_ms)
    return follow(scene.store, scene.atlas, VAULT, watch or Watch(), clock=scene.clock)


def until_ended(scene: Scene, watch: Watch, job: StoredJob, *, passes_max: int = 200) -> list[FollowReport]:
    """Pass after pass until all of the job's measurements have ended."""
    reports = []
    for _ in range(passes_max):
        reports.append(pass_on(scene, watch))
        if all(item.ended_ms is not None for item in scene.measurements(job)):
            return reports
    raise AssertionError("it never ends")


def at_ripe(scene: Scene, item: StoredMeasurement, definition: int = 0) -> SimulatedMeasurement:
    """Returns the simulator's own measurement of the definition."""
    return scene.simulator.world.measurements[item.atlas[definition].atlas_id]


def force(scene: Scene, item: StoredMeasurement, status: int, definition: int = 0) -> None:
    scene.simulator.world.force(at_ripe(scene, item, definition), status, scene.clock.now_ms())


def charge(scene: Scene, item: StoredMeasurement) -> int:
    """Returns RIPE's real charge for the measurement."""
    ids = {one.atlas_id for one in item.atlas}
    return sum(row["charge"] for row in scene.created() if row["id"] in ids)


def used(scene: Scene, account: str = "lab") -> dict[str, tuple[int, int]]:
    """Returns the spent and held amounts of each of the account's meters."""
    found = scene.account(account)
    meters = {"concurrent": found.concurrent, "results": found.results, "credits": found.credits}
    return {name: (meter.spent, meter.held) for name, meter in meters.items()}


def money(scene: Scene, owner: str = "ann") -> tuple[int, int]:
    """Returns the spent and held credits of the user's day."""
    budget = scene.store.budget(owner, now_ms=scene.clock.now_ms())
    assert budget is not None
    return budget.spent, budget.held


def asked(scene: Scene, part: str, method: str = "GET") -> int:
    """Returns how many requests of this kind reached RIPE."""
    return sum(request.method == method and part in request.path for request, _ in scene.simulator.latest)

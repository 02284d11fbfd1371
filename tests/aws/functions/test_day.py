"""One day of the deployment in a minute or two: its clock, and that of its functions, runs as fast as they can work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.aws.support.lambda_scene import DEAD, MINUTE_MS, Scene, ms_of, open_scene

pytestmark = [pytest.mark.aws, pytest.mark.slow, pytest.mark.timeout(900)]
WINDOW_MS = 15 * MINUTE_MS
DAY_MS = 96 * WINDOW_MS
RECORDS = 96
"""Of each provider: one every 15 minutes."""
PROVIDERS = dict.fromkeys(("north", "south"), RECORDS)
MONITORS = {"often": 30 * MINUTE_MS, "hourly": 60 * MINUTE_MS}
# A second of real time can be an hour here. What is meant for real time is given as much more of this one.
SETTINGS = {"PACELINE_CALL_LEASE": "12h", "PACELINE_CHECK_LEASE": "12h", "PACELINE_MISSED_GRACE": "10m"}
HIDDEN_S = 43_200
RATES = {"sweeper": "rate(15 minutes)", "plan-start": "rate(10 minutes)", "keeper": "rate(6 hours)"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Ten minutes before a midnight."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=2)
    start_ms = int(midnight.timestamp() * 1_000) - 10 * MINUTE_MS
    with open_scene(tmp_path, start_ms=start_ms, settings=SETTINGS) as opened:
        opened.deployment.reschedule(RATES)
        opened.deployment.hide_for(HIDDEN_S, "ticks", "runs.fifo")
        yield opened


def test_whole_day_runs_every_record_once_in_order_and_evenly_and_every_monitor_on_time(scene: Scene) -> None:
    midnight_ms = -(-scene.clock.now_ms() // DAY_MS) * DAY_MS
    for name, every_ms in MONITORS.items():
        scene.monitor(name, every_ms)
    scene.batch(PROVIDERS, {"start": "00:00", "window": "24h"})
    scene.run_until(midnight_ms + DAY_MS - MINUTE_MS)
    date = datetime.fromtimestamp(midnight_ms / 1_000, UTC).date().isoformat()
    totals = scene.deployment.ask(200, "GET", f"/v1/batches/daily/days/{date}")["totals"]
    assert {state: count for state, count in totals.items() if count} == {"done": sum(PROVIDERS.values())}
    (execution,) = scene.deployment.executions()
    assert (execution["name"], execution["status"]) == (f"daily-{date}", "SUCCEEDED")
    assert json.loads(execution["output"]) == {"enqueued": sum(PROVIDERS.values())}
    assert scene.deployment.call("plan-start")["started"] == [], "its name is taken, and its day is planned"
    windows: Counter[int] = Counter()
    for name in PROVIDERS:
        windows.update((ms - midnight_ms) // WINDOW_MS for ms in called_once_and_in_order(scene, date, name))
    assert set(windows) == set(range(96)), "a window was left empty"
    assert max(windows.values()) <= 2 * len(PROVIDERS), "so many are there if each provider's are evenly spaced"
    for name, every_ms in MONITORS.items():
        assert len(scene.firings(name, every_ms)) == len(scene.model.arrivals(name))
    assert scene.deployment.depths(*DEAD, delayed=True) == dict.fromkeys(DEAD, 0)
    assert scene.check() == (0, "OK\n")


def called_once_and_in_order(scene: Scene, date: str, name: str) -> list[int]:
    """When each of a provider's runs was due; each was called after that, and before the next window was over."""
    effects, arrivals = scene.model.effects(name), scene.model.arrivals(name)
    assert (len(effects), set(effects.values()), len(arrivals)) == (RECORDS, {1}, RECORDS)
    planned = scene.planned(date, name)
    assert [one.target for one in arrivals] == [f"/{name}/{run['record']}" for run in planned], "out of order"
    dues_ms = [ms_of(run["due"]) for run in planned]
    seen_ms = [ms for ms, path in scene.model.seen if path.startswith(f"/{name}/")]
    lates_ms = [ms - due_ms for ms, due_ms in zip(seen_ms, dues_ms, strict=True)]
    print(f"{name}: late by {min(lates_ms)} to {max(lates_ms)} ms, half of them by {sorted(lates_ms)[RECORDS // 2]}")
    assert min(lates_ms) >= 0, "one was early"
    assert max(lates_ms) < WINDOW_MS
    return dues_ms

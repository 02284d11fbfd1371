"""Where only functions run: the keeper notes the time, and acts as a daemon does when the clock was set back."""

from __future__ import annotations

import pytest

from paceline.shells.aws_lambda import keeper, sweeper
from tests.aws.support.lambda_stage import Context, Cycle, Stage, Target

pytestmark = pytest.mark.aws
MONITOR = "/v1/users/boss/monitors/home"
HOUR_MS = 3_600_000


def keep(stage: Stage, shift_ms: int) -> dict[str, object]:
    """A call of the keeper by a clock that is so much ahead."""
    stage.at(shift_ms)
    report: dict[str, object] = keeper.handler({}, Context())
    return report


def test_keeper_function_stores_the_time_and_reports_once_by_how_much_the_clock_was_set_back(stage: Stage) -> None:
    assert keep(stage, 5 * HOUR_MS)["set_back_ms"] == 0, "no time was stored before"
    assert keep(stage, 5 * HOUR_MS)["set_back_ms"] == 0
    back_ms = keep(stage, 0)["set_back_ms"]
    assert isinstance(back_ms, int)
    assert abs(back_ms - 5 * HOUR_MS) < 60_000
    assert keep(stage, 0)["set_back_ms"] == 0


def test_clocks_of_functions_that_differ_a_little_are_no_clock_set_back(stage: Stage) -> None:
    keep(stage, 3_000)
    assert keep(stage, 0)["set_back_ms"] == 0


def test_monitor_fires_again_soon_after_the_keeper_saw_that_the_clock_was_set_back(
    stage: Stage, target: Target
) -> None:
    stage.at(5 * HOUR_MS)
    cycle = Cycle.of(stage)
    spec = {"check": {"kind": "http", "url": f"{target.url}/home"}, "every": "2s"}
    assert stage.rest("PUT", MONITOR, spec)[0] == 201
    cycle.until(lambda: target.asked)
    keep(stage, 5 * HOUR_MS)
    target.asked.clear()
    stage.at(0)
    sweeper.handler({}, Context())
    assert next_due_ms(stage) > stage.now.now_ms() + 4 * HOUR_MS, "no other function brings it back"
    keep(stage, 0)
    assert next_due_ms(stage) <= stage.now.now_ms() + 60_000
    cycle.until(lambda: target.asked)


def test_claimed_run_comes_back_after_the_clock_is_set_back(stage: Stage) -> None:
    """Its lease began five hours from now."""
    stage.at(5 * HOUR_MS)
    cycle = Cycle.of(stage)
    assert stage.rest("PUT", MONITOR, {"check": {"kind": "outgoing", "payload": {}}, "every": "1d"})[0] == 201
    cycle.until(lambda: stage.rest("GET", f"{MONITOR}/runs")[1]["items"])
    keep(stage, 5 * HOUR_MS)
    claim = {"max": 1, "lease": "60s", "wait": "0s"}
    (first,) = stage.rest("POST", "/v1/outgoing/claim", claim)[1]["items"]
    keep(stage, 0)
    stage.at(70_000)
    (again,) = stage.rest("POST", "/v1/outgoing/claim", claim)[1]["items"]
    assert again["run"] == first["run"], "its lease ends a minute after the clock that is now right, not five hours"


def next_due_ms(stage: Stage) -> int:
    (due,) = stage.store.armed_after(None, from_ms=0, limit=2)
    return int(due.due_ms)

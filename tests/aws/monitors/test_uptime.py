"""Roll-ups on DynamoDB: what a fold costs in requests, what a removal leaves, and that a wrong one is found."""

from __future__ import annotations

import pytest

from paceline.adapters.aws import uptime
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import update
from paceline.adapters.aws.client.tables import RUNS
from paceline.adapters.aws.monitors.keys import uptime_key
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.values import RemoveMonitor
from tests.aws.support.monitor_stage import counted
from tests.contract.support.stage import DAY_MS, MINUTE_MS, T0_MS, arm_all, armed, claim, make_runs, settle

pytestmark = [pytest.mark.aws, pytest.mark.usefixtures("silent_bell")]
FOLD_EVERY = 4


@pytest.fixture(autouse=True)
def fold_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uptime, "FOLD_EVERY", FOLD_EVERY)


def settled(store: AwsStore, monitor: Monitor, runs: int) -> None:
    for number in range(runs):
        now_ms = T0_MS + number * MINUTE_MS
        make_runs(store, monitor, now_ms=now_ms)
        assert settle(store, claim(store, now_ms=now_ms), now_ms=now_ms) == [True]


def test_uptime_fold_takes_three_requests_once_in_many_settled_runs(
    store: AwsStore, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uptime, "FOLD_EVERY", 1 << 40)
    monitors = [armed(store, name) for name in ("a", "b")]
    made = []
    for monitor, every in zip(monitors, (1 << 40, FOLD_EVERY), strict=True):
        monkeypatch.setattr(uptime, "FOLD_EVERY", every)
        with counted(clients) as asked:
            settled(store, monitor, 2 * FOLD_EVERY)
        made.append(asked.total())
    assert 0 < made[1] - made[0] <= 2 * 3


def test_a_removed_monitor_leaves_no_roll_up(store: AwsStore, database: DynamoDatabase) -> None:
    monitor = armed(store, "a")
    settled(store, monitor, 2 * FOLD_EVERY)
    key = uptime_key(monitor.generation)
    assert database.get(RUNS, key) is not None
    assert store.remove_monitors([RemoveMonitor("ann", "a")]) == ["removed"]
    arm_all(store, T0_MS)
    assert database.get(RUNS, key) is None
    now_ms = T0_MS + 2 * DAY_MS
    for _ in range(10):
        store.purge(settled_before_ms=now_ms, due_before_ms=0, now_ms=now_ms, limit=100)
    assert database.get(RUNS, key) is None


def test_check_reports_a_roll_up_that_goes_further_than_its_runs(store: AwsStore, database: DynamoDatabase) -> None:
    monitor = armed(store, "a")
    settled(store, monitor, 2 * FOLD_EVERY)
    assert store.verify() == []
    database.write(update(RUNS, uptime_key(monitor.generation), "SET #counter = :far", when="", far=99))
    assert store.verify() == [f"a roll-up goes further than its monitor's runs (generation {monitor.generation})"]

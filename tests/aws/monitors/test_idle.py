"""A worker beside others: what it asks while there is nothing to do, and a clock that is behind theirs."""

from __future__ import annotations

import time

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.config import load_settings
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.values import PutMonitor
from paceline.shells.daemon.daemon import DaemonEngine
from paceline.shells.daemon.keeper import Keeper
from paceline.shells.daemon.metrics import Metrics
from paceline.steps.monitors.define import put_monitor
from paceline.steps.monitors.tick import tick
from paceline.wiring import System, SystemClock
from tests.aws.support.monitor_stage import counted
from tests.contract.support.stage import T0_MS, user
from tests.shells.support.daemons import SECRET

pytestmark = pytest.mark.aws

WARM_S_MAX, LISTEN_S = 30, 4
QUIET_MAX = 10
"""More requests in a second are those of a start, or of a round that comes every 30 seconds."""
PER_S_MAX = 20


def test_idle_worker_makes_few_requests_and_rarely_counts_the_whole_store(
    aws_store: AwsStore, clients: Clients, prefix: str
) -> None:
    settings = load_settings(store=f"aws://?prefix={prefix}", secret_key=SECRET)
    system = System(settings, aws_store, SystemClock())
    assert (system.traits.look_ms_min, system.traits.rest_ms, system.traits.keep_ms) == (1_000, 30_000, 60_000)
    engine = DaemonEngine(system, Metrics(), arrived=lambda: None, own=None)
    engine.start()
    try:
        with counted(clients) as asked:
            for _ in range(WARM_S_MAX):
                asked.clear()
                time.sleep(1)
                if asked.total() <= QUIET_MAX:
                    break
            asked.clear()
            time.sleep(LISTEN_S)
        assert all(loop.turning for loop in engine.loops)
    finally:
        engine.drain()
    assert 0 < asked.total() / LISTEN_S < PER_S_MAX, asked
    assert asked.keys() <= {"Query", "GetItem", "BatchGetItem", "UpdateItem"}, "it writes only who is on duty"
    assert asked["UpdateItem"] / LISTEN_S < 5


class Stopped:
    """A clock that shows one time."""

    def __init__(self, ms: int) -> None:
        self._ms = ms

    def now_ms(self) -> int:
        return self._ms


def test_promise_5_worker_with_a_clock_slightly_behind_repeats_no_firing(aws_store: AwsStore, prefix: str) -> None:
    assert aws_store.add_user(user("ann"))
    put = PutMonitor("ann", "home", MonitorSpec(check=HttpCheck(url="http://example.org/"), every="1s"))
    put_monitor(aws_store, put, monitors_max=10, now_ms=T0_MS)
    assert tick(aws_store, now_ms=T0_MS + 1_000, catch_up=CatchUp()).runs
    due_ms = aws_store.next_due_ms()
    settings = load_settings(store=f"aws://?prefix={prefix}", secret_key=SECRET)
    system = System(settings, aws_store, Stopped(T0_MS - 2_000))
    Keeper(system, Metrics(), loops=list).turn()
    assert aws_store.next_due_ms() == due_ms
    hour_ago = System(settings, aws_store, Stopped(T0_MS - 3_600_000))
    Keeper(hour_ago, Metrics(), loops=list).turn()
    next_due_ms = aws_store.next_due_ms()
    assert next_due_ms is not None
    assert next_due_ms < T0_MS - 3_590_000, "a clock that was really set back is followed"

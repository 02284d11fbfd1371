"""Alarms are a convenience: stale, doubled, early or lost, they neither make a firing nor take one away."""

from __future__ import annotations

import pytest

from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.client.tables import OUTGOING, TICKS
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.due import Advance
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.schedule import Arm
from paceline.core.monitors.values import RemoveMonitor
from paceline.ports.queue_messages import Alarm
from tests.aws.support.monitor_stage import alarms, offers, tick_by_alarms
from tests.contract.support import stage
from tests.contract.support.stage import (
    ALL_OUTGOING,
    EVERY_MINUTE,
    HOUR_MS,
    MINUTE_MS,
    T0_MS,
    arm_all,
    armed,
    claim,
    due_of,
    make_runs,
    put,
    react_with,
    settle,
    spec,
)

pytestmark = pytest.mark.aws
CHECK = stage.OUTGOING


def alarm_of(store: AwsStore, generation: int) -> Alarm:
    entry = store.entries([generation], now_ms=T0_MS)[generation]
    assert entry.due_ms is not None
    return Alarm(generation, entry.counter, entry.due_ms)


def test_an_entry_that_is_due_within_15_minutes_has_an_alarm_and_a_later_one_has_none(
    store: AwsStore, queues: Queues
) -> None:
    sent = []
    for name, due_ms in (("now", T0_MS), ("soon", T0_MS + 900_000), ("later", T0_MS + 900_050)):
        put(store, name)
        assert react_with(store, Arm(due_ms, EVERY_MINUTE, outgoing=False)) == [True]
        sent.append(queues.depth(TICKS))
    assert sent == [1, 2, 2]
    assert [alarm.due for alarm in alarms(queues)] == [T0_MS]


def test_a_reaction_and_a_commit_set_the_next_alarm(store: AwsStore, queues: Queues) -> None:
    monitor = armed(store, "a")
    (rung,) = alarms(queues)
    assert rung == Alarm(monitor.generation, 0, T0_MS)
    assert tick_by_alarms(store, [rung], now_ms=T0_MS) == [True]
    assert alarms(queues) == []  # it waits for a minute
    assert queues.depth(TICKS) == 1


def test_commit_beyond_the_longest_message_delay_sends_no_alarm(store: AwsStore, queues: Queues) -> None:
    monitor = armed(store, "a")
    alarms(queues)
    assert store.commit([Advance(due_of(store, monitor), T0_MS + HOUR_MS, ())], now_ms=T0_MS) == [True]
    assert queues.depth(TICKS) == 0


def test_promise_1_a_doubled_alarm_makes_one_firing(store: AwsStore, queues: Queues) -> None:
    monitor = armed(store, "a")
    rung = alarms(queues)
    assert tick_by_alarms(store, rung * 2, now_ms=T0_MS) == [True]
    assert tick_by_alarms(store, rung, now_ms=T0_MS + MINUTE_MS) == []
    assert len(store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)) == 1


def test_promise_2_an_edit_makes_the_alarm_before_it_stale(store: AwsStore) -> None:
    monitor = armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    old = alarm_of(store, monitor.generation)
    put(store, "a", spec(every="5s"))
    arm_all(store, T0_MS)
    assert tick_by_alarms(store, [old], now_ms=T0_MS + MINUTE_MS) == []
    assert tick_by_alarms(store, [alarm_of(store, monitor.generation)], now_ms=T0_MS + MINUTE_MS) == [True]


def test_promise_3_alarm_of_a_deleted_monitor_is_dead_even_if_the_monitor_was_created_again(store: AwsStore) -> None:
    old = alarm_of(store, armed(store, "a").generation)
    store.remove_monitors([RemoveMonitor("ann", "a")])
    arm_all(store, T0_MS)
    again = armed(store, "a")
    assert tick_by_alarms(store, [old], now_ms=T0_MS) == []
    assert due_of(store, again).counter == 0


def test_early_alarm_is_sent_again(store: AwsStore, queues: Queues) -> None:
    monitor = armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    alarms(queues)
    assert queues.depth(TICKS) == 0
    assert store.alarmed_entries([alarm_of(store, monitor.generation)], now_ms=T0_MS) == []
    assert queues.depth(TICKS) == 1


def test_promise_10_a_lost_alarm_is_replaced_by_the_sweep(store: AwsStore, queues: Queues) -> None:
    monitor = armed(store, "a")
    alarms(queues)  # lost
    assert store.sweep_alarms(now_ms=T0_MS + 30_000).late == 0  # it may be on its way
    alarms(queues)
    swept = store.sweep_alarms(now_ms=T0_MS + 2 * MINUTE_MS)
    assert swept.late == 1
    assert alarms(queues) == [Alarm(monitor.generation, 0, T0_MS)]


def test_the_sweep_arms_an_entry_once_when_it_comes_into_its_last_15_minutes(store: AwsStore, queues: Queues) -> None:
    store.alarms.sends = False
    armed(store, "a", due_ms=T0_MS + HOUR_MS - 30_000)
    armed(store, "b", due_ms=T0_MS + 2 * HOUR_MS)
    armings = [store.sweep_alarms(now_ms=T0_MS + minute * MINUTE_MS).armed for minute in range(0, 60, 5)]
    assert sum(armings) == 1
    assert armings.index(1) == 45 // 5
    assert queues.depth(TICKS) == 1


def test_disabled_alarms_send_nothing(store: AwsStore, queues: Queues) -> None:
    store.alarms.sends = store.alarms.offers = False
    make_runs(store, armed(store, "a", check=CHECK))
    assert (queues.depth(TICKS), queues.depth(OUTGOING)) == (0, 0)


def test_an_outgoing_run_is_offered_to_checkers_in_the_documented_shape(store: AwsStore, queues: Queues) -> None:
    monitor = armed(store, "a", check=CHECK)
    make_runs(store, monitor)
    make_runs(store, armed(store, "check"))
    generation = monitor.generation
    assert offers(queues) == [
        {
            "run": f"ann/a#{generation}@0",
            "generation": generation,
            "counter": 0,
            "due": "2026-09-21T14:13:20.000Z",
            "attempt": 1,
            "check": CHECK.document,
        }
    ]


def test_promise_6_only_the_first_run_of_a_monitor_is_offered_and_the_next_when_it_is_settled(
    store: AwsStore, queues: Queues
) -> None:
    make_runs(store, armed(store, "a", check=CHECK), 3)
    assert [offer["counter"] for offer in offers(queues)] == [0]
    out = claim(store, ALL_OUTGOING)
    assert settle(store, out, Retry("again", T0_MS)) == [True]
    assert [(offer["counter"], offer["attempt"]) for offer in offers(queues)] == [(0, 2)]
    assert settle(store, claim(store, ALL_OUTGOING)) == [True]
    assert [(offer["counter"], offer["attempt"]) for offer in offers(queues)] == [(1, 1)]

"""Health follows outcomes: its record and its alerts are written with the outcome that changes it, once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from paceline.core.alerts.alert import Alert
from paceline.core.instants import to_text
from paceline.core.monitors.alerting.found import LATE_TOLD_MS
from paceline.core.monitors.alerting.policy import AlertPolicy
from paceline.core.monitors.alerting.record import (
    ALERTS_PER_HOUR_MAX,
    NO_RECORD,
    HealthRecord,
    Subject,
    close_hour,
    turn_late,
)
from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.checks import TlsCheck
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.lists.query import FAILING
from paceline.core.monitors.outcome import Dead, Done, Outcome, Retry, Unknown
from paceline.core.monitors.values import RemoveMonitor
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps.monitors.look_after import close_hours, is_any_late, tell_late
from tests.contract.support.stage import (
    ALL_OUTGOING,
    DAY_MS,
    HOUR_MS,
    LEASE_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    armed_all,
    claim,
    make_run_of_each,
    make_runs,
    put,
    settle,
    settlement,
    spec,
    user,
)

BAD, GOOD = Done(ok=False, reason="answered 500"), Done(ok=True)


def watched(store: Store, monitor_id: str = "a", *, after: int = 1, recover: int = 1) -> Monitor:
    monitor = armed(store, monitor_id)
    policy = AlertPolicy(after, recover, ("ops",))
    edited = put(store, monitor_id, replace(monitor.spec, alert=policy)).monitor
    arm_all(store, T0_MS)
    assert edited is not None
    return edited


def run_with(store: Store, monitor: Monitor, outcomes: Iterable[Outcome], *, from_ms: int = T0_MS) -> None:
    """One run after the other, a minute apart."""
    for number, outcome in enumerate(outcomes):
        now_ms = from_ms + number * MINUTE_MS
        make_runs(store, monitor, now_ms=now_ms)
        assert settle(store, claim(store, now_ms=now_ms), outcome, now_ms=now_ms) == [True]


def told(store: Store, owner: str = "ann") -> list[Alert]:
    """All alerts of a user, oldest first."""
    records = store.alerts(owner, since_ms=0, before=None, limit=1_000)
    return [record.alert for record in reversed(records)]


def events(store: Store, owner: str = "ann") -> list[str]:
    return [alert.event for alert in told(store, owner)]


def record_of(store: Store, monitor: Monitor) -> HealthRecord:
    return store.health_records([monitor.generation]).get(monitor.generation, NO_RECORD)


def failing(store: Store, owner: str = "ann") -> list[str]:
    return [monitor.id for monitor in store.monitors(owner, after="", limit=100, having=FAILING)]


def subject_of(monitor: Monitor) -> Subject:
    return Subject(monitor.owner, monitor.id, monitor.generation, monitor.spec.alert)


def test_health_changes_after_the_configured_failures_and_successes(store: Store, other: Store) -> None:
    monitor = watched(store, after=2, recover=2)
    seen = []
    for number, outcome in enumerate((BAD, GOOD, BAD, BAD, GOOD, BAD, GOOD, GOOD)):
        run_with(store, monitor, [outcome], from_ms=T0_MS + number * MINUTE_MS)
        record = record_of(other, monitor)
        seen.append((record.failing, record.failures))
        assert failing(other) == (["a"] if record.failing else [])
    assert seen == [(False, 1), (False, 0), (False, 1), (True, 2), (True, 0), (True, 1), (True, 0), (False, 0)]
    assert events(other) == ["monitor.failing", "monitor.recovered"]
    first, second = told(other)
    assert (first.subject, first.reason, first.channels) == ("a", "answered 500", ("ops",))
    assert (first.data["failures"], second.data["failures"]) == (2, 3)
    assert [one.id for one in other.due_alerts(now_ms=T0_MS + HOUR_MS, limit=10)] == [first.id, second.id]


def test_refused_or_repeated_settlement_writes_no_alert(store: Store, other: Store) -> None:
    monitor = watched(store)
    make_runs(store, monitor)
    (item,) = claim(store)
    late = settlement(item, BAD, now_ms=T0_MS + LEASE_MS + 1)
    assert store.settle([late]) == [False]
    assert store.settle([replace(settlement(item, BAD), attempt=2)]) == [False]
    assert (events(store), record_of(store, monitor)) == ([], NO_RECORD)
    assert store.settle([settlement(item, BAD), settlement(item, BAD)]) == [True, False]
    assert other.settle([settlement(item, BAD)]) == [False]
    assert (events(store), record_of(store, monitor).failures) == (["monitor.failing"], 1)


@pytest.mark.parametrize("outcome", [Unknown("cut short"), Dead("edited", edited=True)])
def test_outcome_that_says_nothing_of_the_target_leaves_health_alone(outcome: Outcome, store: Store) -> None:
    monitor = watched(store, after=2, recover=2)
    run_with(store, monitor, [BAD, outcome])
    assert record_of(store, monitor).failures == 1
    run_with(store, monitor, [BAD, GOOD, outcome, GOOD], from_ms=T0_MS + 2 * MINUTE_MS)
    assert events(store) == ["monitor.failing", "monitor.recovered"]


def test_retry_is_no_outcome_and_a_run_given_up_is_a_failure(store: Store) -> None:
    monitor = watched(store)
    make_runs(store, monitor)
    (item,) = claim(store)
    assert store.settle([settlement(item, Retry("later", T0_MS))]) == [True]
    assert record_of(store, monitor) == NO_RECORD
    assert settle(store, claim(store), Dead("given up after 5 attempts")) == [True]
    assert [alert.reason for alert in told(store)] == ["given up after 5 attempts"]


def test_run_that_expires_is_no_outcome(store: Store) -> None:
    monitor = watched(store)
    make_runs(store, monitor)
    now_ms = T0_MS + DAY_MS
    report = store.purge(settled_before_ms=0, due_before_ms=now_ms, now_ms=now_ms, limit=10)
    assert report.runs_expired == 1
    assert (record_of(store, monitor), events(store)) == (NO_RECORD, [])


def test_outcomes_settled_in_one_batch_change_the_health_of_their_own_monitors(store: Store) -> None:
    monitors = armed_all(store, [f"m{number:02}" for number in range(40)])
    for minute, bad in ((0, range(0, 40, 3)), (1, range(1, 40, 2)), (2, range(0))):
        now_ms = T0_MS + minute * MINUTE_MS
        make_run_of_each(store, monitors, now_ms=now_ms)
        items = {item.monitor: item for item in claim(store, now_ms=now_ms)}
        ends = [
            settlement(items[monitor.id], BAD if number in bad else GOOD, now_ms=now_ms)
            for number, monitor in enumerate(monitors)
        ]
        assert store.settle(ends) == [True] * 40
        assert failing(store) == [monitors[number].id for number in bad]
    by_monitor: dict[str, list[str]] = {monitor.id: [] for monitor in monitors}
    for alert in told(store):
        by_monitor[alert.subject].append(alert.event)
    for number, monitor in enumerate(monitors):
        turns = (number % 3 == 0) + (number % 2 == 1)
        both = number % 3 == 0 and number % 2 == 1
        wanted = ["monitor.failing", "monitor.recovered"] * (1 if both else turns)
        assert by_monitor[monitor.id] == wanted


def test_failing_monitors_are_read_by_page_in_order_of_id(store: Store) -> None:
    monitors = armed_all(store, [f"m{number}" for number in range(5)])
    store.add_user(user("bob"))
    others = armed_all(store, ["z"], owner="bob")
    make_run_of_each(store, [*monitors, *others])
    settle(store, claim(store), BAD)
    assert [monitor.id for monitor in store.monitors("ann", after="", limit=2, having=FAILING)] == ["m0", "m1"]
    page = store.monitors("ann", after="m1", limit=10, having=FAILING)
    assert page == monitors[2:]
    assert failing(store, "bob") == ["z"]
    assert store.monitors("nobody", after="", limit=10, having=FAILING) == []


def test_health_record_is_removed_with_its_monitor_and_a_new_monitor_starts_without_one(store: Store) -> None:
    monitor = watched(store)
    run_with(store, monitor, [BAD])
    make_runs(store, monitor, now_ms=T0_MS + MINUTE_MS)
    (out,) = claim(store, now_ms=T0_MS + MINUTE_MS)
    assert store.remove_monitors([RemoveMonitor("ann", "a")]) == ["removed"]
    assert failing(store) == []
    assert store.settle([settlement(out, GOOD, now_ms=T0_MS + MINUTE_MS)]) == [True]
    arm_all(store, T0_MS)
    again = watched(store)
    assert (record_of(store, again), failing(store), events(store)) == (NO_RECORD, [], ["monitor.failing"])
    run_with(store, again, [BAD])
    assert (failing(store), events(store)) == (["a"], ["monitor.failing"] * 2)
    assert store.remove_user("ann")
    assert store.monitors("ann", after="", limit=10, having=FAILING) == []


def test_edits_pauses_and_disabling_keep_the_record(store: Store) -> None:
    monitor = watched(store, after=3)
    run_with(store, monitor, [BAD, BAD])
    paused = put(store, "a", replace(monitor.spec, paused=True)).monitor
    assert paused is not None
    store.edit_user("ann", UserEdit(disabled=True))
    store.edit_user("ann", UserEdit(disabled=False))
    assert record_of(store, paused).failures == 2
    put(store, "a", replace(monitor.spec, alert=AlertPolicy(after=5)))
    arm_all(store, T0_MS + 2 * MINUTE_MS)
    run_with(store, monitor, [BAD], from_ms=T0_MS + 2 * MINUTE_MS)
    assert events(store) == []
    put(store, "a", replace(monitor.spec, alert=AlertPolicy(after=2)))
    arm_all(store, T0_MS + 3 * MINUTE_MS)
    run_with(store, monitor, [BAD], from_ms=T0_MS + 3 * MINUTE_MS)
    assert (events(store), record_of(store, monitor).failures) == (["monitor.failing"], 4)


def test_record_survives_the_purge_of_its_runs(store: Store) -> None:
    monitor = watched(store)
    run_with(store, monitor, [BAD])
    now_ms = T0_MS + 3 * DAY_MS
    for _ in range(5):
        store.purge(settled_before_ms=now_ms, due_before_ms=0, now_ms=now_ms, limit=100)
    assert (failing(store), record_of(store, monitor).failures) == (["a"], 1)


def test_certificate_of_a_failing_check_raises_one_alert_a_day(store: Store) -> None:
    monitor = armed(store, "a", check=TlsCheck(host="example.org", min_days=14))
    ends = Done(ok=False, reason="ends soon", detail={"days_left": 9, "not_after": "2026-10-01T00:00:00.000Z"})
    run_with(store, monitor, [ends, GOOD, ends, ends])
    wanted = ["certificate.expiring", "monitor.failing", "monitor.recovered", "monitor.failing"]
    assert sorted(events(store)) == sorted(wanted)


def test_alerts_beyond_the_hourly_limit_are_held_back_and_summed_up_in_one(store: Store, other: Store) -> None:
    monitor = watched(store)
    run_with(store, monitor, [BAD, GOOD] * 5)
    assert events(store) == ["monitor.failing", "monitor.recovered"] * (ALERTS_PER_HOUR_MAX // 2)
    assert store.hours_to_close(now_ms=T0_MS + HOUR_MS - 1, limit=10) == []
    now_ms = T0_MS + HOUR_MS
    (waiting,) = other.hours_to_close(now_ms=now_ms, limit=10)
    assert waiting.monitor == monitor
    after, alerts = close_hour(waiting.record, subject_of(monitor), now_ms=now_ms)
    change = HealthChange("ann", "a", monitor.generation, waiting.record, after, alerts)
    assert (close_hours(store, now_ms=now_ms - 1), close_hours(other, now_ms=now_ms)) == (0, 1)
    assert store.change_health([change]) == [False]
    assert close_hours(store, now_ms=now_ms) == 0
    assert store.hours_to_close(now_ms=now_ms + DAY_MS, limit=10) == []
    assert events(store)[ALERTS_PER_HOUR_MAX:] == ["monitor.flapping"]
    assert told(store)[-1].data["held_back"] == 4


def test_health_change_without_an_outcome_is_refused_if_the_record_has_changed(store: Store, other: Store) -> None:
    monitor = watched(store)
    after, alerts = turn_late(NO_RECORD, subject_of(monitor), counter=0, due_ms=T0_MS, now_ms=T0_MS + HOUR_MS)
    change = HealthChange("ann", "a", monitor.generation, NO_RECORD, after, alerts)
    assert store.change_health([change]) == [True]
    assert other.change_health([change]) == [False]
    assert (record_of(other, monitor), events(other)) == (after, ["monitor.late"])
    assert store.verify() == []
    run_with(store, monitor, [GOOD], from_ms=T0_MS + HOUR_MS + MINUTE_MS)
    assert events(store) == ["monitor.late", "monitor.recovered"]
    gone = HealthChange("ann", "a", monitor.generation + 1_000, NO_RECORD, after, alerts)
    nobody = HealthChange("bob", "a", monitor.generation, NO_RECORD, after, alerts)
    assert store.change_health([gone]) == [False]
    assert store.change_health([nobody]) == [False]


def late_round(store: Store, *, now_ms: int, limit: int = 500) -> int:
    """Makes passes until the round is over. Returns the number of late alerts."""
    told_now, after = 0, 0
    for _ in range(100):
        report = tell_late(store, after=after, now_ms=now_ms, limit=limit)
        told_now += report.reported
        if report.after is None:
            return told_now
        after = report.after
    raise AssertionError("the round does not end")


LATE_MS = T0_MS + LATE_TOLD_MS + 1


def test_unstarted_run_raises_one_late_alert_and_its_outcome_recovers_the_monitor(store: Store, other: Store) -> None:
    monitors = armed_all(store, ["a", "b"], check=OUTGOING)
    make_run_of_each(store, monitors)
    assert late_round(store, now_ms=LATE_MS - 1) == 0
    assert not is_any_late(store.status(), now_ms=LATE_MS - 1)
    assert is_any_late(store.status(), now_ms=LATE_MS)
    assert late_round(store, now_ms=LATE_MS) == 2
    assert late_round(other, now_ms=LATE_MS + MINUTE_MS) == 0
    assert sorted((alert.event, alert.subject) for alert in told(other)) == [
        ("monitor.late", "a"),
        ("monitor.late", "b"),
    ]
    assert told(other)[0].data["since"] == to_text(T0_MS)
    out = claim(store, ALL_OUTGOING, now_ms=LATE_MS)
    assert settle(store, out, GOOD, now_ms=LATE_MS + 1) == [True, True]
    assert events(store)[2:] == ["monitor.recovered"] * 2
    assert late_round(store, now_ms=LATE_MS + MINUTE_MS) == 0


def test_run_that_ends_before_the_late_alert_is_not_late(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    (late,) = store.late_runs(before_ms=LATE_MS - LATE_TOLD_MS, after=0, limit=10).runs
    after, alerts = turn_late(NO_RECORD, subject_of(monitor), counter=0, due_ms=T0_MS, now_ms=LATE_MS)
    change = HealthChange("ann", "a", monitor.generation, NO_RECORD, after, alerts, open_run=late.handle)
    settle(store, claim(store, ALL_OUTGOING, now_ms=LATE_MS), GOOD, now_ms=LATE_MS)
    assert store.change_health([change]) == [False]
    assert events(store) == []


def test_late_runs_are_found_however_small_the_pages(store: Store) -> None:
    store.add_user(user("bob"))
    mine = armed_all(store, [f"m{number}" for number in range(7)], check=OUTGOING)
    others = armed_all(store, ["x", "y"], owner="bob")
    make_run_of_each(store, [*mine, *others])
    fresh = armed_all(store, ["fresh"], check=OUTGOING, due_ms=LATE_MS)
    make_run_of_each(store, fresh, now_ms=LATE_MS)
    assert late_round(store, now_ms=LATE_MS, limit=2) == 9
    assert sorted(alert.subject for alert in told(store)) == [monitor.id for monitor in mine]
    assert sorted(alert.subject for alert in told(store, "bob")) == ["x", "y"]


def test_lease_that_ran_out_long_ago_is_late_and_one_that_runs_is_not(store: Store) -> None:
    monitors = armed_all(store, ["gone", "busy"], check=OUTGOING)
    make_run_of_each(store, monitors)
    gone, busy = sorted(claim(store, ALL_OUTGOING), key=lambda item: item.monitor, reverse=True)
    assert store.extend(busy.handle, busy.attempt, until_ms=LATE_MS + DAY_MS, now_ms=T0_MS)
    assert late_round(store, now_ms=LATE_MS) == 0
    assert late_round(store, now_ms=LATE_MS + LEASE_MS) == 1
    assert [alert.subject for alert in told(store)] == [gone.monitor]


def test_runs_of_disabled_owners_and_runs_behind_others_are_not_late(store: Store) -> None:
    store.add_user(user("bob"))
    queued = armed(store, "a", check=OUTGOING, overlap="queue")
    make_runs(store, queued, 3)
    make_run_of_each(store, armed_all(store, ["x"], owner="bob", check=OUTGOING))
    store.edit_user("bob", UserEdit(disabled=True))
    assert late_round(store, now_ms=LATE_MS + DAY_MS) == 1
    assert (events(store), events(store, "bob")) == (["monitor.late"], [])


def test_record_of_a_failing_monitor_is_put_before_its_first_run(store: Store) -> None:
    monitor = watched(store, recover=2)
    moved = HealthRecord(failing=True, failures=3, failed=3, since_ms=T0_MS - DAY_MS, reason="answered 500")
    assert store.change_health([HealthChange("ann", "a", monitor.generation, NO_RECORD, moved)]) == [True]
    assert failing(store) == ["a"]
    glance = store.glances([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert (glance.open_due_ms, glance.settled, glance.record) == (None, None, moved)
    assert store.verify() == []
    run_with(store, monitor, [GOOD, GOOD])
    assert events(store) == ["monitor.recovered"]
    assert store.verify() == []


def test_put_that_spells_out_the_default_alert_changes_nothing(store: Store) -> None:
    monitor = armed(store, "a")
    assert put(store, "a", replace(spec(), alert=AlertPolicy())).disposition == "unchanged"
    assert store.monitor("ann", "a") == monitor

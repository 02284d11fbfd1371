"""An export imported into another store gives the same content, and no run starts twice."""

from __future__ import annotations

import pytest

from paceline.core.alerts.alert import Alert
from paceline.core.alerts.channel import ChannelBody
from paceline.core.alerts.silence import TagSilenceBody, tag_silence
from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.calls import CallResult
from paceline.core.instants import to_text
from paceline.core.monitors.lists.query import FAILING
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.uptime.rollup import days_until, moved
from paceline.core.monitors.values import Settlement
from paceline.ports import Store
from paceline.steps.access import TOKEN_BYTES, add_token, authenticate
from paceline.steps.alerts.channels import put_channel
from paceline.steps.alerts.deliver import begin_deliveries, end_deliveries
from paceline.steps.alerts.silences import add_silence, silences_of
from paceline.steps.batches.plan import plan_due
from paceline.steps.monitors.define import get_monitor
from paceline.steps.monitors.phases import CIRCLES
from paceline.steps.move.stream import obstacles
from paceline.steps.views.report import monitor_view
from tests.contract.support import job_stage
from tests.contract.support.batch_stage import DATE
from tests.contract.support.stage import user
from tests.steps.support import move_scene
from tests.steps.support.move_scene import NOON_MS, NOW_MS, SECRET_KEY, VAULT, open_runs, picture, take_in, take_out
from tests.steps.support.scene import DAY_MS, MINUTE_MS, SECOND_MS, T0_MS, entry, put, run_tick, send_all, take


def test_all_definitions_survive_a_move_and_fire_at_their_times(source: Store, target: Store) -> None:
    secret = move_scene.with_users_and_monitors(source)
    move_scene.with_batch(source)
    move_scene.with_accounts(source)
    stream, report = take_out(source)
    imported = take_in(target, stream)
    assert picture(target) == picture(source)
    assert (report.users, report.tokens, report.monitors, report.records, report.keys) == (3, 2, 5, 13, 3)
    assert imported.counts["monitors"] == {"created": 5}
    assert imported.lines == len(stream.splitlines())
    there = authenticate(target, secret, secret_key=SECRET_KEY, now_ms=0)
    assert there is not None
    assert there.role == "admin"
    assert secret.encode() not in stream


def test_importing_twice_changes_nothing_the_second_time(source: Store, target: Store) -> None:
    move_scene.with_users_and_monitors(source)
    move_scene.with_batch(source)
    move_scene.with_accounts(source)
    stream, _ = take_out(source, now_ms=NOON_MS)
    take_in(target, stream, now_ms=NOON_MS)
    before, runs = picture(target), open_runs(target)
    again = take_in(target, stream, now_ms=NOON_MS + MINUTE_MS)
    assert {word for counts in again.counts.values() for word in counts} == {"unchanged"}
    assert (picture(target), open_runs(target)) == (before, runs)


def test_moved_monitor_stays_on_its_grid_and_makes_its_owed_firing(source: Store, target: Store) -> None:
    source.add_user(user("ann"))
    put(source, "web", now_ms=T0_MS, every="5m")
    run_tick(source, now_ms=T0_MS)
    send_all(source, now_ms=T0_MS)
    stream, _ = take_out(source, now_ms=T0_MS + MINUTE_MS)
    late_ms = T0_MS + 5 * MINUTE_MS + 10 * SECOND_MS
    take_in(target, stream, now_ms=late_ms)
    assert entry(target, "web", now_ms=late_ms).due_ms == T0_MS + 5 * MINUTE_MS
    run_tick(target, now_ms=late_ms)
    assert len(send_all(target, now_ms=late_ms)) == 1
    assert entry(target, "web", now_ms=late_ms).due_ms == T0_MS + 10 * MINUTE_MS


def test_failing_monitor_moves_with_its_health_and_recovers_there(source: Store, target: Store) -> None:
    source.add_user(user("ann"))
    for name in ("bad", "good"):
        put(source, name, now_ms=T0_MS, every="5m", initial_delay="0s")
    run_tick(source, now_ms=T0_MS)
    for item in take(source, now_ms=T0_MS):
        ends = Done(ok=item.monitor == "good", reason="answered 500")
        source.settle([Settlement(item.handle, item.attempt, ends, started_ms=T0_MS, ended_ms=T0_MS)])
    stream, _ = take_out(source, now_ms=T0_MS + MINUTE_MS)
    for _ in range(2):
        take_in(target, stream, now_ms=T0_MS + MINUTE_MS)
    (moved,) = target.monitors("ann", after="", limit=10, having=FAILING)
    shown = monitor_view(target, moved, now_ms=T0_MS + MINUTE_MS)
    assert (shown.id, shown.health, shown.failures) == ("bad", "failing", 1)
    later_ms = T0_MS + 5 * MINUTE_MS
    run_tick(target, now_ms=later_ms)
    assert len(send_all(target, now_ms=later_ms)) == 2
    take_in(target, stream, now_ms=later_ms)
    assert target.monitors("ann", after="", limit=10, having=FAILING) == []
    recovered, failing = target.alerts("ann", since_ms=0, before=None, limit=10)
    assert (recovered.alert.event, recovered.alert.data["since"]) == ("monitor.recovered", to_text(T0_MS))
    assert (failing.alert.event, failing.state) == ("monitor.failing", "new")  # its alert was not sent before the move


def test_promise_5_each_record_of_a_day_moved_at_noon_runs_once_and_at_its_time(source: Store, target: Store) -> None:
    move_scene.with_batch(source)
    waiting = open_runs(source)
    assert len(waiting) == 6
    stream, report = take_out(source, now_ms=NOON_MS)
    assert report.runs == 12
    take_in(target, stream, now_ms=NOON_MS)
    assert open_runs(target) == waiting
    plan_due(target, now_ms=NOON_MS)
    assert open_runs(target) == waiting
    # A record that has run, switched off and on again, would be a newcomer to the day: the ledger knows better.
    (batch,) = move_scene.all_batches(target)
    (done, *_) = sorted(set(move_scene.RECORDS) - {record for _, record in waiting})
    record = target.record(batch, done)
    assert record is not None
    for active in (False, True):
        target.put_records(batch, [RecordSpec(done, record.provider, "/x", active=active)], now_ms=NOON_MS)
    plan_due(target, now_ms=NOON_MS)
    assert open_runs(target) == waiting


def test_day_after_a_move_is_planned_as_usual(source: Store, target: Store) -> None:
    move_scene.with_batch(source)
    stream, _ = take_out(source, now_ms=NOON_MS)
    take_in(target, stream, now_ms=NOON_MS)
    midnight_ms = NOON_MS + DAY_MS // 2
    # The other Paceline starts an hour after the midnight that the move went over.
    report = plan_due(target, now_ms=midnight_ms + 60 * MINUTE_MS)
    assert [(day.date, day.report.enqueued) for day in report.days] == [("2026-09-23", 12)]


def test_late_record_that_was_not_planned_yet_is_planned_after_a_move(source: Store, target: Store) -> None:
    move_scene.with_batch(source)
    (batch,) = move_scene.all_batches(source)
    source.put_records(batch, [RecordSpec("late", "a", "/late")], now_ms=NOON_MS)
    stream, _ = take_out(source, now_ms=NOON_MS)
    take_in(target, stream, now_ms=NOON_MS)
    plan_due(target, now_ms=NOON_MS)
    late = [due_ms for due_ms, record in open_runs(target) if record == "late"]
    assert len(late) == 1
    assert late[0] >= NOON_MS


def test_usage_of_an_account_counts_after_a_move(source: Store, target: Store) -> None:
    move_scene.with_users_and_monitors(source)
    move_scene.with_accounts(source)
    move_scene.with_finished_job(source)
    stream, report = take_out(source, now_ms=T0_MS)
    counts = take_in(target, stream, now_ms=T0_MS).counts
    account = target.account("lab", now_ms=T0_MS)
    assert account is not None
    assert (account.credits.foreign, account.results.foreign) == (40, 10)
    # A finished job is in the stream as history, and in no other store.
    assert (report.jobs, counts["jobs"], target.jobs(None, before=None, limit=10)) == (1, {"passed over": 1}, [])


def test_export_names_unfinished_work_as_the_only_obstacle(source: Store) -> None:
    move_scene.with_users_and_monitors(source)
    move_scene.with_batch(source)
    move_scene.with_accounts(source)
    assert obstacles(source, now_ms=NOON_MS) == []
    job_stage.admitted(source, owner="ann")
    run_tick(source, now_ms=T0_MS + 11 * MINUTE_MS)
    assert len(take(source, now_ms=T0_MS + 11 * MINUTE_MS)) == 1
    assert len(source.claim_calls(now_ms=NOON_MS, runs_max=1, lease_ms=MINUTE_MS)) == 1
    (batch,) = move_scene.all_batches(source)
    source.open_day(batch, "2026-09-23", start_ms=NOON_MS + DAY_MS, end_ms=NOON_MS + 2 * DAY_MS)
    leased_ms = source.leases(now_ms=T0_MS + 11 * MINUTE_MS).until_ms
    assert leased_ms is not None
    until = f"let those who have them report, or wait until their leases have ended at {to_text(leased_ms)}"
    assert obstacles(source, now_ms=leased_ms - 1) == [
        f"1 runs of monitors are out ({until})",
        "1 jobs have not ended (let them end, or cancel them)",
        "day 2026-09-23 of batch 'daily' is half planned",
        f"1 runs of day {DATE} of batch 'daily' are out",
    ]


def test_run_with_an_expired_lease_is_no_obstacle_to_a_move(source: Store) -> None:
    move_scene.with_users_and_monitors(source)
    run_tick(source, now_ms=T0_MS + 11 * MINUTE_MS)
    assert len(take(source, now_ms=T0_MS + 11 * MINUTE_MS)) == 1
    leased_ms = source.leases(now_ms=T0_MS + 11 * MINUTE_MS).until_ms
    assert leased_ms is not None
    assert len(obstacles(source, now_ms=leased_ms - 1)) == 1
    assert obstacles(source, now_ms=leased_ms) == []


@pytest.mark.aws
def test_move_from_sqlite_to_aws_and_back_loses_and_doubles_no_run(
    source: Store, aws_store: Store, target: Store
) -> None:
    secret = move_scene.with_users_and_monitors(source)
    move_scene.with_batch(source)
    move_scene.with_accounts(source)
    waiting = open_runs(source)
    there, _ = take_out(source, now_ms=NOON_MS)
    take_in(aws_store, there, now_ms=NOON_MS)
    assert picture(aws_store) == picture(source)
    assert open_runs(aws_store) == waiting
    assert authenticate(aws_store, secret, secret_key=SECRET_KEY, now_ms=0) is not None
    again = take_in(aws_store, there, now_ms=NOON_MS)
    assert {word for counts in again.counts.values() for word in counts} == {"unchanged"}
    assert obstacles(aws_store, now_ms=NOON_MS) == []
    back, _ = take_out(aws_store, now_ms=NOON_MS)
    take_in(target, back, now_ms=NOON_MS)
    assert picture(target) == picture(source)
    assert open_runs(target) == waiting


def test_scope_and_end_of_a_token_survive_a_move(source: Store, target: Store) -> None:
    move_scene.with_users_and_monitors(source)
    name = source.users(after="", limit=1)[0].id
    made = add_token(
        source,
        name,
        label="worker",
        token_bytes=bytes([9]) * TOKEN_BYTES,
        secret_key=SECRET_KEY,
        now_ms=0,
        scope="worker:shop",
        expires="2030-01-01T00:00:00Z",
    )
    take_in(target, take_out(source)[0])
    there = {token.id: token for token in target.tokens(name)}
    assert there[made.token.id] == made.token
    assert (made.token.scope, made.token.expires_ms) == ("worker:shop", 1_893_456_000_000)


def test_uptime_of_a_monitor_moves_and_goes_on_in_the_other_store(source: Store, target: Store) -> None:
    move_scene.with_users_and_monitors(source)
    stream, _ = take_out(source)
    for _ in range(2):  # the second import changes nothing
        take_in(target, stream)
    rollups = []
    monitors = [get_monitor(store, "ann", "each-minute") for store in (source, target)]
    for store, monitor in zip((source, target), monitors, strict=True):
        rollups += store.uptimes([monitor], now_ms=NOW_MS)
    assert rollups[0].days
    assert moved(rollups[0]) == rollups[1]
    run_tick(target, now_ms=NOW_MS + MINUTE_MS)
    send_all(target, now_ms=NOW_MS + MINUTE_MS)
    [after] = target.uptimes(monitors[1:], now_ms=NOW_MS + MINUTE_MS)
    days = days_until(after, NOW_MS + MINUTE_MS)
    assert sum(day.ok for day in days.values()) == 1 + sum(day.ok for day in days_until(rollups[0], NOW_MS).values())


def test_channels_silences_and_open_alerts_move_and_are_sent_from_the_other_store(source: Store, target: Store) -> None:
    source.add_user(user("ann"))
    put_channel(source, VAULT, "ann", "ops", ChannelBody("webhook", "https://example.org/a-secret"), now_ms=T0_MS)
    silence = tag_silence(TagSilenceBody("web", "1d", "moving"), now_ms=T0_MS)
    named = add_silence(source, "ann", silence, chance_id="0123456789ab")
    told, waiting = (Alert(f"al_{n}", "job.finished", T0_MS, "ann", "j1", channels=("ops",)) for n in range(2))
    source.add_alerts([told])
    [sent] = begin_deliveries(source, VAULT, secret=SECRET_KEY, now_ms=T0_MS, chance=lambda: 0.0).tries
    end_deliveries(source, [(sent, CallResult(*sent.fence, T0_MS, T0_MS, code=200))])
    source.add_alerts([waiting])
    stream, report = take_out(source)
    assert (report.channels, report.silences, report.alerts) == (1, 1, 1)
    assert b"a-secret" not in stream
    assert take_in(target, stream).counts["alerts"] == {"created": 1}
    again = take_in(target, stream).counts
    assert (again["channels"], again["silences"], again["alerts"]) == ({"unchanged": 1},) * 3
    assert silences_of(target, "ann", now_ms=T0_MS, since_ms=0) == [named]
    messages = begin_deliveries(target, VAULT, secret=SECRET_KEY, now_ms=NOW_MS, chance=lambda: 0.0).tries
    assert [(one.record.alert, one.channel) for one in messages] == [(waiting, "ops")]


def test_phases_survive_a_move_and_are_counted_there(source: Store, target: Store) -> None:
    source.add_user(user("ann"))
    for number in range(6):
        put(source, f"m{number}", now_ms=T0_MS + number)
    stream, _ = take_out(source)
    take_in(target, stream)
    phases = [one.spec.phase for one in source.monitors("ann", after="", limit=9)]
    assert None not in phases
    assert [one.spec.phase for one in target.monitors("ann", after="", limit=9)] == phases
    circles = [CIRCLES.get(store, str(MINUTE_MS)) for store in (source, target)]
    assert circles[0] is not None
    assert circles[1] is not None
    assert circles[1].counts == circles[0].counts
    later_ms = NOW_MS + DAY_MS
    for store in (source, target):
        run_tick(store, now_ms=later_ms)
    names = [f"m{number}" for number in range(6)]
    dues = [[entry(store, name, now_ms=later_ms).due_ms for name in names] for store in (source, target)]
    assert dues[1] == dues[0]

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from paceline.core.monitors.definition import MonitorSpec, parse_spec, spec_document
from paceline.core.monitors.values import PutMonitor, RemoveMonitor
from paceline.core.users import UserEdit
from paceline.errors import InvalidInput, LimitReached, MalformedBody, NotFound, RevisionMismatch
from paceline.ports import Store
from paceline.steps.access import edit_user, remove_user
from paceline.steps.monitors.define import (
    edit_monitor,
    get_monitor,
    merge_patch,
    parse_put,
    put_monitor,
    put_monitors,
    remove_monitor,
    set_paused,
)
from paceline.steps.monitors.react import react, react_to_all
from tests.steps.support.move_scene import VAULT
from tests.steps.support.scene import (
    DAY_MS,
    HOUR_MS,
    LIMITS,
    MINUTE_MS,
    OUTGOING,
    POST,
    SECOND_MS,
    T0_MS,
    document,
    entry,
    put,
    run_tick,
    runs,
    send_all,
    take,
)


def spec_of(**fields: Any) -> MonitorSpec:
    return parse_spec(json.dumps(document(**fields)).encode(), LIMITS)


def pause(store: Store, name: str, *, paused: bool, now_ms: int) -> None:
    edit_monitor(
        store,
        "ann",
        name,
        lambda spec: set_paused(spec, paused=paused),
        expected_revision=None,
        monitors_max=100,
        now_ms=now_ms,
    )


def test_a_new_monitor_is_due_at_once_and_then_on_its_grid(store: Store) -> None:
    put(store, "a", now_ms=T0_MS + 20)
    assert entry(store, "a", now_ms=T0_MS + 20).due_ms == T0_MS + 50
    for minute in range(3):
        assert run_tick(store, now_ms=T0_MS + minute * MINUTE_MS + 700).runs == 1
    assert [run.due_ms for run in runs(store, "a", now_ms=T0_MS + HOUR_MS)] == [
        T0_MS + 50 + minute * MINUTE_MS for minute in range(3)
    ]


def test_first_firing_waits_for_the_initial_delay(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, initial_delay="90s")
    assert run_tick(store, now_ms=T0_MS + 89 * SECOND_MS).runs == 0
    assert run_tick(store, now_ms=T0_MS + 90 * SECOND_MS).runs == 1
    assert entry(store, "a", now_ms=T0_MS).due_ms == T0_MS + 150 * SECOND_MS


def test_promise_2_a_shorter_interval_takes_effect_now(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="1h")
    run_tick(store, now_ms=T0_MS)
    put(store, "a", now_ms=T0_MS + 5 * SECOND_MS, every="10s")
    assert entry(store, "a", now_ms=T0_MS).due_ms == T0_MS + 10 * SECOND_MS
    put(store, "a", now_ms=T0_MS + 7 * SECOND_MS, every="1s")
    assert entry(store, "a", now_ms=T0_MS).due_ms == T0_MS + 7 * SECOND_MS
    assert run_tick(store, now_ms=T0_MS + 7 * SECOND_MS).runs == 1


def test_promise_2_a_longer_interval_counts_from_the_last_firing(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="10s")
    run_tick(store, now_ms=T0_MS)
    put(store, "a", now_ms=T0_MS + 9 * SECOND_MS, every="1h")
    assert run_tick(store, now_ms=T0_MS + HOUR_MS - 1).runs == 0
    assert run_tick(store, now_ms=T0_MS + HOUR_MS).runs == 1


def test_promise_2_an_edit_keeps_a_firing_that_is_owed(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, initial_delay="0s")
    put(store, "a", now_ms=T0_MS + SECOND_MS, every="1h", initial_delay="0s")
    assert run_tick(store, now_ms=T0_MS + SECOND_MS).runs == 1
    assert runs(store, "a", now_ms=T0_MS)[0].due_ms == T0_MS
    assert entry(store, "a", now_ms=T0_MS).due_ms == T0_MS + HOUR_MS


def test_promise_2_the_next_run_uses_the_newest_definition(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    put(store, "a", now_ms=T0_MS + 1, check=POST)
    (order,) = take(store, now_ms=T0_MS + 2)
    assert msgspec.to_builtins(order.check)["method"] == "POST"


def test_promise_2_an_edit_of_something_else_leaves_the_schedule_alone(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    before = entry(store, "a", now_ms=T0_MS)
    put(store, "a", now_ms=T0_MS + 5, tags=["new"])
    assert entry(store, "a", now_ms=T0_MS).due_ms == before.due_ms


def test_promise_1_monitor_has_one_next_firing_however_often_it_is_edited(store: Store) -> None:
    for number in range(50):
        put(store, "a", now_ms=T0_MS + number * 30, every=f"{number % 7 + 1}s", missed=("skip", "all")[number % 2])
        run_tick(store, now_ms=T0_MS + number * 30 + 10)
    assert store.status().entries == 1
    assert len(store.due(now_ms=T0_MS + DAY_MS, limit=100)) == 1


def test_a_paused_monitor_does_not_fire_and_a_resumed_one_goes_on(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    pause(store, "a", paused=True, now_ms=T0_MS + SECOND_MS)
    assert run_tick(store, now_ms=T0_MS + HOUR_MS).runs == 0
    pause(store, "a", paused=False, now_ms=T0_MS + HOUR_MS)
    assert run_tick(store, now_ms=T0_MS + HOUR_MS).runs == 1
    assert [run.counter for run in runs(store, "a", now_ms=T0_MS)] == [0, 1]
    pause(store, "a", paused=True, now_ms=T0_MS + HOUR_MS + 1)
    pause(store, "a", paused=False, now_ms=T0_MS + HOUR_MS + 2)
    assert entry(store, "a", now_ms=T0_MS).due_ms == T0_MS + HOUR_MS + MINUTE_MS


def test_a_monitor_that_is_created_paused_waits_for_its_resume(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, paused=True)
    assert run_tick(store, now_ms=T0_MS + DAY_MS).runs == 0
    put(store, "a", now_ms=T0_MS + DAY_MS)
    assert run_tick(store, now_ms=T0_MS + DAY_MS).runs == 1


def test_promise_3_after_a_delete_nothing_fires_and_nothing_is_sent(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    remove_monitor(store, "ann", "a", now_ms=T0_MS + 1)
    assert store.status().entries == 0
    assert run_tick(second, now_ms=T0_MS + DAY_MS).runs == 0
    assert take(second, now_ms=T0_MS + DAY_MS) == []
    assert store.status().runs_waiting == 0


def test_promise_3_a_monitor_of_the_same_name_is_a_new_generation(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    old = get_monitor(store, "ann", "a").generation
    remove_monitor(store, "ann", "a", now_ms=T0_MS + 1)
    put(store, "a", now_ms=T0_MS + 2)
    new = get_monitor(store, "ann", "a").generation
    assert new != old
    run_tick(store, now_ms=T0_MS + 100)
    assert send_all(store, now_ms=T0_MS + 200) == [f"ann/a#{new}@0"]


def test_promise_10_a_crash_between_the_definition_and_its_entry_is_repaired_by_replay(
    store: Store, second: Store
) -> None:
    put(store, "b", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    # The process dies after each first write and before the reaction.
    store.put_monitors([PutMonitor("ann", "a", spec_of())], monitors_max=9, now_ms=T0_MS)
    store.put_monitors([PutMonitor("ann", "b", spec_of(every="5s"))], monitors_max=9, now_ms=T0_MS)
    assert react(second, now_ms=T0_MS + SECOND_MS).reacted == 2
    assert react(second, now_ms=T0_MS + SECOND_MS).reacted == 0
    assert entry(second, "a", now_ms=T0_MS).due_ms == T0_MS + SECOND_MS
    assert entry(second, "b", now_ms=T0_MS).due_ms == T0_MS + 5 * SECOND_MS
    store.remove_monitors([RemoveMonitor("ann", "a")])
    react_to_all(second, now_ms=T0_MS + 2 * SECOND_MS)
    assert store.status().entries == 1


def test_promise_10_interrupted_delete_sends_nothing(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    store.remove_monitors([RemoveMonitor("ann", "a")])
    run_tick(second, now_ms=T0_MS)  # the entry is still there
    assert take(second, now_ms=T0_MS) == []
    react_to_all(second, now_ms=T0_MS)
    assert run_tick(second, now_ms=T0_MS + DAY_MS).runs == 0


def test_changes_beyond_one_pass_are_all_followed(store: Store) -> None:
    puts = [PutMonitor("ann", f"m{number}", spec_of()) for number in range(30)]
    store.put_monitors(puts, monitors_max=100, now_ms=T0_MS)
    report = react(store, now_ms=T0_MS, limit=10)
    assert (report.reacted, report.more) == (10, True)
    assert react_to_all(store, now_ms=T0_MS).reacted == 20
    assert store.status().entries == 30


def test_bulk_put_returns_a_result_for_each_monitor(store: Store) -> None:
    put(store, "b", now_ms=T0_MS)
    put(store, "c", now_ms=T0_MS)
    puts = [
        PutMonitor("ann", "a", spec_of(initial_delay="0s")),
        PutMonitor("ann", "b", spec_of(every="5s")),
        PutMonitor("ann", "c", spec_of()),
        PutMonitor("ann", "d", spec_of()),
    ]
    results = put_monitors(store, puts, monitors_max=3, now_ms=T0_MS)
    assert [result.disposition for result in results] == ["created", "replaced", "unchanged", "limit_reached"]
    assert store.status().changes == 0
    assert entry(store, "a", now_ms=T0_MS).due_ms == T0_MS


def test_refused_single_put_is_an_error_that_says_what_to_do(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    with pytest.raises(RevisionMismatch, match="revision 1"):
        put(store, "a", now_ms=T0_MS, every="5s", expected_revision=7)
    with pytest.raises(RevisionMismatch, match="does not exist"):
        put(store, "x", now_ms=T0_MS, expected_revision=7)
    with pytest.raises(LimitReached, match="at most 1"):
        put_monitor(store, PutMonitor("ann", "b", spec_of()), monitors_max=1, now_ms=T0_MS)
    with pytest.raises(NotFound, match="nobody"):
        put(store, "a", owner="nobody", now_ms=T0_MS)
    with pytest.raises(InvalidInput) as caught:
        parse_put("ann", "a/b", b"{}", LIMITS)
    assert [problem.pointer for problem in caught.value.errors] == ["/id"]


def test_a_removal_that_cannot_be_done_is_an_error(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    with pytest.raises(NotFound):
        remove_monitor(store, "bob", "a", now_ms=T0_MS)
    with pytest.raises(RevisionMismatch):
        remove_monitor(store, "ann", "a", now_ms=T0_MS, expected_revision=3)
    remove_monitor(store, "ann", "a", now_ms=T0_MS, expected_revision=1)
    with pytest.raises(NotFound):
        get_monitor(store, "ann", "a")


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"every": "5s"}, {"every": "5s"}),
        ({"cron": "0 3 * * *"}, {"every": None, "cron": "0 3 * * *", "timezone": "UTC"}),
        ({"paused": True, "tags": ["x"]}, {"paused": True, "tags": ["x"]}),
        ({"tags": None}, {"tags": []}),
        ({"check": {"timeout": "3s"}}, {"check": {"kind": "http", "url": "http://example.org/", "timeout": "3s"}}),
        ({"check": OUTGOING}, {"check": OUTGOING}),
        ({"check": {"kind": "tcp", "host": "a", "port": 1}}, {"check": {"kind": "tcp", "host": "a", "port": 1}}),
    ],
)
def test_patch_merges_fields_into_the_definition(patch: dict[str, Any], expected: dict[str, Any]) -> None:
    merged = spec_document(merge_patch(spec_of(), json.dumps(patch).encode(), LIMITS, VAULT))
    for name, value in expected.items():
        assert merged.get(name) == value


def test_a_patch_may_change_the_cadence_from_cron_back_to_an_interval() -> None:
    cron = spec_of(every=None, cron="0 3 * * *", timezone="Asia/Tokyo")
    back = spec_document(merge_patch(cron, b'{"every": "5s"}', LIMITS, VAULT))
    assert (back.get("every"), back.get("cron"), back.get("timezone")) == ("5s", None, None)


@pytest.mark.parametrize(
    ("patch", "pointer"),
    [
        (b'{"every": null}', "/every"),
        (b'{"every": "5s", "cron": "* * * * *"}', "/every"),
        (b'{"owner": "eve"}', "/owner"),
        (b'{"check": null}', "/check"),
        (b'{"check": {"url": "file:///x"}}', "/check/url"),
        (b"[]", ""),
    ],
)
def test_a_bad_patch_is_refused_by_name(patch: bytes, pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        merge_patch(spec_of(), patch, LIMITS, VAULT)
    assert [problem.pointer for problem in caught.value.errors] == [pointer]


@pytest.mark.parametrize("levels", [100, 300, 480, 700, 900, 940, 960, 100_000])
def test_a_deeply_nested_patch_is_refused(levels: int) -> None:
    patch = b'{"check": ' + b'{"a": ' * levels + b"1" + b"}" * levels + b"}"
    with pytest.raises((InvalidInput, MalformedBody)):
        merge_patch(spec_of(check=OUTGOING), patch, LIMITS, VAULT)


def test_edit_is_repeated_after_a_concurrent_write(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    interferences = iter(["one", "two"])

    def change(spec: MonitorSpec) -> MonitorSpec:
        for tag in interferences:
            put(second, "a", now_ms=T0_MS, tags=[tag])
            break
        return msgspec.structs.replace(spec, every="5s")

    edit_monitor(store, "ann", "a", change, expected_revision=None, monitors_max=9, now_ms=T0_MS)
    found = get_monitor(store, "ann", "a")
    assert (found.spec.every, found.spec.tags, found.revision) == ("5s", ("two",), 4)


def test_an_edit_of_a_named_revision_does_not_try_again(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    with pytest.raises(RevisionMismatch):
        edit_monitor(store, "ann", "a", lambda spec: spec, expected_revision=5, monitors_max=9, now_ms=T0_MS)
    with pytest.raises(NotFound):
        edit_monitor(store, "ann", "x", lambda spec: spec, expected_revision=None, monitors_max=9, now_ms=T0_MS)


def test_a_disabled_owner_s_monitors_rest_and_an_enabled_one_s_go_on(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    edit_user(store, "ann", UserEdit(disabled=True), now_ms=T0_MS + SECOND_MS)
    assert run_tick(store, now_ms=T0_MS + HOUR_MS).runs == 0
    assert take(store, now_ms=T0_MS + HOUR_MS) == []
    held = runs(store, "a", now_ms=T0_MS)[0]
    assert (held.state, held.reason) == ("held", "its owner is disabled")
    edit_user(store, "ann", UserEdit(disabled=False), now_ms=T0_MS + HOUR_MS)
    assert run_tick(store, now_ms=T0_MS + HOUR_MS).runs == 1
    assert len(send_all(store, now_ms=T0_MS + HOUR_MS)) == 1
    assert len(send_all(store, now_ms=T0_MS + 2 * HOUR_MS)) == 1


def test_promise_3_a_removed_user_s_monitors_fire_no_more(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    remove_user(store, "ann", now_ms=T0_MS + 1)
    assert run_tick(store, now_ms=T0_MS + DAY_MS).runs == 0
    assert take(store, now_ms=T0_MS + DAY_MS) == []
    assert store.status().entries == 0

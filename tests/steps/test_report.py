from __future__ import annotations

from typing import Any

import pytest

from paceline.core.instants import to_text
from paceline.core.users import UserEdit
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.access import edit_user
from paceline.steps.monitors.define import get_monitor
from paceline.steps.monitors.send import settle
from paceline.steps.views.report import MonitorView, monitor_runs, monitor_view, show_run, status_view
from tests.steps.support.scene import HTTP, MINUTE_MS, OUTGOING, SECOND_MS, T0_MS, finish, put, run_tick, send_all, take


def view(store: Store, *, now_ms: int) -> MonitorView:
    return monitor_view(store, get_monitor(store, "ann", "a"), now_ms=now_ms)


def test_a_monitor_is_shown_with_its_schedule(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    shown = view(store, now_ms=T0_MS)
    assert shown.schedule.key == "ann/a"
    assert (shown.schedule.counter, shown.revision, shown.every) == (1, 1, "60s")
    assert shown.schedule.next_due == to_text(T0_MS + MINUTE_MS)
    assert shown.schedule.generation == get_monitor(store, "ann", "a").generation


def test_health_turns_failing_and_back_to_ok(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    assert view(store, now_ms=T0_MS).health == "new"
    for minute, ok, health in ((0, True, "ok"), (1, False, "failing"), (2, True, "ok")):
        now_ms = T0_MS + minute * MINUTE_MS
        run_tick(store, now_ms=now_ms)
        (order,) = take(store, now_ms=now_ms)
        settle(store, [finish(order, now_ms=now_ms + 5, ok=ok)])
        assert view(store, now_ms=now_ms + 10).health == health


def test_health_is_late_when_firings_or_runs_fall_behind(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    assert view(store, now_ms=T0_MS + 9 * SECOND_MS).health == "new"
    assert view(store, now_ms=T0_MS + 11 * SECOND_MS).health == "late"
    run_tick(store, now_ms=T0_MS + 11 * SECOND_MS)
    assert view(store, now_ms=T0_MS + 12 * SECOND_MS).health == "late"
    send_all(store, now_ms=T0_MS + 12 * SECOND_MS)
    assert view(store, now_ms=T0_MS + 12 * SECOND_MS).health == "ok"


@pytest.mark.parametrize("overlap", ["skip", "queue"])
@pytest.mark.parametrize("check", [HTTP, OUTGOING], ids=["hangs", "nobody serves it"])
def test_a_one_second_monitor_whose_first_run_never_ends_is_late_and_not_new(
    store: Store, check: dict[str, Any], overlap: str
) -> None:
    put(store, "a", now_ms=T0_MS, every="1s", check=check, overlap=overlap)
    for second in range(40):
        run_tick(store, now_ms=T0_MS + second * SECOND_MS)
        take(store, now_ms=T0_MS + second * SECOND_MS)
    assert view(store, now_ms=T0_MS + 40 * SECOND_MS).health == "late"


def test_a_monitor_shows_how_many_firings_it_skipped_and_why(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="1s", overlap="skip")
    run_tick(store, now_ms=T0_MS)
    assert view(store, now_ms=T0_MS).skipped is None
    for second in range(1, 8):
        run_tick(store, now_ms=T0_MS + second * SECOND_MS)
    skipped = view(store, now_ms=T0_MS + 8 * SECOND_MS).skipped
    assert skipped is not None
    assert (skipped.count, skipped.since) == (7, to_text(T0_MS))
    assert skipped.since in skipped.reason
    send_all(store, now_ms=T0_MS + 8 * SECOND_MS)
    assert view(store, now_ms=T0_MS + 8 * SECOND_MS).skipped is None


def test_a_paused_monitor_and_one_of_a_disabled_owner_are_shown_as_paused(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    edit_user(store, "ann", UserEdit(disabled=True), now_ms=T0_MS)
    assert view(store, now_ms=T0_MS).health == "paused"
    assert view(store, now_ms=T0_MS).schedule.next_due is None
    edit_user(store, "ann", UserEdit(disabled=False), now_ms=T0_MS)
    put(store, "a", now_ms=T0_MS, paused=True)
    assert view(store, now_ms=T0_MS).health == "paused"


def test_runs_are_paged_newest_first(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    for minute in range(5):
        run_tick(store, now_ms=T0_MS + minute * MINUTE_MS)
    monitor = get_monitor(store, "ann", "a")
    seen: list[str] = []
    before = None
    while True:
        page, before = monitor_runs(store, monitor, before=before, limit=2, now_ms=T0_MS)
        seen += [run.run[-1] for run in page]
        if before is None:
            break
    assert seen == ["4", "3", "2", "1", "0"]


def test_promise_12_a_run_is_shown_to_its_owner_and_to_an_admin_alone(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, check=OUTGOING)
    run_tick(store, now_ms=T0_MS)
    name = f"ann/a#{get_monitor(store, 'ann', 'a').generation}@0"
    assert show_run(store, name, viewer="ann", now_ms=T0_MS).state == "waiting"
    assert show_run(store, name, viewer=None, now_ms=T0_MS).run == name
    for run, viewer in ((name, "bob"), (name + "1", "ann"), ("nonsense", "ann"), ("ann/a#1@\u0661", None)):
        with pytest.raises(NotFound):
            show_run(store, run, viewer=viewer, now_ms=T0_MS)


def test_status_shows_lateness_and_queue_age(store: Store) -> None:
    empty = status_view(store, now_ms=T0_MS)
    assert (empty.queue_age_s, empty.late_s, empty.next_due) == (0.0, 0.0, None)
    put(store, "a", now_ms=T0_MS)
    assert status_view(store, now_ms=T0_MS + 5_000).late_s == 5.0
    run_tick(store, now_ms=T0_MS + 5_000)
    behind = status_view(store, now_ms=T0_MS + 7_000)
    assert (behind.queue_age_s, behind.late_s, behind.runs_waiting) == (7.0, 0.0, 1)
    assert behind.start_late_s == {"checks": 7.0, "outgoing": 0.0, "batches": 0.0, "workers": 0.0}

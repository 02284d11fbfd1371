"""Roll-ups count every outcome once, whichever process folds it, even after its run is purged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Dead, Done, Outcome, Unknown
from paceline.core.monitors.uptime.rollup import EndedRun, Rollup, days_until, fold
from paceline.core.monitors.values import CHECKS, RemoveMonitor
from paceline.ports import Store
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import (
    ALL_OUTGOING,
    DAY_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    claim,
    make_runs,
    put,
    settle,
)
from tests.support.uptime_oracle import naive_days, naive_incidents

OK, BAD = Done(ok=True, latency_ms=12.5), Done(ok=False, reason="HTTP 500", latency_ms=3.0)
PATTERN: tuple[Outcome, ...] = (OK, OK, BAD, BAD, OK, Dead("given up"), OK, Unknown("cut short"), BAD, OK, OK)


@pytest.fixture(autouse=True)
def folds_often() -> Iterator[None]:
    """A monitor is folded after so few runs that a short scene has several folds."""
    from paceline.adapters.aws import uptime as aws_uptime
    from paceline.adapters.sqlite.monitors import uptime as sqlite_uptime

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws_uptime, "FOLD_EVERY", 4)
        patch.setattr(sqlite_uptime, "FOLD_EVERY", 4)
        yield


def live(store: Store, monitor: Monitor, outcomes: Sequence[Outcome], *, first: int = 0) -> list[EndedRun]:
    """Makes and settles one run a minute. Returns the settled runs."""
    ended = []
    for counter, outcome in enumerate(outcomes, start=first):
        now_ms = T0_MS + counter * MINUTE_MS
        make_runs(store, monitor, now_ms=now_ms)
        claimed = claim(store, ALL_OUTGOING if monitor.spec.check == OUTGOING else CHECKS, now_ms=now_ms)
        assert settle(store, claimed, outcome, now_ms=now_ms + 7) == [True]
        ended.append(as_ended(counter, now_ms, outcome))
    return ended


def as_ended(counter: int, due_ms: int, outcome: Outcome) -> EndedRun:
    match outcome:
        case Done():
            state = "ok" if outcome.ok else "failed"
            return EndedRun(counter, due_ms, state, due_ms + 7, outcome.latency_ms, outcome.reason)  # type: ignore[arg-type]
        case Dead():
            return EndedRun(counter, due_ms, "dead", due_ms + 7, None, outcome.reason)
        case _:
            return EndedRun(counter, due_ms, "unknown", due_ms + 7, None, outcome.reason)


def agrees(store: Store, monitor: Monitor, ended: Sequence[EndedRun]) -> None:
    now_ms = T0_MS + DAY_MS
    [rollup] = store.uptimes([monitor], now_ms=now_ms)
    found = {
        number: (day.good_ms, day.known_ms, day.ok, day.failed, day.incidents, Counter(day.latencies))
        for number, day in days_until(rollup, now_ms).items()
    }
    assert found == naive_days(ended, now_ms)
    assert [(one.began_ms, one.ended_ms, one.reason) for one in rollup.incidents] == naive_incidents(ended)


def fold_all(store: Store) -> int:
    folded = 0
    for _ in range(100):
        done = store.fold_runs(limit=3)
        folded += done.runs
        if not done.more:
            return folded
    raise AssertionError("the round does not end")


def test_uptime_counts_each_outcome_once_before_and_after_it_is_folded(store: Store, by_request: bool) -> None:  # noqa: FBT001
    monitor, ended = armed(store, "a"), []
    for first in range(0, 11 if by_request else 55, 11):
        ended += live(store, monitor, PATTERN, first=first)
        agrees(store, monitor, ended)
        fold_all(store)
        agrees(store, monitor, ended)
    assert by_request or fold_all(store) == 0


def test_uptime_stays_when_the_runs_are_purged(store: Store) -> None:
    monitor = armed(store, "a")
    ended = live(store, monitor, PATTERN)
    now_ms = T0_MS + 2 * DAY_MS
    while store.purge(settled_before_ms=now_ms, due_before_ms=0, now_ms=now_ms, limit=4).more:
        pass
    assert store.monitor_runs(monitor, before=None, limit=99, now_ms=now_ms) == []
    agrees(store, monitor, ended)
    agrees(store, monitor, [*ended, *live(store, monitor, PATTERN[:5], first=len(PATTERN))])


def test_uptime_of_outgoing_runs_is_kept_as_that_of_checks(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    ended = live(store, monitor, PATTERN)
    fold_all(store)
    agrees(store, monitor, ended)


def test_runs_superseded_behind_an_open_one_keep_their_place_in_the_roll_up(store: Store) -> None:
    monitor = armed(store, "a", overlap="queue")
    catch_up = CatchUp(waiting_max=1)
    tick(store, now_ms=T0_MS, catch_up=catch_up)
    (hanging,) = claim(store, lease_ms=DAY_MS)
    for minute in range(1, 7):
        tick(store, now_ms=T0_MS + minute * MINUTE_MS, catch_up=catch_up)
    fold_all(store)
    now_ms = T0_MS + 10 * MINUTE_MS
    assert settle(store, [hanging], BAD, now_ms=now_ms) == [True]
    fold_all(store)
    (last,) = claim(store, now_ms=now_ms + MINUTE_MS)
    assert settle(store, [last], OK, now_ms=now_ms + 2 * MINUTE_MS) == [True]
    fold_all(store)
    told = [
        EndedRun(hanging.counter, hanging.due_ms, "failed", now_ms, 3.0, "HTTP 500"),
        EndedRun(last.counter, last.due_ms, "ok", now_ms + 2 * MINUTE_MS, 12.5, ""),
    ]
    agrees(store, monitor, told)


def test_two_processes_that_fold_at_once_count_each_outcome_once(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    ended = live(store, monitor, PATTERN[:6])
    fold_all(store)
    fold_all(other)
    ended += live(other, monitor, PATTERN[6:], first=6)
    store.purge(settled_before_ms=T0_MS + DAY_MS, due_before_ms=0, now_ms=T0_MS + DAY_MS, limit=5)
    fold_all(other)
    agrees(store, monitor, ended)
    agrees(other, monitor, ended)


def test_monitor_created_again_begins_without_the_roll_up_of_the_old_one(store: Store) -> None:
    live(store, armed(store, "a"), PATTERN)
    fold_all(store)
    assert store.remove_monitors([RemoveMonitor("ann", "a")]) == ["removed"]
    arm_all(store, T0_MS)
    monitor = put(store, "a").monitor
    assert monitor is not None
    arm_all(store, T0_MS)
    assert store.uptimes([monitor], now_ms=T0_MS) == [Rollup()]


def test_roll_up_that_was_put_goes_on_with_the_next_outcomes(store: Store) -> None:
    monitor = armed(store, "a")
    before = [EndedRun(-1 - back, T0_MS - back * MINUTE_MS, "ok", T0_MS - back * MINUTE_MS, 5.0, "") for back in (3, 2)]
    moved = fold(Rollup(counter=-100), before)
    moved = Rollup(-1, moved.at_ms, moved.good, moved.due_ms, moved.distances_ms, moved.days, moved.incidents)
    assert store.put_rollups([(monitor.generation, moved)]) == 1
    assert store.put_rollups([(monitor.generation, Rollup())]) == 0
    agrees(store, monitor, [*before, *live(store, monitor, PATTERN)])

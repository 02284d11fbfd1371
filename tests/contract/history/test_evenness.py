"""Evenly: ``verify`` judges the plan of a day and how late runs were caught up, on both engines."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from paceline.core.batches import day_plan, pace
from paceline.core.verify.evenly import first_burst_ms
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Verdict
from paceline.ports import Store
from paceline.steps.history.verify import verify
from tests.contract.support.batch_stage import plan, put_provider, put_records
from tests.contract.support.call_stage import claim, settle
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS

RECORDS = {"a": 64, "b": 16}
ROUNDS_MAX = 400


def evenness(store: Store, *, now_ms: int = T0_MS) -> Verdict:
    rules = Rules(now_ms, keep_ms=7 * DAY_MS, expire_ms=DAY_MS)
    report = verify(store, rules, progress=lambda _done, _total: None)
    assert {verdict.promise for verdict in report.verdicts if not verdict.passed} <= {"evenly"}, report
    return report.verdicts[2]


def plan_a_day(store: Store) -> None:
    for name in RECORDS:
        put_provider(store, name, max_in_flight=2)
    records = {f"{name}{number}": name for name, count in RECORDS.items() for number in range(count)}
    plan(store, put_records(store, records))


def catch_up(store: Store) -> int:
    """Makes no calls for half a day, then calls for four hours. Returns the time at the end."""
    now_ms = T0_MS + 22 * HOUR_MS
    for _ in range(ROUNDS_MAX):
        for call in claim(store, now_ms):
            assert settle(store, call, now_ms=now_ms)
        next_ms = store.next_call_ms()
        now_ms = max(now_ms + 1, next_ms or now_ms)
        if now_ms > T0_MS + 26 * HOUR_MS:
            return now_ms
    raise AssertionError("the calls never end")


def one_after_the_other(counts: Sequence[int]) -> list[array[int]]:
    """A plan without spreading: each provider gets one stretch of the day."""
    slots = iter(range(sum(counts)))
    return [array("I", [next(slots) for _ in range(count)]) for count in counts]


def test_plan_of_a_day_is_judged_and_passes(store: Store) -> None:
    plan_a_day(store)
    verdict = evenness(store)
    assert verdict.passed, verdict
    assert verdict.judged == sum(RECORDS.values())


def test_plan_that_is_not_spread_is_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_plan, "assign_slots", one_after_the_other)
    plan_a_day(store)
    verdict = evenness(store)
    assert verdict.smallest is not None
    assert "ideal" in verdict.smallest.says


def test_late_runs_that_are_caught_up_at_the_stated_pace_pass(store: Store) -> None:
    plan_a_day(store)
    verdict = evenness(store, now_ms=catch_up(store))
    assert verdict.passed, verdict


def test_late_runs_that_are_caught_up_in_a_burst_are_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "catch_up_gap_ms", lambda _backlog, **_when: 1)
    plan_a_day(store)
    verdict = evenness(store, now_ms=catch_up(store))
    assert verdict.smallest is not None
    assert "were caught up in a burst" in verdict.smallest.says


@pytest.mark.parametrize(("gap_ms", "burst"), [(100, False), (90, True)])
def test_starts_that_are_closer_than_the_pace_are_a_burst_once_the_slack_is_used_up(
    gap_ms: int, *, burst: bool
) -> None:
    starts = [gap_ms * number for number in range(60)]
    assert (first_burst_ms(starts, gap_us=100_000, slack_us=500_000) is not None) == burst

"""The order of a provider's records, and records that come after others, on every store."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from paceline.core.batches.batch import Batch, RecordSpec
from paceline.core.batches.records.options import RecordOptions
from paceline.core.batches.values import DeadChoice
from paceline.ports import Store
from paceline.steps.batches import batches, redrive
from tests.contract.support import batch_stage
from tests.contract.support.batch_stage import due_runs, put_batch, put_provider
from tests.contract.support.call_stage import claim, make_batch, names, plan, provide, run_of, settle
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS

NAMES = ["m", "z", "a", "q", "c", "x"]


def put(store: Store, batch: Batch, *records: tuple[str, str, dict[str, Any]]) -> list[str]:
    specs = [RecordSpec(name, provider, options=RecordOptions(**more)) for name, provider, more in records]
    return [one.disposition for one in batches.put_records(store, batch, specs, now_ms=T0_MS)]


def planned(store: Store) -> list[str]:
    """The records of the day in due order."""
    return [record for _, record in due_runs(store)]


def test_records_run_in_the_order_in_which_they_were_imported(store: Store) -> None:
    put_provider(store, "a", order="imported")
    batch = put_batch(store)
    assert put(store, batch, *((name, "a", {}) for name in NAMES)) == ["created"] * 6
    put(store, batch, ("late", "a", {}), ("m", "a", {"timeout": "5s"}))  # an edit keeps its place
    batch_stage.plan(store, batch)
    assert planned(store) == [*NAMES, "late"]
    assert [record.id for record in store.records_of(store.record_numbers(batch))] == [*NAMES, "late"]


def test_records_run_by_priority_the_higher_first(store: Store) -> None:
    put_provider(store, "a", order="priority")
    batch = put_batch(store)
    priorities = dict(zip(NAMES, (0, -1, 5, 5, 0, 9), strict=True))
    put(store, batch, *((name, "a", {"priority": priority}) for name, priority in priorities.items()))
    batch_stage.plan(store, batch)
    found = planned(store)
    assert [priorities[name] for name in found] == [9, 5, 5, 0, 0, -1]
    # The grid of times is the same in every order.
    times = [due_ms for due_ms, _ in due_runs(store)]
    assert {second - first for first, second in pairwise(times)} == {DAY_MS // 6}


def test_order_of_one_provider_leaves_the_times_of_others(store: Store) -> None:
    for name in ("a", "b"):
        put_provider(store, name)
    batch = put_batch(store)
    put(store, batch, *((f"{provider}{n}", provider, {"priority": n}) for provider in "ab" for n in range(5)))
    batch_stage.plan(store, batch)
    before = due_runs(store)
    put_provider(store, "a", order="priority")
    later = batch_stage.DATE.replace(day=23)
    batch_stage.plan(store, batch, day=later)
    after = [(due_ms - DAY_MS, record) for due_ms, record in due_runs(store, day=later)]
    assert [one for one in after if one[1].startswith("b")] == [one for one in before if one[1].startswith("b")]
    assert [record for _, record in after if record.startswith("a")] == ["a4", "a3", "a2", "a1", "a0"]


def test_record_that_comes_after_another_is_planned_behind_it(store: Store) -> None:
    for name in ("a", "b"):
        put_provider(store, name)
    batch = put_batch(store)
    chain = {name: {"after": before} for before, name in pairwise(NAMES)}
    put(store, batch, *((name, "ab"[index % 2], chain.get(name, {})) for index, name in enumerate(NAMES)))
    put(store, batch, *((f"other{n}", "ab"[n % 2], {}) for n in range(12)))
    batch_stage.plan(store, batch)
    assert [name for name in planned(store) if name in NAMES] == NAMES


def scene(store: Store, **policy: Any) -> Batch:
    """``second`` comes after ``first``, which is at another provider and was due a little earlier."""
    provide(store, "a", **policy)
    provide(store, "b", **policy)
    batch = make_batch(store)
    plan(store, batch, {"first": T0_MS}, provider="a")
    store.put_records(batch, [RecordSpec("second", "b", options=RecordOptions(after="first"))], now_ms=T0_MS)
    store.put_records(batch, [RecordSpec("third", "b")], now_ms=T0_MS)
    day = store.day(batch, "2026-09-21")
    assert day is not None
    numbers = {record: number for number, record in store.record_names(store.record_numbers(batch)).items()}
    provider = store.provider("b")
    assert provider is not None
    rows = ((numbers["second"], provider.number, T0_MS + 100), (numbers["third"], provider.number, T0_MS + 200))
    assert store.plan_late_records(day, batch_stage.placements(*rows)).enqueued == 2
    return batch


def test_follower_waits_until_the_run_before_it_is_done_and_lets_others_pass(store: Store) -> None:
    scene(store)
    (first,) = claim(store)
    assert names(claim(store, T0_MS + 200)) == ["third"]
    waiting = run_of(store, "second")
    assert waiting.state == "waiting"
    assert waiting.reason == "waits for 'first', which comes first and is out"
    assert waiting.due_ms > T0_MS + 200
    assert settle(store, first, now_ms=T0_MS + 300)
    assert store.verify() == []
    started: list[str] = []
    for second in range(1, 600):
        calls = claim(store, T0_MS + 1_000 * second)
        started += names(calls)
        assert all(settle(store, call, now_ms=T0_MS + 1_000 * second) for call in calls)
    assert "second" in started
    assert run_of(store, "second").state == "done"
    assert store.verify() == []


@pytest.mark.parametrize(
    ("state", "follows", "dead"),
    [("failed", "failed", True), ("unknown", "failed", True), ("skipped", "skipped", False)],
)
def test_follower_shares_the_fate_of_the_run_before_it(store: Store, state: str, follows: str, *, dead: bool) -> None:
    scene(store)
    (first,) = claim(store)
    assert settle(store, first, state, now_ms=T0_MS)
    assert names(claim(store, T0_MS + 200)) == ["third"]
    run = run_of(store, "second")
    assert (run.state, run.dead, run.attempt) == (follows, dead, 0)
    assert "'first', which comes first" in run.reason
    assert store.verify() == []


def test_redriven_together_a_follower_runs_after_its_predecessor(store: Store) -> None:
    scene(store)
    (first,) = claim(store)
    assert settle(store, first, "failed", now_ms=T0_MS)
    (third,) = claim(store, T0_MS + 200)
    assert settle(store, third, now_ms=T0_MS + 200)
    assert redrive.redrive(store, DeadChoice(batch="daily"), now_ms=T0_MS + HOUR_MS) == 2
    started: list[str] = []
    for second in range(1, 600):
        now_ms = T0_MS + HOUR_MS + 1_000 * second
        calls = claim(store, now_ms)
        started += names(calls)
        assert all(settle(store, call, now_ms=now_ms) for call in calls)
    assert started == ["first", "second"]


def test_follower_of_a_record_without_a_run_is_skipped_with_the_reason(store: Store) -> None:
    batch = scene(store)
    assert store.put_records(
        batch, [RecordSpec("second", "b", options=RecordOptions(after="nobody"))], now_ms=T0_MS
    ) == ["replaced"]
    claim(store, T0_MS + 200)
    run = run_of(store, "second")
    assert (run.state, run.reason) == ("skipped", "'nobody', which comes first, has no run on this day")


def test_two_records_that_wait_for_each_other_are_skipped_with_a_reason(store: Store) -> None:
    """An import refuses them; two imports at the same moment may not see each other."""
    batch = scene(store)
    store.put_records(batch, [RecordSpec("first", "a", options=RecordOptions(after="second"))], now_ms=T0_MS)
    (third,) = claim(store, T0_MS + 200)
    assert settle(store, third, now_ms=T0_MS + 200)
    now_ms = T0_MS + 3 * DAY_MS
    for _ in range(40):
        claim(store, now_ms)
        now_ms += HOUR_MS
    for name in ("first", "second"):
        assert run_of(store, name).state == "skipped"
        assert run_of(store, name).reason
    assert store.verify() == []


def test_record_after_a_missing_record_or_in_a_cycle_is_refused(store: Store) -> None:
    put_provider(store, "a")
    batch = put_batch(store)
    assert put(store, batch, ("x", "a", {"after": "nobody"}), ("y", "a", {"after": "y"})) == ["refused"] * 2
    assert put(store, batch, ("b", "a", {"after": "a"}), ("a", "a", {})) == ["created"] * 2
    assert put(store, batch, ("c", "a", {"after": "b"})) == ["created"]
    (refused,) = batches.put_records(
        store, batch, [RecordSpec("a", "a", options=RecordOptions(after="c"))], now_ms=T0_MS
    )
    assert refused.error is not None
    assert refused.error.errors[0].pointer == "/after"
    assert "a after c after b after a" in refused.error.errors[0].detail
    assert store.afters(batch, ["a", "b", "c", "nobody"]) == {"a": None, "b": "a", "c": "b"}

"""Which record gets which slot: a permutation of each provider's, stable, and predecessors first."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import Window
from paceline.core.batches.day_plan import DayPlan
from paceline.core.batches.order import CHAIN_MAX, chain_problem
from paceline.core.batches.provider import Order
from paceline.core.batches.unwanted import (
    WAIT_MS_MAX,
    WAIT_MS_MIN,
    DayFacts,
    Defer,
    End,
    Predecessor,
    RunFacts,
    judge_run,
)
from paceline.core.batches.values import PlanOrder

WINDOW = Window(0, 1_000_000)
counts = st.lists(st.integers(0, 8), min_size=1, max_size=4).filter(lambda each: sum(each) > 1)


def order_of(each: list[int], **more: object) -> PlanOrder:
    """Records are numbered so that neither their numbers nor their priorities rise with their places."""
    total = sum(each)
    records = array("q", [(7 * index) % total + 1 if total % 7 else total - index for index in range(total)])
    providers = [(number, count) for number, count in enumerate(each, start=1) if count]
    return msgspec.structs.replace(PlanOrder(providers, records, array("I", range(total))), **more)


def dues(order: PlanOrder, jitter_ms_max: int = 0) -> dict[int, tuple[int, int]]:
    """(provider, due time) of each record."""
    plan = DayPlan(order, WINDOW, batch="b", jitter_ms_max=jitter_ms_max)
    page = plan.page(0, {record: f"r{record}" for record in order.records})
    return {record: (provider, due_ms) for record, provider, due_ms in zip(*page, strict=True)}


def by_provider(found: dict[int, tuple[int, int]]) -> dict[int, list[int]]:
    """Each provider's records in due order."""
    ordered: dict[int, list[int]] = {}
    for record, (provider, _) in sorted(found.items(), key=lambda item: item[1][1]):
        ordered.setdefault(provider, []).append(record)
    return ordered


@given(counts, st.sampled_from(["imported", "priority"]), st.data())
def test_order_permutes_the_slots_of_its_provider_and_of_no_other(
    each: list[int], by: Order, data: st.DataObject
) -> None:
    plain = order_of(each)
    priorities = {record: data.draw(st.integers(-3, 3)) for record in plain.records}
    chosen = {number: by for number, _ in plain.providers if data.draw(st.booleans())}
    before, after = dues(plain), dues(order_of(each, orders=chosen, priorities=priorities))
    assert sorted(before.values()) == sorted(after.values())
    for provider, records in by_provider(after).items():
        unordered = by_provider(before)[provider]
        if provider not in chosen:
            assert records == unordered
        elif by == "imported":
            assert records == sorted(records)
        else:
            assert records == sorted(unordered, key=lambda record: -priorities[record])  # a stable sort


@given(counts, st.data())
def test_predecessor_has_an_earlier_slot_wherever_that_is_possible(each: list[int], data: st.DataObject) -> None:
    plain = order_of(each)
    records = list(plain.records)
    after: dict[int, int | None] = {}
    for index, record in enumerate(records[1:], start=1):
        if data.draw(st.booleans()):
            after[record] = data.draw(st.sampled_from(records[:index]))
    found = dues(order_of(each, after=after))
    assert sorted(found.values()) == sorted(dues(plain).values())
    assert found == dues(order_of(each, after=after))
    for record, before in after.items():
        assert before is not None
        if found[record][0] == found[before][0]:  # the same provider: always possible
            assert found[before][1] < found[record][1]


def test_record_after_one_of_another_provider_gets_a_later_time() -> None:
    plain = order_of([3, 3])
    first, last = by_provider(dues(plain))[1][0], by_provider(dues(plain))[2][-1]
    found = dues(order_of([3, 3], after={first: last}))
    assert found[last][1] < found[first][1] or found[last][1] == max(due for _, due in found.values())
    middle = by_provider(dues(plain))[2][1]
    found = dues(order_of([3, 3], after={first: middle}))
    assert found[middle][1] < found[first][1]


@pytest.mark.parametrize("after", [{1: None}, {1: 1}, {1: 2, 2: 1}, {1: 99}])
def test_predecessor_that_is_not_planned_or_a_circle_leaves_a_plan_whole(after: dict[int, int | None]) -> None:
    order = order_of([4])
    assert sorted(dues(msgspec.structs.replace(order, after=after)).values()) == sorted(dues(order).values())


@given(counts, st.integers(1, 100_000))
def test_jitter_keeps_the_order_of_a_provider(each: list[int], jitter_ms_max: int) -> None:
    order = order_of(each, orders={1: "imported"})
    assert by_provider(dues(order, jitter_ms_max)) == by_provider(dues(order))


def test_chain_is_refused_if_it_is_a_circle_too_long_or_begins_nowhere() -> None:
    known = {"a": None, "b": "a", "c": "b"}
    assert chain_problem("d", "c", known) is None
    circle = chain_problem("a", "c", known)
    assert circle is not None
    assert "a after c after b after a" in circle
    assert "'x'" in (chain_problem("d", "x", known) or "")
    assert chain_problem("d", "d", known | {"d": "d"}) is not None
    long = {f"r{n}": f"r{n - 1}" if n else None for n in range(CHAIN_MAX + 1)}
    assert chain_problem("new", f"r{CHAIN_MAX}", long) is not None


DAY = DayFacts("b", 1, "2026-11-15", 0, 1_000_000, False, False)


def judged(state: str | None, *, now_ms: int = 5_000, attempt: int = 0, date: str = "2026-11-15") -> object:
    facts = RunFacts("waiting", 0, 0, attempt, 0, 1, 1, Predecessor("first", state, 1_000))
    return judge_run(facts, DAY._replace(date=date), now_ms=now_ms)


def test_follower_starts_after_a_good_end_and_shares_every_other() -> None:
    assert judged("done") is None
    assert judged("failed") == End("failed", "'first', which comes first, is failed")
    assert judged("unknown") == End("failed", "'first', which comes first, is unknown")
    assert judged("skipped") == End("skipped", "'first', which comes first, was skipped")
    assert judged(None) == End("skipped", "'first', which comes first, has no run on this day")
    assert judged(None, date="2026-11-15~1") is None
    assert judged("failed", attempt=1) is None  # it has started before


@pytest.mark.parametrize("state", ["waiting", "out", "retry", "aside"])
def test_follower_waits_with_a_reason_and_not_for_ever(state: str) -> None:
    waits = judged(state)
    assert waits == Defer(5_000 + WAIT_MS_MIN, f"waits for 'first', which comes first and is {state}")
    early = judged(state, now_ms=0)
    assert isinstance(early, Defer)
    assert early.due_ms == 1_000 + WAIT_MS_MIN  # not before the other is due
    late = judged(state, now_ms=401_000)
    assert isinstance(late, Defer)
    assert late.due_ms == 401_000 + 100_000
    assert WAIT_MS_MIN < 100_000 < WAIT_MS_MAX
    ended = judged(state, now_ms=2_000_001)
    assert isinstance(ended, End)
    assert ended.state == "skipped"

"""Dead letters: listed, redriven once, in order and at a pace, or discarded."""

from __future__ import annotations

import pytest

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.values import DeadChoice
from paceline.ports import Store
from paceline.steps.batches.redrive import replay
from tests.contract.support.call_stage import (
    DATE,
    SECOND_MS,
    claim,
    every,
    make_batch,
    names,
    plan,
    provide,
    run_of,
    settle,
)
from tests.contract.support.stage import T0_MS

EVERYTHING = DeadChoice()
NOW_MS = T0_MS + 60_000


def bury(store: Store, count: int, *, provider: str = "a", batch: str = "daily", state: str = "failed") -> None:
    """Runs r0, r1, ... of the batch die one after the other."""
    provide(store, provider)
    plan(store, make_batch(store, batch), every(10, count), provider=provider)
    for index in range(count):
        (call,) = claim(store, T0_MS + index * 10)
        assert settle(store, call, state, now_ms=T0_MS + index * 10)


def dead(store: Store, choice: DeadChoice = EVERYTHING, *, limit: int = 100) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    after: int | None = 0
    while after is not None:
        page, after = store.dead(choice, after=after, limit=limit)
        assert len(page) <= limit
        assert all(run.dead and run.reason for run in page)
        found += [(run.batch, run.record) for run in page]
    return found


def redrive(store: Store, choice: DeadChoice = EVERYTHING, *, now_ms: int = NOW_MS, limit: int = 100) -> int:
    return store.redrive(choice, gap_ms=SECOND_MS, now_ms=now_ms, limit=limit)


def test_dead_letters_are_listed_in_pages_and_as_chosen(store: Store) -> None:
    bury(store, 3)
    bury(store, 2, provider="b", batch="second", state="unknown")
    assert dead(store, limit=2) == [
        ("daily", "r0"),
        ("daily", "r1"),
        ("daily", "r2"),
        ("second", "r0"),
        ("second", "r1"),
    ]
    assert dead(store, DeadChoice(provider="b")) == [("second", "r0"), ("second", "r1")]
    assert dead(store, DeadChoice(batch="daily", date=DATE)) == [("daily", "r0"), ("daily", "r1"), ("daily", "r2")]
    handle = run_of(store, "r1").handle
    assert dead(store, DeadChoice(handles=(handle, 12345))) == [("daily", "r1")]
    for nothing in (
        DeadChoice(provider="nobody"),
        DeadChoice(batch="none"),
        DeadChoice(batch="daily", date="2026-01-01"),
        DeadChoice(handles=()),
        DeadChoice(provider="b", handles=(handle,)),
    ):
        assert dead(store, nothing) == []
        assert redrive(store, nothing) == 0
        assert store.discard(nothing, limit=10) == 0


def test_promise_5_dead_letter_redriven_twice_comes_back_once_and_in_order(store: Store, other: Store) -> None:
    bury(store, 5)
    assert redrive(store, limit=3) == 3
    assert redrive(other) == 2
    assert redrive(store) == redrive(other) == 0
    assert dead(store) == []
    seen = []
    for turn in range(5):
        (call,) = claim(store, NOW_MS + turn * SECOND_MS)
        assert (call.attempt, call.lost) == (1, False)
        assert claim(other, NOW_MS + turn * SECOND_MS + 500) == []
        assert settle(store, call, now_ms=NOW_MS + turn * SECOND_MS)
        seen.append((call.record, call.due_ms))
    assert seen == [(f"r{index}", NOW_MS + index * SECOND_MS) for index in range(5)]
    assert [run_of(store, f"r{index}").state for index in range(5)] == ["done"] * 5


def test_promise_7_redriven_runs_keep_the_rate_of_their_provider(store: Store) -> None:
    bury(store, 3)
    provide(store, "a", rate="1/10s")
    assert redrive(store) == 3
    assert [run_of(store, f"r{index}").due_ms for index in range(3)] == [NOW_MS, NOW_MS + 10_000, NOW_MS + 20_000]


def test_run_that_dies_after_a_redrive_was_requested_is_not_redriven_by_it(store: Store) -> None:
    bury(store, 1)
    assert redrive(store) == 1
    (call,) = claim(store, NOW_MS + 5)
    assert settle(store, call, "failed", now_ms=NOW_MS + 9)
    assert redrive(store) == 0
    assert redrive(store, now_ms=NOW_MS + 9) == 1


@pytest.mark.parametrize(("policy", "lost"), [("retry", False), ("hold", False), ("look_up", True)])
def test_promise_9_an_unknown_run_is_asked_about_first_where_that_is_possible(
    store: Store, policy: str, *, lost: bool
) -> None:
    bury(store, 1, state="unknown")
    provide(store, "a", unknown=policy, look_up="/calls/{run}")
    assert redrive(store) == 1
    (call,) = claim(store, NOW_MS)
    assert call.lost is lost


def test_a_failed_run_is_redriven_to_the_provider_its_record_names_now(store: Store) -> None:
    bury(store, 2)
    provide(store, "b")
    store.put_records(make_batch(store), [RecordSpec("r0", "b", "/r0")], now_ms=NOW_MS)
    assert redrive(store) == 2
    assert [run_of(store, record).provider for record in ("r0", "r1")] == ["b", "a"]
    assert sorted(names(claim(store, NOW_MS))) == ["r0", "r1"]


def test_discarded_runs_are_no_dead_letters_and_stay_in_their_day(store: Store) -> None:
    bury(store, 3)
    assert store.discard(EVERYTHING, limit=2) == 2
    assert store.discard(EVERYTHING, limit=2) == 1
    assert store.discard(EVERYTHING, limit=2) == 0
    assert dead(store) == []
    assert redrive(store) == 0
    run = run_of(store, "r0")
    assert (run.state, run.dead) == ("failed", False)


def test_a_store_without_messages_in_dead_queues_replays_nothing(store: Store) -> None:
    assert replay(store, now_ms=NOW_MS)[:3] == (0, 0, 0)

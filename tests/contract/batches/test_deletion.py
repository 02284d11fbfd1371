"""A batch is deleted completely, in bounded passes: no run starts any more, and runs in flight end first."""

from __future__ import annotations

import pytest

from paceline.core.batches.batch import Batch, BatchSpec, RecordSpec
from paceline.core.batches.deletion import GRACE_MS
from paceline.core.batches.values import DeadChoice
from paceline.errors import NotFound
from paceline.ports import Store
from tests.contract.support.batch_stage import placements
from tests.contract.support.call_stage import DATE, LEASE_MS, claim, every, make_batch, names, plan, provide, settle
from tests.contract.support.stage import DAY_MS, T0_MS

LATER_MS = T0_MS + GRACE_MS + 1_000


def scene(store: Store) -> Batch:
    """A done run, a dead letter, one in back-off, one out, one that waits; and another batch at the same provider."""
    provide(store, "a", max_in_flight=9)
    batch = make_batch(store)
    plan(store, batch, every(10, 5))
    first, second, third, _ = claim(store, T0_MS + 30)
    assert settle(store, first, now_ms=T0_MS + 30)
    assert settle(store, second, "failed", now_ms=T0_MS + 30)
    assert settle(store, third, "retry", now_ms=T0_MS + 30, not_before_ms=T0_MS + DAY_MS)
    store.put_records(batch, [RecordSpec("off", "a", active=False)], now_ms=T0_MS)
    other = make_batch(store, "other")
    plan(store, other, {"kept": T0_MS + 500}, end_ms=T0_MS + DAY_MS + 1)
    return batch


def marked(store: Store, name: str = "daily") -> Batch:
    batch = store.mark_batch_deleted(name, now_ms=T0_MS + 40)
    assert batch is not None
    return batch


def delete_all(store: Store, *, now_ms: int, limit: int = 100) -> int:
    """Passes until the batch is gone. Returns how many it took."""
    for count in range(1, 100):
        batch = store.batch("daily")
        assert batch is not None
        if store.delete_batch_pass(batch, now_ms=now_ms, limit=limit).over:
            return count
    raise AssertionError("it does not end")


def test_deleted_batch_takes_its_records_days_runs_and_dead_letters_with_it(store: Store) -> None:
    batch = scene(store)
    marked(store)
    assert delete_all(store, now_ms=LATER_MS + LEASE_MS) <= 2
    assert store.batch("daily") is None
    assert [one.id for one in store.batches(after="", limit=9)] == ["other"]
    assert store.find_records(batch, after="", limit=9)[0] == []
    assert store.days(batch, before=None, limit=9) == []
    assert store.find_call_run("daily", "r0", DATE) is None
    assert store.dead(DeadChoice(), after=0, limit=9) == ([], None)
    status = store.status()
    assert (status.batches, status.calls_waiting, status.calls_aside, status.dead_letters) == (1, 1, 0, 0)
    assert store.verify() == []
    assert names(claim(store, T0_MS + 500)) == ["kept"]


def test_batch_that_is_being_deleted_starts_no_run_and_refuses_puts_and_plans(store: Store) -> None:
    batch = scene(store)
    before = marked(store)
    assert before.deleting is not None
    assert marked(store) == before
    assert names(claim(store, T0_MS + 400)) == []
    assert store.put_records(batch, [RecordSpec("new", "a")], now_ms=LATER_MS) == ["no_batch"]
    put = store.put_batch("daily", BatchSpec(), expected_revision=None, now_ms=LATER_MS)
    assert (put.disposition, put.batch) == ("deleting", before)
    with pytest.raises(NotFound):
        store.open_day(batch, "2026-10-01", start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    assert store.verify() == []


def test_page_that_comes_after_its_day_was_deleted_makes_no_run(store: Store) -> None:
    provider = provide(store, "a")
    batch = make_batch(store)
    day = plan(store, batch, every(10, 2))
    (number, *_) = store.record_numbers(batch)
    marked(store)
    delete_all(store, now_ms=LATER_MS)
    page = placements((number, provider, T0_MS + 900))
    assert store.plan_late_records(day, page).won is False
    assert store.plan_page(day, page, cursor=(provider, number), skipped=placements(), now_ms=LATER_MS).won is False
    assert store.next_call_ms() in (None, T0_MS)
    assert claim(store, LATER_MS) == []
    assert store.verify() == []


def test_run_in_flight_ends_before_it_is_deleted(store: Store) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 3))
    (out,) = claim(store)
    marked(store)
    done = store.delete_batch_pass(marked(store), now_ms=T0_MS + 50, limit=100)
    assert (done.runs, done.over) == (2, False)
    assert store.batch("daily") is not None
    assert settle(store, out, now_ms=T0_MS + 60)
    assert store.verify() == []
    assert delete_all(store, now_ms=LATER_MS) <= 2
    assert store.batch("daily") is None
    assert store.verify() == []


def test_deletion_passes_are_bounded_and_record_their_progress(store: Store) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 7))
    marked(store)
    first = store.delete_batch_pass(marked(store), now_ms=LATER_MS, limit=3)
    assert (first.runs, first.records, first.over) == (3, 0, False)
    there = store.batch("daily")
    assert there is not None
    assert there.deleting is not None
    assert (there.deleting.runs, there.deleting.records) == (3, 0)
    assert store.verify() == []
    assert delete_all(store, now_ms=LATER_MS, limit=3) >= 4
    assert store.verify() == []


def test_batch_with_the_name_of_a_deleted_batch_is_new(store: Store) -> None:
    batch = scene(store)
    marked(store)
    delete_all(store, now_ms=LATER_MS + LEASE_MS)
    again = make_batch(store)
    assert again.number != batch.number
    assert (again.revision, again.deleting, again.spec.paused) == (1, None, False)
    assert store.put_records(again, [RecordSpec("r0", "a", "/r0")], now_ms=LATER_MS) == ["created"]
    assert [record.id for record in store.find_records(again, after="", limit=9)[0]] == ["r0"]
    assert store.mark_batch_deleted("nobody", now_ms=T0_MS) is None
    assert store.verify() == []

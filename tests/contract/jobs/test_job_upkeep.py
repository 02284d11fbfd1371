"""Retention of jobs: bounded, with balanced books, and never of a job that still has a webhook or a slot."""

from __future__ import annotations

from paceline.core.jobs.values import Admitted, NotSent, StoredJob
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.monitors.test_races import race
from tests.contract.support.job_stage import (
    add_account,
    admitted,
    begin,
    done,
    job_of,
    limit,
    money,
    quotas,
    send,
    submission,
    submit,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS

LATER_MS = T0_MS + 3 * DAY_MS


def finished_job(store: Store, key: str, count: int = 1, *, webhook: str | None = None) -> StoredJob:
    """Makes a job whose measurements were all sent and have ended."""
    job = admitted(store, count, webhook=webhook)
    for _ in range(count):
        done(store, send(store, key), spent=42)
    [found] = store.finish_jobs(now_ms=T0_MS, limit=10)
    assert found.id == job.id
    return found


def purge(store: Store, *, before_ms: int = T0_MS + 1, limit: int = 100) -> int:
    removed = store.purge_jobs(finished_before_ms=before_ms, limit=limit)
    assert store.verify() == []
    return removed


def test_old_finished_job_is_purged_and_its_meters_are_unchanged(store: Store) -> None:
    key = add_account(store)
    job = finished_job(store, key, 3)
    kept = admitted(store, 2)
    before = (money(store), quotas(store))
    assert purge(store, before_ms=T0_MS) == 0
    assert purge(store) == 3
    assert (store.job(job.id), store.jobs("ann", before=None, limit=10)) == (None, [job_of(store, kept)])
    assert (money(store), quotas(store)) == before == ((126, 120), quotas(store))
    assert purge(store) == 0
    assert store.measurements(job.number, after=-1, limit=10) == []
    assert store.measurement(job.number << 14) is None


def test_large_job_is_purged_in_pieces_and_hidden_from_the_first_piece_on(store: Store) -> None:
    key = add_account(store)
    limit(store, 10**6)
    submitted = submit(store, submission(5, key="k"))
    assert isinstance(submitted, Admitted)
    for _ in range(5):
        done(store, send(store, key))
    store.finish_jobs(now_ms=T0_MS, limit=10)
    assert purge(store, limit=2) == 2
    assert (store.job(submitted.job.id), store.jobs(None, before=None, limit=10)) == (None, [])
    assert store.submitted_as("ann", "k") is None
    assert (store.measurements_of("ann", states=[], before=None, limit=10), store.count_of("ann", states=[])) == ([], 0)
    assert isinstance(submit(store, submission(1, key="k")), Admitted)
    assert [purge(store, limit=2) for _ in range(3)] == [2, 1, 0]
    assert money(store) == (300, 60)


def test_purge_pass_removes_several_jobs_up_to_its_limit(store: Store) -> None:
    key = add_account(store)
    for _ in range(3):
        finished_job(store, key, 2)
    assert [purge(store, limit=3) for _ in range(3)] == [3, 3, 0]


def test_a_job_stays_while_its_webhook_is_to_be_called_or_a_slot_of_it_is_held(store: Store) -> None:
    key = add_account(store)
    told = finished_job(store, key, webhook="https://example.org/hook")
    assert purge(store) == 0
    assert store.note_webhook(told.number, tries=0, next_ms=None)
    assert purge(store) == 1
    admitted(store)
    item = send(store, key)
    done(store, item, frees_slot=False)
    store.finish_jobs(now_ms=T0_MS, limit=1)
    assert purge(store) == 0
    store.free_slots([(item.handle, item.attempt)], now_ms=T0_MS)
    assert purge(store) == 1


def test_unfinished_job_is_never_removed(store: Store) -> None:
    key = add_account(store)
    admitted(store, 2)
    done(store, send(store, key))
    begin(store, key)
    assert purge(store, before_ms=LATER_MS) == 0
    assert len(store.measurements_of("ann", states=[], before=None, limit=10)) == 2


def test_the_holds_of_every_attempt_go_with_their_measurement(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    for _ in range(3):
        begun = begin(store, key)
        store.answer(begun.handle, begun.attempt, NotSent("refused"), now_ms=T0_MS)
    done(store, send(store, key))
    store.finish_jobs(now_ms=T0_MS, limit=1)
    assert purge(store) == 1
    assert quotas(store) == {"concurrent": (0, 0), "results": (10, 0), "credits": (60, 0)}


def test_usage_of_an_account_expires_once_before_or_after_its_job_is_removed(store: Store) -> None:
    key = add_account(store)
    finished_job(store, key)
    after_ms = T0_MS + DAY_MS + MINUTE_MS
    assert purge(store) == 1
    assert quotas(store)["credits"] == (42, 0)
    assert store.sync_account("lab", [], now_ms=after_ms)
    admitted(store)
    late = send(store, key, now_ms=after_ms)  # takes the first one's credits off the meter
    done(store, late, spent=30, now_ms=after_ms)
    assert quotas(store, now_ms=after_ms)["credits"] == (30, 0)
    store.finish_jobs(now_ms=after_ms, limit=1)
    # Its expiry is added up first, its postings long after it.
    admitted(store)
    begin(store, key, now_ms=after_ms + 2 * DAY_MS)
    assert purge(store, before_ms=after_ms, limit=100) == 0
    assert quotas(store, now_ms=after_ms + 2 * DAY_MS)["credits"] == (0, 60)
    assert purge(store, before_ms=after_ms + 2 * DAY_MS) == 1
    assert quotas(store, now_ms=after_ms + 2 * DAY_MS)["credits"] == (0, 60)


def test_a_users_day_is_forgotten_when_it_is_over_and_no_job_names_it(store: Store) -> None:
    key = add_account(store)
    finished_job(store, key)
    assert purge(store, before_ms=T0_MS + 1) == 1
    assert money(store) == (42, 0)  # the day is not over: what was spent of it still counts
    assert purge(store, before_ms=T0_MS + HOUR_MS) == 0
    assert money(store) == (42, 0)
    admitted(store)
    assert purge(store, before_ms=LATER_MS) == 0
    assert money(store) == (42, 60)  # a job of it still runs
    done(store, send(store, key))
    store.finish_jobs(now_ms=T0_MS, limit=1)
    assert purge(store, before_ms=LATER_MS) == 1
    assert money(store) == (0, 0)


def test_concurrent_purges_remove_each_measurement_once(store: Store, store_factory: Opener) -> None:
    key = add_account(store)
    for _ in range(4):
        finished_job(store, key, 5)

    def work(handle: Store) -> int:
        return sum(handle.purge_jobs(finished_before_ms=T0_MS + 1, limit=3) for _ in range(8))

    assert sum(race(work, store_factory)) == 20
    assert quotas(store)["credits"] == (20 * 42, 0)

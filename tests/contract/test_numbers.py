"""Definitions are numbered one after the other, in blocks of their jobs: the ids of RIPE's clients follow from it."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.jobs.values import Admitted
from paceline.ports import Store
from tests.contract.support.job_stage import admitted, limit, ping, submission, submit
from tests.contract.support.stage import T0_MS


def test_numbers_of_jobs_follow_one_another_and_lead_back(store: Store, other: Store) -> None:
    jobs = [admitted(store), admitted(other), admitted(store)]
    rows = [one for job in jobs for one in store.measurements(job.number, after=-1, limit=10)]
    numbers = [one.number for one in rows]
    assert numbers == sorted(number for number in numbers if number is not None)
    assert len(set(numbers)) == len(rows)
    assert numbers[-1] is not None
    assert numbers[-1] < 100, "they are dense"
    for row in rows:
        assert row.number is not None
        assert other.handle_of_number(row.number) == (row.handle, 0)


def test_measurements_of_a_job_have_as_many_numbers_each_as_the_largest_needs(store: Store) -> None:
    limit(store, 10_000)
    item = submission(3)
    mixed = (item.job.measurements[0], ping(definitions=3), item.job.measurements[2])
    made = submit(store, replace(item, job=replace(item.job, measurements=mixed)))
    assert isinstance(made, Admitted)
    rows = store.measurements(made.job.number, after=-1, limit=10)
    first = rows[0].number
    assert first is not None
    assert [one.number for one in rows] == [first, first + 3, first + 6]
    assert store.handle_of_number(first + 5) == (rows[1].handle, 2)
    assert store.handle_of_number(first + 9) is None
    assert store.handle_of_number(first + 10**9) is None


def test_number_of_a_removed_job_leads_nowhere(store: Store) -> None:
    job = admitted(store)
    [row] = store.measurements(job.number, after=-1, limit=1)
    assert row.number is not None
    assert store.cancel_job(job.number, now_ms=T0_MS)
    store.finish_jobs(now_ms=T0_MS, limit=10)
    while store.purge_jobs(finished_before_ms=T0_MS + 1, limit=100):
        pass
    assert store.handle_of_number(row.number) is None

"""Jobs larger than a transaction: admitted whole or not at all, cancelled in pieces, whatever is cut short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from paceline.adapters.aws.jobs.submit import GIVEN_UP_MS
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import Measurement, Ping, Probes
from paceline.core.jobs.values import Admitted, MeasurementEnd, OverCredits, Sent, StoredMeasurement
from tests.aws.support.jobs_bench import AwsBench, Cut
from tests.contract.support.job_stage import add_account, again, job_of, limit, money, submission, submit
from tests.contract.support.stage import T0_MS, user

pytestmark = pytest.mark.aws
LARGE = 230
"""Ten batches of rows, and three pieces of a cancel."""


@pytest.fixture
def bench() -> Iterator[AwsBench]:
    with closing(AwsBench()) as made:
        for name in ("ann", "bob"):
            made.store.add_user(user(name))
            limit(made.store, 10**6, owner=name)
        yield made


def test_a_job_larger_than_a_transaction_is_admitted_sent_and_cancelled(bench: AwsBench) -> None:
    store, key = bench.store, add_account(bench.store)
    found = submit(store, submission(1_100))
    assert isinstance(found, Admitted)
    assert store.job_counts(found.job.number) == {"queued": 1_100}
    assert [one.index for one in store.measurements(found.job.number, after=1_020, limit=6)] == [*range(1_021, 1_027)]
    newest = store.measurements_of("ann", states=[], before=None, limit=80)
    assert [one.index for one in newest] == [*range(1_099, 1_019, -1)]
    [head] = store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)
    begun = store.begin_send(head, account="lab", key=key, sending_max=1, now_ms=T0_MS)
    assert isinstance(begun, StoredMeasurement)
    assert store.cancel_job(found.job.number, now_ms=T0_MS)
    assert (job_of(store, found.job).cancelled, again(store, begun).stopping) == (1_099, True)
    assert money(store) == (0, 60)
    assert store.verify_jobs() == []


def test_rows_of_an_unfinished_submission_are_invisible_and_swept(bench: AwsBench) -> None:
    requests = len(bench.requests(lambda store: submit(store, submission(LARGE, owner="bob"))))
    # Before its note, its first, middle and last rows, its admission; the last request only bumps the change counter.
    for cut in (3, 4, 5, requests // 2, requests - 3, requests - 2):
        assert bench.act(lambda store: submit(store, submission(LARGE, key="k")), cut=cut) is None
        store = bench.store
        assert (store.jobs("ann", before=None, limit=10), money(store)) == ([], (0, 0))
        assert store.next_to_send(now_ms=T0_MS, users_max=9, each_max=300)[0].owner == "bob"
        assert store.measurements_of("ann", states=[], before=None, limit=10) == []
        assert store.verify_jobs() == []
    assert isinstance(submit(bench.store, submission(2, key="k")), Admitted)
    seen = bench.store.next_to_send(now_ms=T0_MS, users_max=9, each_max=9)
    assert sum(one.owner == "ann" for one in seen) == 2
    left = bench.books()
    assert left.submitting
    for round_ in (1, 1, 2, 2):
        bench.store.finish_jobs(now_ms=T0_MS + round_ * (GIVEN_UP_MS + 1), limit=1)
    after = bench.books()
    assert after.submitting == set()
    assert len(after.rows) == LARGE + 2
    assert bench.store.verify_jobs() == []


def test_a_submission_that_was_swept_is_not_admitted_after_all(bench: AwsBench) -> None:
    """The process only slept: it finds its note gone, writes its rows again and is admitted with these rows."""
    swept: list[bool] = []

    def sleep(model: object, **_: object) -> None:
        if getattr(model, "name", "") == "BatchWriteItem" and not swept:
            swept.append(True)
            bench.other().finish_jobs(now_ms=T0_MS + GIVEN_UP_MS + 1, limit=1)

    events = bench._clients.dynamodb.meta.events
    events.register("before-call.dynamodb", sleep)
    try:
        found = submit(bench.store, submission(LARGE))
    finally:
        events.unregister("before-call.dynamodb", sleep)
    assert isinstance(found, Admitted)
    assert swept
    assert bench.store.job_counts(found.job.number) == {"queued": LARGE}
    assert (len(bench.books().rows), bench.books().submitting) == (LARGE, set())
    assert bench.store.verify_jobs() == []


def test_rows_written_after_the_sweep_of_an_unfinished_submission_are_swept_too(bench: AwsBench) -> None:
    requests = len(bench.requests(lambda store: submit(store, submission(LARGE, owner="bob"))))
    asked = iter(range(requests))

    def sleep_and_die(model: object, **_: object) -> None:
        number = next(asked, requests)
        if number == 4:  # its note is there, and none of its rows
            bench.other().finish_jobs(now_ms=T0_MS + GIVEN_UP_MS + 1, limit=1)
        if getattr(model, "name", "") == "TransactWriteItems":
            raise Cut

    events = bench._clients.dynamodb.meta.events
    events.register("before-call.dynamodb", sleep_and_die)
    try:
        with pytest.raises(Cut):
            submit(bench.store, submission(LARGE))
    finally:
        events.unregister("before-call.dynamodb", sleep_and_die)
    assert len(bench.books().rows) > LARGE, "some came after it was swept"
    bench.store.finish_jobs(now_ms=T0_MS + 2 * (GIVEN_UP_MS + 1), limit=1)
    assert (len(bench.books().rows), bench.books().submitting) == (LARGE, set())
    assert bench.store.verify_jobs() == []


def test_cancel_interrupted_in_the_middle_is_completed_later(bench: AwsBench) -> None:
    add_account(bench.store)
    found = submit(bench.store, submission(LARGE))
    assert isinstance(found, Admitted)
    whole = len(bench.requests(lambda store: store.job_counts(found.job.number)))
    assert bench.act(lambda store: store.cancel_job(found.job.number, now_ms=T0_MS), cut=whole + 4) is None
    job = job_of(bench.store, found.job)
    assert 0 < job.cancelled < LARGE
    assert (job.state, money(bench.store)) == ("cancelling", (0, 60 * (LARGE - job.cancelled)))
    assert bench.store.verify_jobs() == []
    [finished] = bench.store.finish_jobs(now_ms=T0_MS + 1, limit=9)
    assert (finished.id, finished.cancelled, finished.refunded) == (found.job.id, LARGE, LARGE * 60)
    assert money(bench.store) == (0, 0)
    assert bench.store.verify_jobs() == []


def test_large_job_over_its_credits_leaves_no_rows(bench: AwsBench) -> None:
    limit(bench.store, 60 * LARGE - 1)
    assert isinstance(submit(bench.store, submission(LARGE)), OverCredits)
    assert bench.books().rows == {}


def test_a_measurement_of_a_hundred_definitions_is_sent_ended_and_removed(bench: AwsBench) -> None:
    store, key = bench.store, add_account(bench.store)
    found = submit(store, submission(1, cost=Cost(6_000, 1_000, 100, 6_000, 1_000)))
    assert isinstance(found, Admitted)
    [head] = store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)
    assert isinstance(store.begin_send(head, account="lab", key=key, sending_max=1, now_ms=T0_MS), StoredMeasurement)
    assert store.answer(head.handle, 1, Sent(tuple(range(100, 200))), now_ms=T0_MS)
    sent = store.measurement(head.handle)
    assert sent is not None
    assert [one.atlas_id for one in sent.atlas] == list(range(100, 200))
    assert store.slots_seen("lab", [100, 199, 200]) == 2
    assert store.cancel_job(found.job.number, now_ms=T0_MS)
    ending = MeasurementEnd(head.handle, 1, "cancelled", "", 0, 0, frees_slot=True)
    assert store.end([ending], now_ms=T0_MS)[0].won
    assert len(store.finish_jobs(now_ms=T0_MS, limit=1)) == 1
    assert store.purge_jobs(finished_before_ms=T0_MS + 1, limit=10) == 1
    assert (store.measurement(head.handle), store.slots_seen("lab", [100, 199])) == (None, 0)
    assert store.verify_jobs() == []


def test_largest_allowed_measurements_are_stored_whole(bench: AwsBench) -> None:
    """A transaction takes 4 MB and an item 400 KB; the words of a hundred definitions come near both."""
    words = ("".join(f"{number:x}" for number in range(400)))[:1_000]
    item = submission(60, cost=Cost(6_000, 1_000, 100, 6_000, 1_000))
    large = Measurement(
        tuple(
            Ping(description=f"{number}{words}", af=4, target="192.0.2.1", tags=(words[:64],) * 20)
            for number in range(100)
        ),
        (Probes(10, "area", "WW"),),
        is_oneoff=True,
    )
    job = msgspec.structs.replace(item.job, measurements=(large,) * 60)
    found = submit(bench.store, msgspec.structs.replace(item, job=job))
    assert isinstance(found, Admitted)
    assert bench.store.measurements(found.job.number, after=58, limit=1)[0].measurement == large
    assert bench.store.cancel_job(found.job.number, now_ms=T0_MS)
    assert len(bench.store.finish_jobs(now_ms=T0_MS, limit=1)) == 1
    assert bench.store.purge_jobs(finished_before_ms=T0_MS + 1, limit=100) == 60
    assert bench.books().rows == {}
    assert bench.store.verify_jobs() == []

"""How many requests a measurement takes of DynamoDB: what was read is not read again before it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from paceline.adapters.aws.store import AwsStore
from paceline.core.jobs.meters import Short
from paceline.core.jobs.values import (
    AccountClosed,
    AccountSpec,
    Busy,
    MeasurementEnd,
    MeasurementProgress,
    NotSent,
    Paused,
    Sent,
    StoredMeasurement,
    TargetFull,
    Unsure,
)
from paceline.steps.views.job_report import job_progress
from tests.aws.support.jobs_bench import AwsBench
from tests.contract.support.job_stage import add_account, admitted, begin, heads, limit, send, submission, submit
from tests.contract.support.stage import DAY_MS, T0_MS, user

pytestmark = pytest.mark.aws
TARGET = "192.0.2.1"
"""The target of every measurement in this file."""
ONE_WRITE = {"TransactWriteItems": 1}
READ_AND_WRITE = {"BatchGetItem": 1, "TransactWriteItems": 1}


@pytest.fixture
def bench() -> Iterator[AwsBench]:
    with closing(AwsBench()) as made:
        made.store.add_user(user("ann"))
        limit(made.store, 10**6)
        yield made


def taken(bench: AwsBench, work: Callable[[AwsStore], object]) -> Counter[str]:
    return Counter(bench.requests(work))


def begun_with(bench: AwsBench, item: StoredMeasurement, key: str, *, now_ms: int = T0_MS) -> Counter[str]:
    return taken(bench, lambda store: store.begin_send(item, account="lab", key=key, sending_max=9, now_ms=now_ms))


def ending_of(item: StoredMeasurement) -> MeasurementEnd:
    return MeasurementEnd(item.handle, item.attempt + 1, "done", "", 42, 7, frees_slot=True)


def test_requests_to_aws_for_a_submission_are_bounded(bench: AwsBench) -> None:
    # The user, the day with its queue, a number, the whole job, and a bump of the change counter for other processes.
    small = {"GetItem": 1, "BatchGetItem": 1, "UpdateItem": 2, "TransactWriteItems": 1}
    assert taken(bench, lambda store: submit(store, submission(10))) == small
    # The same, with a note before and ten batches of 25 rows.
    large = small | {"PutItem": 1, "BatchWriteItem": 10}
    assert taken(bench, lambda store: submit(store, submission(250))) == large


def test_poll_for_the_next_send_reads_all_its_items_in_one_request(bench: AwsBench) -> None:
    add_account(bench.store)
    submit(bench.store, submission(10))
    # What is due again, the line, the user's queue; then turns, users, measurements and their jobs together.
    look = {"Query": 3, "BatchGetItem": 1}
    assert taken(bench, lambda store: store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)) == look
    assert taken(bench, lambda store: store.next_to_send(now_ms=T0_MS, users_max=9, each_max=9)) == look


def test_begin_answer_and_end_of_a_cached_measurement_take_one_request_each(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(2))
    # The first that an account settles says since when there is something to release, and learns that by losing.
    # Each freed slot bumps the change counter for the dispatchers of other processes; this process runs no loops.
    assert sent_and_ended(bench, key) == {"BatchGetItem": 1, "TransactWriteItems": 2, "UpdateItem": 1}
    assert sent_and_ended(bench, key) == ONE_WRITE | {"UpdateItem": 1}
    assert bench.store.verify_jobs() == []


def sent_and_ended(bench: AwsBench, key: str) -> Counter[str]:
    """Whatever is next, each step of it; what its end took."""
    [item] = heads(bench.store)
    bench.store.gates([TARGET])
    assert begun_with(bench, item, key) == ONE_WRITE
    sent, progress = Sent((item.handle,)), MeasurementProgress(item.handle, 1, ((2, 7),))
    assert taken(bench, lambda store: store.answer(item.handle, 1, sent, now_ms=T0_MS)) == ONE_WRITE
    assert taken(bench, lambda store: store.note_progress([progress])) == {"UpdateItem": 1}
    return taken(bench, lambda store: store.end([ending_of(item)], now_ms=T0_MS))


def test_process_reads_unknown_measurements_once_and_in_one_request(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(6))
    first = begin(bench.store, key)
    bench.store = bench.other()
    # Row, job, line and gate; then account and targets.
    unsure = taken(bench, lambda store: store.answer(first.handle, 1, Unsure("", T0_MS + 1), now_ms=T0_MS))
    assert unsure == {"BatchGetItem": 2, "TransactWriteItems": 1}
    items = heads(bench.store, each_max=5)
    for item in items:
        begin(bench.store, key)
        assert bench.store.answer(item.handle, 1, Sent((item.handle,)), now_ms=T0_MS)
    bench.store = bench.other()
    ended = taken(bench, lambda store: store.end([ending_of(item) for item in items], now_ms=T0_MS))
    assert ended == {"BatchGetItem": 2, "TransactWriteItems": 6, "UpdateItem": 1}
    assert bench.store.verify_jobs() == []


def test_waiting_measurements_are_parked_in_one_request(bench: AwsBench) -> None:
    bench.store.add_user(user("bob"))
    limit(bench.store, 10**6, owner="bob")
    for owner in ("ann", "bob"):
        submit(bench.store, submission(6, owner=owner))
    fences = [(item.handle, item.attempt) for item in heads(bench.store, each_max=6)]
    assert len(fences) == 12
    assert taken(bench, lambda store: store.park(fences, next_ms=T0_MS + 1, reason="full")) == ONE_WRITE
    assert bench.store.send_counts().parked == 12
    assert bench.store.verify_jobs() == []


def test_job_progress_reads_no_states_whose_count_is_zero(bench: AwsBench) -> None:
    key = add_account(bench.store)
    older, job = admitted(bench.store, 2), admitted(bench.store, 1, owner="ann")
    assert bench.store.park([(item.handle, 0) for item in heads(bench.store, each_max=2)], next_ms=T0_MS + 1, reason="")
    assert send(bench.store, key).job == job.id
    asked = taken(bench, lambda store: job_progress(store, job, now_ms=T0_MS, viewer="ann"))
    assert asked == {"GetItem": 2, "Query": 2, "BatchGetItem": 1}, "the states of its measurements, and when they end"
    waits = job_progress(bench.store, older, now_ms=T0_MS, viewer="ann").waiting
    assert waits is not None


def test_a_send_opens_the_key_that_was_read_with_its_account(bench: AwsBench) -> None:
    key = add_account(bench.store)
    assert bench.store.accounts(now_ms=T0_MS, releases_until_ms=T0_MS)
    assert taken(bench, lambda store: store.sealed_key("lab", key)) == {}
    assert taken(bench, lambda store: store.sealed_key("lab", key)) == {"GetItem": 1}
    assert bench.store.accounts(now_ms=T0_MS, releases_until_ms=T0_MS)
    assert bench.store.remove_key("lab", key)
    assert bench.store.sealed_key("lab", key) is None


# -- a cached row is only a guess


def test_stale_cached_measurement_is_read_again_before_it_is_judged(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(4))
    other = bench.other()
    fresh, gone, back, parked = heads(bench.store, each_max=4)
    assert other.cancel_measurement(gone.handle, now_ms=T0_MS)
    assert begun_with(bench, gone, key) == READ_AND_WRITE, "it asks, and writes nothing"
    assert bench.store.begin_send(gone, account="lab", key=key, sending_max=9, now_ms=T0_MS) is None
    # Parked and woken by another: it is queued at the same attempt, as another version.
    assert other.park([(back.handle, 0)], next_ms=T0_MS, reason="full") == [True]
    assert len(heads(other, each_max=9)) == 3
    assert begun_with(bench, back, key) == {"BatchGetItem": 1, "TransactWriteItems": 2}
    assert other.park([(parked.handle, 0)], next_ms=T0_MS + 9, reason="full") == [True]
    fences = [(parked.handle, 0), (fresh.handle, 0)]
    assert bench.store.park(fences, next_ms=T0_MS + 5, reason="full") == [False, True]
    assert bench.store.verify_jobs() == []


def test_limit_of_sends_in_progress_counts_the_sends_of_other_processes(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(2))
    first, second = heads(bench.store, each_max=2)
    other = bench.other()
    assert isinstance(other.begin_send(first, account="lab", key=key, sending_max=1, now_ms=T0_MS), StoredMeasurement)
    assert bench.store.begin_send(second, account="lab", key=key, sending_max=1, now_ms=T0_MS) == Busy()
    # Once it has seen that, it asks before it writes.
    [second] = heads(bench.store)
    again = taken(bench, lambda store: store.begin_send(second, account="lab", key=key, sending_max=1, now_ms=T0_MS))
    assert again == {"BatchGetItem": 1}


def test_expired_usage_makes_room_also_for_cached_measurements(bench: AwsBench) -> None:
    key = add_account(bench.store, spec=AccountSpec(daily_credits=60))
    submit(bench.store, submission(2))
    begun = begin(bench.store, key)
    assert bench.store.answer(begun.handle, 1, Sent((1,)), now_ms=T0_MS)
    assert bench.store.end([MeasurementEnd(begun.handle, 1, "done", "", 60, 10, frees_slot=True)], now_ms=T0_MS)[0].won
    [item] = heads(bench.store)
    assert isinstance(bench.store.begin_send(item, account="lab", key=key, sending_max=9, now_ms=T0_MS), Short)
    later_ms = T0_MS + DAY_MS + 60_000
    [item] = heads(bench.store, now_ms=later_ms)
    begun_later = bench.store.begin_send(item, account="lab", key=key, sending_max=9, now_ms=later_ms)
    assert isinstance(begun_later, StoredMeasurement)
    assert bench.store.verify_jobs() == []


def test_successful_send_clears_consecutive_refusals_of_other_processes(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(3))
    first, second = begin(bench.store, key), begin(bench.store, key)
    bench.store.gates([TARGET])
    assert bench.store.answer(first.handle, 1, NotSent("no"), effect=Paused(T0_MS, 3, "busy"), now_ms=T0_MS)
    full = TargetFull(TARGET, T0_MS, 2, "full")
    assert bench.other().answer(second.handle, 1, NotSent("no"), effect=full, now_ms=T0_MS)
    third = begin(bench.store, key)
    bench.store.gates([TARGET])
    assert bench.store.answer(third.handle, third.attempt, Sent((1,)), now_ms=T0_MS)
    assert bench.store.gates([TARGET]) == (Paused(T0_MS, 0, "busy"), [])


def test_successful_send_clears_recent_refusals(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(2))
    first = begin(bench.store, key)
    bench.store.gates([TARGET])
    assert bench.store.answer(first.handle, 1, NotSent("no"), effect=Paused(T0_MS, 3, "busy"), now_ms=T0_MS)
    second = begin(bench.store, key)
    assert bench.store.answer(second.handle, second.attempt, Sent((1,)), now_ms=T0_MS)
    assert bench.store.gates([TARGET]) == (Paused(T0_MS, 0, "busy"), [])


def test_successful_send_clears_the_reason_why_its_account_was_closed(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(3))
    first = begin(bench.store, key)
    closed = AccountClosed(T0_MS, "RIPE said so")
    assert bench.store.answer(first.handle, 1, NotSent("no"), effect=closed, now_ms=T0_MS)
    second = begin(bench.store, key)
    bench.store.gates([TARGET])
    assert bench.store.answer(second.handle, second.attempt, Sent((1,)), now_ms=T0_MS)
    found = bench.store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert found.reason == ""

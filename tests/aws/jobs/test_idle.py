"""Requests of idle job loops: almost none, and still no change is seen late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from paceline.adapters.aws.cache.change_counter import READ_S, UNSETTLED_S, ChangeCounter
from paceline.adapters.aws.cache.index_cache import END, LASTING_S, ShardCache
from paceline.adapters.aws.jobs.keys import first_place
from paceline.adapters.aws.store import AwsStore
from paceline.core.jobs.values import NotSent, Unsure
from tests.aws.support.jobs_bench import AwsBench
from tests.contract.support.job_stage import add_account, admitted, begin, heads, limit, send, submission, submit
from tests.contract.support.stage import T0_MS, user

pytestmark = pytest.mark.aws
LATER_MS = T0_MS + 50_000


class Patient(AwsBench):
    """A process that runs loops, and a clock that the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        counter = ChangeCounter(self.database, clock_s=lambda: self.now_s)
        counter.caches_indexes = True
        self.store.change_counter = counter
        self.store.__dict__["shard_cache"] = ShardCache(
            counter, lambda shard: first_place(self.database, shard), clock_s=lambda: self.now_s
        )

    def taken(self, work: Callable[[AwsStore], object]) -> Counter[str]:
        return Counter(self.requests(work))

    def rest(self) -> None:
        """Runs the loops until they know all earlier writes and make no more requests."""
        self.now_s += 2 * UNSETTLED_S
        look(self.store)
        self.now_s += 2 * UNSETTLED_S
        look(self.store)


@pytest.fixture
def bench() -> Iterator[Patient]:
    with closing(Patient()) as made:
        made.store.add_user(user("ann"))
        limit(made.store, 10**6)
        yield made


def look(store: AwsStore, now_ms: int = T0_MS) -> None:
    """One idle turn of every loop of jobs."""
    store.next_send_ms()
    store.to_look_up(now_ms=now_ms, limit=10)
    store.due_webhooks(now_ms=now_ms, limit=10)
    store.take_duty("follow", every_ms=30_000, now_ms=now_ms)


def test_idle_job_loops_take_one_request_or_none(bench: Patient) -> None:
    assert bench.taken(look) == {"GetItem": 1, "Query": 4, "UpdateItem": 1}
    bench.rest()
    bench.now_s += READ_S
    assert bench.taken(look) == {"GetItem": 1}
    assert bench.taken(look) == {}


def test_job_submitted_by_another_process_is_seen_at_the_next_poll(bench: Patient) -> None:
    bench.rest()
    submit(bench.other(), submission(1))
    bench.now_s += READ_S
    assert bench.store.next_send_ms() == 0


def test_measurement_parked_by_this_process_is_not_read_again_before_its_time(bench: Patient) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(3))
    first, second = begin(bench.store, key), begin(bench.store, key)
    [third] = heads(bench.store)
    bench.rest()
    assert bench.store.answer(first.handle, 1, Unsure("lost", LATER_MS + 2), now_ms=T0_MS)
    assert bench.store.answer(second.handle, 1, NotSent("no", LATER_MS + 1), now_ms=T0_MS)
    bench.rest()
    assert len(heads(bench.store)) == 1, "it looks for what is parked, and remembers when"
    assert bench.store.park([(third.handle, 0)], next_ms=LATER_MS, reason="full") == [True]
    assert bench.store.next_send_ms() == LATER_MS
    bench.rest()
    assert bench.taken(lambda store: store.next_send_ms()) == {}
    assert bench.taken(lambda store: heads(store, now_ms=LATER_MS - 1))["Query"] == 2, (
        "a user with nothing queued leaves the queue"
    )
    assert bench.taken(lambda store: heads(store, now_ms=LATER_MS - 1))["Query"] == 1, "the line alone"
    assert [item.handle for item in heads(bench.store, now_ms=LATER_MS + 1, each_max=9)] == [
        second.handle,
        third.handle,
    ]
    assert [item.handle for item in bench.store.to_look_up(now_ms=LATER_MS + 2, limit=9)] == [first.handle]


def test_index_is_read_until_it_shows_the_writes_of_this_process(bench: Patient) -> None:
    submit(bench.store, submission(1))
    [item] = heads(bench.store)
    bench.rest()
    bench.store.shard_cache.touch("parked")  # as behind a write
    assert bench.store.shard_cache.first_of("parked") == END, "which the index does not show yet"
    assert bench.other().park([(item.handle, 0)], next_ms=LATER_MS, reason="full") == [True]
    assert bench.store.shard_cache.first_of("parked") == LATER_MS


def test_measurement_parked_by_a_dead_process_is_seen_when_the_cache_expires(bench: Patient) -> None:
    submit(bench.store, submission(1))
    [item] = heads(bench.store)
    bench.rest()
    assert bench.other().park([(item.handle, 0)], next_ms=LATER_MS, reason="full") == [True]
    bench.now_s += LASTING_S
    assert bench.store.next_send_ms() == LATER_MS


def test_send_of_a_dead_process_is_looked_up(bench: Patient) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(1))
    begun = begin(bench.store, key)
    bench.rest()
    assert bench.store.lose_sends(intent_before_ms=T0_MS + 1, look_ms=LATER_MS) == 1
    assert [item.handle for item in bench.store.to_look_up(now_ms=LATER_MS, limit=9)] == [begun.handle]


def test_a_webhook_is_called_as_soon_as_its_job_is_finished_and_again_in_time(bench: Patient) -> None:
    job = admitted(bench.store, 1, webhook="http://example.org/")
    bench.rest()
    assert bench.store.cancel_job(job.number, now_ms=T0_MS)
    assert len(bench.store.finish_jobs(now_ms=T0_MS, limit=1)) == 1
    assert len(bench.store.due_webhooks(now_ms=T0_MS, limit=9)) == 1
    assert bench.store.note_webhook(job.number, tries=0, next_ms=LATER_MS)
    bench.rest()
    assert bench.store.due_webhooks(now_ms=LATER_MS - 1, limit=9) == []
    assert len(bench.store.due_webhooks(now_ms=LATER_MS, limit=9)) == 1


def test_parked_measurement_is_pulled_back_after_the_clock_was_set_back(bench: Patient) -> None:
    submit(bench.store, submission(1))
    [item] = heads(bench.store)
    assert bench.store.park([(item.handle, 0)], next_ms=T0_MS + 10**9, reason="full") == [True]
    bench.rest()
    assert bench.store.pull_back_sends(lambda: T0_MS, wait_ms_max=1_000) == 1
    assert bench.store.next_send_ms() == T0_MS + 1_000


def test_duty_taken_by_another_process_is_not_requested_before_it_is_due_again(bench: Patient) -> None:
    assert bench.other().take_duty("follow", every_ms=30_000, now_ms=T0_MS)

    def asked(ms: int) -> int:
        return bench.taken(lambda store: store.take_duty("follow", every_ms=30_000, now_ms=T0_MS + ms)).total()

    assert [asked(ms) for ms in (1, 2, 29_999, 30_000, 30_001, 59_999, 60_000)] == [1, 0, 0, 1, 0, 0, 1]
    assert bench.other().take_duty("follow", every_ms=30_000, now_ms=T0_MS + 90_000), "it was taken at 60,000"
    assert bench.store.take_duty("follow", every_ms=30_000, now_ms=T0_MS - 10**6), "the clock was set back"


def test_measurement_sent_by_another_process_is_not_offered_here(bench: Patient) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(1))
    bench.rest()
    assert bench.store.next_send_ms() == 0
    send(bench.other(), key)
    assert heads(bench.store) == []
    assert bench.store.next_send_ms() is None

"""Promise 8 under contention: many processes submit, send and settle at once, and no meter is over at any instant."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from paceline.adapters.aws.store import AwsStore
from paceline.core.jobs.values import AccountSpec, Admitted, Busy, MeasurementEnd, OverCredits, Sent, StoredMeasurement
from tests.aws.support.fault_proxy import Faults, fault_proxy
from tests.aws.support.jobs_bench import AwsBench
from tests.aws.support.ministack import shared_emulator
from tests.contract.support.job_stage import add_account, limit, money, submission, submit
from tests.contract.support.stage import T0_MS, user

pytestmark = pytest.mark.aws
THREADS = 8
SLOTS = 5
SENDING_MAX = 3
FIT = 40
"""The number of measurements that fit into each user's day, and of sends that fit into the account's."""


@pytest.fixture
def bench() -> Iterator[AwsBench]:
    with closing(AwsBench()) as made:
        for name in ("ann", "bob"):
            made.store.add_user(user(name))
            limit(made.store, 60 * FIT + 59, owner=name)
        yield made


def work(store: AwsStore, number: int, key: str, turns: int = 14) -> Counter[str]:
    """Submits and dispatches in turn; what it began it also sends, and every second one it ends."""
    found: Counter[str] = Counter()
    for turn in range(turns):
        owner = ("ann", "bob")[(number + turn) % 2]
        found[type(submit(store, submission(1 + turn % 2, owner=owner))).__name__] += 1
        for item in store.next_to_send(now_ms=T0_MS, users_max=2, each_max=2):
            begun = store.begin_send(item, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS)
            found[type(begun).__name__] += 1
            if not isinstance(begun, StoredMeasurement):
                continue
            assert store.answer(begun.handle, begun.attempt, Sent((begun.handle,)), now_ms=T0_MS)
            if begun.index % 2 == turn % 2:
                ending = MeasurementEnd(begun.handle, begun.attempt, "done", "", 48, 8, frees_slot=True)
                assert store.end([ending], now_ms=T0_MS)[0].won
                found["ended"] += 1
    return found


def test_promise_8_concurrent_submissions_and_sends_never_exceed_a_meter(bench: AwsBench) -> None:
    key = add_account(bench.store, spec=AccountSpec(concurrent=SLOTS, daily_results=10 * FIT, daily_credits=60 * FIT))
    stop, over = threading.Event(), list[object]()
    watcher = bench.other()

    def watch() -> int:
        looks = 0
        while not stop.is_set():
            looks += 1
            found = watcher.account("lab", now_ms=T0_MS)
            assert found is not None
            meters = (found.concurrent, found.results, found.credits)
            over.extend(one for one in meters if one.spent + one.held > one.limit)
            over.extend(one for one in ("ann", "bob") if sum(money(watcher, owner=one)) > 60 * FIT + 59)
            over.extend(["sending"] * (watcher.send_counts().sending > SENDING_MAX))
        return looks

    with ThreadPoolExecutor(THREADS + 1) as pool:
        looking = pool.submit(watch)
        stores = [bench.other() for _ in range(THREADS)]
        try:
            found = sum(pool.map(lambda one: work(stores[one], one, key), range(THREADS)), Counter[str]())
        finally:
            stop.set()
        assert looking.result() > 5
    assert over == []
    assert found["Admitted"] and found["OverCredits"] and found["StoredMeasurement"] and found["ended"]  # noqa: PT018
    assert bench.store.verify_jobs() == []
    out = bench.store.holding("ongoing", after=0, limit=100)
    assert len(out) == found["StoredMeasurement"] - found["ended"] <= SLOTS
    account = bench.store.account("lab", now_ms=T0_MS)
    assert account is not None
    assert (account.credits.spent, account.credits.held) == (48 * found["ended"], 60 * len(out))
    assert account.sends == found["StoredMeasurement"]


def test_promise_8_exactly_as_many_of_eight_submissions_at_once_win_as_the_credits_allow(bench: AwsBench) -> None:
    limit(bench.store, 60 * 3 + 59)
    stores = [bench.other() for _ in range(THREADS)]
    line = threading.Barrier(THREADS)

    def race(store: AwsStore) -> str:
        line.wait()
        return type(submit(store, submission(1))).__name__

    with ThreadPoolExecutor(THREADS) as pool:
        results = Counter(pool.map(race, stores))
    assert results == {Admitted.__name__: 3, OverCredits.__name__: THREADS - 3}
    assert money(bench.store) == (0, 180)
    assert bench.store.verify_jobs() == []


def test_promise_8_exactly_one_of_eight_sends_gets_the_last_slot(bench: AwsBench) -> None:
    key = add_account(bench.store, spec=AccountSpec(concurrent=1))
    submit(bench.store, submission(THREADS))
    heads = bench.store.next_to_send(now_ms=T0_MS, users_max=1, each_max=THREADS)
    stores = [bench.other() for _ in range(THREADS)]
    line = threading.Barrier(THREADS)

    def race(number: int) -> str:
        line.wait()
        begun = stores[number].begin_send(heads[number], account="lab", key=key, sending_max=99, now_ms=T0_MS)
        return type(begun).__name__

    with ThreadPoolExecutor(THREADS) as pool:
        results = Counter(pool.map(race, range(THREADS)))
    assert results == {"StoredMeasurement": 1, "Short": THREADS - 1}
    assert bench.store.verify_jobs() == []


def test_exactly_two_of_eight_sends_start_where_two_may_be_sent_at_once(bench: AwsBench) -> None:
    key = add_account(bench.store)
    submit(bench.store, submission(THREADS))
    heads = bench.store.next_to_send(now_ms=T0_MS, users_max=1, each_max=THREADS)
    stores = [bench.other() for _ in range(THREADS)]

    def race(number: int) -> str:
        begun = stores[number].begin_send(heads[number], account="lab", key=key, sending_max=2, now_ms=T0_MS)
        return type(begun).__name__

    with ThreadPoolExecutor(THREADS) as pool:
        results = Counter(pool.map(race, range(THREADS)))
    assert results == {"StoredMeasurement": 2, Busy.__name__: THREADS - 2}
    assert bench.store.verify_jobs() == []


def test_promise_8_requests_that_are_lost_doubled_late_or_throttled_change_nothing_in_the_books() -> None:
    calm = Faults()
    faults = Faults(
        drop_before=0.02, drop_after=0.04, throttle=0.02, duplicate=0.04, delay=0.02, partial=0.05, stale=0.05
    )
    with fault_proxy(shared_emulator().url, seed=7) as proxy, closing(AwsBench(url=proxy.url)) as bench:
        for name in ("ann", "bob"):
            bench.store.add_user(user(name))
            limit(bench.store, 60 * FIT + 59, owner=name)
        key = add_account(bench.store, spec=AccountSpec(concurrent=SLOTS))
        proxy.faults = faults
        stores = [bench.other() for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            found = sum(pool.map(lambda one: work(stores[one], one, key, turns=8), range(3)), Counter[str]())
        proxy.faults = calm
        assert {"drop_after", "duplicate", "throttle"} <= proxy.hits.keys()
        assert bench.store.verify_jobs() == []
        account = bench.store.account("lab", now_ms=T0_MS)
        assert account is not None
        out = found["StoredMeasurement"] - found["ended"]
        assert (account.credits.spent, account.credits.held) == (48 * found["ended"], 60 * out)
        assert account.sends == found["StoredMeasurement"] > 0

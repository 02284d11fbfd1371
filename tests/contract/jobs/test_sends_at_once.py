"""Sends beside each other: how many at once, what is refused, when slots come back, how many wait."""

from __future__ import annotations

from collections import Counter

from paceline.core.jobs.atlas import expected_end_ms
from paceline.core.jobs.values import Busy, Sent, StoredMeasurement, Unsure
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.monitors.test_races import race
from tests.contract.support.job_stage import (
    add_account,
    admitted,
    again,
    begin,
    done,
    heads,
    job_of,
    limit,
    money,
    quotas,
    send,
    submission,
    submit,
    try_begin,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS


def test_sends_in_progress_never_exceed_their_limit(store: Store, other: Store) -> None:
    key = add_account(store)
    admitted(store, 4)
    first, _ = begin(store, key), begin(store, key)
    before = quotas(store)
    assert try_begin(other, key, sending_max=2) == Busy()
    assert (quotas(store), heads(store)[0].state, heads(store)[0].attempt) == (before, "queued", 0)
    store.answer(first.handle, 1, Unsure("lost", T0_MS + 1), now_ms=T0_MS)  # an unknown send is not in progress
    assert isinstance(try_begin(other, key, sending_max=2), StoredMeasurement)


def test_dead_sender_is_noticed_after_the_clock_was_set_back(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key, now_ms=T0_MS + DAY_MS)
    assert store.pull_back_sends(lambda: T0_MS, wait_ms_max=HOUR_MS) == 1
    assert store.pull_back_sends(lambda: T0_MS, wait_ms_max=HOUR_MS) == 0
    assert store.lose_sends(intent_before_ms=T0_MS + 1, look_ms=T0_MS + MINUTE_MS) == 1
    assert again(store, begun).state == "unknown"


def test_sends_in_progress_never_exceed_the_limit_of_one_with_many_dispatchers(
    store: Store, store_factory: Opener
) -> None:
    key = add_account(store)
    admitted(store, 60)
    seen: list[int] = []

    def work(handle: Store) -> Counter[str]:
        found: Counter[str] = Counter()
        for _ in range(15):
            for item in heads(handle):
                begun = handle.begin_send(item, account="lab", key=key, sending_max=1, now_ms=T0_MS)
                found[type(begun).__name__] += 1
                if isinstance(begun, StoredMeasurement):
                    seen.append(len(handle.holding("sending", after=0, limit=10)))
                    assert handle.answer(begun.handle, begun.attempt, Sent((begun.handle,)), now_ms=T0_MS)
        return found

    total = sum(race(work, store_factory), Counter[str]())
    assert set(seen) == {1}
    assert total["StoredMeasurement"] == len(seen) == len(store.holding("ongoing", after=0, limit=100))


def test_measurement_that_no_account_can_send_fails_and_is_refunded_whole(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 3)
    begun = begin(store, key)
    first = heads(store)[0]
    fences = [(first.handle, 0), (first.handle, 0), (begun.handle, 1), (first.handle + 1, 1)]
    assert store.refuse(fences, reason="too large for every account", now_ms=T0_MS) == [True, False, False, False]
    found = again(store, first)
    assert (found.state, found.reason, found.settled) == ("failed", "too large for every account", 0)
    assert store.job_counts(job.number) == {"sending": 1, "failed": 1, "queued": 1}
    assert (money(store), job_of(store, job).refunded) == ((0, 120), 60)


def test_slots_are_expected_back_at_the_end_of_the_measurements_that_hold_them(store: Store) -> None:
    key = add_account(store)
    admitted(store, 5)
    first = send(store, key)
    send(store, key, now_ms=T0_MS + 1_000)
    send(store, key, now_ms=T0_MS + 1_000)
    begin(store, key, now_ms=T0_MS + 2_000)  # its end is unknown
    ends_ms = expected_end_ms(first.measurement, sent_ms=T0_MS)
    assert ends_ms > T0_MS

    def releases(now_ms: int, until_ms: int) -> list[tuple[int, int]]:
        return list(store.accounts(now_ms=now_ms, releases_until_ms=until_ms)[0].concurrent.releases)

    assert releases(T0_MS, ends_ms + HOUR_MS) == [(ends_ms, 1), (ends_ms + 1_000, 2)]
    assert releases(T0_MS, ends_ms) == [(ends_ms, 1)]
    alone = store.account("lab", now_ms=T0_MS)
    assert alone is not None
    assert list(alone.concurrent.releases) == [(ends_ms, 1), (ends_ms + 1_000, 2)]
    late_ms = ends_ms + MINUTE_MS
    assert releases(late_ms, late_ms) == [(late_ms, 3)]
    done(store, first, frees_slot=False)
    assert releases(T0_MS, ends_ms) == [(ends_ms, 1)]  # RIPE still counts it
    store.free_slots([(first.handle, 1)], now_ms=T0_MS)
    assert releases(T0_MS, ends_ms) == []


def test_measurement_found_by_lookup_is_expected_to_end_like_an_answered_one(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    begun = begin(store, key)
    store.answer(begun.handle, 1, Unsure("lost", T0_MS + MINUTE_MS), now_ms=T0_MS)
    store.answer(begun.handle, 1, Sent((7,)), now_ms=T0_MS + MINUTE_MS)
    found = store.accounts(now_ms=T0_MS, releases_until_ms=T0_MS + DAY_MS)[0]
    assert [one.at_ms for one in found.concurrent.releases] == [expected_end_ms(begun.measurement, sent_ms=T0_MS)]


def test_unfinished_measurements_are_counted_by_state(store: Store) -> None:
    key = add_account(store)
    assert store.send_counts() == (0, 0, 0, 0, 0, 0, None)
    limit(store, 10**6)
    submit(store, submission(7), now_ms=T0_MS - 5)
    submit(store, submission(1, owner="ann"), now_ms=T0_MS)
    done(store, send(store, key))
    send(store, key)
    lost = begin(store, key)
    store.answer(lost.handle, 1, Unsure("lost", T0_MS), now_ms=T0_MS)
    begin(store, key)
    parked = heads(store)[0]
    store.park([(parked.handle, 0)], next_ms=T0_MS + 1, reason="full")
    assert store.send_counts() == (3, 1, 1, 1, 1, 2, T0_MS - 5)
    store.refuse([(one.handle, 0) for one in heads(store, each_max=2)], reason="no", now_ms=T0_MS)
    assert store.send_counts() == (1, 1, 1, 1, 1, 2, T0_MS - 5)  # the parked one is of the first job
    store.cancel_measurement(parked.handle, now_ms=T0_MS)
    assert store.send_counts() == (1, 0, 1, 1, 1, 2, T0_MS)

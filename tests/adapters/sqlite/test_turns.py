"""The write lock of a process is granted in order of the requests."""

from __future__ import annotations

import threading
import time

import pytest

from paceline.adapters.sqlite.fair_lock import FairLock

WAIT_S = 30.0


def test_fair_lock_is_handed_over_in_the_order_in_which_threads_asked() -> None:
    lock = FairLock()
    order: list[int] = []

    def work(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    with lock:
        for number in range(8):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            _until_waiting(lock, number + 1)
    for thread in threads:
        thread.join(WAIT_S)
    assert order == list(range(8))


def test_thread_that_takes_the_lock_again_and_again_does_not_keep_another_out() -> None:
    lock = FairLock()
    served = threading.Event()

    def work() -> None:
        with lock:
            served.set()

    lock.acquire()
    thread = threading.Thread(target=work)
    thread.start()
    _until_waiting(lock, 1)
    lock.release()
    assert lock.acquire(WAIT_S)  # asked for after the other thread did, so that one has had it
    assert served.is_set()
    lock.release()
    thread.join(WAIT_S)


def test_fair_lock_may_be_taken_again_by_its_owner() -> None:
    lock = FairLock()
    with lock, lock:
        assert not _other_thread_gets(lock)
    assert _other_thread_gets(lock)


def test_wait_for_fair_lock_that_runs_out_leaves_the_queue() -> None:
    lock = FairLock()
    with lock:
        assert not _other_thread_gets(lock)
        assert lock.waiting == 0
    assert _other_thread_gets(lock)


def test_fair_lock_may_only_be_released_by_its_owner() -> None:
    with pytest.raises(AssertionError):
        FairLock().release()


def _other_thread_gets(lock: FairLock) -> bool:
    got: list[bool] = []

    def ask() -> None:
        got.append(lock.acquire(0.01))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(WAIT_S)
    return got[0]


def _until_waiting(lock: FairLock, count: int) -> None:
    until_s = time.monotonic() + WAIT_S
    while lock.waiting < count:
        assert time.monotonic() < until_s
        time.sleep(0.001)

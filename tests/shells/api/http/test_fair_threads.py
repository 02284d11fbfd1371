"""Threads that users take turns for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future

import pytest

from paceline.shells.api.http.fair_threads import FairThreads

WAIT_S = 60


class Bench:
    """Work that notes its name when it begins, and ends when it is told to."""

    def __init__(self, *, threads: int, each_max: int) -> None:
        self.threads = FairThreads("bench", threads=threads, each_max=each_max)
        self.begun: list[str] = []
        self._changed = threading.Condition()
        self._over: set[str] = set()

    def submit(self, user: str, name: str) -> Future[str]:
        return self.threads.submit(user, lambda: self._act(name))

    def end(self, *names: str) -> None:
        with self._changed:
            self._over.update(names)
            self._changed.notify_all()

    def wait_for(self, *names: str) -> None:
        """Waits until exactly these have begun, in any order."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= len(names), timeout=WAIT_S)
        assert sorted(self.begun) == sorted(names)

    def close(self) -> None:
        self.end(*(f"{user}{number}" for user in "abc" for number in range(100)))
        self.threads.close(wait=True)

    def _act(self, name: str) -> str:
        with self._changed:
            self.begun.append(name)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: name in self._over, timeout=WAIT_S)
        return name


Make = Callable[[int, int], Bench]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Bench] = []

    def bench(threads: int, each_max: int) -> Bench:
        made.append(Bench(threads=threads, each_max=each_max))
        return made[-1]

    yield bench
    for one in made:
        one.close()


def test_promise_13_one_user_never_uses_all_threads(make: Make) -> None:
    bench = make(3, 2)
    for number in range(50):
        bench.submit("ann", f"a{number}")
    bench.wait_for("a0", "a1")
    bench.submit("bob", "b0")
    bench.wait_for("a0", "a1", "b0")


def test_promise_13_freed_thread_goes_to_the_user_who_uses_fewest(make: Make) -> None:
    bench = make(2, 2)
    for number in range(50):
        bench.submit("ann", f"a{number}")
    bench.wait_for("a0", "a1")
    bench.submit("bob", "b0")
    bench.submit("bob", "b1")
    bench.end("a0")
    bench.wait_for("a0", "a1", "b0")
    bench.end("a1")
    bench.wait_for("a0", "a1", "b0", "a2")


def test_promise_13_users_of_one_thread_take_turns(make: Make) -> None:
    bench = make(1, 1)
    for number in range(4):
        bench.submit("ann", f"a{number}")
    for number in range(2):
        bench.submit("bob", f"b{number}")
    bench.submit("cy", "c0")
    order = ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    for place, name in enumerate(order, 1):
        bench.wait_for(*order[:place])
        bench.end(name)
    assert bench.begun == order


def test_result_and_error_of_work_are_handed_on(make: Make) -> None:
    threads = make(1, 1).threads
    assert threads.of("ann").submit(divmod, 7, 2).result(WAIT_S) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.of("ann").submit(divmod, 7, 0).result(WAIT_S)
    assert threads.of("ann").submit(divmod, 7, 2).result(WAIT_S) == (3, 1)


def test_cancelled_work_is_left_out_and_the_next_begins(make: Make) -> None:
    bench = make(1, 1)
    bench.submit("ann", "a0")
    bench.wait_for("a0")
    gone, kept = bench.submit("ann", "a1"), bench.submit("ann", "a2")
    assert gone.cancel()
    bench.end("a0", "a2")
    assert kept.result(WAIT_S) == "a2"
    assert bench.begun == ["a0", "a2"]


def test_close_leaves_out_what_waits_and_lets_what_has_begun_end(make: Make) -> None:
    bench = make(1, 1)
    begun = bench.submit("ann", "a0")
    bench.wait_for("a0")
    waiting = bench.submit("ann", "a1")
    bench.threads.close(wait=False)
    with pytest.raises(CancelledError):
        waiting.result(WAIT_S)
    with pytest.raises(RuntimeError, match="closed"):
        bench.submit("ann", "a2")
    bench.end("a0")
    assert begun.result(WAIT_S) == "a0"

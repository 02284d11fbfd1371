"""Concurrent calls share one commit, and waiters are notified."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from paceline.errors import NotFound, PacelineError
from paceline.shells.api.http.claim_signal import ClaimSignal
from paceline.shells.api.http.group_commit import ROOM, GroupCommit, each


class Doubling:
    """A batch step that remembers how it was called."""

    def __init__(self, *, pause_s: float = 0.0) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[str] = set()
        self._pause_s = pause_s

    def __call__(self, items: Sequence[int]) -> list[int | PacelineError]:
        self.batches.append(list(items))
        self.threads.add(threading.current_thread().name)
        time.sleep(self._pause_s)
        return [NotFound("odd") if item % 2 else item * 2 for item in items]


class Held(Doubling):
    """Goes on only when it is let: so a test needs no guess of how long a batch takes."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int | PacelineError]:
        results = super().__call__(items)
        self.begun.release()
        assert self.may_end.wait(60)
        return results


def test_writes_of_one_loop_turn_share_a_commit_and_each_gets_its_own_answer() -> None:
    async def main() -> list[object]:
        return await asyncio.gather(*(together.do(double, item) for item in range(6)), return_exceptions=True)

    together, double = GroupCommit(), Doubling()
    answers = asyncio.run(main())
    together.close()
    assert double.batches == [[0, 1, 2, 3, 4, 5]]
    assert answers[::2] == [0, 4, 8]
    assert all(isinstance(answer, NotFound) for answer in answers[1::2])


def test_calls_pile_up_while_a_batch_is_being_committed() -> None:
    async def main() -> None:
        first = asyncio.create_task(together.do(double, 0))
        await asyncio.sleep(0.05)
        late = [asyncio.create_task(together.do(double, item)) for item in (2, 4, 6)]
        await asyncio.gather(first, *late)

    together, double = GroupCommit(), Doubling(pause_s=0.15)
    asyncio.run(main())
    together.close()
    assert double.batches == [[0], [2, 4, 6]]
    assert len(double.threads) == 1


def test_a_batch_is_bounded_and_different_steps_are_kept_apart() -> None:
    async def main() -> None:
        calls = [together.do(double, 2 * item) for item in range(ROOM + 5)]
        await asyncio.gather(*calls, *(together.do(other, item) for item in (2, 4)))

    together, double, other = GroupCommit(), Doubling(), Doubling()
    asyncio.run(main())
    together.close()
    assert [len(batch) for batch in double.batches] == [ROOM, 5]
    assert other.batches == [[2, 4]]


def test_several_threads_commit_own_writes_at_once() -> None:
    """Each write waits until three are under way: with one thread, or one after the other, none would end."""
    meeting = threading.Barrier(3)

    def write() -> int:
        return meeting.wait(timeout=20)

    async def main() -> list[int]:
        places: list[int] = await asyncio.gather(*(commits.do(each, write) for _ in range(3)))
        return places

    commits = GroupCommit(threads=3)
    assert sorted(asyncio.run(main())) == [0, 1, 2]
    commits.close()


def test_calls_pile_up_while_all_threads_are_busy() -> None:
    async def main() -> None:
        begun = []
        for item in (0, 2):
            begun.append(asyncio.create_task(commits.do(double, item)))
            assert await asyncio.to_thread(double.begun.acquire, timeout=60)
        late = [asyncio.create_task(commits.do(double, item)) for item in (4, 6, 8)]
        await asyncio.sleep(0)
        assert commits.waiting == 3
        double.may_end.set()
        await asyncio.gather(*begun, *late)

    commits, double = GroupCommit(threads=2), Held()
    asyncio.run(main())
    commits.close()
    assert double.batches == [[0], [2], [4, 6, 8]]
    assert len(double.threads) == 2


def test_an_exception_of_the_whole_batch_goes_to_all_and_the_next_works() -> None:
    def broken(items: Sequence[int]) -> list[int | PacelineError]:
        raise RuntimeError(f"no {len(items)}")

    def short(items: Sequence[int]) -> list[int | PacelineError]:
        return list(items[1:])

    async def main() -> None:
        answers = await asyncio.gather(*(together.do(broken, item) for item in range(3)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["no 3"] * 3
        with pytest.raises(RuntimeError, match="did not answer every item"):
            await together.do(short, 1)
        assert await together.do(Doubling(), 2) == 4

    together = GroupCommit()
    asyncio.run(main())
    together.close()


def test_a_caller_that_is_cancelled_does_not_disturb_the_others() -> None:
    async def main() -> None:
        gone = asyncio.create_task(together.do(double, 2))
        stays = asyncio.create_task(together.do(double, 4))
        await asyncio.sleep(0.05)
        gone.cancel()
        assert await stays == 8
        with pytest.raises(asyncio.CancelledError):
            await gone

    together, double = GroupCommit(), Doubling(pause_s=0.15)
    asyncio.run(main())
    together.close()
    assert double.batches == [[2, 4]]


def test_call_after_close_fails_instead_of_hanging() -> None:
    together = GroupCommit()
    together.close()
    with pytest.raises(RuntimeError):
        asyncio.run(asyncio.wait_for(together.do(Doubling(), 2), timeout=2))


def test_single_write_does_not_wait_for_thousands_of_another_user() -> None:
    async def main() -> None:
        many = [asyncio.create_task(together.do(double, 2, user="ann")) for _ in range(5 * ROOM)]
        await asyncio.sleep(0)
        one = asyncio.create_task(together.do(double, 4, user="bob"))
        assert await one == 8
        waiting.append(sum(not task.done() for task in many))
        await asyncio.gather(*many)

    together, double = GroupCommit(), Doubling()
    waiting: list[int] = []
    asyncio.run(main())
    together.close()
    with_bob = next(number for number, batch in enumerate(double.batches) if 4 in batch)
    assert with_bob <= 1, "with the first commit that is taken after it came"
    assert all(len(batch) <= ROOM for batch in double.batches)
    assert waiting[0] >= 3 * ROOM


def test_light_writes_are_answered_before_heavy_writes_of_the_same_loop_turn() -> None:
    async def main() -> None:
        heavy = [asyncio.create_task(together.do(slow, 2, user="ann", weight=250)) for _ in range(8)]
        light = asyncio.create_task(together.do(double, 2, user="bob"))
        await light
        assert not any(task.done() for task in heavy)
        await asyncio.gather(*heavy)

    together, slow, double = GroupCommit(), Doubling(pause_s=0.2), Doubling()
    asyncio.run(main())
    together.close()
    assert [len(batch) for batch in slow.batches] == [4, 4]


# -- arrivals


def notify_often(arrivals: ClaimSignal) -> None:
    for _ in range(1_000):
        arrivals.notify()


def test_notify_from_another_thread_wakes_every_waiter() -> None:
    async def main() -> float:
        mark = arrivals.mark()
        waits = [asyncio.create_task(arrivals.wait(mark, timeout_s=10)) for _ in range(50)]
        await asyncio.sleep(0.05)
        started_s = time.monotonic()
        threading.Thread(target=notify_often, args=(arrivals,)).start()
        await asyncio.gather(*waits)
        return time.monotonic() - started_s

    arrivals = ClaimSignal()
    assert asyncio.run(main()) < 0.2


def test_notify_between_mark_and_wait_is_not_missed() -> None:
    async def main() -> float:
        mark = arrivals.mark()
        arrivals.notify()
        started_s = time.monotonic()
        await arrivals.wait(mark, timeout_s=5)
        return time.monotonic() - started_s

    arrivals = ClaimSignal()
    assert asyncio.run(main()) < 4


def test_wait_without_notify_ends_after_its_time_and_at_once_if_closed() -> None:
    async def main() -> tuple[float, float]:
        started_s = time.monotonic()
        await arrivals.wait(arrivals.mark(), timeout_s=0.2)
        waited_s = time.monotonic() - started_s
        arrivals.close()
        await arrivals.wait(arrivals.mark(), timeout_s=5)
        return waited_s, time.monotonic() - started_s

    arrivals = ClaimSignal()
    waited_s, whole_s = asyncio.run(main())
    assert 0.15 < waited_s < 4
    assert whole_s < 4
    arrivals.notify()

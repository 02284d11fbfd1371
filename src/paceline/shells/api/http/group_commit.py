"""Group commit: concurrent calls become one call of a batch step, so that they share one commit.

Users take turns: the room of one commit is limited, and is shared fairly among the users who have something to write.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from paceline.core.write_turns import take_turns
from paceline.errors import PacelineError, StoreUnavailable

WAIT_S_MAX = 10.0
"""A call waits no longer than this for writes before it and for other processes; then it is refused."""
ROOM = 1_000
"""Room of one commit, counted in single puts of a monitor: on a file, a few hundredths of a second."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Batch = Callable[[Sequence[Item]], Sequence[Answer | PacelineError]]
"""Function that does all items at once. Returns one answer for each, in order; an item's own error is a value."""


class _Ticket(NamedTuple):
    batch: Batch[Any, Any]
    item: Any
    weight: int
    future: asyncio.Future[Any]
    since_s: float


_Load = list[tuple[Batch[Any, Any], list[_Ticket]]]
_Answers = list[tuple["asyncio.Future[Any]", Any]]


def each(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Batch step of writes that have no batch form: does one after the other, each with its own result or error."""
    return [_outcome(job) for job in jobs]


class GroupCommit:
    """Threads that write: one for a local file, several for a remote store, where a commit is mostly waiting.

    While all threads are busy, new calls collect for the next commit. Belongs to one event loop. An answer is durable:
    it comes only after the batch step has returned.
    """

    def __init__(
        self, within: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(), *, threads: int = 1
    ) -> None:
        """``within`` limits how long the writes of a thread wait for other processes, in ms."""
        self._within = within
        self._threads = threads
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="paceline-api-writes")
        self._waiting: dict[str, deque[_Ticket]] = {}
        """Calls by user; the user who has waited longest for a turn comes first."""
        self._busy = 0
        """How many loads are being committed, or wait for a thread."""
        self._scheduled = False

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return sum(map(len, self._waiting.values()))

    async def do(self, batch: Batch[Item, Answer], item: Item, *, user: str = "", weight: int = 1) -> Answer:
        """Does one item. Returns its answer or raises its error; if the whole batch fails, every caller gets the error.

        ``weight``: about how many single puts the item is worth.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.setdefault(user, deque()).append(_Ticket(batch, item, weight, future, time.monotonic()))
        if self._busy < self._threads and not self._scheduled:
            self._scheduled = True
            # Later, not now: calls that are ready in the same turn of the event loop join this commit.
            loop.call_soon(self._hand_over, loop)
        return await future

    def close(self) -> None:
        """Waits for the batches that are being committed."""
        self._executor.shutdown(wait=True)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        for load in self._split(self._take()):
            self._busy += 1
            try:
                self._executor.submit(self._work, load, loop)
            except RuntimeError as error:  # closed
                self._finish([(ticket.future, error) for _, tickets in load for ticket in tickets], loop)

    def _split(self, load: _Load) -> list[_Load]:
        """Splits the load. With several threads, each batch step, and each write without one, is its own load."""
        if self._threads == 1:
            return [load]
        shared = [[(batch, tickets)] for batch, tickets in load if batch is not each]
        return shared + [[(each, [ticket])] for batch, tickets in load if batch is each for ticket in tickets]

    def _take(self) -> _Load:
        """Takes from each user as much as its turn allows. Returns it by batch step, the lightest step first."""
        # Nobody has less than one place, so no more users than places have a turn.
        users = list(islice(self._waiting, ROOM))
        counts = take_turns([[one.weight for one in islice(self._waiting[user], ROOM)] for user in users], room=ROOM)
        load: dict[Batch[Any, Any], list[_Ticket]] = {}
        for user, count in zip(users, counts, strict=True):
            queue = self._waiting.pop(user)
            for _ in range(count):
                ticket = queue.popleft()
                load.setdefault(ticket.batch, []).append(ticket)
            if queue:
                self._waiting[user] = queue  # behind those who had no turn
        return sorted(load.items(), key=lambda one: sum(ticket.weight for ticket in one[1]))

    def _work(self, load: _Load, loop: asyncio.AbstractEventLoop) -> None:
        """Does a load. Runs in a writing thread."""
        for batch, tickets in load[:-1]:
            loop.call_soon_threadsafe(self._answer, self._run(batch, tickets))
        for batch, tickets in load[-1:]:
            loop.call_soon_threadsafe(self._finish, self._run(batch, tickets), loop)

    def _run(self, batch: Batch[Any, Any], tickets: Sequence[_Ticket]) -> _Answers:
        """Runs a batch step. Refuses calls that waited too long; the others wait for the store no longer than that."""
        now_s = time.monotonic()
        rest = [ticket for ticket in tickets if now_s - ticket.since_s < WAIT_S_MAX]
        answers: _Answers = [(ticket.future, _too_late()) for ticket in tickets if now_s - ticket.since_s >= WAIT_S_MAX]
        if not rest:
            return answers
        first_s = min(ticket.since_s for ticket in rest)
        with self._within(int((first_s + WAIT_S_MAX - now_s) * 1_000)):
            results = _results(batch, [ticket.item for ticket in rest])
        return answers + [(ticket.future, result) for ticket, result in zip(rest, results, strict=True)]

    def _finish(self, answers: _Answers, loop: asyncio.AbstractEventLoop) -> None:
        self._busy -= 1
        if self._waiting and self._busy < self._threads and not self._scheduled:
            # The next batch goes first: its commit runs while these answers are written.
            self._hand_over(loop)
        self._answer(answers)

    def _answer(self, answers: _Answers) -> None:
        for future, answer in answers:
            if future.done():  # the caller went away
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _too_late() -> StoreUnavailable:
    return StoreUnavailable(
        f"The store could not be written to for {WAIT_S_MAX:.0f} s. Nothing was changed; send it again soon.",
        retry_after_s=5,
    )


def _results(batch: Batch[Any, Any], items: list[Any]) -> Sequence[Any]:
    try:
        results = batch(items)
    except Exception as error:  # noqa: BLE001  raised again in every caller
        return [error] * len(items)
    if len(results) != len(items):
        return [RuntimeError("a batch step did not answer every item")] * len(items)
    return results


def _outcome(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except Exception as error:  # noqa: BLE001  raised again where the job was ordered
        return error

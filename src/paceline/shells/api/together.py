"""Concurrent calls become one call of a batch step, so that writes that come together share one commit.

Users take turns: one commit has a bounded room, and it is shared fairly among those who have something to write.
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

from paceline.core.turns import take_turns
from paceline.errors import PacelineError, StoreUnavailable

WAIT_S_MAX = 10.0
"""From its arrival until it is refused: for the writes before it, and for other processes that hold the store."""
ROOM = 1_000
"""So much is written before others have their turn, in single puts of a monitor: a few hundredths of a second."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Batch = Callable[[Sequence[Item]], Sequence[Answer | PacelineError]]
"""Does all items at once and answers each by itself, in order; an error as a value is that item's own."""


class _Ticket(NamedTuple):
    batch: Batch[Any, Any]
    item: Any
    weight: int
    future: asyncio.Future[Any]
    since_s: float


_Load = list[tuple[Batch[Any, Any], list[_Ticket]]]
_Answers = list[tuple["asyncio.Future[Any]", Any]]


class Together:
    """One thread that writes. While a batch is being committed, new calls pile up for the next one.

    Belongs to one event loop. What a caller gets is durable: answers come only after the batch step has returned.
    """

    def __init__(self, within: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()) -> None:
        """``within`` limits how long the writes of this thread wait for other processes, in ms."""
        self._within = within
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-api-writes")
        self._waiting: dict[str, deque[_Ticket]] = {}
        """By user; whoever has waited longest for a turn comes first."""
        self._busy = False

    @property
    def waiting(self) -> int:
        """How many calls wait for a turn."""
        return sum(map(len, self._waiting.values()))

    async def do(self, batch: Batch[Item, Answer], item: Item, *, user: str = "", weight: int = 1) -> Answer:
        """The item's own answer, or its own error; an exception of the whole batch goes to all who were in it.

        ``weight``: about how many single puts it is worth.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.setdefault(user, deque()).append(_Ticket(batch, item, weight, future, time.monotonic()))
        if not self._busy:
            self._busy = True
            # Not at once: what else is ready in this turn of the event loop comes along.
            loop.call_soon(self._hand_over, loop)
        return await future

    def close(self) -> None:
        """Waits for the batch that is being committed."""
        self._thread.shutdown(wait=True)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        load = self._take()
        try:
            self._thread.submit(self._work, load, loop)
        except RuntimeError as error:
            self._answer([(ticket.future, error) for _, tickets in load for ticket in tickets])
            self._go_on(loop)

    def _take(self) -> _Load:
        """Of each user what its turn allows, by batch step, the lightest first: its callers need not wait for more."""
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
        """In the writing thread."""
        for batch, tickets in load[:-1]:
            loop.call_soon_threadsafe(self._answer, self._run(batch, tickets))
        for batch, tickets in load[-1:]:
            loop.call_soon_threadsafe(self._finish, self._run(batch, tickets), loop)

    def _run(self, batch: Batch[Any, Any], tickets: Sequence[_Ticket]) -> _Answers:
        """Those that have waited too long already are refused, and the others wait no longer than that."""
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
        # The next batch goes first: its commit runs while these answers are written.
        self._go_on(loop)
        self._answer(answers)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            self._hand_over(loop)

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
        f"The store could not be written for {WAIT_S_MAX:.0f} s, and nothing was: send it again in a moment.",
        retry_after_s=5,
    )


def _results(batch: Batch[Any, Any], items: list[Any]) -> Sequence[Any]:
    try:
        results = batch(items)
    except Exception as error:  # noqa: BLE001  whatever it is, the callers must hear of it
        return [error] * len(items)
    if len(results) != len(items):
        return [RuntimeError("a batch step did not answer every item")] * len(items)
    return results

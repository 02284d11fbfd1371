"""Concurrent calls become one call of a batch step, so that writes that come together share one commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from paceline.errors import PacelineError, StoreUnavailable

WAIT_S_MAX = 10.0
"""From its arrival until it is refused: for the writes before it, and for other processes that hold the store."""
ITEMS_MAX = 1_000
"""At most so many calls of one kind share a commit; more wait for the next."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Batch = Callable[[Sequence[Item]], Sequence[Answer | PacelineError]]
"""Does all items at once and answers each by itself, in order; an error as a value is that item's own."""

_Ticket = tuple[Any, "asyncio.Future[Any]", float]
"""The item, who waits for its answer, and since when."""
_Load = list[tuple[Batch[Any, Any], list[_Ticket]]]


class Together:
    """One thread that writes. While a batch is being committed, new calls pile up for the next one.

    Belongs to one event loop. What a caller gets is durable: answers come only after the batch step has returned.
    """

    def __init__(self, within: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()) -> None:
        """``within`` limits how long the writes of this thread wait for other processes, in ms."""
        self._within = within
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-api-writes")
        self._waiting: dict[Batch[Any, Any], list[_Ticket]] = {}
        self._busy = False

    async def do(self, batch: Batch[Item, Answer], item: Item) -> Answer:
        """The item's own answer, or its own error; an exception of the whole batch goes to all who were in it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.setdefault(batch, []).append((item, future, time.monotonic()))
        if not self._busy:
            self._busy = True
            # Not at once: what else is ready in this turn of the event loop comes along.
            loop.call_soon(self._hand_over, loop)
        return await future

    def close(self) -> None:
        """Waits for the batch that is being committed."""
        self._thread.shutdown(wait=True)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        load: _Load = []
        for batch in list(self._waiting):
            tickets = self._waiting[batch]
            load.append((batch, tickets[:ITEMS_MAX]))
            if rest := tickets[ITEMS_MAX:]:
                self._waiting[batch] = rest
            else:
                del self._waiting[batch]
        try:
            self._thread.submit(self._work, load, loop)
        except RuntimeError as error:
            self._finish([(future, error) for _, tickets in load for _, future, _ in tickets], loop)

    def _work(self, load: _Load, loop: asyncio.AbstractEventLoop) -> None:
        """In the writing thread."""
        answers: list[tuple[asyncio.Future[Any], Any]] = []
        for batch, tickets in load:
            now_s = time.monotonic()
            late = [ticket for ticket in tickets if now_s - ticket[2] >= WAIT_S_MAX]
            answers += [(future, _too_late()) for _, future, _ in late]
            if not (rest := tickets[len(late) :]):
                continue
            with self._within(int((rest[0][2] + WAIT_S_MAX - now_s) * 1_000)):  # the first has waited longest
                results = _run(batch, [item for item, _, _ in rest])
            answers += [(future, result) for (_, future, _), result in zip(rest, results, strict=True)]
        loop.call_soon_threadsafe(self._finish, answers, loop)

    def _finish(self, answers: list[tuple[asyncio.Future[Any], Any]], loop: asyncio.AbstractEventLoop) -> None:
        # The next batch goes first: its commit runs while these answers are written.
        self._busy = bool(self._waiting)
        if self._busy:
            self._hand_over(loop)
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


def _run(batch: Batch[Any, Any], items: list[Any]) -> Sequence[Any]:
    try:
        results = batch(items)
    except Exception as error:  # noqa: BLE001  whatever it is, the callers must hear of it
        return [error] * len(items)
    if len(results) != len(items):
        return [RuntimeError("a batch step did not answer every item")] * len(items)
    return results

"""How a long poll learns that there is something to claim."""

from __future__ import annotations

import asyncio
import threading


class Arrivals:
    """News from any thread to those who wait on the event loop.

    ``notify`` may be called for every tick: it costs nothing while nobody waits, and one wake-up of the event loop
    however often it is called before that comes round.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def mark(self) -> int:
        """Take it before looking into the store; ``wait`` then misses nothing that came after."""
        return self._seen

    def notify(self) -> None:
        """Something may be claimable now. From any thread."""
        with self._lock:
            self._seen += 1
            loop = self._loop
            if loop is None or self._called:
                return
            self._called = True
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the event loop has ended, and with it all who waited
                self._loop, self._called = None, False

    def close(self) -> None:
        """Nobody waits any more: every long poll answers at once with what there is. From any thread."""
        self._closed = True
        self.notify()

    async def wait(self, mark: int, *, timeout_s: float) -> None:
        """Until something has come since the mark, or the time is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._seen != mark or self._closed:
                return
            self._loop = loop
            self._waiters.add(future)
        timer = loop.call_later(timeout_s, _release, future)
        try:
            await future
        finally:
            timer.cancel()
            self._leave(future)

    def _leave(self, future: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiters.discard(future)
            if not self._waiters:
                self._loop = None

    def _wake(self) -> None:
        with self._lock:
            self._called = False
            waiters = list(self._waiters)
        for future in waiters:
            _release(future)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

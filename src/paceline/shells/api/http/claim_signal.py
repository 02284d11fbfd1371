"""Signal that wakes long polls when there may be something to claim."""

from __future__ import annotations

import asyncio
import threading


class ClaimSignal:
    """Wakes long polls on the event loop from any thread.

    ``notify`` may be called for every tick: it costs nothing while nobody waits. Several calls before the event loop
    wakes up share one wake-up.
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
        """Returns a mark for ``wait``.

        Taken before a read of the store, so that ``wait`` misses no later ``notify``.
        """
        return self._seen

    def notify(self) -> None:
        """Says that something may be claimable now. May be called from any thread."""
        with self._lock:
            self._seen += 1
            loop = self._loop
            if loop is None or self._called:
                return
            self._called = True
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the event loop has ended, and every wait with it
                self._loop, self._called = None, False

    def close(self) -> None:
        """Ends every wait: each long poll answers at once with what it has. May be called from any thread."""
        self._closed = True
        self.notify()

    async def wait(self, mark: int, *, timeout_s: float) -> None:
        """Returns when ``notify`` has been called since the mark, or after ``timeout_s``."""
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

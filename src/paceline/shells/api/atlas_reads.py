"""Requests to RIPE on behalf of API requests: each on its own client, few at a time."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paceline.errors import Throttled
from paceline.ports import Atlas

READS_MAX = 8
READS_EACH_MAX = 2
"""Most reads at the same time, of all users together (``READS_MAX``) and of one user."""
RETRY_AFTER_S = 10
PAGE_BYTES = 65_536
PAGES_MAX = 16
LOOK_S = 0.5
STALLED_S = 120.0
"""A stream is given up if its client takes nothing for this long."""

T = TypeVar("T")
Take = Callable[[bytes], None]


class _GivenUp(Exception):
    pass


class AtlasReads:
    """Limits and runs the reads from RIPE.

    ``open_atlas`` makes a client, in the thread that uses it. ``draining`` says whether the process is about to end.
    Requests wait for RIPE in ``threads``, so that the threads of all other requests stay free.
    """

    def __init__(self, open_atlas: Callable[[], Atlas], *, draining: Callable[[], bool]) -> None:
        self._open = open_atlas
        self._draining = draining
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        self.threads = ThreadPoolExecutor(READS_MAX, thread_name_prefix="paceline-api-reads")

    def stream(self, user: str, work: Callable[[Atlas, Take], object]) -> AtlasPages:
        """Returns pages of the bytes that ``work`` passes to its ``take``.

        RIPE is asked when the first page is read.
        """
        self._enter(user)
        return AtlasPages(self._open, work, draining=self._draining, ended=lambda: self._leave(user))

    async def ask(self, user: str, work: Callable[[Atlas], T]) -> T:
        """Runs ``work`` in a thread and returns its result. A process that is about to end interrupts it."""
        self._enter(user)
        opened: list[Atlas] = []
        task = asyncio.get_running_loop().run_in_executor(self.threads, self._ask, work, opened)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_S)
                if self._draining():
                    self._interrupt(opened)
            return task.result()
        finally:
            self._interrupt(opened)
            self._leave(user)

    def _ask(self, work: Callable[[Atlas], T], opened: list[Atlas]) -> T:
        atlas = self._open()
        opened.append(atlas)
        try:
            return work(atlas)
        finally:
            opened.clear()
            atlas.close()

    @staticmethod
    def _interrupt(opened: list[Atlas]) -> None:
        for atlas in tuple(opened):
            atlas.interrupt()

    def _enter(self, user: str) -> None:
        with self._lock:
            if self._under_way.total() >= READS_MAX or self._under_way[user] >= READS_EACH_MAX:
                raise Throttled(
                    f"At most {READS_EACH_MAX} requests of a user, and {READS_MAX} of all, read from RIPE at once."
                    " Wait for one to end.",
                    retry_after_s=RETRY_AFTER_S,
                )
            self._under_way[user] += 1

    def _leave(self, user: str) -> None:
        with self._lock:
            self._under_way[user] -= 1
            self._under_way += Counter()  # drops counts of zero


class AtlasPages(Iterator[bytes]):
    """Pages that a thread reads from RIPE into a short queue; the answer is written from that queue."""

    def __init__(
        self,
        open_atlas: Callable[[], Atlas],
        work: Callable[[Atlas, Take], object],
        *,
        draining: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self._open, self._work, self._draining, self._ended = open_atlas, work, draining, ended
        self._pages: queue.Queue[bytes | BaseException | None] = queue.Queue(PAGES_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._atlas: Atlas | None = None
        self._left = threading.Event()
        self._page: list[bytes] = []
        self._bytes = 0

    def __next__(self) -> bytes:
        self._begin()
        while True:
            try:
                page = self._pages.get(timeout=LOOK_S)
            except queue.Empty:
                if self._left.is_set():
                    raise StopIteration from None
                if self._draining():
                    self._interrupt()
                continue
            if page is None:
                raise StopIteration
            if isinstance(page, BaseException):
                raise page
            return page

    def close(self) -> None:
        """Ends the request to RIPE within a second. May be called from any thread, any number of times."""
        with self._lock:
            begun, was_left = self._thread is not None, self._left.is_set()
            self._left.set()
        self._interrupt()
        if not begun and not was_left:
            self._ended()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._left.is_set():
                self._thread = threading.Thread(target=self._run, name="paceline-api-atlas", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            atlas = self._open()
            with self._lock:
                self._atlas = atlas
            try:
                self._work(atlas, self._take)
                self._flush()
                self._put(None)
            finally:
                with self._lock:
                    self._atlas = None
                atlas.close()
        except _GivenUp:
            self._left.set()
        except BaseException as error:  # noqa: BLE001  raised again where the answer is written
            self._put_last(error)
        finally:
            self._ended()

    def _take(self, piece: bytes) -> None:
        if self._left.is_set():
            raise _GivenUp
        self._page.append(piece)
        self._bytes += len(piece)
        if self._bytes >= PAGE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._page:
            self._put(b"".join(self._page))
        self._page, self._bytes = [], 0

    def _put(self, page: bytes | None) -> None:
        until_s = time.monotonic() + STALLED_S
        while time.monotonic() < until_s and not self._left.is_set():
            try:
                return self._pages.put(page, timeout=LOOK_S)
            except queue.Full:
                continue
        raise _GivenUp

    def _put_last(self, error: BaseException) -> None:
        try:
            self._pages.put(error, timeout=STALLED_S)
        except queue.Full:
            self._left.set()

    def _interrupt(self) -> None:
        with self._lock:
            if self._atlas is not None:
                self._atlas.interrupt()

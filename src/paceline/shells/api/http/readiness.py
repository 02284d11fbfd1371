"""Readiness: a trial write shows whether the store can be written, within a bounded time even if the store hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paceline.errors import StoreUnavailable
from paceline.ports import Store

T = TypeVar("T")

WAIT_S = 1.5
"""Longest wait for a trial write, so that /readyz answers within two seconds."""
COUNTS_S = 0.5
"""For this long after a successful trial write no new one is made."""


class Readiness:
    """Trial writes.

    Belongs to one event loop, and has its own threads, since all others may be waiting for the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trials = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-trial-write")
        self._looks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paceline-figures")
        self._trial: asyncio.Future[None] | None = None
        self._began_s = 0.0
        self._succeeded_s = -float("inf")

    async def check(self, *, counts_s: float = COUNTS_S) -> None:
        """Makes a trial write, unless one has just succeeded. Raises StoreUnavailable, or the error of the write."""
        if time.monotonic() - self._succeeded_s < counts_s:
            return
        if self._trial is None:
            self._began_s = time.monotonic()
            self._trial = asyncio.get_running_loop().run_in_executor(self._trials, self._write)
            self._trial.add_done_callback(self._ended)
        trial = self._trial
        await asyncio.wait([trial], timeout=WAIT_S)
        if not trial.done():
            for_s = time.monotonic() - self._began_s
            raise StoreUnavailable(
                f"A trial write to the store has not ended after {for_s:.1f} s: another process holds it, or it does "
                "not answer. Find out who else uses it; requests that write are refused until it is free.",
                retry_after_s=5,
            )
        await trial

    async def look(self, job: Callable[[], T], *, wait_s: float) -> None:
        """Runs the job in a thread and waits for it at most ``wait_s``; the job may go on after that."""
        await asyncio.wait([asyncio.get_running_loop().run_in_executor(self._looks, job)], timeout=wait_s)

    def close(self) -> None:
        """Ends the threads without waiting for requests that hang: those have their own time-outs."""
        self._trials.shutdown(wait=False, cancel_futures=True)
        self._looks.shutdown(wait=False, cancel_futures=True)

    def _write(self) -> None:
        with self._store.within(int(WAIT_S * 1_000)):
            self._store.ping()

    def _ended(self, trial: asyncio.Future[None]) -> None:
        self._trial = None
        if not trial.cancelled() and trial.exception() is None:
            self._succeeded_s = time.monotonic()

"""``Worker``: calls your functions for runs of outgoing monitors and records of outgoing providers."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from paceline_client.client import AsyncClient, Client
from paceline_client.durations import DurationLike, seconds
from paceline_client.log import get_log
from paceline_client.models.batches import ClaimedRecord
from paceline_client.models.monitors import ClaimedRun
from paceline_client.worker.lanes import WAIT, Lane, Work
from paceline_client.worker.reports import Reporter

LEASE_DEFAULT = "60s"
CheckFunction = TypeVar("CheckFunction", bound=Callable[[ClaimedRun], object])
RecordFunction = TypeVar("RecordFunction", bound=Callable[[ClaimedRecord], object])
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Claims runs, calls your functions with them, keeps their leases, and reports the outcomes.

    A function that returns has done its run; a returned dictionary is the run's detail. If it raises ``Retry``, the run
    comes again. Any other exception is a failure, with its text. Functions are plain (each call has a thread) or async.
    If the process dies, the lease runs out and the run comes again: it is not lost.
    """

    def __init__(self, client: Client | AsyncClient, *, lease: DurationLike = LEASE_DEFAULT) -> None:
        self._connection = client.connection
        self._lease = lease
        self._works: list[Work[Any]] = []
        self._log = get_log()
        self._stopped = threading.Event()
        self._wake: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def checker(
        self,
        queue: str | None = None,
        *,
        concurrency: int = 1,
        lease: DurationLike | None = None,
        user: str | None = None,
    ) -> Callable[[CheckFunction], CheckFunction]:
        """Makes a function the checker of outgoing monitors in a queue, with ``concurrency`` runs at a time.

        ``lease``: how long a run stays with a process that has died. ``user``: the owner of the monitors, for admins.
        """
        held = lease or self._lease

        async def claim(client: AsyncClient, free: int) -> list[ClaimedRun]:
            return await client.outgoing.claim(max=free, lease=held, wait=WAIT, user=user, queue=queue)

        def register(function: CheckFunction) -> CheckFunction:
            name = f"checker {queue or 'default'}"
            self._works.append(Work(name, function, _at_least_one(concurrency), seconds(held), claim))
            return function

        return register

    def batch(
        self, provider: str, *, concurrency: int = 1, lease: DurationLike | None = None
    ) -> Callable[[RecordFunction], RecordFunction]:
        """Makes a function the worker for an outgoing provider's records, with ``concurrency`` runs at a time.

        The provider's own ``max_in_flight`` limits all workers together.
        """
        held = lease or self._lease

        async def claim(client: AsyncClient, free: int) -> list[ClaimedRecord]:
            return await client.outgoing.claim_records(provider, max=free, lease=held, wait=WAIT)

        def register(function: RecordFunction) -> RecordFunction:
            self._works.append(Work(f"batch {provider}", function, _at_least_one(concurrency), seconds(held), claim))
            return function

        return register

    def run(self) -> None:
        """Works until ``stop()``, SIGTERM or Ctrl-C; then claims nothing more, waits for its runs, and returns."""
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Like ``run``, for a program that already has an event loop."""
        if not self._works:
            raise ValueError("the worker has no function; use @worker.checker or @worker.batch")
        stopping = asyncio.Event()
        with self._listening(stopping):
            self._log.info("worker_started", works=[work.name for work in self._works])
            try:
                await self._serve(stopping)
            finally:
                self._log.info("worker_stopped")

    def stop(self) -> None:
        """Makes ``run()`` return once its runs have ended. May be called from anywhere, also from a function."""
        with self._lock:
            self._stopped.set()
            if self._wake is not None:
                self._wake()

    async def _serve(self, stopping: asyncio.Event) -> None:
        places = sum(work.concurrency for work in self._works)
        with ThreadPoolExecutor(places, thread_name_prefix="paceline-worker") as threads:
            # Each part tries again by itself, at its own pace.
            async with AsyncClient.over(self._connection.with_options(None, tries_max=1)) as client:
                reporter = Reporter(client, self._log)
                reporting = asyncio.create_task(reporter.serve())
                lanes = [
                    Lane(work, client=client, reporter=reporter, threads=threads, stopping=stopping, log=self._log)
                    for work in self._works
                ]
                try:
                    # A lane that fails stops the others, too; each ends when its runs have ended.
                    ends = await asyncio.gather(*(lane.serve() for lane in lanes), return_exceptions=True)
                finally:
                    reporting.cancel()
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    @contextmanager
    def _listening(self, stopping: asyncio.Event) -> Iterator[None]:
        """Lets ``stop()`` and signals set the event while the loop runs."""
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            for one in handled:
                loop.remove_signal_handler(one)  # a second signal ends the process as usual
            self.stop()

        handled: list[signal.Signals] = []
        if threading.current_thread() is threading.main_thread():
            with suppress(NotImplementedError):  # on Windows
                for one in _SIGNALS:
                    loop.add_signal_handler(one, on_signal)
                    handled.append(one)
        with self._lock:
            self._wake = lambda: loop.call_soon_threadsafe(stopping.set)
            if self._stopped.is_set():
                stopping.set()
        try:
            yield
        finally:
            with self._lock:
                self._wake = None
                self._stopped.clear()
            for one in handled:
                loop.remove_signal_handler(one)


def _at_least_one(concurrency: int) -> int:
    if concurrency < 1:
        raise ValueError("concurrency is at least 1")
    return concurrency

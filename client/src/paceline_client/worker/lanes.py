"""One function of a worker: claims as many runs as it has room for, keeps their leases, and reports the outcomes."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from paceline_client.client import AsyncClient
from paceline_client.log import Log
from paceline_client.models.batches import ClaimedRecord
from paceline_client.models.monitors import ClaimedRun, OutcomeResult
from paceline_client.problems import ClientError, Conflict, NoAnswer, NotFound, Problem
from paceline_client.worker.outcomes import Outcome, outcome_of_error, outcome_of_value, without_detail
from paceline_client.worker.reports import Reporter

WAIT = "20s"
CLAIM_MAX = 1_000
PAUSE_S_MAX = 15.0
Item = TypeVar("Item", bound=ClaimedRun | ClaimedRecord)
Claim = Callable[[AsyncClient, int], Awaitable[list[Item]]]


@dataclass(frozen=True, slots=True)
class Work(Generic[Item]):
    """A function, and the source of its runs."""

    name: str
    function: Callable[[Item], object]
    concurrency: int
    lease_s: float
    claim: Claim[Item]


class Lane(Generic[Item]):
    """Runs of one function, from claim to report."""

    def __init__(
        self,
        work: Work[Item],
        *,
        client: AsyncClient,
        reporter: Reporter,
        threads: Executor,
        stopping: asyncio.Event,
        log: Log,
    ) -> None:
        self._work = work
        self._client = client
        self._reporter = reporter
        self._threads = threads
        self._stopping = stopping
        self._log = log
        self._out: set[asyncio.Task[None]] = set()
        self._troubles = 0

    async def serve(self) -> None:
        """Claims until the worker stops, then waits for its runs.

        Raises an error that makes further claims pointless.
        """
        try:
            while not self._stopping.is_set():
                self._reap()
                if len(self._out) >= self._work.concurrency:
                    await self._until_stop(asyncio.wait(self._out, return_when=asyncio.FIRST_COMPLETED))
                    continue
                for item in await self._claim():
                    self._out.add(asyncio.create_task(self._carry_out(item)))
        finally:
            self._stopping.set()
            while self._out:
                await asyncio.wait(self._out)
                self._reap()

    def _reap(self) -> None:
        """Forgets runs that have ended."""
        for task in [task for task in self._out if task.done()]:
            self._out.discard(task)
            task.result()

    async def _claim(self) -> list[Item]:
        """Waits for runs. Returns none if the worker stops, or if the service cannot be asked now."""
        free = min(CLAIM_MAX, self._work.concurrency - len(self._out))
        try:
            claimed = await self._until_stop(self._work.claim(self._client, free))
        except (NoAnswer, Conflict, NotFound) as error:
            await self._pause(error)
        except Problem as error:
            if error.status < 500 and error.status != 429:
                raise
            await self._pause(error)
        else:
            self._troubles = 0
            return claimed or []
        return []

    async def _pause(self, error: ClientError) -> None:
        self._troubles += 1
        self._log.warning("claim_failed", work=self._work.name, error=str(error))
        pause_s = (0.5 + random.random() / 2) * min(PAUSE_S_MAX, 0.5 * 2**self._troubles)  # noqa: S311  a pause
        asked_s = error.retry_after_s if isinstance(error, Problem) else None
        await self._until_stop(asyncio.sleep(max(pause_s, asked_s or 0)))

    async def _until_stop(self, doing: Awaitable[Any]) -> Any:
        """Returns the result of ``doing``; None if the worker stops first.

        A claim that is cancelled like this claims nothing.
        """
        task = asyncio.ensure_future(doing)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            task.cancel()
        await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    async def _carry_out(self, item: Item) -> None:
        """Runs the function while its lease is kept, and reports the outcome."""
        calling = asyncio.create_task(self._call(item))
        keeping = asyncio.create_task(self._keep(item, calling))
        try:
            await asyncio.wait({calling})
            if calling.cancelled() and keeping.done():
                self._log.warning("result_dropped", run=item.run, why="the lease was lost, and the function cancelled")
                return
            outcome = outcome_of_error(asyncio.CancelledError()) if calling.cancelled() else calling.result()
            result = await self._report(item, outcome)
            if result is not None and result.error is not None and result.error.code == "invalid_input":
                # The work is done; without a report it would be repeated.
                outcome = without_detail(outcome, result.error.detail)
                result = await self._report(item, outcome)
        finally:
            keeping.cancel()
        if result is None:
            self._log.warning("result_dropped", run=item.run, why="it could not be reported within the lease")
        elif result.disposition in ("stale", "refused"):
            why = "" if result.error is None else result.error.detail
            self._log.warning("result_dropped", run=item.run, status=outcome.status, why=why)
        else:
            self._log.info("run_reported", run=item.run, attempt=item.attempt, status=outcome.status)

    async def _report(self, item: Item, outcome: Outcome) -> OutcomeResult | None:
        return await self._reporter.report(item.run, item.lease, outcome, within_s=self._work.lease_s)

    async def _call(self, item: Item) -> Outcome:
        """Calls the function and returns the outcome of its run. A plain function runs in a thread."""
        function, started_s = self._work.function, time.perf_counter()
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(item)
            else:
                value = await asyncio.get_running_loop().run_in_executor(self._threads, function, item)
                if inspect.isawaitable(value):
                    value = await value
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a function raises is its run's outcome
            outcome = outcome_of_error(error, latency_ms=_since_ms(started_s))
            if outcome.status == "failed":
                self._log.warning("run_failed", run=item.run, reason=outcome.detail["reason"], exc_info=error)
            return outcome
        return outcome_of_value(value, latency_ms=_since_ms(started_s))

    async def _keep(self, item: Item, calling: asyncio.Task[Outcome]) -> None:
        """Extends the lease three times within its length. If it is lost, an async function is cancelled."""
        by = timedelta(seconds=self._work.lease_s)
        while True:
            await asyncio.sleep(self._work.lease_s / 3)
            client = self._client.with_options(timeout=max(1.0, self._work.lease_s / 3))
            try:
                await client.runs.extend(item.run, lease=item.lease, by=by)
            except (Conflict, NotFound) as error:
                self._log.warning("lease_lost", run=item.run, error=str(error))
                if inspect.iscoroutinefunction(self._work.function):
                    calling.cancel()
                return
            except ClientError as error:
                self._log.warning("extend_failed", run=item.run, error=str(error))


def _since_ms(started_s: float) -> float:
    return round((time.perf_counter() - started_s) * 1_000, 3)

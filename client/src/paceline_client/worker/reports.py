"""Reports outcomes: those that are ready together go in one request, and each is sent until it is answered."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from paceline_client.client import AsyncClient
from paceline_client.log import Log
from paceline_client.models.monitors import OutcomeItem, OutcomeResult
from paceline_client.problems import ClientError, Problem, Throttled
from paceline_client.worker.outcomes import Outcome

TOGETHER_MAX = 100
PAUSE_S_MAX = 5.0
TOO_LARGE = 413
"""The service refuses a body of this length; each half may still be short enough."""


class Report(NamedTuple):
    run: str
    lease: str
    outcome: Outcome
    give_up_s: float
    """Time on the loop's clock when the lease is over and another worker has the run."""
    answered: asyncio.Future[OutcomeResult | None]


class Reporter:
    """One sender for all functions of a worker."""

    def __init__(self, client: AsyncClient, log: Log) -> None:
        self._client, self._log = client, log
        self._waiting: asyncio.Queue[Report] = asyncio.Queue()

    async def report(self, run: str, lease: str, outcome: Outcome, *, within_s: float) -> OutcomeResult | None:
        """Reports an outcome.

        Returns the service's result; None if it could not be reached while the lease may hold.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[OutcomeResult | None] = loop.create_future()
        self._waiting.put_nowait(Report(run, lease, outcome, loop.time() + within_s, answered))
        return await answered

    async def serve(self) -> None:
        """Sends until it is cancelled."""
        while True:
            reports = [await self._waiting.get()]
            while len(reports) < TOGETHER_MAX and not self._waiting.empty():
                reports.append(self._waiting.get_nowait())
            try:
                await self._send(reports)
            except Exception as error:  # noqa: BLE001  a mistake of ours; raised where the report is waited for
                for one in reports:
                    if not one.answered.done():
                        one.answered.set_exception(error)

    async def _send(self, reports: list[Report]) -> None:
        tried = 0
        while reports:
            try:
                results = await self._client.outgoing.report([_item(one) for one in reports])
            except ClientError as error:
                if isinstance(error, Problem) and error.status == TOO_LARGE and len(reports) > 1:
                    middle = len(reports) // 2
                    await self._send(reports[:middle])
                    await self._send(reports[middle:])
                    return
                tried += 1
                reports = self._still_worth(reports, error)
                await asyncio.sleep(random.random() * min(PAUSE_S_MAX, 0.5 * 2**tried))  # noqa: S311  a pause
                continue
            for one, result in zip(reports, results, strict=True):
                one.answered.set_result(result)
            return

    def _still_worth(self, reports: list[Report], error: ClientError) -> list[Report]:
        """Returns the reports whose lease may still hold. Drops the others, and logs how many."""
        refused = isinstance(error, Problem) and error.status < 500 and not isinstance(error, Throttled)
        now_s = asyncio.get_running_loop().time()
        kept = [one for one in reports if one.give_up_s > now_s and not refused]
        self._log.warning("report_failed", runs=len(reports), dropped=len(reports) - len(kept), error=str(error))
        for one in reports:
            if one not in kept:
                one.answered.set_result(None)
        return kept


def _item(report: Report) -> OutcomeItem:
    status, detail, after = report.outcome
    item: OutcomeItem = {"run": report.run, "lease": report.lease, "status": status, "detail": dict(detail)}
    if after is not None:
        item["after"] = after
    return item

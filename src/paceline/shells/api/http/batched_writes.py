"""Batch steps that concurrent requests share. All of them run in writing threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.core.ids import parse_call_run_id
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.values import PutMonitor, PutResult, RemoveMonitor, Run
from paceline.errors import PacelineError
from paceline.steps.batches import outgoing as workers
from paceline.steps.batches.outgoing import RecordedCall, WorkerClaim
from paceline.steps.monitors import define, outgoing
from paceline.steps.monitors.outgoing import OutcomeReport, OutgoingItem, Recorded, RunClaim
from paceline.steps.views.days import CallRunView, show_call_run
from paceline.steps.views.report import MonitorView, monitor_views
from paceline.wiring import System

CLAIM_TOGETHER_MAX = 5_000
"""Most runs that one act claims for several callers."""


class Put(NamedTuple):
    """A successful put: the monitor and its view."""

    created: bool
    monitor: Monitor
    view: MonitorView


class ClaimAsk(NamedTuple):
    """A checker's claim.

    ``owner`` None: runs of every owner. ``queue``: the name of the queue in which the runs wait.
    """

    owner: str | None
    queue: str
    lease_ms: int
    runs_max: int


class WorkerAsk(NamedTuple):
    """A worker's claim of runs of one provider."""

    provider: str
    lease_ms: int
    runs_max: int


class BatchedWrites:
    def __init__(self, system: System, *, wake: Callable[[], None]) -> None:
        self._system = system
        self._store = system.store
        self._wake = wake
        self.limits = system.user_limits
        self._policy = system.retry_policy

    def put(self, puts: Sequence[PutMonitor]) -> list[Put | PacelineError]:
        """Puts monitors: one commit for the definitions, one for their entries, at most two reads for all answers."""
        now_ms = self._system.clock.now_ms()
        results, known = define.put_monitors_and_entries(self._store, puts, **self.limits, now_ms=now_ms)
        self._tell(results)
        done = [result.monitor for result in results if result.monitor is not None and _is_done(result)]
        views = iter(monitor_views(self._store, done, now_ms=now_ms, known=known))
        answers: list[Put | PacelineError] = []
        for put, result in zip(puts, results, strict=True):
            error = define.put_error(result, put, **self.limits)
            if error is not None:
                answers.append(error)
                continue
            assert result.monitor is not None
            answers.append(Put(result.disposition == "created", result.monitor, next(views)))
        return answers

    def put_known_lists(self, lists: Sequence[Sequence[PutMonitor]]) -> list[list[PutResult] | PacelineError]:
        """Like ``put_lists``, but leaves out monitors that need a phase and answers ``unplaced`` for them."""
        now_ms = self._system.clock.now_ms()
        return [self._put_all(puts, now_ms, define.put_known_monitors) for puts in lists]

    def put_lists(self, lists: Sequence[Sequence[PutMonitor]]) -> list[list[PutResult] | PacelineError]:
        """Puts lists of monitors; each list is one call of the step."""
        now_ms = self._system.clock.now_ms()
        return [self._put_all(puts, now_ms, define.put_monitors) for puts in lists]

    def remove(self, removes: Sequence[RemoveMonitor]) -> list[PacelineError | None]:
        """Removes monitors: one commit for the definitions, one for their entries."""
        errors = define.remove_monitors(self._store, removes, now_ms=self._system.clock.now_ms())
        if None in errors:
            self._wake()
        return errors

    def claim(self, asks: Sequence[ClaimAsk]) -> list[list[OutgoingItem] | PacelineError]:
        """Claims runs for checkers. Requests with the same owner, queue and lease time are one act, in their order."""
        items: list[list[OutgoingItem] | PacelineError] = [[] for _ in asks]
        groups: dict[tuple[str | None, str, int], list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault((ask.owner, ask.queue, ask.lease_ms), []).append(index)
        for (owner, queue, lease_ms), members in groups.items():
            wanted = sum(asks[index].runs_max for index in members)
            granted = outgoing.claim_outgoing(
                self._store,
                owner=owner,
                now_ms=self._system.clock.now_ms(),
                runs_max=min(wanted, CLAIM_TOGETHER_MAX),
                lease_ms=lease_ms,
                policy=self._policy,
                name=queue,
            )
            for index in members:
                items[index], granted = granted[: asks[index].runs_max], granted[asks[index].runs_max :]
        return items

    def claim_for_workers(self, asks: Sequence[WorkerAsk]) -> list[WorkerClaim | PacelineError]:
        """Claims runs for workers. Requests for the same provider and lease time are one act, in their order."""
        answers: list[WorkerClaim | PacelineError] = [WorkerClaim([], None)] * len(asks)
        groups: dict[tuple[str, int], list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault((ask.provider, ask.lease_ms), []).append(index)
        for (provider, lease_ms), members in groups.items():
            wanted = min(sum(asks[index].runs_max for index in members), CLAIM_TOGETHER_MAX)
            now_ms = self._system.clock.now_ms()
            try:
                granted, next_ms = workers.claim_for_worker(
                    self._store, provider, now_ms=now_ms, runs_max=wanted, lease_ms=lease_ms
                )
            except PacelineError as error:
                for index in members:
                    answers[index] = error
                continue
            for index in members:
                most = asks[index].runs_max
                answers[index], granted = WorkerClaim(granted[:most], next_ms), granted[most:]
        return answers

    def report_calls(self, reports: Sequence[OutcomeReport]) -> list[CallRunView | PacelineError]:
        """Settles these runs of batches in one act. Returns each run as it is afterwards."""
        now_ms = self._system.clock.now_ms()
        recorded = workers.settle_reports(self._store, reports, now_ms=now_ms)
        return [
            one if isinstance(one, PacelineError) else show_call_run(self._store, one.run, now_ms=now_ms)
            for one in recorded
        ]

    def claim_runs(self, asks: Sequence[RunClaim]) -> list[OutgoingItem | PacelineError]:
        """Claims all these runs by their ids, in one act."""
        return outgoing.claim_runs(self._store, asks, now_ms=self._system.clock.now_ms(), policy=self._policy)

    def report(self, reports: Sequence[OutcomeReport]) -> list[Run | PacelineError]:
        """Records all these outcomes in one commit."""
        return outgoing.record_outcomes(self._store, reports, now_ms=self._system.clock.now_ms(), policy=self._policy)

    def report_lists(
        self, lists: Sequence[Sequence[OutcomeReport]]
    ) -> list[list[Recorded | RecordedCall | PacelineError] | PacelineError]:
        """Records lists of outcomes.

        Of each list, the outcomes of monitors are one act and those of batches another.
        """
        return [self._report_all(one, self._system.clock.now_ms()) for one in lists]

    def _report_all(
        self, reports: Sequence[OutcomeReport], now_ms: int
    ) -> list[Recorded | RecordedCall | PacelineError]:
        calls = {index: one for index, one in enumerate(reports) if parse_call_run_id(one.run) is not None}
        others = {index: one for index, one in enumerate(reports) if index not in calls}
        answers: dict[int, Recorded | RecordedCall | PacelineError] = {}
        if calls:
            settled = workers.settle_reports(self._store, list(calls.values()), now_ms=now_ms)
            answers |= dict(zip(calls, settled, strict=True))
        if others:
            recorded = outgoing.settle_outcomes(self._store, list(others.values()), now_ms=now_ms, policy=self._policy)
            answers |= dict(zip(others, recorded, strict=True))
        return [answers[index] for index in range(len(reports))]

    def _put_all(
        self, puts: Sequence[PutMonitor], now_ms: int, step: Callable[..., list[PutResult]]
    ) -> list[PutResult]:
        results = step(self._store, puts, **self.limits, now_ms=now_ms)
        self._tell(results)
        return results

    def _tell(self, results: Sequence[PutResult]) -> None:
        if any(result.disposition in ("created", "replaced") for result in results):
            self._wake()


def _is_done(result: PutResult) -> bool:
    return result.disposition in ("created", "replaced", "unchanged")

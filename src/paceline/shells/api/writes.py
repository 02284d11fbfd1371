"""The batch steps that concurrent requests share. All of it runs in the one writing thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.core.definition import Monitor
from paceline.errors import PacelineError
from paceline.ports import PutMonitor, PutResult, RemoveMonitor, Run
from paceline.steps import define, outgoing
from paceline.steps.outgoing import OutcomeReport, OutgoingItem, Recorded, RunClaim
from paceline.steps.report import MonitorView, monitor_views
from paceline.wiring import System

CLAIM_TOGETHER_MAX = 5_000
"""So many runs at most are claimed in one act for several callers."""


class Put(NamedTuple):
    """A put that was done: the monitor and what its writer is shown of it."""

    created: bool
    monitor: Monitor
    view: MonitorView


class ClaimAsk(NamedTuple):
    """``owner`` None: of every owner."""

    owner: str | None
    lease_ms: int
    runs_max: int


class Writes:
    def __init__(self, system: System, *, wake: Callable[[], None]) -> None:
        self._system = system
        self._store = system.store
        self._wake = wake
        self._monitors_max = system.settings.monitors_max
        self._firings_max = system.settings.firings_per_second_max
        self._policy = system.retry_policy

    def put(self, puts: Sequence[PutMonitor]) -> list[Put | PacelineError]:
        """One commit for the definitions, one for their entries, at most two reads for all answers."""
        now_ms = self._system.clock.now_ms()
        results, known = define.put_monitors_and_entries(
            self._store, puts, monitors_max=self._monitors_max, firings_max=self._firings_max, now_ms=now_ms
        )
        self._tell(results)
        done = [result.monitor for result in results if result.monitor is not None and _is_done(result)]
        views = iter(monitor_views(self._store, done, now_ms=now_ms, known=known))
        answers: list[Put | PacelineError] = []
        for put, result in zip(puts, results, strict=True):
            error = define.put_error(result, put, monitors_max=self._monitors_max, firings_max=self._firings_max)
            if error is not None:
                answers.append(error)
                continue
            assert result.monitor is not None
            answers.append(Put(result.disposition == "created", result.monitor, next(views)))
        return answers

    def put_lists(self, lists: Sequence[Sequence[PutMonitor]]) -> list[list[PutResult] | PacelineError]:
        """Bulk puts: every list is one call of the step."""
        now_ms = self._system.clock.now_ms()
        return [self._put_all(puts, now_ms) for puts in lists]

    def put_error(self, result: PutResult, put: PutMonitor) -> PacelineError | None:
        return define.put_error(result, put, monitors_max=self._monitors_max, firings_max=self._firings_max)

    def remove(self, removes: Sequence[RemoveMonitor]) -> list[PacelineError | None]:
        """One commit for the definitions, one for their entries."""
        errors = define.remove_monitors(self._store, removes, now_ms=self._system.clock.now_ms())
        if None in errors:
            self._wake()
        return errors

    def claim(self, asks: Sequence[ClaimAsk]) -> list[list[OutgoingItem] | PacelineError]:
        """Claimers of one queue with one lease claim in one act; who asked first is served first."""
        items: list[list[OutgoingItem] | PacelineError] = [[] for _ in asks]
        groups: dict[tuple[str | None, int], list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault((ask.owner, ask.lease_ms), []).append(index)
        for (owner, lease_ms), members in groups.items():
            wanted = sum(asks[index].runs_max for index in members)
            granted = outgoing.claim_outgoing(
                self._store,
                owner=owner,
                now_ms=self._system.clock.now_ms(),
                runs_max=min(wanted, CLAIM_TOGETHER_MAX),
                lease_ms=lease_ms,
                policy=self._policy,
            )
            for index in members:
                items[index], granted = granted[: asks[index].runs_max], granted[asks[index].runs_max :]
        return items

    def claim_runs(self, asks: Sequence[RunClaim]) -> list[OutgoingItem | PacelineError]:
        """One act for all runs that are claimed by their ids together."""
        return outgoing.claim_runs(self._store, asks, now_ms=self._system.clock.now_ms(), policy=self._policy)

    def report(self, reports: Sequence[OutcomeReport]) -> list[Run | PacelineError]:
        """One commit for all outcomes that came together."""
        return outgoing.record_outcomes(self._store, reports, now_ms=self._system.clock.now_ms(), policy=self._policy)

    def report_lists(
        self, lists: Sequence[Sequence[OutcomeReport]]
    ) -> list[list[Recorded | PacelineError] | PacelineError]:
        """Outcomes in bulk: every list is one act."""
        now_ms = self._system.clock.now_ms()
        return [outgoing.settle_outcomes(self._store, one, now_ms=now_ms, policy=self._policy) for one in lists]

    def _put_all(self, puts: Sequence[PutMonitor], now_ms: int) -> list[PutResult]:
        results = define.put_monitors(
            self._store, puts, monitors_max=self._monitors_max, firings_max=self._firings_max, now_ms=now_ms
        )
        self._tell(results)
        return results

    def _tell(self, results: Sequence[PutResult]) -> None:
        if any(result.disposition in ("created", "replaced") for result in results):
            self._wake()


def each(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Writes that have no batch form: one after the other, each with its own result or its own error."""
    return [_outcome(job) for job in jobs]


def _outcome(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except Exception as error:  # noqa: BLE001  it is raised again where the job was ordered
        return error


def _is_done(result: PutResult) -> bool:
    return result.disposition in ("created", "replaced", "unchanged")

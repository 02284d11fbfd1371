"""Stores that break one promise each: the world must notice every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from paceline.core.monitors.alerting.record import NO_RECORD
from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import Advance, Due, ExtraRun
from paceline.core.monitors.places import Places
from paceline.core.monitors.schedule import Keep, Remove
from paceline.core.monitors.uptime.rollup import EndedRun, Rollup, fold
from paceline.core.monitors.values import (
    Claimed,
    PurgeReport,
    PutMonitor,
    PutResult,
    Reacted,
    RemoveMonitor,
    RemoveResult,
    RunQueue,
    Settlement,
)
from paceline.ports import Store
from paceline.ports.monitors import Beside


class Faulty:
    """A correct store, except for the fault of a subclass."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class BelievesAnyCounter(Faulty):
    """Commits without comparing: whatever the advance believed, it is applied to the entry as it is."""

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        return self._inner.commit([self._as_it_is(advance, now_ms) for advance in advances], now_ms=now_ms)

    def _as_it_is(self, advance: Advance, now_ms: int) -> Advance:
        entry = self._inner.entries([advance.due.generation], now_ms=now_ms).get(advance.due.generation)
        if entry is None or entry.due_ms is None:
            return advance
        due = Due(entry.generation, entry.counter, entry.revision, entry.due_ms, entry.cadence)
        return advance if due == advance.due else replace(advance, due=due)


class TellsOfExtraRunsTooSoon(Faulty):
    """Says that an extra run is made, although the entry has moved since it was asked for."""

    def make_extra_runs(self, extra: Sequence[ExtraRun], *, now_ms: int) -> list[bool]:
        self._inner.make_extra_runs(extra, now_ms=now_ms)
        return [True] * len(extra)


class SettlesWithoutFence(Faulty):
    """Takes an outcome without checking the lease of its sender."""

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        return [self._settle(item) for item in settlements]

    def _settle(self, item: Settlement) -> bool:
        run = self._inner.runs([item.handle], now_ms=item.ended_ms).get(item.handle)
        if run is None or run.state != "out" or run.until_ms is None:
            return self._inner.settle([item])[0]
        forged = replace(item, attempt=run.attempt, ended_ms=min(item.ended_ms, run.until_ms))
        return self._inner.settle([forged])[0]


class ForgetsFailures(Faulty):
    """Takes an outcome and forgets what it said about its target."""

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        won = self._inner.settle(settlements)
        for item in settlements:
            run = self._inner.runs([item.handle], now_ms=item.ended_ms).get(item.handle)
            record = self._inner.health_records([run.generation]).get(run.generation) if run else None
            if run is not None and record is not None:
                forgotten = HealthChange(run.owner, run.monitor, run.generation, record, NO_RECORD)
                self._inner.change_health([forgotten])
        return won


class ForgetsChanges(Faulty):
    """Writes the definition and not the change."""

    def put_monitors(
        self, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
    ) -> list[PutResult]:
        results = self._inner.put_monitors(puts, monitors_max=monitors_max, now_ms=now_ms, firings_max=firings_max)
        changes = self._inner.changes(limit=1_000, now_ms=now_ms)
        self._inner.react([Reacted(change, Keep()) for change in changes if change.monitor is not None], now_ms=now_ms)
        return results


class LeasesTooShort(Faulty):
    """Promises a lease and keeps a much shorter one."""

    def claim(
        self, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        claimed = self._inner.claim(queue, now_ms=now_ms, runs_max=runs_max, lease_ms=1, places=places)
        return [replace(item, lease_until_ms=now_ms + lease_ms) for item in claimed]


class ForgetsWhatWasLost(Faulty):
    """Hands out a run whose first attempt was lost as if it were new."""

    def claim(
        self, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        claimed = self._inner.claim(queue, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
        return [replace(item, lost=False) for item in claimed]


class KeepsDeletedEntries(Faulty):
    """Says that an entry is removed, and keeps it."""

    def react(self, reacted: Sequence[Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        return self._inner.react(
            [replace(item, reaction=Keep()) if isinstance(item.reaction, Remove) else item for item in reacted],
            now_ms=now_ms,
            beside=beside,
        )


class DeletesOnlyOnPaper(Faulty):
    """Reports a monitor as removed and does nothing."""

    def remove_monitors(self, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
        return ["removed" if self._inner.monitor(item.owner, item.id) else "not_found" for item in removes]


class Drifts(Faulty):
    """Lets the next due time follow from when it was handled."""

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        late = [replace(advance, next_due_ms=advance.next_due_ms + 50) for advance in advances]
        return self._inner.commit(late, now_ms=now_ms)


class PurgesTooMuch(Faulty):
    """Deletes what was settled a moment ago."""

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        del settled_before_ms
        return self._inner.purge(settled_before_ms=now_ms, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit)


class ExpiresTooEarly(Faulty):
    """Ends runs that have hardly waited."""

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        del due_before_ms
        return self._inner.purge(settled_before_ms=settled_before_ms, due_before_ms=now_ms, now_ms=now_ms, limit=limit)


class FoldsTwice(Faulty):
    """Takes an outcome that is in the roll-up already for a new one."""

    def uptimes(self, monitors: Sequence[Monitor], *, now_ms: int) -> list[Rollup]:
        return [self._twice(one, now_ms=now_ms) for one in monitors]

    def _twice(self, monitor: Monitor, *, now_ms: int) -> Rollup:
        [rollup] = self._inner.uptimes([monitor], now_ms=now_ms)
        if rollup.at_ms is None:
            return rollup
        again = EndedRun(rollup.counter + 1, rollup.due_ms, "ok" if rollup.good else "failed", rollup.at_ms, None, "")
        return fold(rollup, [again])


FAULTS: dict[type[Faulty], str] = {
    BelievesAnyCounter: "promise 4: .* advanced from a stale belief",
    TellsOfExtraRunsTooSoon: "promise 4: .* an extra run of a stale belief",
    SettlesWithoutFence: "promise 5: .* was settled from a stale lease",
    ForgetsFailures: "promise 10: the health of .* should be",
    ForgetsChanges: "promise 10: .* has no entry and no recorded change",
    LeasesTooShort: r"promise 6: .* was handed out too early|promise 10: a rightful outcome of .* was refused",
    ForgetsWhatWasLost: "promise 9: ",
    KeepsDeletedEntries: "promise [34]: ",
    DeletesOnlyOnPaper: "promise 3: ",
    Drifts: "promise [24]: ",
    PurgesTooMuch: "promise 10: .* is lost",
    ExpiresTooEarly: "promise 10: .* expired too early",
    FoldsTwice: "promise 10: .* the uptime has",
}
"""Each fault with what the world must say of it."""

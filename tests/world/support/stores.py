"""A real store seen through two glasses: one keeps the books, the other is the danger that its callers live in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.due import Advance, ExtraRun, Firing, OnTime
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import (
    Claimed,
    Moved,
    PurgeReport,
    PutMonitor,
    PutResult,
    Reacted,
    RemoveMonitor,
    RemoveResult,
    RunQueue,
    Settlement,
    Take,
)
from paceline.core.users import User, UserEdit
from paceline.ports import Store
from paceline.ports.monitors import Beside
from tests.world.support.ledger import Ledger, demand

WRITES = frozenset(
    {"add_user", "edit_user", "remove_user", "put_monitors", "remove_monitors", "react", "commit", "claim", "take"}
    | {"extend", "settle", "settle_and_claim", "release", "purge", "advance_on_time", "book_catch_up"}
    | {"make_extra_runs", "fold_runs", "change_health", "write_items"}
)
REPEATED = ("react", "commit", "settle", "make_extra_runs")
"""Calls that may be delivered again."""
EVERYTHING = 100_000
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class Crash(BaseException):
    """The process dies here: nothing may catch it on the way."""


class Watched:
    """Reports calls that took effect to the ledger; all other methods are those of the store."""

    def __init__(self, inner: Store, ledger: Ledger, past: deque[Call]) -> None:
        self._inner = inner
        self._ledger = ledger
        self._past = past

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def edit_user(self, user_id: str, edit: UserEdit) -> User | None:
        user = self._inner.edit_user(user_id, edit)
        if user is not None:
            (self._ledger.disabled.add if user.disabled else self._ledger.disabled.discard)(user_id)
        return user

    def remove_user(self, user_id: str) -> bool:
        removed = self._inner.remove_user(user_id)
        if removed:
            self._ledger.remove_user(user_id)
        return removed

    def put_monitors(
        self, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
    ) -> list[PutResult]:
        results = self._inner.put_monitors(puts, monitors_max=monitors_max, now_ms=now_ms, firings_max=firings_max)
        self._ledger.put(results)
        return results

    def remove_monitors(self, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
        results = self._inner.remove_monitors(removes)
        self._ledger.remove(removes, results)
        return results

    def react(self, reacted: Sequence[Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        won = self._inner.react(reacted, now_ms=now_ms, beside=beside)
        self._ledger.react(reacted, won)
        self._past.append(("react", (reacted,), {"now_ms": now_ms}))
        return won

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        won = self._inner.commit(advances, now_ms=now_ms)
        self._ledger.commit(advances, won, now_ms=now_ms)
        self._past.append(("commit", (advances,), {"now_ms": now_ms}))
        return won

    def make_extra_runs(self, extra: Sequence[ExtraRun], *, now_ms: int) -> list[bool]:
        won = self._inner.make_extra_runs(extra, now_ms=now_ms)
        self._ledger.make_extra_runs(extra, won)
        self._past.append(("make_extra_runs", (extra,), {"now_ms": now_ms}))
        return won

    def advance_on_time(self, rule: OnTime, *, limit: int) -> Moved:
        """The act tells only how many moved; who they were is found by looking before and after."""
        before = self._inner.due(now_ms=rule.now_ms, limit=EVERYTHING)
        moved = self._inner.advance_on_time(rule, limit=limit)
        after = self._inner.armed_after(None, from_ms=0, limit=EVERYTHING)
        tokens, counters = {due.token for due in after}, {due.generation: due.counter for due in after}
        gone = [due for due in before if due.token not in tokens]
        fired = [due for due in gone if counters[due.generation] > due.counter]
        said = Moved(Counter(due.due_ms for due in fired), len(gone) - len(fired))
        demand(5, said == moved, f"{moved} were said to be made, but {gone} moved")
        demand(5, len(gone) <= limit, f"{len(gone)} moved, more than {limit}")
        for due in gone:
            late_ms, step_ms = rule.now_ms - due.due_ms, due.lead_ms or due.cadence.every_ms
            demand(
                2, late_ms < step_ms and late_ms <= rule.grace_ms, f"{due} was late by {late_ms} ms and not caught up"
            )
            firings = (Firing(due.counter, due.due_ms, 0),) if due in fired else ()
            advance = Advance(due, due.due_ms + step_ms, firings)
            self._ledger.commit([advance], [True], now_ms=rule.now_ms)
        return moved

    def claim(
        self, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        claimed = self._inner.claim(queue, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
        self._ledger.claim(claimed)
        return claimed

    def take(self, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
        taken = self._inner.take(takes, now_ms=now_ms)
        self._ledger.claim([item for item in taken if item is not None])
        for item, wanted in zip(taken, takes, strict=True):
            right = item is None or wanted.attempt in (None, item.attempt)
            demand(5, right, f"{wanted} was asked for, and {item} was handed out")
        return taken

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        won = self._inner.settle(settlements)
        self._ledger.settle(settlements, won)
        self._past.append(("settle", (settlements,), {}))
        return won

    def settle_and_claim(
        self, settlements: Sequence[Settlement], *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None
    ) -> tuple[list[bool], list[Claimed]]:
        won, claimed = self._inner.settle_and_claim(
            settlements, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places
        )
        self._ledger.settle(settlements, won)
        self._ledger.claim(claimed)
        self._past.append(("settle", (settlements,), {}))
        return won, claimed

    def change_health(self, changes: Sequence[HealthChange]) -> list[bool]:
        won = self._inner.change_health(changes)
        self._ledger.change_health(changes, won)
        return won

    def extend(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        granted = self._inner.extend(handle, attempt, until_ms=until_ms, now_ms=now_ms)
        self._ledger.extend(handle, attempt, until_ms=until_ms, granted=granted)
        return granted

    def release(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        won = self._inner.release(fences, now_ms=now_ms)
        self._ledger.release(fences, won)
        return won

    def pull_back_runs(self, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
        moved = self._inner.pull_back_runs(read_ms, wait_ms_max=wait_ms_max, later_ms_max=later_ms_max)
        self._ledger.pull_back(now_ms=read_ms(), wait_ms_max=wait_ms_max)
        return moved

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        report = self._inner.purge(
            settled_before_ms=settled_before_ms, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit
        )
        self._ledger.fade(due_before_ms=due_before_ms)
        for life in self._ledger.living():
            runs = self._inner.monitor_runs(life.monitor, before=None, limit=10_000, now_ms=now_ms)
            kept = {run.counter: run for run in runs}
            self._ledger.purged(life, kept, settled_before_ms=settled_before_ms, due_before_ms=due_before_ms)
        return report


class Perilous:
    """Each write may be preceded by somebody else's whole action, or be the last thing its caller ever did."""

    def __init__(self, inner: Any, peril: Callable[[str], None], *, writes: frozenset[str] = WRITES) -> None:
        self._inner = inner
        self._peril = peril
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._inner, name)
        if name not in self._writes:
            return act

        def perilous(*args: Any, **kwargs: Any) -> Any:
            self._peril(f"before {name}")
            result = act(*args, **kwargs)
            self._peril(f"after {name}")
            return result

        return perilous

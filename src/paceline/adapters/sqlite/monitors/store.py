"""The part of the Store for monitors, entries and runs, on SQLite. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from paceline.adapters.sqlite.database import Connection, SqliteDatabase
from paceline.adapters.sqlite.items import ItemsInside
from paceline.adapters.sqlite.methods import cached_peeks, peeks, reads, writes
from paceline.adapters.sqlite.monitors import advance_on_time as on_time
from paceline.adapters.sqlite.monitors import advances as advances_sql
from paceline.adapters.sqlite.monitors import (
    check_claims,
    definitions,
    extra_runs,
    history,
    lists,
    outgoing_claims,
    uptime,
)
from paceline.adapters.sqlite.monitors import entries as entries_sql
from paceline.adapters.sqlite.monitors import runs as runs_sql
from paceline.adapters.sqlite.monitors.alerting import health, late
from paceline.adapters.sqlite.monitors.cadences import Cadences
from paceline.adapters.sqlite.monitors.owner_queues import OwnerQueues
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import Advance
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import Change, Claimed, FoldReport, Reacted, RunQueue, Settlement, Take
from paceline.ports.monitors import Beside

P = ParamSpec("P")
T = TypeVar("T")


def _reads(act: Callable[Concatenate[Connection, Cadences, P], T]) -> Callable[Concatenate[SqliteMonitorStore, P], T]:
    """Return a method that runs ``act`` on one consistent view of the store, with the known cadences."""

    @wraps(act)
    def method(self: SqliteMonitorStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.read() as db:
            return act(db, self._cadences, *args, **kwargs)

    return method


class SqliteMonitorStore:
    """Fills ``ports.MonitorStore``, except for users and upkeep."""

    _db: SqliteDatabase

    def _remember_monitors(self) -> None:
        """Create the values that this process remembers between calls."""
        self._cadences = Cadences()
        self._owner_queues = OwnerQueues()
        self._checks = check_claims.CheckQueue()
        self._superseded = 0
        self._fold_pass = uptime.FoldPass()

    # -- definitions and their changes

    put_monitors = writes(definitions.put)

    def rewrite_specs(self, monitors: Sequence[Monitor]) -> int:
        with self._db.write() as db:
            rewritten = definitions.rewrite_specs(db, monitors)
        with self._db.writer() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return rewritten

    remove_monitors = writes(definitions.remove)
    monitor = peeks(definitions.monitor)
    monitors = reads(lists.monitors)
    monitors_by_generation = peeks(lists.monitors_by_generation)
    narrowed = reads(lists.narrowed)

    def index_monitors(self, *, limit: int) -> bool:
        with self._db.peek() as db:
            if not lists.is_behind(db):
                return False
        with self._db.write() as db:
            return lists.index(db, limit=limit)

    _any_change = cached_peeks(entries_sql.any_change)

    def changes(self, *, limit: int, now_ms: int) -> list[Change]:
        if not self._any_change():
            return []  # nearly every call ends here
        with self._db.read() as db:
            return entries_sql.changes(db, self._cadences, limit=limit, now_ms=now_ms)

    def react(self, reacted: Sequence[Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        del now_ms  # nobody has to be told when an entry is due
        try:
            with self._db.write() as db:
                won = entries_sql.react(db, reacted, self._cadences)
                if beside is not None:
                    beside(ItemsInside(db), won)
                return won
        except BaseException:
            self._cadences.forget()
            raise

    # -- entries

    entries = _reads(entries_sql.entries)
    schedulers = _reads(entries_sql.schedulers)
    due = _reads(entries_sql.due)
    next_due_ms = cached_peeks(entries_sql.first_due_ms)

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        with self._db.write() as db:
            won, superseded = advances_sql.commit(db, advances, now_ms=now_ms)
        self._superseded += superseded
        return won

    make_extra_runs = writes(extra_runs.make)

    def superseded(self) -> int:
        return self._superseded

    advance_on_time = writes(on_time.advance_on_time)
    book_catch_up = writes(advances_sql.book_catch_up)
    armed_after = _reads(entries_sql.armed_after)

    # -- runs

    def claim(
        self, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        try:
            with self._db.write() as db:
                now_ms = self._db.write_ms(now_ms)
                if queue.outgoing:
                    return outgoing_claims.claim(
                        db, self._owner_queues, queue, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms
                    )
                return self._checks.claim(db, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
        except BaseException:
            self._checks.forget()  # its memory may hold what was not committed
            raise

    def settle_and_claim(
        self, settlements: Sequence[Settlement], *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None
    ) -> tuple[list[bool], list[Claimed]]:
        try:
            with self._db.write() as db:
                won, now_ms = runs_sql.settle(db, settlements), self._db.write_ms(now_ms)
                return won, self._checks.claim(db, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
        except BaseException:
            self._checks.forget()
            raise

    next_run_ms = cached_peeks(check_claims.next_run_ms)

    def take(self, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
        with self._db.write() as db:
            now_ms = self._db.write_ms(now_ms)
            return [self._take(db, item, now_ms) for item in takes]

    def _take(self, db: Connection, item: Take, now_ms: int) -> Claimed | None:
        run = history.find_run(
            db,
            self._cadences,
            item.owner,
            item.monitor,
            generation=item.generation,
            counter=item.counter,
            now_ms=now_ms,
        )
        return (
            outgoing_claims.take(db, run.handle, item.attempt, now_ms=now_ms, lease_ms=item.lease_ms) if run else None
        )

    extend = writes(runs_sql.extend)
    settle = writes(runs_sql.settle)
    pull_back_runs = writes(runs_sql.pull_back)
    release = writes(runs_sql.release)
    runs = reads(history.runs)
    find_run = _reads(history.find_run)
    monitor_runs = _reads(history.monitor_runs)
    glances = _reads(history.glances)
    health_records = reads(health.records)
    hours_to_close = reads(health.to_close)
    late_runs = reads(late.late_runs)
    change_health = writes(health.change)

    # -- roll-ups

    def fold_runs(self, *, limit: int) -> FoldReport:
        with self._db.write() as db:
            return self._fold_pass.fold(db, limit=limit)

    uptimes = _reads(uptime.uptimes)
    put_rollups = writes(uptime.put_rollups)

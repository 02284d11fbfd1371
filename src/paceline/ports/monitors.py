"""Store of users, monitors, their entries and their runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from paceline.core.daemons import Leases
from paceline.core.monitors import values
from paceline.core.monitors.alerting.found import LatePage, Remembered
from paceline.core.monitors.alerting.record import HealthRecord
from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.catch_up import MissedRuns
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import Advance, Due, ExtraRun, OnTime
from paceline.core.monitors.health import Glance
from paceline.core.monitors.lists.query import Facet, MonitorQuery
from paceline.core.monitors.places import Places
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.uptime.rollup import Rollup
from paceline.core.store_status import StoreStatus
from paceline.core.users import Token, TokenAdded, User, UserEdit
from paceline.ports.items import ItemStore

Beside = Callable[[ItemStore, Sequence[bool]], None]
"""Function that writes items beside an act of a store; it gets the store's items and what won."""


class MonitorStore(Protocol):
    """Store of users, monitors, entries and runs; and the upkeep of the whole store."""

    @property
    def schema_version(self) -> int:
        """Return the version of the store's schema; opening a store brings it up to date."""

    # -- users and tokens

    def add_user(self, user: User) -> bool:
        """Add a user. False: the id is taken."""

    def user(self, user_id: str) -> User | None: ...
    def users(self, *, after: str, limit: int) -> list[User]:
        """Return users in order of id, those strictly after ``after``."""

    def edit_user(self, user_id: str, edit: UserEdit) -> User | None:
        """Edit the user. None: there is no such user.

        Disabling or enabling records a change for each of the user's monitors. LastAdmin: no enabled admin would be
        left, also if two admins do it to each other at once.
        """

    def remove_user(self, user_id: str) -> bool:
        """Remove the user, the tokens and the monitors, each monitor with its recorded change.

        LastAdmin as in ``edit_user``.
        """

    def add_token(self, token: Token, *, tokens_max: int) -> TokenAdded:
        """Add a token. ``full``: the user has ``tokens_max`` already. Judged and written in one act."""

    def token(self, token_id: str) -> tuple[Token, User] | None: ...
    def tokens(self, user_id: str) -> list[Token]: ...
    def remove_token(self, user_id: str, token_id: str) -> bool: ...

    # -- definitions and their changes

    def put_monitors(
        self, puts: Sequence[values.PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
    ) -> list[values.PutResult]:
        """Put monitors, each judged by itself, in order; all are durable on return.

        ``firings_max``: firings a second of one owner's monitors together (``core.monitors.load``); 0 is no limit. A
        put that changes something records a change in the same act. One that changes nothing is ``unchanged``. A new
        monitor gets a generation that was never used before and revision 1; a replaced one keeps its generation.
        """

    def rewrite_specs(self, monitors: Sequence[Monitor]) -> int:
        """Store these specs, equivalent to the stored ones, if the revision is still theirs. Return how many.

        No revision rises and no change is recorded. The old texts are gone from the store's files.
        """

    def remove_monitors(self, removes: Sequence[values.RemoveMonitor]) -> list[values.RemoveResult]:
        """Remove monitors. Each removal records a change."""

    def monitor(self, owner: str, monitor_id: str) -> Monitor | None: ...
    def monitors(self, owner: str, *, after: str, limit: int, having: Facet | None = None) -> list[Monitor]:
        """Return monitors in order of id, those strictly after ``after``.

        ``having``: a store with an up-to-date index of the facet leaves others out. Every store has an index of
        FAILING.
        """

    def monitors_by_generation(self, generations: Sequence[int]) -> dict[int, Monitor]:
        """Return the existing monitors by generation."""

    def narrowed(self, query: MonitorQuery, *, limit: int, late_before_ms: int) -> list[Monitor] | None:
        """Return the matching monitors, and perhaps others of the owner, if an index says that they are few.

        They are in any order. None: they may be more than ``limit``, or there is no index that helps. A monitor is late
        if a firing or an open run of it was due before ``late_before_ms``.
        """

    def index_monitors(self, *, limit: int) -> bool:
        """Bring the indexes for lists up to date, ``limit`` monitors at a time. Return whether there is more to do."""

    def changes(self, *, limit: int, now_ms: int) -> list[values.Change]:
        """Return recorded changes that are not reacted to, each with definition and entry as they are now."""

    def react(self, reacted: Sequence[values.Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        """Move each entry as decided and delete the change.

        False: the change was reacted to or overtaken by another, or the entry has moved since. ``beside`` is called
        once all is decided, with the return value; its items are written in the same commit, or after it if a commit
        cannot hold as much.
        """

    # -- entries

    def entries(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Entry]:
        """Return the existing entries by generation."""

    def schedulers(self, *, after_generation: int, limit: int, now_ms: int) -> list[values.Scheduler]:
        """Return entries with the names of their definitions, in order of generation."""

    def due(self, *, now_ms: int, limit: int) -> list[Due]:
        """Return entries due at or before now, earliest first. They may be stale: ``commit`` decides who wins."""

    def next_due_ms(self) -> int | None:
        """Return when the next entry is due; None: none is armed."""

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        """Make the runs of each advance whose ``due`` the store still holds, and move its entry. Else False.

        A run is visible to ``claim`` when this returns.
        """

    def make_extra_runs(self, extra: Sequence[ExtraRun], *, now_ms: int) -> list[bool]:
        """Make a run of each entry that is still as it was read and has no open run. Else False.

        The entry's counter rises by one; its due time, or its pause, and its ``last_due_ms`` stay. A run is visible to
        ``claim`` when this returns.
        """

    def superseded(self) -> int:
        """Return how many waiting runs the commits of this process have ended, because more waited than are kept."""

    def advance_on_time(self, rule: OnTime, *, limit: int) -> values.Moved:
        """Advance due entries that the rule covers, at most ``limit``, in one act.

        It does what ``due``, ``advance`` and ``commit`` would do to them. A store without a faster way advances none,
        and entries whose run would queue behind another may be left out.
        """

    def book_catch_up(self, wanted: Sequence[MissedRuns], *, per_second: int, now_ms: int) -> list[list[int]]:
        """Return times for each entry's missed runs, by ``core.monitors.catch_up.book``.

        All processes share one calendar. An entry whose monitor is gone counts as an owner by itself.
        """

    def armed_after(self, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
        """Return a page of entries in due order, from the given instant on."""

    # -- runs

    def claim(
        self, queue: values.RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[values.Claimed]:
        """Lease runs that may start now, and return them in any order.

        Of an owner's runs those that were due first come first, of equals that of the older monitor. A run that comes
        back (a retry, a lease that ran out, a run that is made up for) keeps its place among them. Outgoing runs of one
        tick may be taken in the order in which it made them; and if more wait than a claim looks at, the order holds
        for those that it looks at.

        Owners take turns: shares are max-min fair (``core.monitors.places``), and places that one does not use go to
        the others. ``places`` limits the checks that an owner and a target may have out; a run that has to wait for a
        place blocks neither other owners nor the owner's other targets. Which of an owner's targets comes first when
        several have places again is not promised.

        While an owner is disabled, nothing is taken from the owner's queues of outgoing runs.

        Runs of one monitor are a group: they start in due order, one at a time; a run behind an unsettled one parks. A
        run whose lease ran out, or whose retry is due, comes back with the next attempt.

        The cost depends on ``runs_max``, not on how many wait.
        """

    def next_run_ms(self) -> int | None:
        """Return when ``claim`` of checks may next have something to do; it may find nothing then."""

    def take(self, takes: Sequence[values.Take], *, now_ms: int) -> list[values.Claimed | None]:
        """Lease each run by its name, out of turn, if ``core.monitors.claim.may_take`` allows it; else None.

        However many processes ask for a run, and however often, one of them gets each attempt. The run is found as
        ``find_run`` finds it.
        """

    def extend(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        """Move the end of a lease that has not run out yet. Return False if it has (``core.monitors.leases``)."""

    def settle(self, settlements: Sequence[values.Settlement]) -> list[bool]:
        """Record each outcome once. False: the run is not out at this attempt, or its outcome came after its lease.

        The effect on the health of its monitor (``core.monitors.alerting.record.after_outcome``) is written in the same
        act: the record, and the alerts. It follows for monitors that exist, by their current definition.
        """

    def settle_and_claim(
        self,
        settlements: Sequence[values.Settlement],
        *,
        now_ms: int,
        runs_max: int,
        lease_ms: int,
        places: Places | None,
    ) -> tuple[list[bool], list[values.Claimed]]:
        """Do ``settle`` and then ``claim`` of checks, in one act if the store can."""

    def pull_back_runs(self, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
        """Move runs after the clock was set back, by ``core.monitors.leases.pulled_back``. Return how many.

        No retry waits longer than ``wait_ms_max``; runs that are ``later`` may wait for ``later_ms_max``, if that is
        more.
        """

    def release(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        """Give back claimed runs that were never started; they may be claimed again at once."""

    def runs(self, handles: Sequence[int], *, now_ms: int) -> dict[int, values.Run]:
        """Read runs together. Return those that exist, by handle.

        Here and in the next two methods ``core.monitors.wait_reasons.show_open`` says what a run waits for.
        """

    def find_run(self, owner: str, monitor_id: str, *, generation: int, counter: int, now_ms: int) -> values.Run | None:
        """Find a run among the newest of the monitor; older ones are reached through ``monitor_runs``."""

    def monitor_runs(self, monitor: Monitor, *, before: int | None, limit: int, now_ms: int) -> list[values.Run]:
        """Return runs of the monitor, newest first; ``before`` is the handle of the last one seen."""

    def glances(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Glance]:
        """Return the facts by which the health of these monitors is judged, for those that have fired."""

    # -- health

    def health_records(self, generations: Sequence[int]) -> dict[int, HealthRecord]:
        """Return the health records of these monitors. Those that do well, and did lately, have none."""

    def hours_to_close(self, *, now_ms: int, limit: int) -> list[Remembered]:
        """Return monitors whose held-back alerts are due (``hour_ends_ms``), the longest over first."""

    def late_runs(self, *, before_ms: int, after: int, limit: int) -> LatePage:
        """Return first open runs of monitors that could have started before that time and have not.

        A page looks at about ``limit`` open runs, and may have none that is late. ``after``: 0, or what the previous
        page returned. ``core.monitors.wait_reasons.could_start_ms`` says since when a run could start.
        """

    def change_health(self, changes: Sequence[HealthChange]) -> list[bool]:
        """Replace each record that is still as it was seen, and store the alerts with it.

        False: it was changed meanwhile, the monitor is gone, or the run that the change names has ended.
        """

    # -- roll-ups

    def fold_runs(self, *, limit: int) -> values.FoldReport:
        """Fold outcomes into the roll-ups of their monitors (``core.monitors.uptime``), about ``limit``, in one act.

        Each outcome is folded once, in the order of the counters, by any process, and before ``purge`` deletes its run.
        One short pass; a store may fold at other moments instead, and then does nothing here.
        """

    def uptimes(self, monitors: Sequence[Monitor], *, now_ms: int) -> list[Rollup]:
        """Return the roll-up of each monitor with all recorded outcomes, also those not folded yet."""

    def put_rollups(self, rollups: Sequence[tuple[int, Rollup]]) -> int:
        """Store roll-ups by generation, for monitors that have none yet. Return how many were stored."""

    # -- upkeep

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> values.PurgeReport:
        """Delete runs settled before the first time, end waiting runs due before the second, at most ``limit`` each.

        One short pass; ``more`` says that the next one has something to do. A run that is made up for at a later moment
        counts by its due time, too. A store may keep a settled run for an hour longer, so that several of a monitor are
        deleted together.
        """

    def status(self) -> StoreStatus: ...
    def verify(self) -> list[str]:
        """Return what is wrong with the store or breaks a promise, in plain words; empty if all is well."""

    def ping(self) -> None:
        """Raise StoreUnavailable unless the store can be written."""

    def leases(self, *, now_ms: int) -> Leases:
        """Count the runs of monitors whose lease has not ended: they may still be reported."""

    def watch(self) -> None:
        """Raise StoreDamaged if the store is no longer the one that was opened.

        Cheap; called several times a second.
        """

    def within(self, wait_ms: int) -> AbstractContextManager[None]:
        """Limit how long the writes of this thread inside wait for others, together; then raise StoreUnavailable."""

    def version(self) -> int:
        """Return a number that changes when another process has written something that may be due sooner; cheap."""

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None: ...
    def close(self) -> None: ...

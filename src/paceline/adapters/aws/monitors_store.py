"""The half of the Store on DynamoDB that knows: users, monitors, entries and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

from paceline.adapters.aws import (
    monitors_advances,
    monitors_alarms,
    monitors_changes,
    monitors_claims,
    monitors_definitions,
    monitors_entries,
    monitors_history,
    monitors_offers,
    monitors_runs,
    monitors_settlements,
    monitors_upkeep,
    monitors_users,
    monitors_verify,
)
from paceline.adapters.aws.firsts import END, Firsts
from paceline.adapters.aws.monitors_alarms import Bell, Swept
from paceline.adapters.aws.monitors_definitions import Limits
from paceline.adapters.aws.monitors_due import NextDue
from paceline.adapters.aws.monitors_upkeep import Waits
from paceline.adapters.aws.part import Part
from paceline.core.definition import Monitor
from paceline.core.due import Advance, Due, OnTime
from paceline.core.health import Glance
from paceline.core.places import Places
from paceline.core.schedule import Arm, Entry
from paceline.ports.messages import Alarm
from paceline.ports.monitors import (
    Change,
    Claimed,
    Moved,
    PurgeReport,
    PutMonitor,
    PutResult,
    Queue,
    Reacted,
    RemoveMonitor,
    RemoveResult,
    Run,
    Scheduler,
    Settlement,
    StoreStatus,
    Take,
    Token,
    TokenAdded,
    User,
    UserEdit,
)


class AwsMonitorStore(Part):
    """Fills ``ports.MonitorStore``."""

    @cached_property
    def bell(self) -> Bell:
        """Sends the messages that wake ticks and checkers; ``bell.rings = False`` where nobody listens."""
        return Bell(self._queues)

    @cached_property
    def _next_due(self) -> NextDue:
        return NextDue(self._database, self.news)

    @cached_property
    def _claims(self) -> monitors_claims.ClaimMemory:
        return monitors_claims.ClaimMemory()

    @cached_property
    def _checks(self) -> Firsts:
        return monitors_claims.ready_checks(self._database, self.news)

    @cached_property
    def _figures(self) -> monitors_advances.Figures:
        return monitors_advances.Figures()

    @cached_property
    def _counts(self) -> monitors_upkeep.Counts:
        return monitors_upkeep.Counts(self._database)

    # -- users and tokens

    def add_user(self, user: User) -> bool:
        return monitors_users.add_user(self._database, self._numbers, user)

    def user(self, user_id: str) -> User | None:
        return monitors_users.user(self._database, user_id)

    def users(self, *, after: str, limit: int) -> list[User]:
        return monitors_users.users(self._database, after=after, limit=limit)

    def edit_user(self, user_id: str, edit: UserEdit) -> User | None:
        edited = monitors_users.edit_user(self._database, self._numbers, self.bell, user_id, edit)
        if edited is not None and edit.disabled is not None:
            self.news.ring(heard=True)
        return edited

    def remove_user(self, user_id: str) -> bool:
        removed = monitors_users.remove_user(self._database, self._numbers, self.bell, user_id)
        if removed:
            self.news.ring(heard=True)
        return removed

    def add_token(self, token: Token, *, tokens_max: int) -> TokenAdded:
        return monitors_users.add_token(self._database, token, tokens_max=tokens_max)

    def token(self, token_id: str) -> tuple[Token, User] | None:
        return monitors_users.token(self._database, token_id)

    def tokens(self, user_id: str) -> list[Token]:
        return monitors_users.tokens(self._database, user_id)

    def remove_token(self, user_id: str, token_id: str) -> bool:
        return monitors_users.remove_token(self._database, user_id, token_id)

    # -- definitions and their changes

    def put_monitors(
        self, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
    ) -> list[PutResult]:
        self.bell.told(now_ms)
        return monitors_definitions.put_monitors(
            self._database, self._numbers, puts, Limits(monitors_max, firings_max), now_ms=now_ms
        )

    def rewrite_specs(self, monitors: Sequence[Monitor]) -> int:
        return monitors_definitions.rewrite_specs(self._database, monitors)

    def remove_monitors(self, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
        return monitors_definitions.remove_monitors(self._database, self._numbers, removes)

    def monitor(self, owner: str, monitor_id: str) -> Monitor | None:
        return monitors_definitions.monitor(self._database, owner, monitor_id)

    def monitors(self, owner: str, *, after: str, limit: int) -> list[Monitor]:
        return monitors_definitions.monitors(self._database, owner, after=after, limit=limit)

    def changes(self, *, limit: int, now_ms: int) -> list[Change]:
        self.bell.told(now_ms)
        return monitors_changes.changes(self._database, self._numbers, self.bell, limit=limit)

    def react(self, reacted: Sequence[Reacted]) -> list[bool]:
        won = monitors_entries.react(self._database, self._next_due, self.bell, reacted)
        if any(moved and isinstance(item.reaction, Arm) for item, moved in zip(reacted, won, strict=True)):
            self.news.ring()
        return won

    # -- entries

    def entries(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Entry]:
        del now_ms  # an entry is found by its key, wherever it stands
        return monitors_entries.entries(self._database, generations)

    def schedulers(self, *, after_generation: int, limit: int, now_ms: int) -> list[Scheduler]:
        del now_ms
        return monitors_entries.schedulers(self._database, after_generation=after_generation, limit=limit)

    def due(self, *, now_ms: int, limit: int) -> list[Due]:
        return monitors_entries.due(self._database, self._next_due, now_ms=now_ms, limit=limit)

    def next_due_ms(self) -> int | None:
        return self._next_due.first_ms()

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        self.bell.told(now_ms)
        won = monitors_advances.commit(
            self._database,
            self._next_due,
            self._checks,
            self.bell,
            advances,
            now_ms=now_ms,
            figures=self._figures,
        )
        back = [advance.next_due_ms < advance.due.due_ms for advance in advances]
        if any(moved and pulled for moved, pulled in zip(won, back, strict=True)):
            self.news.ring()  # it was pulled back: it is due sooner than others think
        return won

    def superseded(self) -> int:
        return self._figures.superseded

    def advance_on_time(self, rule: OnTime, *, limit: int) -> Moved:
        """None: DynamoDB has no write for a set. ``due`` and ``commit`` advance them, many in one transaction."""
        del rule, limit
        return Moved(Counter(), 0)

    def book_catch_up(self, wanted: Sequence[Sequence[int]], *, per_second: int, now_ms: int) -> list[list[int]]:
        return monitors_advances.book_catch_up(self._database, wanted, per_second=per_second, now_ms=now_ms)

    def armed_after(self, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
        return monitors_entries.armed_after(self._database, after, from_ms=from_ms, limit=limit)

    # -- alarms, for those who are woken by messages instead of looking

    def rung(self, alarms: Sequence[Alarm], *, now_ms: int) -> list[Due]:
        """Of entries whose alarm rang, those that are due and still as their alarm says: what ``commit`` may advance.

        An alarm that came early is sent once more. Any other is stale: its entry has moved and has its own alarm.
        """
        return monitors_entries.rung(self._database, self.bell, alarms, now_ms=now_ms)

    def sweep_alarms(self, *, now_ms: int) -> Swept:
        """To be called at least every ten minutes. It also replaces alarms that were lost."""
        swept = monitors_alarms.sweep(self._database, self.bell, now_ms=now_ms)
        return swept._replace(offered=self.offer_again(now_ms=now_ms))

    # -- runs

    def claim(
        self, queue: Queue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        given: dict[str, Any] = {"now_ms": now_ms, "runs_max": runs_max, "lease_ms": lease_ms, "places": places}
        return monitors_claims.claim(self._database, self._claims, self._checks, queue, **given)

    def claim_checks_of(
        self, generations: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        """``claim``, of these monitors alone: who is told of one need not look for others."""
        given: dict[str, Any] = {"now_ms": now_ms, "runs_max": runs_max, "lease_ms": lease_ms, "places": places}
        return monitors_claims.claim_of(self._database, self._claims, self._checks, generations, **given)

    def next_run_ms(self) -> int | None:
        first_ms = self._checks.first()
        return None if first_ms == END else first_ms

    def take(self, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
        return monitors_claims.take(self._database, self.bell, takes, now_ms=now_ms)

    def offer_again(self, *, now_ms: int) -> int:
        return monitors_offers.offer_again(self._database, self.bell, now_ms=now_ms)

    def extend(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        return monitors_runs.extend(self._database, handle, attempt, until_ms=until_ms, now_ms=now_ms)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        return monitors_settlements.settle(self._database, self.bell, self._checks, settlements)

    def pull_back_runs(self, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
        waits = Waits(wait_ms_max, max(wait_ms_max, later_ms_max))
        moved = monitors_upkeep.pull_back(self._database, read_ms, waits)
        if moved:
            self.news.ring(heard=True)
        return moved

    def release(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        released = monitors_runs.release(self._database, self._checks, fences, now_ms=now_ms)
        self.news.ring()
        return released

    def run(self, handle: int) -> Run | None:
        return monitors_history.run(self._database, handle)

    def runs(self, handles: Sequence[int]) -> dict[int, Run]:
        return monitors_history.runs(self._database, handles)

    def find_run(self, owner: str, monitor_id: str, *, generation: int, counter: int, now_ms: int) -> Run | None:
        del now_ms
        return monitors_history.find_run(self._database, owner, monitor_id, generation=generation, counter=counter)

    def monitor_runs(self, monitor: Monitor, *, before: int | None, limit: int, now_ms: int) -> list[Run]:
        del now_ms
        return monitors_history.monitor_runs(self._database, monitor, before=before, limit=limit)

    def glances(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Glance]:
        del now_ms
        return monitors_history.glances(self._database, generations)

    # -- upkeep

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        return monitors_upkeep.purge(
            self._database,
            self.bell,
            settled_before_ms=settled_before_ms,
            due_before_ms=due_before_ms,
            now_ms=now_ms,
            limit=limit,
        )

    def verify_monitors(self) -> list[str]:
        """What is wrong with this half, in plain words."""
        return monitors_verify.verify_monitors(self._database)

    def monitor_counts(self) -> StoreStatus:
        """The counts of this half; those of the other are 0."""
        return self._counts.read(next_due_ms=self.next_due_ms())

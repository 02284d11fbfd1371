"""Users, monitors, their entries and their runs: what the store keeps of them and what it promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from paceline.core.checks import Check
from paceline.core.definition import Monitor, MonitorSpec
from paceline.core.due import Advance, Due, OnTime
from paceline.core.health import Glance
from paceline.core.outcome import Outcome, RunState
from paceline.core.places import Places
from paceline.core.schedule import Entry, Reaction

Role = Literal["admin", "user"]
TokenAdded = Literal["added", "no_user", "full"]


class User(msgspec.Struct, frozen=True):
    id: str
    role: Role
    daily_credits: int
    disabled: bool
    created_ms: int
    monitors: int = 0
    """How many monitors the user has; kept by the store."""


class UserEdit(msgspec.Struct, frozen=True):
    """None leaves a field as it is."""

    role: Role | None = None
    daily_credits: int | None = None
    disabled: bool | None = None


class Token(msgspec.Struct, frozen=True):
    """A token's record. The secret itself is never stored: ``digest`` is its keyed hash."""

    id: str
    user: str
    label: str
    digest: bytes
    created_ms: int


class PutMonitor(msgspec.Struct, frozen=True, gc=False):
    owner: str
    id: str
    spec: MonitorSpec
    expected_revision: int | None = None
    """The revision the writer has seen; 0 for "must not exist yet"; None for "whatever is there"."""
    expected_generation: int | None = None
    """Whose revision that is, so that a monitor removed and made anew in between is not taken for the one seen."""
    created_ms: int | None = None
    """Of a new monitor that was made elsewhere: when. None: now."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """A recorded change of a definition that its entry has not followed yet, with both as they are now."""

    seq: int
    generation: int
    monitor: Monitor | None
    """None: the definition is gone."""
    owner_disabled: bool
    entry: Entry | None


class PutResult(msgspec.Struct, frozen=True, gc=False):
    disposition: Literal[
        "created", "replaced", "unchanged", "revision_mismatch", "limit_reached", "rate_reached", "no_owner"
    ]
    monitor: Monitor | None = None
    """The monitor as it stands after the act; None if there is none."""
    change: Change | None = None
    """The recorded change, where nothing more need be read to react to it: a new monitor has no entry yet."""
    load: int = 0
    """What the owner's load would be (``core.load``), if that is why it was refused."""


class RemoveMonitor(msgspec.Struct, frozen=True):
    owner: str
    id: str
    expected_revision: int | None = None
    expected_generation: int | None = None


RemoveResult = Literal["removed", "not_found", "revision_mismatch"]


class Reacted(msgspec.Struct, frozen=True, gc=False):
    """What shall become of the entry. It counts only if the entry is still as the change showed it."""

    change: Change
    reaction: Reaction


class Scheduler(msgspec.Struct, frozen=True):
    """One entry with the name of its definition: a row of ``GET /v1/schedulers``."""

    owner: str
    monitor: str
    entry: Entry


class Queue(msgspec.Struct, frozen=True):
    """Where runs wait: the checks that Paceline makes itself, or the outgoing runs of one owner, or of all."""

    outgoing: bool
    owner: str | None = None


CHECKS = Queue(outgoing=False)


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A run that is out with the claimer until ``lease_until_ms``. ``handle`` and ``attempt`` are the fence."""

    handle: int
    attempt: int
    owner: str
    monitor: str
    generation: int
    counter: int
    due_ms: int
    lease_until_ms: int
    lost: bool
    """An earlier attempt was out when its lease ran out."""
    check: Check | None
    """As the definition is now; None: it is gone."""
    target: str = ""
    """Where the check connects, if the store knows it already (``core.places.target_of``)."""


class Take(msgspec.Struct, frozen=True, gc=False):
    """One run of an outgoing queue, by its name, for a checker that was told of it.

    ``attempt``: only as this one; None: whichever it would be.
    """

    owner: str
    monitor: str
    generation: int
    counter: int
    lease_ms: int
    attempt: int | None = None


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What came of a claimed run. It counts only if the run is still out at this attempt."""

    handle: int
    attempt: int
    outcome: Outcome
    started_ms: int
    ended_ms: int


class Run(msgspec.Struct, frozen=True):
    """A run as it is reported."""

    handle: int
    owner: str
    monitor: str
    generation: int
    counter: int
    due_ms: int
    state: RunState
    attempt: int = 0
    reason: str = ""
    until_ms: int | None = None
    """Out: when the lease ends. Retry or later: when it may start."""
    started_ms: int | None = None
    ended_ms: int | None = None
    latency_ms: float | None = None
    code: int | None = None
    detail: dict[str, Any] = {}


class Moved(NamedTuple):
    """Entries that advanced together."""

    made: Counter[int]
    """How many runs were made, by their due time."""
    skipped: int
    """Entries that made none, because their run before has not ended."""

    @property
    def entries(self) -> int:
        return self.made.total() + self.skipped


class PurgeReport(NamedTuple):
    runs_deleted: int
    runs_expired: int
    more: bool = False
    """The next pass may have something to do: it goes on where this one stopped."""


class StoreStatus(msgspec.Struct, frozen=True):
    """Counts for people and metrics, in bounded time: they are kept by those who write, or counted up to a limit."""

    users: int
    monitors: int
    entries: int
    changes: int
    runs_waiting: int
    runs_out: int
    next_due_ms: int | None
    oldest_waiting_due_ms: int | None
    file_bytes: int
    providers: int = 0
    batches: int = 0
    calls_waiting: int = 0
    """Runs of batches that have not ended, those that are out among them."""
    calls_aside: int = 0
    dead_letters: int = 0
    oldest_call_due_ms: int | None = None
    check_start_ms: int | None = None
    """Since when the first of the waiting checks could have started; it may lie ahead. None: none waits for a start."""
    outgoing_start_ms: int | None = None
    """The same of runs for users' own checkers."""
    call_start_ms: int | None = None
    """The same of batches' runs: their provider's order, rate, pauses and breaker would let the first one start."""


class MonitorStore(Protocol):
    """Users, monitors, entries and runs; and the upkeep of the whole store."""

    @property
    def schema_version(self) -> int:
        """The version of the store's schema; opening a store brings it up to date."""

    # -- users and tokens

    def add_user(self, user: User) -> bool:
        """False: the id is taken."""

    def user(self, user_id: str) -> User | None: ...
    def users(self, *, after: str, limit: int) -> list[User]:
        """In order of id, those strictly after ``after``."""

    def edit_user(self, user_id: str, edit: UserEdit) -> User | None:
        """None: there is no such user. Disabling or enabling records a change for each of the user's monitors.

        LastAdmin: nobody would be left who is an admin and not disabled, also if two do it to each other at once.
        """

    def remove_user(self, user_id: str) -> bool:
        """The user, the tokens and the monitors, each removed monitor with its recorded change. LastAdmin as above."""

    def add_token(self, token: Token, *, tokens_max: int) -> TokenAdded:
        """``full``: the user has ``tokens_max`` already. Judged and written in one act."""

    def token(self, token_id: str) -> tuple[Token, User] | None: ...
    def tokens(self, user_id: str) -> list[Token]: ...
    def remove_token(self, user_id: str, token_id: str) -> bool: ...

    # -- definitions and their changes

    def put_monitors(
        self, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
    ) -> list[PutResult]:
        """Each put is judged by itself, in order; all are durable on return.

        ``firings_max``: so often a second may an owner's monitors fire together, by ``core.load``; 0 is no limit.

        A put that changes something records a change in the same act. One that changes nothing is ``unchanged``.
        A new monitor gets a generation that was never used before and revision 1; a replaced one keeps its generation.
        """

    def rewrite_specs(self, monitors: Sequence[Monitor]) -> int:
        """Store these specs, which mean what the stored ones mean, where the revision is still theirs; how many.

        No revision rises and nothing follows. What stood there before is gone from the store's files.
        """

    def remove_monitors(self, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
        """Each removal records a change."""

    def monitor(self, owner: str, monitor_id: str) -> Monitor | None: ...
    def monitors(self, owner: str, *, after: str, limit: int) -> list[Monitor]:
        """In order of id, those strictly after ``after``."""

    def changes(self, *, limit: int, now_ms: int) -> list[Change]:
        """Recorded changes that are not reacted to, each with definition and entry as they are now."""

    def react(self, reacted: Sequence[Reacted]) -> list[bool]:
        """Moves each entry as decided and forgets the change.

        False: the change was reacted to or overtaken by another, or the entry has moved since.
        """

    # -- entries

    def entries(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Entry]: ...
    def schedulers(self, *, after_generation: int, limit: int, now_ms: int) -> list[Scheduler]: ...
    def due(self, *, now_ms: int, limit: int) -> list[Due]:
        """Entries due at or before now, earliest first. May be stale on some stores: ``commit`` is the judge."""

    def next_due_ms(self) -> int | None: ...
    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        """For each advance whose ``due`` is still what the store holds: make its runs and move the entry. Else False.

        A run is visible to ``claim`` when this returns.
        """

    def superseded(self) -> int:
        """How many waiting runs the commits of this process have ended so far, because more waited than are kept."""

    def advance_on_time(self, rule: OnTime, *, limit: int) -> Moved:
        """Advances due entries that the rule covers, at most ``limit``, in one act.

        It does what ``due``, ``advance`` and ``commit`` would do to them. A store without a faster way advances none,
        and entries whose run would queue behind another may be left out.
        """

    def book_catch_up(self, wanted: Sequence[Sequence[int]], *, per_second: int, now_ms: int) -> list[list[int]]:
        """Times for each entry's missed runs, as ``core.catch_up.book`` has it, on one calendar for all processes."""

    def armed_after(self, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
        """Pages through entries in due order, from the given instant on."""

    # -- runs

    def claim(
        self, queue: Queue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        """Takes runs that may start now and leases them, an owner's earliest first.

        Of an owner's new runs those first that were due first, of equals that of the older monitor. Of those that come
        back (retries, leases that ran out) those first whose time came first. Where both wait, SQLite takes what comes
        back before what is new; AWS takes whichever may start for longer.

        Owners take turns: shares are max-min fair (``core.places``), and what one leaves the others use. With
        ``places``, what an owner and a target may have out is limited; a run that has to wait for a place blocks
        neither other owners nor the owner's other targets.

        Runs of one monitor are a group: they start in due order, one at a time; a run behind an unsettled one parks.
        A run whose lease ran out, or whose retry is due, comes back with the next attempt.
        The cost depends on ``runs_max``, not on how many wait.
        """

    def next_run_ms(self) -> int | None:
        """When ``claim`` of checks may next have something to do; it may find nothing then."""

    def take(self, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
        """Leases each run by its name, as ``claim`` would in its turn. None: it is not to be had, or not as attempted.

        It is to be had while it is the first of its monitor that is not settled, unless it is out, its pause is not
        over, or its owner is disabled. However many ask for it, and however often, one gets each attempt. It is found
        as ``find_run`` finds it.
        """

    def offer_again(self, *, now_ms: int) -> int:
        """Tells checkers once more of runs whose message may be lost; how many. 0 where nobody is told by messages."""

    def extend(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        """A longer lease, if it has not run out yet."""

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Records each outcome once. False (fencing): it is not out at this attempt, or ended after its lease."""

    def pull_back_runs(self, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
        """After the clock was set back: leases that began after now begin now, no other run waits longer than given.

        Runs that are ``later`` may wait for ``later_ms_max``, if that is more.
        """

    def release(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        """Gives claimed runs back that were never started; they may be claimed again at once."""

    def run(self, handle: int) -> Run | None: ...
    def runs(self, handles: Sequence[int]) -> dict[int, Run]:
        """By handle, those that there are; read together."""

    def find_run(self, owner: str, monitor_id: str, *, generation: int, counter: int, now_ms: int) -> Run | None:
        """Among the newest runs of the monitor; older ones are reached through ``monitor_runs``."""

    def monitor_runs(self, monitor: Monitor, *, before: int | None, limit: int, now_ms: int) -> list[Run]:
        """Newest first; ``before`` is the handle of the last one seen."""

    def glances(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Glance]: ...

    # -- upkeep

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        """Deletes runs settled before the one, ends waiting runs due before the other; at most ``limit`` each.

        One short pass; ``more`` says that the next one has something to go on with.
        """

    def status(self) -> StoreStatus: ...
    def verify(self) -> list[str]:
        """What is wrong with the store or breaks a promise, in plain words; empty if all is well."""

    def ping(self) -> None:
        """Raises StoreUnavailable unless the store can be written."""

    def note_time(self, read_ms: Callable[[], int], *, apart_ms: int = 0) -> tuple[int | None, int]:
        """Keeps the time, read where no other process writes meanwhile. Returns what was kept before, and the time.

        A time that shows that the clock was set back (``core.clock.set_back_ms``) is not kept: ``accept_time`` does
        that once all that waits too far ahead was pulled back. Whoever dies in between leaves it to the next.
        """

    def accept_time(self, read_ms: Callable[[], int]) -> None:
        """Keeps the time, whatever was kept before."""

    def watch(self) -> None:
        """Raises StoreDamaged if the store is no longer what was opened. Cheap; called several times a second."""

    def within(self, wait_ms: int) -> AbstractContextManager[None]:
        """All writes of this thread inside wait for others so long at most, together; then StoreUnavailable."""

    def version(self) -> int:
        """A number that changes when another process has written what may be due sooner than was known; cheap."""

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None: ...
    def close(self) -> None: ...

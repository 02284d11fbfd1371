"""Monitors, their changes and their runs, as a store is given and returns them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from paceline.core.ids import run_id
from paceline.core.monitors.checks import DEFAULT_QUEUE, Check, PolledCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.outcome import Done, Outcome, RunState
from paceline.core.monitors.schedule import Entry, Reaction


class PutMonitor(msgspec.Struct, frozen=True, gc=False):
    owner: str
    id: str
    spec: MonitorSpec
    expected_revision: int | None = None
    """Revision that the writer has seen; 0 for "must not exist yet"; None for "whatever is there"."""
    expected_generation: int | None = None
    """Generation of that revision, so that a monitor removed and created again meanwhile is not mistaken for it."""
    created_ms: int | None = None
    """Creation time of a new monitor that was made in another store. None: now."""
    asks_phase: bool = False
    """Request for a phase: if the monitor needs one and has none, nothing is written and the answer is ``unplaced``.

    A put without this that proposes no phase lets the grid begin with the first firing.
    """


class Change(msgspec.Struct, frozen=True, gc=False):
    """A recorded change of a definition that its entry has not followed yet, with both as they are now."""

    seq: int
    generation: int
    monitor: Monitor | None
    """Current definition; None: it is gone."""
    owner_disabled: bool
    entry: Entry | None


class PutResult(msgspec.Struct, frozen=True, gc=False):
    disposition: Literal[
        "created",
        "replaced",
        "unchanged",
        "unplaced",
        "revision_mismatch",
        "limit_reached",
        "rate_reached",
        "queues_reached",
        "no_owner",
    ]
    monitor: Monitor | None = None
    """The monitor after the put; None if there is none."""
    change: Change | None = None
    """The recorded change, if nothing more need be read to react to it: a new monitor has no entry yet."""
    load: int = 0
    """Load that the owner would have (``core.monitors.load``), if that is why the put was refused."""
    before: MonitorSpec | None = None
    """Spec that was replaced."""


class RemoveMonitor(msgspec.Struct, frozen=True):
    owner: str
    id: str
    expected_revision: int | None = None
    expected_generation: int | None = None


RemoveResult = Literal["removed", "not_found", "revision_mismatch"]


class Reacted(msgspec.Struct, frozen=True, gc=False):
    """Reaction of an entry to a change. It counts only if the entry is still as the change showed it."""

    change: Change
    reaction: Reaction


class Scheduler(msgspec.Struct, frozen=True):
    """One entry with the name of its definition: a row of ``GET /v1/schedulers``."""

    owner: str
    monitor: str
    entry: Entry


class RunQueue(msgspec.Struct, frozen=True):
    """A queue of runs: the checks that Paceline makes itself, or the outgoing runs of one owner, or of all.

    ``name`` is that of the outgoing queue; runs of other queues are not touched.
    """

    outgoing: bool
    owner: str | None = None
    name: str = DEFAULT_QUEUE


CHECKS = RunQueue(outgoing=False)


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A run that is out with the claimer until ``lease_until_ms``. ``handle`` and ``attempt`` are the fence."""

    handle: int
    attempt: int
    owner: str
    monitor: str
    generation: int
    counter: int
    due_ms: int = 0
    lease_until_ms: int = 0
    lost: bool = False
    """True if an earlier attempt was out when its lease ran out."""
    check: Check | None = None
    """Current check of the definition; None: the definition is gone."""
    target: str = ""
    """Host and port that the check connects to, if the store knows them (``core.monitors.places.target_of``)."""
    attempts: int = 1
    """Number of tries that its monitor wants before a check counts as failed."""

    @property
    def run_id(self) -> str:
        """Return the run's id, computed on demand because few checks need it."""
        return run_id(self.owner, self.monitor, generation=self.generation, counter=self.counter)


class CheckOrder(Claimed, frozen=True, gc=False):
    """A check to be made now, with its target. A claimed run that needs no change is an order already."""

    if TYPE_CHECKING:
        check: PolledCheck  # type: ignore[misc]  # narrower, and always given


class Take(msgspec.Struct, frozen=True, gc=False):
    """Request for one run of an outgoing queue by its id, from a checker that got a message about it.

    ``attempt``: only as this attempt; None: as the next one.
    """

    owner: str
    monitor: str
    generation: int
    counter: int
    lease_ms: int
    attempt: int | None = None


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """Outcome of a claimed run. It counts only if the run is still out at this attempt."""

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
    """End of the lease if the run is out; earliest start if it is in retry or later."""
    started_ms: int | None = None
    ended_ms: int | None = None
    latency_ms: float | None = None
    code: int | None = None
    detail: dict[str, Any] = {}


class Moved(NamedTuple):
    """Result of advancing entries together."""

    made: Counter[int]
    """Number of runs made, by their due time."""
    skipped: int
    """Number of entries that made no run, because their previous run has not ended."""

    @property
    def entries(self) -> int:
        return self.made.total() + self.skipped


class PurgeReport(NamedTuple):
    runs_deleted: int
    runs_expired: int
    more: bool = False
    """True if the next pass may have something to do; it goes on where this one stopped."""


class FoldReport(NamedTuple):
    """Number of outcomes that were folded into roll-ups, and of their monitors."""

    runs: int
    monitors: int
    more: bool = False
    """True if the next pass may have something to do; it goes on where this one stopped."""


class Finished(Settlement, frozen=True, gc=False):
    """Outcome of a check that was carried out. ``attempts``: how many its order allows in all."""

    outcome: Done
    attempts: int = 1

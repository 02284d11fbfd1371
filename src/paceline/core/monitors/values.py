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
    """The revision the writer has seen; 0 for "must not exist yet"; None for "whatever is there"."""
    expected_generation: int | None = None
    """The generation of that revision, so that a monitor removed and created again meanwhile is not taken for it."""
    created_ms: int | None = None
    """Of a new monitor that was made elsewhere: when. None: now."""
    asks_phase: bool = False
    """True: if the monitor needs a phase that it has not got yet, nothing is written, and the answer is ``unplaced``.
    A put without this that proposes no phase lets the grid begin with the first firing."""


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
    """The monitor as it stands after the act; None if there is none."""
    change: Change | None = None
    """The recorded change, where nothing more need be read to react to it: a new monitor has no entry yet."""
    load: int = 0
    """What the owner's load would be (``core.monitors.load``), if that is why it was refused."""
    before: MonitorSpec | None = None
    """The spec that was replaced."""


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
    """Where runs wait: the checks that Paceline makes itself, or the outgoing runs of one owner, or of all.

    ``name``: of the outgoing queue; the runs of others are not touched.
    """

    outgoing: bool
    owner: str | None = None
    name: str = DEFAULT_QUEUE


CHECKS = Queue(outgoing=False)


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
    """An earlier attempt was out when its lease ran out."""
    check: Check | None = None
    """As the definition is now; None: it is gone."""
    target: str = ""
    """Where the check connects, if the store knows it already (``core.monitors.places.target_of``)."""
    attempts: int = 1
    """How often its monitor wants a check to be tried before it counts as failed."""

    @property
    def run_id(self) -> str:
        """Computed when it is asked for, which few checks are."""
        return run_id(self.owner, self.monitor, generation=self.generation, counter=self.counter)


class Order(Claimed, frozen=True, gc=False):
    """A check to be made now, with its target. A claimed run that needs no change is one as it is."""

    if TYPE_CHECKING:
        check: PolledCheck  # type: ignore[misc]  # narrower, and always given


class Take(msgspec.Struct, frozen=True, gc=False):
    """One run of an outgoing queue, by its name, for a checker that got a message about it.

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


class FoldReport(NamedTuple):
    """Outcomes that went into the roll-ups of their monitors."""

    runs: int
    monitors: int
    more: bool = False
    """The next pass may have something to do: it goes on where this one stopped."""


class Finished(Settlement, frozen=True, gc=False):
    """What came of a check that the provider carried out. ``attempts``: those that its order has in all."""

    outcome: Done
    attempts: int = 1

"""Providers, batches and their runs, as a store is given and returns them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from paceline.core.batches.batch import Batch
from paceline.core.batches.calls import CallState
from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import Order, ProviderDefinition, ProviderSpec


class PutProvider(msgspec.Struct, frozen=True):
    """Request to put a provider. ``spec.headers`` are sealed: the store never sees a secret."""

    id: str
    spec: ProviderSpec
    expected_revision: int | None = None


class ProviderPut(msgspec.Struct, frozen=True):
    disposition: Literal["created", "replaced", "unchanged", "revision_mismatch"]
    provider: ProviderDefinition | None = None


WAITING_MAX = 1_000
FOR_WORKERS_MAX = 10_000
"""Limit up to which runs that wait for workers are counted."""


class ProviderStanding(msgspec.Struct, frozen=True):
    """Current state of a provider. ``waiting`` is counted up to ``WAITING_MAX``."""

    pace: Pace
    in_flight: int
    waiting: int
    head_due_ms: int | None
    ready_ms: int | None


class BatchPut(msgspec.Struct, frozen=True):
    disposition: Literal["created", "replaced", "unchanged", "revision_mismatch", "deleting"]
    batch: Batch | None = None


RecordPut = Literal["created", "replaced", "unchanged", "no_provider", "no_batch"]
"""``no_batch``: the batch is being deleted."""


class PlanOrder(msgspec.Struct, frozen=True):
    """Everything that a day's plan depends on: each provider with its count, and the records in that order.

    ``records`` are numbers, provider by provider, each provider's by (place, number). ``turns`` are positions in it, in
    the order in which the store prefers to write them; the first ``begin`` are planned already, up to the cursor.
    ``orders`` has the providers with another order than ``spread``, ``priorities`` the records that have one, and
    ``after`` the number of the predecessor of each record that comes after another; None: that record does not exist,
    or does not run.
    """

    providers: list[tuple[int, int]]
    records: array[int]
    turns: array[int]
    begin: int = 0
    orders: Mapping[int, Order] = {}
    priorities: Mapping[int, int] = {}
    after: Mapping[int, int | None] = {}


class Placements(NamedTuple):
    """Runs to be made, in parallel arrays: the record, its provider, and the due time."""

    records: array[int]
    providers: array[int]
    dues_ms: array[int]


class PagePlan(NamedTuple):
    """Result of planning a page. ``won`` is False if the cursor was elsewhere: another planner was faster."""

    won: bool
    enqueued: int
    already: int
    skipped: int


class LateRecord(NamedTuple):
    """A record that came, or came back, while a day of its batch was on."""

    record: int
    provider: int
    place: int


class ClaimedCall(msgspec.Struct, frozen=True, gc=False):
    """A batch's run that is out with the claimer. ``handle`` and ``attempt`` are the fence."""

    handle: int
    attempt: int
    provider: int
    provider_revision: int
    batch: str
    record: str
    date: str
    due_ms: int
    lease_until_ms: int
    lost: bool
    """True if an earlier attempt may have arrived."""
    endpoint: str
    body: str | None
    """Endpoint and body as they are stored; ``core.batches.records.request.render_request`` fills in placeholders."""
    options: str | None = None


class OutCall(msgspec.Struct, frozen=True, gc=False):
    """A batch's run that is out, found by its handle. Its lease may have run out."""

    handle: int
    attempt: int
    provider: int
    batch: str
    record: str
    date: str
    started_ms: int


class CallRun(msgspec.Struct, frozen=True):
    """A batch's run as it is reported."""

    handle: int
    batch: str
    record: str
    date: str
    provider: str
    due_ms: int
    state: CallState
    attempt: int = 0
    reason: str = ""
    until_ms: int | None = None
    """End of the lease if the run is out; time of the next try if it is in back-off."""
    started_ms: int | None = None
    ended_ms: int | None = None
    latency_ms: float | None = None
    code: int | None = None
    payload: str | None = None
    dead: bool = False


class DeadChoice(msgspec.Struct, frozen=True):
    """Choice of dead letters: those of these runs, of a provider, or of a batch (on a date).

    All given conditions must hold.
    """

    handles: tuple[int, ...] | None = None
    provider: str | None = None
    batch: str | None = None
    date: str | None = None


RUNS_READ_MAX = 10_000
"""Maximum number of runs that are read for a page of runs with a certain state or provider."""
RECORDS_READ_MAX = 10_000
"""Maximum number of records that are read for a page of records of a certain provider."""


class DayCount(NamedTuple):
    provider: str
    state: CallState
    runs: int


class CallPurge(NamedTuple):
    """Number of deleted runs, and where the next pass goes on; None: the walk is over."""

    deleted: int
    after: int | None


class ReplayCounts(NamedTuple):
    """Fate of a dead queue's messages: sent again, stale and so deleted, or left because they cannot be read."""

    redriven: int
    dropped: int
    left: int
    """Number of messages that were left, including an estimate of those that were not reached."""

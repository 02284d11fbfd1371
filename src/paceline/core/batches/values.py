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
    """``spec.headers`` are sealed: the store never sees a secret."""

    id: str
    spec: ProviderSpec
    expected_revision: int | None = None


class ProviderPut(msgspec.Struct, frozen=True):
    disposition: Literal["created", "replaced", "unchanged", "revision_mismatch"]
    provider: ProviderDefinition | None = None


WAITING_MAX = 1_000
FOR_WORKERS_MAX = 10_000
"""Runs that wait for workers are counted up to so many."""


class ProviderStanding(msgspec.Struct, frozen=True):
    """How a provider stands now. ``waiting`` counts no further than to ``WAITING_MAX``."""

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
    """All that a day's plan depends on: each provider with its count, and the records in that order.

    ``records`` are numbers, provider by provider, each provider's by (place, number). ``turns`` are positions in it,
    in the order in which the store likes to write them; of those ``begin`` are planned already, up to the cursor.
    ``orders`` has the providers with another order than ``spread``, ``priorities`` records that have one, and ``after``
    records that come after another, each with the number of that; None: it is not there, or does not run.
    """

    providers: list[tuple[int, int]]
    records: array[int]
    turns: array[int]
    begin: int = 0
    orders: Mapping[int, Order] = {}
    priorities: Mapping[int, int] = {}
    after: Mapping[int, int | None] = {}


class Placements(NamedTuple):
    """Runs to be made, side by side: which record, at which provider, due when."""

    records: array[int]
    providers: array[int]
    dues_ms: array[int]


class PagePlan(NamedTuple):
    """What came of a page. ``won`` is False if the cursor was elsewhere: another planner was faster."""

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
    """An earlier attempt may have arrived."""
    endpoint: str
    body: str | None
    """As they are stored: ``core.batches.records.request.render_request`` fills in their placeholders."""
    options: str | None = None


class OutCall(msgspec.Struct, frozen=True, gc=False):
    """A batch's run that is out, as it is found by its handle. Its lease may have run out."""

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
    """Out: when the lease ends. Retry: when it may start."""
    started_ms: int | None = None
    ended_ms: int | None = None
    latency_ms: float | None = None
    code: int | None = None
    payload: str | None = None
    dead: bool = False


class DeadChoice(msgspec.Struct, frozen=True):
    """Which dead letters are meant: those of these runs, or of a provider, or of a batch (on a date). All must hold."""

    handles: tuple[int, ...] | None = None
    provider: str | None = None
    batch: str | None = None
    date: str | None = None


RUNS_READ_MAX = 10_000
"""A page of runs with a certain state or provider is looked for among so many runs at most."""
RECORDS_READ_MAX = 10_000
"""A page of records of a certain provider is looked for among so many records at most."""


class DayCount(NamedTuple):
    provider: str
    state: CallState
    runs: int


class CallPurge(NamedTuple):
    """How many were deleted, and where the next pass goes on; None: the walk is over."""

    deleted: int
    after: int | None


class Replayed(NamedTuple):
    """What became of a dead queue's messages: sent again, stale and deleted, or left because they cannot be read."""

    redriven: int
    dropped: int
    left: int
    """Also those, about, that were not reached."""

"""Jobs, accounts, keys and holds, as a store is given and returns them."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.job import Job
from paceline.core.jobs.measurement import Measurement, MeasurementState
from paceline.core.schema import shown

EndState = Literal["done", "failed", "cancelled"]
HeldState = Literal["sending", "unknown", "ongoing", "done", "failed", "cancelled"]
JobState = Literal["queued", "running", "cancelling", "finished"]
LIMIT_MAX = 10**12
"""Of every limit of an account."""


class AccountSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account's limits as its operator declared them."""

    concurrent: Annotated[int, shown("Measurements that run at once.", minimum=0, maximum=LIMIT_MAX)] = 100
    daily_results: Annotated[int, shown("Results in any 24 hours.", minimum=0, maximum=LIMIT_MAX)] = 100_000
    daily_credits: Annotated[int, shown("Credits in any 24 hours.", minimum=0, maximum=LIMIT_MAX)] = 1_000_000
    enabled: bool = True


class SeenAccount(NamedTuple):
    """What the writer of an account has seen of it; None: that there is none."""

    spec: AccountSpec | None


AccountPut = Literal["created", "replaced", "unchanged", "revision_mismatch"]


class AddKey(msgspec.Struct, frozen=True):
    """``sealed``: the store never sees a secret, only what its owner may recognise it by."""

    account: str
    sealed: str
    last_four: str
    label: str = ""


class StoredKey(msgspec.Struct, frozen=True):
    """A key as it is shown. ``quarantine``: RIPE's words, if it refused the key; enabling it again tries it again."""

    id: str
    account: str
    last_four: str
    label: str
    enabled: bool
    quarantine: str
    created_ms: int


class KeyAdded(NamedTuple):
    """``already``: an account has this very secret, this one or another."""

    disposition: Literal["created", "already", "no_account"]
    key: StoredKey | None = None


class Submission(msgspec.Struct, frozen=True):
    """``costs``: the most that each of the job's measurements can take, in order."""

    owner: str
    job: Job
    costs: tuple[Cost, ...]
    digest: str
    idempotency_key: str | None = None


class Budget(NamedTuple):
    """A user's day. ``left`` is what a submission may still cost."""

    limit: int
    spent: int
    held: int
    left: int
    resets_ms: int


class StoredJob(msgspec.Struct, frozen=True):
    """A job as it stands. ``finished`` and ``success`` are separate facts: every measurement ended; every one well."""

    id: str
    number: int
    owner: str
    """Empty: the user was removed."""
    title: str
    webhook: str | None
    digest: str
    created_ms: int
    measurements: int
    open: int
    done: int
    failed: int
    cancelled: int
    reserved: int
    settled: int
    refunded: int
    started_ms: int | None = None
    """When the first of it was sent."""
    cancelled_ms: int | None = None
    finished_ms: int | None = None

    @property
    def finished(self) -> bool:
        return self.finished_ms is not None

    @property
    def success(self) -> bool:
        return self.finished and self.done == self.measurements

    @property
    def state(self) -> JobState:
        if self.finished:
            return "finished"
        if self.cancelled_ms is not None:
            return "cancelling"
        return "queued" if self.started_ms is None else "running"


class Admitted(NamedTuple):
    job: StoredJob
    budget: Budget


class Already(NamedTuple):
    """The idempotency key was used before. ``same``: for the same job."""

    job: StoredJob
    budget: Budget
    same: bool


class OverCredits(NamedTuple):
    """Refused whole; nothing was written."""

    cost: int
    budget: Budget


class AtlasMeasurement(NamedTuple):
    """What a definition became at RIPE. ``status`` is None until RIPE has told one."""

    atlas_id: int
    status: int | None
    delivered: int
    scheduled: int | None = None
    """How many probes take part; None until RIPE has told."""


class StoredMeasurement(msgspec.Struct, frozen=True):
    """A measurement as it stands. ``handle`` and ``attempt`` are the fence of the process that sends or follows it."""

    handle: int
    attempt: int
    job: str
    index: int
    owner: str
    state: MeasurementState
    measurement: Measurement
    cost: Cost
    reason: str = ""
    next_ms: int | None = None
    """Parked: the next try. Unknown: the next lookup."""
    lookups: int = 0
    stopping: bool = False
    """Its user wants it no more: what runs of it is to be stopped."""
    account: str | None = None
    key: str | None = None
    intent_ms: int | None = None
    answered_ms: int | None = None
    ended_ms: int | None = None
    passed_ms: int | None = None
    """Since when others are sent before it, because no account has room for it."""
    settled: int | None = None
    """Credits, once it has ended; what is left of its cost was refunded."""
    atlas: tuple[AtlasMeasurement, ...] = ()
    number: int | None = None
    """Of its first definition, among all of the installation. None: it was submitted before they were numbered."""
    running: bool = False
    """RIPE counts it as running: its slot is held, also after all results were there and it has ended here."""


class Sent(NamedTuple):
    """It exists at RIPE under these ids, in the order of its definitions."""

    atlas_ids: tuple[int, ...]


class Unsure(NamedTuple):
    """It may exist or not: it is looked up then, before anything is sent again. Every line stays held.

    ``lookups`` is how far the lookups have come: the higher of this and what is written counts, so that two processes
    that look at once count once, and a lookup without an answer counts nothing.
    """

    reason: str
    look_ms: int
    lookups: int = 0


class NotSent(NamedTuple):
    """It does not exist: it may be sent again, at once or from ``next_ms`` on. What its account held is refunded."""

    reason: str
    next_ms: int | None = None


class Rejected(NamedTuple):
    """It does not exist and never will: it fails alone, and all that it held is refunded."""

    reason: str


SendOutcome = Sent | Unsure | NotSent | Rejected


class MeterFull(NamedTuple):
    """RIPE refused so much because of this meter of the account; ``limit``: as RIPE names it."""

    meter: MeterName
    need: int
    limit: int | None = None


class KeyRefused(NamedTuple):
    reason: str


class AccountClosed(NamedTuple):
    until_ms: int
    reason: str


class TargetFull(NamedTuple):
    target: str
    until_ms: int
    refusals: int
    words: str


class Paused(NamedTuple):
    """Everybody waits. ``refusals`` in a row; anything sent sets it back."""

    until_ms: int
    refusals: int
    reason: str


class TypeBarred(NamedTuple):
    """The account may not make measurements of these types; until then others are asked."""

    types: tuple[str, ...]
    until_ms: int
    reason: str


RefusalEffect = MeterFull | KeyRefused | AccountClosed | TypeBarred | TargetFull | Paused


class Progress(NamedTuple):
    """RIPE's newest word on each definition: status, and results delivered so far.

    ``reason``: why it does not come to its end, if something is in the way; None leaves the one that is there.
    """

    handle: int
    attempt: int
    told: tuple[tuple[int, int], ...]
    scheduled: tuple[int | None, ...] = ()
    """How many probes each has, where RIPE has told."""
    reason: str | None = None


class Ending(NamedTuple):
    """``credits`` and ``results``: really delivered, in all. ``frees_slot``: RIPE counts it as running no more."""

    handle: int
    attempt: int
    state: EndState
    reason: str
    credits: int
    results: int
    frees_slot: bool


class Ended(NamedTuple):
    """``won`` is False if it had ended, or was sent again. ``overrun``: credits beyond what was held; not charged."""

    won: bool
    overrun: int = 0


class Busy(NamedTuple):
    """Nothing was taken: as many are being sent as may be at once."""


class SendCounts(NamedTuple):
    """How many measurements are in each state that is not the end, and jobs that are not finished."""

    queued: int
    parked: int
    sending: int
    unknown: int
    ongoing: int
    open_jobs: int
    oldest_ms: int | None
    """When the oldest job was submitted that has something queued or parked; None if there is none."""

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
"""Upper bound of every limit of an account."""


class AccountSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account's limits as its operator declared them."""

    concurrent: Annotated[int, shown("Limit of measurements at the same time.", minimum=0, maximum=LIMIT_MAX)] = 100
    daily_results: Annotated[int, shown("Limit of results in any 24 hours.", minimum=0, maximum=LIMIT_MAX)] = 100_000
    daily_credits: Annotated[int, shown("Limit of credits in any 24 hours.", minimum=0, maximum=LIMIT_MAX)] = 1_000_000
    enabled: bool = True


class SeenAccount(NamedTuple):
    """State of an account that its writer has seen; None: there was no account."""

    spec: AccountSpec | None


AccountPut = Literal["created", "replaced", "unchanged", "revision_mismatch"]


class AddKey(msgspec.Struct, frozen=True):
    """Request to add a key.

    The store never sees the secret: ``sealed`` is encrypted, and ``last_four`` lets the owner recognise it.
    """

    account: str
    sealed: str
    last_four: str
    label: str = ""


class StoredKey(msgspec.Struct, frozen=True):
    """A key as it is shown. ``quarantine``: RIPE's words if it refused the key; enabling the key tries it again."""

    id: str
    account: str
    last_four: str
    label: str
    enabled: bool
    quarantine: str
    created_ms: int


class KeyAdded(NamedTuple):
    """Result of adding a key. ``already``: this or another account has the same secret."""

    disposition: Literal["created", "already", "no_account"]
    key: StoredKey | None = None


class Submission(msgspec.Struct, frozen=True):
    """A job to be submitted. ``costs``: the most that each of its measurements can take, in order."""

    owner: str
    job: Job
    costs: tuple[Cost, ...]
    digest: str
    idempotency_key: str | None = None


class Budget(NamedTuple):
    """A user's credits of the day. ``left`` is the most that a submission may still cost."""

    limit: int
    spent: int
    held: int
    left: int
    resets_ms: int


class StoredJob(msgspec.Struct, frozen=True):
    """A job in its current state.

    ``finished`` and ``success`` are separate facts: every measurement has ended; every one ended well.
    """

    id: str
    number: int
    owner: str
    """Empty if the user was removed."""
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
    """Time of the job's first send."""
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


class PendingWebhook(NamedTuple):
    """A finished job whose webhook is to be called. ``tries``: how often it was; ``next_ms``: when it is due again."""

    job: StoredJob
    tries: int
    next_ms: int


class Admitted(NamedTuple):
    job: StoredJob
    budget: Budget


class Already(NamedTuple):
    """The idempotency key was used before. ``same``: for the same job."""

    job: StoredJob
    budget: Budget
    same: bool


class OverCredits(NamedTuple):
    """The job is refused as a whole; nothing was written."""

    cost: int
    budget: Budget


class AtlasMeasurement(NamedTuple):
    """A definition as a measurement at RIPE. ``status`` is None until RIPE has given one."""

    atlas_id: int
    status: int | None
    delivered: int
    scheduled: int | None = None
    """Number of probes that take part; None until RIPE has told it."""


class StoredMeasurement(msgspec.Struct, frozen=True):
    """A measurement in its current state. ``handle`` and ``attempt`` are the fence of the process that handles it."""

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
    """Time of the next try if it is parked, of the next lookup if it is unknown."""
    lookups: int = 0
    stopping: bool = False
    """True if its user cancelled it: measurements that run at RIPE are to be stopped."""
    account: str | None = None
    key: str | None = None
    intent_ms: int | None = None
    answered_ms: int | None = None
    ended_ms: int | None = None
    passed_ms: int | None = None
    """Time since which others are sent before it, because no account has room for it."""
    settled: int | None = None
    """Credits charged, once it has ended; the rest of its cost was refunded."""
    atlas: tuple[AtlasMeasurement, ...] = ()
    number: int | None = None
    """Installation-wide number of its first definition. None: it was submitted before definitions were numbered."""
    running: bool = False
    """True if RIPE counts it as running: its slot is held, even if it has ended here because all results are there."""


class Sent(NamedTuple):
    """The measurement exists at RIPE under these ids, in the order of its definitions."""

    atlas_ids: tuple[int, ...]


class Unsure(NamedTuple):
    """The measurement may exist or not: it is looked up at ``look_ms``, before anything is sent again.

    All its holds stay. ``lookups`` is how far the lookups have come: the higher of this and the stored value counts, so
    that two processes that look at once count once, and a lookup without an answer does not count.
    """

    reason: str
    look_ms: int
    lookups: int = 0


class NotSent(NamedTuple):
    """The measurement does not exist: it may be sent again, now or from ``next_ms`` on.

    Its account's hold is refunded.
    """

    reason: str
    next_ms: int | None = None


class Rejected(NamedTuple):
    """The measurement does not exist and never will: it fails alone, and all its holds are refunded."""

    reason: str


SendOutcome = Sent | Unsure | NotSent | Rejected


class MeterFull(NamedTuple):
    """RIPE refused ``need`` because of this meter of the account; ``limit``: the limit that RIPE names."""

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
    """A pause for everybody. ``refusals`` counts those in a row; a successful send resets it."""

    until_ms: int
    refusals: int
    reason: str


class TypeBarred(NamedTuple):
    """The account may not make measurements of these types; other accounts are used until ``until_ms``."""

    types: tuple[str, ...]
    until_ms: int
    reason: str


RefusalEffect = MeterFull | KeyRefused | AccountClosed | TypeBarred | TargetFull | Paused


class MeasurementProgress(NamedTuple):
    """RIPE's newest status of each definition, and its results so far.

    ``reason``: why the measurement does not end, if something prevents it; None keeps the stored reason.
    """

    handle: int
    attempt: int
    reported: tuple[tuple[int, int], ...]
    scheduled: tuple[int | None, ...] = ()
    """Number of probes of each definition, if RIPE has told it."""
    reason: str | None = None


class MeasurementEnd(NamedTuple):
    """End of a measurement.

    ``credits`` and ``results`` were really delivered, in all. ``frees_slot``: RIPE no longer counts it as running.
    """

    handle: int
    attempt: int
    state: EndState
    reason: str
    credits: int
    results: int
    frees_slot: bool


class EndResult(NamedTuple):
    """Result of writing an end.

    ``won`` is False if the measurement had ended, or was sent again. ``overrun``: credits beyond what was held; not
    charged.
    """

    won: bool
    overrun: int = 0


class Busy(NamedTuple):
    """Nothing was taken: the maximum number of sends is in progress."""


class SendCounts(NamedTuple):
    """Number of measurements in each state that is not terminal, and of jobs that are not finished."""

    queued: int
    parked: int
    sending: int
    unknown: int
    ongoing: int
    open_jobs: int
    oldest_ms: int | None
    """Submission time of the oldest job that has something queued or parked; None if there is none."""

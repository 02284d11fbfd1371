"""Jobs, accounts, keys and the ledger between them: what the store keeps of them and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from paceline.core.atlas import MeterName
from paceline.core.cost import Cost
from paceline.core.job import Job
from paceline.core.measurement import Measurement, MeasurementState
from paceline.core.meters import Reading, Short
from paceline.core.pool import Account

EndState = Literal["done", "failed", "cancelled"]
HeldState = Literal["sending", "unknown", "ongoing", "done", "failed", "cancelled"]
JobState = Literal["queued", "running", "cancelling", "finished"]


class AccountSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account's limits as its operator declared them."""

    concurrent: int = 100
    daily_results: int = 100_000
    daily_credits: int = 1_000_000
    enabled: bool = True


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
    """``already``: the account has this very secret."""

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


class StoredMeasurement(msgspec.Struct, frozen=True):
    """A measurement as it stands. ``handle`` and ``attempt`` are the fence of whoever sends or follows it."""

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
    settled: int | None = None
    """Credits, once it has ended; what is left of its cost was refunded."""
    atlas: tuple[AtlasMeasurement, ...] = ()


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


Blame = MeterFull | KeyRefused | AccountClosed | TargetFull | Paused


class Progress(NamedTuple):
    """RIPE's newest word on each definition: status, and results delivered so far."""

    handle: int
    attempt: int
    told: tuple[tuple[int, int], ...]


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
    """``won`` is False if it had ended, or is sent anew. ``overrun``: credits beyond what was held; not charged."""

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


class JobStore(Protocol):
    """Jobs, accounts, keys and the ledger. The same rules as for ``Store``.

    For every meter ``spent + held`` stays within the limit, and every line of a hold is closed once, in the act that
    changes what it was held for. So there is no moment at which one is written and the other is not.
    """

    # -- accounts and keys

    def put_account(self, account_id: str, spec: AccountSpec) -> Literal["created", "replaced", "unchanged"]:
        """Takes effect with the next send. A limit below what is used stops new holds and takes nothing back."""

    def account(self, account_id: str, *, now_ms: int) -> Account | None:
        """One, up to date; meters with all releases that are known."""

    def accounts(self, *, now_ms: int, releases_until_ms: int) -> list[Account]:
        """All of them, up to date; meters with the releases that come until then.

        Of slots these are expectations, from ``core.atlas.expected_end_ms``.
        """

    def add_key(self, add: AddKey, *, now_ms: int) -> KeyAdded: ...
    def keys(self, account_id: str) -> list[StoredKey]: ...
    def sealed_key(self, account_id: str, key_id: str) -> str | None: ...
    def enable_key(self, account_id: str, key_id: str, *, enabled: bool) -> StoredKey | None:
        """Enabling also ends a quarantine."""

    def remove_key(self, account_id: str, key_id: str) -> bool:
        """The sealed secret is gone with it."""

    def quarantine_key(self, account_id: str, key_id: str, *, reason: str) -> bool:
        """RIPE refused it in a question: it is used no more until it is enabled again. False: there is no such key."""

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        """RIPE's counters, as ``core.meters.sync`` takes them. False: no such account."""

    def slots_seen(self, account_id: str, atlas_ids: Sequence[int]) -> int:
        """How many of these, which RIPE's list shows as running, hold a slot of the account."""

    # -- submission and reading

    def submit(self, submission: Submission, *, now_ms: int) -> Admitted | Already | OverCredits | None:
        """Reserves the maximum on the user's day and writes job and measurements: all of it, or nothing.

        None: there is no such user, or it is disabled.
        """

    def submitted_as(self, owner: str, idempotency_key: str) -> StoredJob | None:
        """The job that this user submitted under that key."""

    def budget(self, owner: str, *, now_ms: int) -> Budget | None: ...
    def job(self, job_id: str) -> StoredJob | None: ...
    def jobs(self, owner: str | None, *, before: int | None, limit: int) -> list[StoredJob]:
        """Newest first; of one user, or of all. ``before`` is a job's number."""

    def job_counts(self, number: int) -> dict[MeasurementState, int]: ...
    def measurements(self, number: int, *, after: int, limit: int) -> list[StoredMeasurement]:
        """A job's, in order; those with an index above ``after``."""

    def measurement(self, handle: int) -> StoredMeasurement | None: ...
    def measurements_of(
        self, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
    ) -> list[StoredMeasurement]:
        """A user's, of all jobs, newest first; ``before`` is a handle. No states: all of them."""

    def count_of(self, owner: str, *, states: Sequence[MeasurementState]) -> int:
        """How many definitions a user's measurements in these states have together: what RIPE would list."""

    def send_counts(self) -> SendCounts: ...

    # -- sending

    def site(self, proposed: str) -> str:
        """What tells this installation from others at RIPE: the first that was ever proposed."""

    def gates(self, targets: Sequence[str]) -> tuple[Paused | None, list[TargetFull]]:
        """What RIPE last said of everybody, and of these targets; it may be over."""

    def next_to_send(self, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
        """Whose turn it is: of each user the first that are queued, the user served longest ago first.

        Parked ones whose time has come are back in their place. Users who are disabled or were removed have no turn.
        """

    def next_send_ms(self) -> int | None:
        """When there is something to send or to look up; 0: something is queued."""

    def begin_send(
        self, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
    ) -> StoredMeasurement | Short | Busy | None:
        """Takes all of the account's meters together, writes the intent and moves the user to the end of the line.

        Busy: ``sending_max`` are in the state ``sending``, of all processes together. Short: a meter has no room. None:
        it is no longer as ``item`` shows it, or the account or key cannot be used any more.
        """

    def park(self, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
        """Queued ones, each by its fence, step aside until then."""

    def refuse(self, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
        """Queued ones that can never be sent fail, and are refunded whole."""

    def answer(
        self, handle: int, attempt: int, outcome: SendOutcome, *, blame: Blame | None = None, now_ms: int
    ) -> bool:
        """What came of a send or of a lookup, with what follows for account, key, target or everybody.

        False (fencing): it is not out at this attempt. One that is being stopped ends instead of going back.
        """

    def lose_sends(self, *, intent_before_ms: int, look_ms: int) -> int:
        """Sends that nobody answered for: their sender died. They become unknown."""

    # -- following

    def to_look_up(self, *, now_ms: int, limit: int) -> list[StoredMeasurement]: ...
    def holding(self, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
        """Those in the state whose slot is held, in order of handle: also ended ones that RIPE still counts."""

    def note_progress(self, progress: Sequence[Progress]) -> list[bool]: ...
    def end(self, endings: Sequence[Ending], *, now_ms: int) -> list[Ended]:
        """Settles each on what was delivered and refunds the rest, once; its account's part when its slot is freed."""

    def free_slots(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        """Of ended ones: RIPE counts them no more, so their accounts are settled too."""

    def known_atlas_ids(self, atlas_ids: Sequence[int]) -> set[int]: ...
    def cancel_job(self, number: int, *, now_ms: int) -> bool:
        """What was not sent ends at once and is refunded; the rest is to be stopped. False: it had finished."""

    def cancel_measurement(self, handle: int, *, now_ms: int) -> bool:
        """The same for one."""

    def take_duty(self, name: str, *, every_ms: int, now_ms: int) -> bool:
        """Whether it is now this caller's to do: of all processes one, and not again before ``every_ms`` have passed.

        A clock that was set back does not put it off: a time that lies ahead counts as long ago, if it is further ahead
        than callers who wait for each other can be apart.
        """

    def purge_jobs(self, *, finished_before_ms: int, limit: int) -> int:
        """Removes so many measurements at most of jobs that finished before, and the jobs that have none left.

        Their postings go too; what they add up to stays on the meter (``opened_held``, ``opened_spent``), so the books
        still balance. Nothing is removed of a job whose webhook is still to be called or of which a slot is held. With
        the first of it a job is gone for whoever asks. Users' meters of days before that, which no job names, go too,
        and so do expiries.
        """

    def finish_jobs(self, *, now_ms: int, limit: int) -> list[StoredJob]:
        """Jobs whose measurements have all ended are finished now, each once.

        Jobs of users who were removed are cancelled first, some in each pass.
        """

    def pull_back_sends(self, *, now_ms: int, wait_ms_max: int) -> int:
        """After the clock was set back: no try, lookup, closure or webhook lies further ahead than it can have meant.

        Nor is an intent to send ahead of now, so that a sender that died is noticed.

        How many were moved. What is spent stays on its meters as long as it was written for.
        """

    def due_webhooks(self, *, now_ms: int, limit: int) -> list[tuple[StoredJob, int]]:
        """Finished jobs whose webhook is to be called, with how often it was tried."""

    def note_webhook(self, number: int, *, tries: int, next_ms: int | None) -> bool:
        """It was tried once more after ``tries``; None: no more. False: another was faster."""

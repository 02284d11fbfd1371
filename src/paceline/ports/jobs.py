"""Jobs, accounts, keys and the ledger between them: what the store promises, in the words of ``ports.job_values``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.core.atlas import MeterName
from paceline.core.measurement import MeasurementState
from paceline.core.meters import Reading, Short
from paceline.core.pool import Account
from paceline.ports.job_values import (
    AccountPut,
    AccountSpec,
    AddKey,
    Admitted,
    Already,
    Blame,
    Budget,
    Busy,
    Ended,
    Ending,
    HeldState,
    KeyAdded,
    OverCredits,
    Paused,
    Progress,
    SeenAccount,
    SendCounts,
    SendOutcome,
    StoredJob,
    StoredKey,
    StoredMeasurement,
    Submission,
    TargetFull,
)


class JobStore(Protocol):
    """Jobs, accounts, keys and the ledger. The same rules as for ``Store``.

    For every meter ``spent + held`` stays within the limit, and every line of a hold is closed once, in the act that
    changes what it was held for. So there is no moment at which one is written and the other is not.
    """

    # -- accounts and keys

    def put_account(self, account_id: str, spec: AccountSpec, *, seen: SeenAccount | None = None) -> AccountPut:
        """Takes effect with the next send. A limit below what is used stops new holds and takes nothing back.

        ``seen``: it is written only onto this, else ``revision_mismatch``; None: whatever is there. Limits are also
        lowered when RIPE says so: what the writer has seen is compared, and not a count of the writers' edits.
        """

    def account(self, account_id: str, *, now_ms: int) -> Account | None:
        """One, up to date; meters with all releases that are known."""

    def accounts(self, *, now_ms: int, releases_until_ms: int) -> list[Account]:
        """All of them, up to date; meters with the releases that come until then.

        Of slots these are expectations, from ``core.atlas.expected_end_ms``.
        """

    def add_key(self, add: AddKey, *, now_ms: int) -> KeyAdded:
        """A secret belongs to one account: RIPE counts by account, and so would two of ours count it twice.

        A new key also ends what kept the account from types of measurements.
        """

    def keys(self, account_id: str) -> list[StoredKey]: ...
    def sealed_key(self, account_id: str, key_id: str) -> str | None: ...
    def enable_key(self, account_id: str, key_id: str, *, enabled: bool) -> StoredKey | None:
        """Enabling also ends a quarantine, and what kept the account from types of measurements."""

    def remove_key(self, account_id: str, key_id: str) -> bool:
        """The sealed secret is gone with it."""

    def quarantine_key(self, account_id: str, key_id: str, *, reason: str) -> bool:
        """RIPE refused it in a question: it is used no more until it is enabled again. False: there is no such key."""

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        """RIPE's counters, as ``core.meters.sync`` takes them, and its balance, as ``read_balance`` does.

        False: no such account.
        """

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
    def handle_of_number(self, number: int) -> tuple[int, int] | None:
        """The measurement that has the definition of this number, and which of its definitions it is."""

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

        The age of the intent counts from its write, where the store has a clock (``core.leases.write_time_ms``).

        Busy: ``sending_max`` are in the state ``sending``, of all processes together. Short: a meter has no room. None:
        it is no longer as ``item`` shows it, or the account or key cannot be used any more.
        """

    def park(self, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
        """Queued ones, each by its fence, step aside until then."""

    def note_passed(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
        """Queued ones that no account had room for while another was sent: since now, if it was not noted before."""

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

    def pull_back_sends(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        """After the clock was set back: no try, lookup, closure or webhook lies further ahead than it can have meant.

        Nor is an intent to send ahead of now, so that a sender that died is noticed.

        How many were moved. What is spent stays on its meters as long as it was written for.
        """

    def due_webhooks(self, *, now_ms: int, limit: int) -> list[tuple[StoredJob, int]]:
        """Finished jobs whose webhook is to be called, with how often it was tried."""

    def note_webhook(self, number: int, *, tries: int, next_ms: int | None) -> bool:
        """It was tried once more after ``tries``; None: no more. False: another was faster."""

"""Jobs, accounts, keys and the ledger between them: what the store promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.core.jobs import values
from paceline.core.jobs.accounts import KeyChange
from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.meters import Reading, Short
from paceline.core.jobs.pool import Account
from paceline.core.jobs.send_order import QueuedUser


class JobStore(Protocol):
    """Jobs, accounts, keys and the ledger. The same rules as for ``Store``.

    For every meter ``spent + held`` stays within the limit, and every line of a hold is closed once, in the act that
    changes what it was held for. So there is no moment at which one is written and the other is not.
    """

    # -- accounts and keys

    def put_account(
        self, account_id: str, spec: values.AccountSpec, *, seen: values.SeenAccount | None = None
    ) -> values.AccountPut:
        """Writes the account, from the next send on. A limit below what is used stops new holds and takes nothing back.

        ``seen``: written only if the account still is so, else ``revision_mismatch``; None: always. Limits are also
        lowered when RIPE says so: what the writer has seen is compared, and not a count of the writers' edits.
        """

    def account(self, account_id: str, *, now_ms: int) -> Account | None:
        """Returns the account, its meters up to date and with all known releases."""

    def accounts(self, *, now_ms: int, releases_until_ms: int) -> list[Account]:
        """Returns all accounts, their meters up to date and with the releases until then.

        Releases of slots are expectations, from ``core.jobs.atlas.expected_end_ms``.
        """

    def add_key(self, add: values.AddKey, *, now_ms: int) -> values.KeyAdded:
        """A secret belongs to one account: RIPE counts by account, and so would two of ours count it twice.

        A new key also ends what kept the account from types of measurements.
        """

    def keys(self, account_id: str) -> list[values.StoredKey]: ...
    def sealed_key(self, account_id: str, key_id: str) -> str | None: ...
    def change_key(self, account_id: str, key_id: str, change: KeyChange) -> values.StoredKey | None:
        """Writes what ``core.jobs.accounts`` decided on a key and returns the key; None: there is no such key."""

    def remove_key(self, account_id: str, key_id: str) -> bool:
        """The sealed secret is gone with it."""

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        """RIPE's counters, as ``core.jobs.meters.sync`` takes them, and its balance, as ``read_balance`` does.

        False: no such account.
        """

    def slots_seen(self, account_id: str, atlas_ids: Sequence[int]) -> int:
        """Returns how many of these ids, which RIPE lists as running, hold a slot of the account."""

    # -- submission and reading

    def submit(
        self, submission: values.Submission, *, now_ms: int
    ) -> values.Admitted | values.Already | values.OverCredits | None:
        """Reserves the maximum on the user's day and writes job and measurements: all of it, or nothing.

        None: there is no such user, or it is disabled.
        """

    def submitted_as(self, owner: str, idempotency_key: str) -> values.StoredJob | None:
        """Returns the job that the user submitted under that idempotency key."""

    def budget(self, owner: str, *, now_ms: int) -> values.Budget | None: ...
    def job(self, job_id: str) -> values.StoredJob | None: ...
    def jobs(self, owner: str | None, *, before: int | None, limit: int) -> list[values.StoredJob]:
        """Newest first; of one user, or of all. ``before`` is a job's number."""

    def job_counts(self, number: int) -> dict[MeasurementState, int]: ...
    def measurements(self, number: int, *, after: int, limit: int) -> list[values.StoredMeasurement]:
        """A job's, in order; those with an index above ``after``."""

    def measurement(self, handle: int) -> values.StoredMeasurement | None: ...
    def handle_of_number(self, number: int) -> tuple[int, int] | None:
        """The measurement that has the definition of this number, and which of its definitions it is."""

    def measurements_of(
        self, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
    ) -> list[values.StoredMeasurement]:
        """A user's, of all jobs, newest first; ``before`` is a handle. No states: all of them."""

    def count_of(self, owner: str, *, states: Sequence[MeasurementState]) -> int:
        """Returns how many definitions the user's measurements in these states have: what RIPE would list."""

    def send_counts(self) -> values.SendCounts: ...

    # -- sending

    def site(self, proposed: str) -> str:
        """Returns the name of this installation at RIPE: the first that was ever proposed."""

    def gates(self, targets: Sequence[str]) -> tuple[values.Paused | None, list[values.TargetFull]]:
        """Returns RIPE's newest pause for everybody, and those of the targets that were full; either may be over."""

    def next_to_send(self, *, now_ms: int, users_max: int, each_max: int) -> list[values.StoredMeasurement]:
        """Returns the first queued measurements of each user, the user served longest ago first.

        Parked measurements that are due go back to the queue first. Disabled and removed users are left out.
        """

    def send_line(self, *, users_max: int, each_max: int, count_max: int) -> list[QueuedUser]:
        """Returns the users who may send, in the order of turns, each with its first queued measurements.

        It changes nothing: what is parked stays so. ``count_max``: so far is counted what a user has queued.
        """

    def queued_before(self, owner: str, handle: int, *, limit: int) -> int:
        """Returns how many measurements of the user are queued before this handle, counting up to the limit."""

    def next_send_ms(self) -> int | None:
        """Returns when there is something to send or to look up: 0 if something is queued, None if nothing waits."""

    def begin_send(
        self, item: values.StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
    ) -> values.StoredMeasurement | Short | values.Busy | None:
        """Takes all of the account's meters together, writes the intent and moves the user to the end of the line.

        The age of the intent counts from its write, where the store has a clock (``core.leases.write_time_ms``).

        Busy: ``sending_max`` are in the state ``sending``, of all processes together. Short: a meter has no room. None:
        it is no longer as ``item`` shows it, or the account or key cannot be used any more.
        """

    def park(self, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
        """Parks queued measurements until then. Returns for each whether it was still queued at its attempt."""

    def note_passed(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
        """Notes when queued measurements were first passed by another because no account had room for them."""

    def refuse(self, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
        """Fails queued measurements that can never be sent, and refunds them whole."""

    def answer(
        self,
        handle: int,
        attempt: int,
        outcome: values.SendOutcome,
        *,
        effect: values.RefusalEffect | None = None,
        now_ms: int,
    ) -> bool:
        """Writes what became of a send or a lookup, and what a refusal means for account, key, target or everybody.

        Returns False (fencing) if the measurement is not out at this attempt. See ``core.jobs.transitions``.
        """

    def lose_sends(self, *, intent_before_ms: int, look_ms: int) -> int:
        """Marks sends as unknown whose sender died. Returns how many."""

    # -- following

    def to_look_up(self, *, now_ms: int, limit: int) -> list[values.StoredMeasurement]: ...
    def holding(self, state: values.HeldState, *, after: int, limit: int) -> list[values.StoredMeasurement]:
        """Returns measurements in the state whose slot is held, by handle; ended ones while RIPE still counts them."""

    def note_progress(self, progress: Sequence[values.Progress]) -> list[bool]: ...
    def end(self, endings: Sequence[values.Ending], *, now_ms: int) -> list[values.Ended]:
        """Settles each on what was delivered and refunds the rest, once; its account's part when its slot is freed."""

    def free_slots(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        """Settles the accounts of ended measurements that RIPE no longer counts as running."""

    def cancel_job(self, number: int, *, now_ms: int) -> bool:
        """Ends and refunds what was not sent, and marks the rest to be stopped. Returns False if it had finished."""

    def cancel_measurement(self, handle: int, *, now_ms: int) -> bool:
        """Cancels one measurement, as ``cancel_job`` does a job."""

    def take_duty(self, name: str, *, every_ms: int, now_ms: int) -> bool:
        """Returns whether this caller does the duty now: one process of all, not again before ``every_ms`` have passed.

        A clock that was set back does not delay it (``core.jobs.upkeep.is_duty_due``).
        """

    def purge_jobs(self, *, finished_before_ms: int, limit: int) -> int:
        """Removes so many measurements at most of jobs that finished before, and the jobs that have none left.

        Their postings go too; what they add up to stays on the meter (``opened_held``, ``opened_spent``), so the books
        still balance. Nothing is removed of a job whose webhook is still to be called or of which a slot is held. A
        job is no longer shown once its removal began. Users' meters of days before that, which no job names, go too,
        and so do expiries.
        """

    def finish_jobs(self, *, now_ms: int, limit: int) -> list[values.StoredJob]:
        """Finishes jobs whose measurements have all ended, each once, and returns them.

        Jobs of users who were removed are cancelled first, some in each pass.
        """

    def pull_back_sends(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        """After the clock was set back: no try, lookup, closure or webhook lies further ahead than it can have meant.

        Nor is an intent to send ahead of now, so that a sender that died is noticed.

        How many were moved. What is spent stays on its meters as long as it was written for.
        """

    def due_webhooks(self, *, now_ms: int, limit: int) -> list[tuple[values.StoredJob, int]]:
        """Returns finished jobs whose webhook is due, with how often it was tried."""

    def note_webhook(self, number: int, *, tries: int, next_ms: int | None) -> bool:
        """Notes one more try after ``tries``, and when the next is due. Returns False if another process was first."""

"""Store of jobs, accounts, keys and the ledger between them."""

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
from paceline.core.try_turns import DuePosition


class JobStore(Protocol):
    """Store of jobs, accounts, keys and the ledger. The same rules as for ``Store``.

    For every meter ``spent + held`` stays within the limit, and every line of a hold is closed once, in the act that
    changes what it was held for. So there is no moment at which one is written and the other is not.
    """

    # -- accounts and keys

    def put_account(
        self, account_id: str, spec: values.AccountSpec, *, seen: values.SeenAccount | None = None
    ) -> values.AccountPut:
        """Write the account, from the next send on. A limit below the use stops new holds and takes nothing back.

        ``seen``: write only if the account still is so, else ``revision_mismatch``; None: always. Limits are also
        lowered when RIPE says so: the state that the writer has seen is compared, and not a count of the writers'
        edits.
        """

    def account(self, account_id: str, *, now_ms: int) -> Account | None:
        """Return the account, its meters up to date and with all known releases."""

    def accounts(self, *, now_ms: int, releases_until_ms: int) -> list[Account]:
        """Return all accounts, their meters up to date and with the releases until ``releases_until_ms``.

        Releases of slots are expectations, from ``core.jobs.atlas.expected_end_ms``.
        """

    def add_key(self, add: values.AddKey, *, now_ms: int) -> values.KeyAdded:
        """Add a key. A secret belongs to one account: RIPE counts by account, so two of ours would count it twice.

        A new key also ends the bars on types of measurements.
        """

    def keys(self, account_id: str) -> list[values.StoredKey]: ...
    def sealed_key(self, account_id: str, key_id: str) -> str | None: ...
    def change_key(self, account_id: str, key_id: str, change: KeyChange) -> values.StoredKey | None:
        """Write the decision of ``core.jobs.accounts`` on a key and return the key; None: there is no such key."""

    def remove_key(self, account_id: str, key_id: str) -> bool:
        """Remove the key and its sealed secret."""

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        """Apply RIPE's counters by ``core.jobs.meters.sync``, and its balance by ``read_balance``.

        False: no such account.
        """

    def slots_seen(self, account_id: str, atlas_ids: Sequence[int]) -> int:
        """Return how many of these ids, which RIPE lists as running, hold a slot of the account."""

    # -- submission and reading

    def submit(
        self, submission: values.Submission, *, now_ms: int
    ) -> values.Admitted | values.Already | values.OverCredits | None:
        """Reserve the maximum on the user's day and write job and measurements: all of it, or nothing.

        None: there is no such user, or it is disabled.
        """

    def submitted_as(self, owner: str, idempotency_key: str) -> values.StoredJob | None:
        """Return the job that the user submitted under that idempotency key."""

    def budget(self, owner: str, *, now_ms: int) -> values.Budget | None: ...
    def job(self, job_id: str) -> values.StoredJob | None: ...
    def jobs(self, owner: str | None, *, before: int | None, limit: int) -> list[values.StoredJob]:
        """Return jobs of one user, or of all, newest first. ``before`` is a job's number."""

    def job_counts(self, number: int) -> dict[MeasurementState, int]: ...
    def measurements(self, number: int, *, after: int, limit: int) -> list[values.StoredMeasurement]:
        """Return a job's measurements with an index above ``after``, in order."""

    def measurement(self, handle: int) -> values.StoredMeasurement | None: ...
    def handle_of_number(self, number: int) -> tuple[int, int] | None:
        """Return the handle of the measurement with the definition of this number, and the definition's index."""

    def measurements_of(
        self, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
    ) -> list[values.StoredMeasurement]:
        """Return a user's measurements of all jobs, newest first; ``before`` is a handle. No states: all of them."""

    def count_of(self, owner: str, *, states: Sequence[MeasurementState]) -> int:
        """Return how many definitions the user's measurements in these states have: the number that RIPE would list."""

    def send_counts(self) -> values.SendCounts: ...

    # -- sending

    def site(self, proposed: str) -> str:
        """Return the name of this installation at RIPE: the first that was ever proposed."""

    def gates(self, targets: Sequence[str]) -> tuple[values.Paused | None, list[values.TargetFull]]:
        """Return RIPE's newest pause for everybody, and those of the targets that were full; either may be over."""

    def next_to_send(self, *, now_ms: int, users_max: int, each_max: int) -> list[values.StoredMeasurement]:
        """Return the first queued measurements of each user, the user served longest ago first.

        Parked measurements that are due go back to the queue first. Disabled and removed users are left out.
        """

    def send_line(self, *, users_max: int, each_max: int, count_max: int) -> list[QueuedUser]:
        """Return the users who may send, in the order of turns, each with its first queued measurements.

        It changes nothing: parked measurements stay parked. ``count_max``: limit up to which a user's queued ones are
        counted.
        """

    def queued_before(self, owner: str, handle: int, *, limit: int) -> int:
        """Return how many measurements of the user are queued before this handle, counting up to the limit."""

    def next_send_ms(self) -> int | None:
        """Return when there is something to send or to look up: 0 if something is queued, None if nothing waits."""

    def begin_send(
        self, item: values.StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
    ) -> values.StoredMeasurement | Short | values.Busy | None:
        """Take all of the account's meters together, write the intent and move the user to the end of the line.

        The age of the intent counts from its write, if the store has a clock (``core.leases.write_time_ms``). Busy:
        ``sending_max`` are in the state ``sending``, of all processes together. Short: a meter has no room. None: the
        measurement is no longer as ``item`` shows it, or the account or key cannot be used any more.
        """

    def park(self, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
        """Park queued measurements until ``next_ms``. Return for each whether it was still queued at its attempt."""

    def note_passed(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
        """Note when queued measurements were first passed by another because no account had room for them."""

    def refuse(self, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
        """Fail queued measurements that can never be sent, and refund them in full."""

    def answer(
        self,
        handle: int,
        attempt: int,
        outcome: values.SendOutcome,
        *,
        effect: values.RefusalEffect | None = None,
        now_ms: int,
    ) -> bool:
        """Write the outcome of a send or a lookup, and the effect of a refusal on account, key, target or everybody.

        Return False (fencing) if the measurement is not out at this attempt. See ``core.jobs.transitions``.
        """

    def lose_sends(self, *, intent_before_ms: int, look_ms: int) -> int:
        """Mark sends as unknown whose sender died. Return how many."""

    # -- following

    def to_look_up(self, *, now_ms: int, limit: int) -> list[values.StoredMeasurement]: ...
    def holding(self, state: values.HeldState, *, after: int, limit: int) -> list[values.StoredMeasurement]:
        """Return measurements in the state whose slot is held, by handle; ended ones while RIPE still counts them."""

    def note_progress(self, progress: Sequence[values.MeasurementProgress]) -> list[bool]: ...
    def end(self, endings: Sequence[values.MeasurementEnd], *, now_ms: int) -> list[values.EndResult]:
        """Settle each on its delivered results and refund the rest, once; its account's part when its slot is freed."""

    def free_slots(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        """Settle the accounts of ended measurements that RIPE no longer counts as running."""

    def cancel_job(self, number: int, *, now_ms: int) -> bool:
        """End and refund unsent measurements, and mark the rest to be stopped. Return False if the job had finished."""

    def cancel_measurement(self, handle: int, *, now_ms: int) -> bool:
        """Cancel one measurement, as ``cancel_job`` does a job."""

    def take_duty(self, name: str, *, every_ms: int, now_ms: int) -> bool:
        """Return whether this caller does the duty now: one process of all, at most once in ``every_ms``.

        A clock that was set back does not delay it (``core.jobs.upkeep.is_duty_due``).
        """

    def purge_jobs(self, *, finished_before_ms: int, limit: int) -> int:
        """Remove at most ``limit`` measurements of jobs that finished before, and the jobs that have none left.

        Their postings go, too; their sums stay on the meter (``opened_held``, ``opened_spent``), so the books still
        balance. Nothing is removed of a job whose webhook is still to be called or that holds a slot. A job is no
        longer shown once its removal began. Users' meters of days before that, which no job names, go, too, and so do
        expiries.
        """

    def finish_jobs(self, *, now_ms: int, limit: int) -> list[values.StoredJob]:
        """Finish jobs whose measurements have all ended, each once, and return them.

        Jobs of users who were removed are cancelled first, some in each pass.
        """

    def pull_back_sends(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        """Move tries, lookups, closures and webhooks that lie too far ahead after the clock was set back.

        Return how many were moved. An intent to send is not left ahead of now, either, so that a sender that died is
        noticed. Spent amounts stay on their meters as long as they were written for.
        """

    def due_webhooks(self, *, now_ms: int, limit: int, after: DuePosition[int] | None = None) -> list[DuePosition[int]]:
        """Return positions of jobs whose webhook is due, the longest due first: a hint, as ``due_alerts`` is."""

    def pending_webhooks(self, numbers: Sequence[int]) -> list[values.PendingWebhook]:
        """Return those of these jobs whose webhook is still to be called, in no particular order."""

    def note_webhook(self, number: int, *, tries: int, next_ms: int | None) -> bool:
        """Note one more try after ``tries``, and when the next is due. Return False if another process was first."""

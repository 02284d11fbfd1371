"""The part of the Store that knows jobs and accounts, on SQLite. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.adapters.sqlite import accounts, job_upkeep, jobs, sends
from paceline.adapters.sqlite.database import Database
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


class SqliteJobStore:
    """Fills ``ports.JobStore``."""

    _db: Database

    # -- accounts and keys

    def put_account(self, account_id: str, spec: AccountSpec, *, seen: SeenAccount | None = None) -> AccountPut:
        with self._db.write() as db:
            return accounts.put(db, account_id, spec, seen=seen)

    def account(self, account_id: str, *, now_ms: int) -> Account | None:
        with self._db.read() as db:
            return accounts.account(db, account_id, now_ms=now_ms)

    def accounts(self, *, now_ms: int, releases_until_ms: int) -> list[Account]:
        with self._db.read() as db:
            return accounts.accounts(db, now_ms=now_ms, releases_until_ms=releases_until_ms)

    def add_key(self, add: AddKey, *, now_ms: int) -> KeyAdded:
        with self._db.write() as db:
            return accounts.add_key(db, add, now_ms=now_ms)

    def keys(self, account_id: str) -> list[StoredKey]:
        with self._db.peek() as db:
            return accounts.keys(db, account_id)

    def sealed_key(self, account_id: str, key_id: str) -> str | None:
        with self._db.peek() as db:
            return accounts.sealed_key(db, account_id, key_id)

    def enable_key(self, account_id: str, key_id: str, *, enabled: bool) -> StoredKey | None:
        with self._db.write() as db:
            return accounts.enable_key(db, account_id, key_id, enabled=enabled)

    def remove_key(self, account_id: str, key_id: str) -> bool:
        with self._db.write() as db:
            return accounts.remove_key(db, account_id, key_id)

    def quarantine_key(self, account_id: str, key_id: str, *, reason: str) -> bool:
        with self._db.write() as db:
            return accounts.quarantine_key(db, account_id, key_id, reason=reason)

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        with self._db.write() as db:
            return accounts.sync_meters(db, account_id, readings, now_ms=now_ms)

    def slots_seen(self, account_id: str, atlas_ids: Sequence[int]) -> int:
        with self._db.peek() as db:
            return accounts.slots_seen(db, account_id, atlas_ids)

    # -- submission and reading

    def submit(self, submission: Submission, *, now_ms: int) -> Admitted | Already | OverCredits | None:
        with self._db.write() as db:
            return jobs.submit(db, submission, now_ms=now_ms)

    def submitted_as(self, owner: str, idempotency_key: str) -> StoredJob | None:
        with self._db.read() as db:
            return jobs.submitted_as(db, owner, idempotency_key)

    def budget(self, owner: str, *, now_ms: int) -> Budget | None:
        with self._db.read() as db:
            return jobs.budget(db, owner, now_ms=now_ms)

    def job(self, job_id: str) -> StoredJob | None:
        with self._db.peek() as db:
            return jobs.job(db, job_id)

    def jobs(self, owner: str | None, *, before: int | None, limit: int) -> list[StoredJob]:
        with self._db.read() as db:
            return jobs.jobs(db, owner, before=before, limit=limit)

    def job_counts(self, number: int) -> dict[MeasurementState, int]:
        with self._db.peek() as db:
            return jobs.counts(db, number)

    def measurements(self, number: int, *, after: int, limit: int) -> list[StoredMeasurement]:
        with self._db.read() as db:
            return jobs.measurements(db, number, after=after, limit=limit)

    def measurement(self, handle: int) -> StoredMeasurement | None:
        with self._db.read() as db:
            return jobs.measurement(db, handle)

    def handle_of_number(self, number: int) -> tuple[int, int] | None:
        with self._db.peek() as db:
            return jobs.handle_of_number(db, number)

    def measurements_of(
        self, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
    ) -> list[StoredMeasurement]:
        with self._db.read() as db:
            return jobs.measurements_of(db, owner, states=states, before=before, limit=limit)

    def count_of(self, owner: str, *, states: Sequence[MeasurementState]) -> int:
        with self._db.read() as db:
            return jobs.count_of(db, owner, states=states)

    def send_counts(self) -> SendCounts:
        with self._db.read() as db:
            return sends.counts(db)

    # -- sending

    def site(self, proposed: str) -> str:
        with self._db.write() as db:
            return accounts.site(db, proposed)

    def gates(self, targets: Sequence[str]) -> tuple[Paused | None, list[TargetFull]]:
        with self._db.read() as db:
            return accounts.gates(db, targets)

    def next_to_send(self, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
        with self._db.write() as db:
            return sends.next_to_send(db, now_ms=now_ms, users_max=users_max, each_max=each_max)

    def next_send_ms(self) -> int | None:
        with self._db.read() as db:
            return sends.next_ms(db)

    def begin_send(
        self, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
    ) -> StoredMeasurement | Short | Busy | None:
        with self._db.write() as db:
            intent_ms = self._db.write_ms(now_ms)
            return sends.begin(
                db, item, account=account, key=key, sending_max=sending_max, now_ms=now_ms, intent_ms=intent_ms
            )

    def park(self, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
        with self._db.write() as db:
            return sends.park(db, items, next_ms=next_ms, reason=reason)

    def note_passed(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
        with self._db.write() as db:
            sends.note_passed(db, fences, now_ms=now_ms)

    def refuse(self, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
        with self._db.write() as db:
            return sends.refuse(db, fences, reason=reason, now_ms=now_ms)

    def answer(
        self, handle: int, attempt: int, outcome: SendOutcome, *, blame: Blame | None = None, now_ms: int
    ) -> bool:
        with self._db.write() as db:
            return sends.answer(db, handle, attempt, outcome, blame=blame, now_ms=now_ms)

    def lose_sends(self, *, intent_before_ms: int, look_ms: int) -> int:
        with self._db.write() as db:
            return sends.lose(db, intent_before_ms=intent_before_ms, look_ms=look_ms)

    # -- following

    def to_look_up(self, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
        with self._db.read() as db:
            return sends.to_look_up(db, now_ms=now_ms, limit=limit)

    def holding(self, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
        with self._db.read() as db:
            return sends.holding(db, state, after=after, limit=limit)

    def note_progress(self, progress: Sequence[Progress]) -> list[bool]:
        with self._db.write() as db:
            return sends.note_progress(db, progress)

    def end(self, endings: Sequence[Ending], *, now_ms: int) -> list[Ended]:
        with self._db.write() as db:
            return sends.end(db, endings, now_ms=now_ms)

    def free_slots(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        with self._db.write() as db:
            return sends.free_slots(db, fences, now_ms=now_ms)

    def known_atlas_ids(self, atlas_ids: Sequence[int]) -> set[int]:
        with self._db.peek() as db:
            return sends.known_atlas_ids(db, atlas_ids)

    def cancel_job(self, number: int, *, now_ms: int) -> bool:
        with self._db.write() as db:
            return jobs.cancel(db, number, now_ms=now_ms)

    def cancel_measurement(self, handle: int, *, now_ms: int) -> bool:
        with self._db.write() as db:
            return jobs.cancel_one(db, handle, now_ms=now_ms)

    def take_duty(self, name: str, *, every_ms: int, now_ms: int) -> bool:
        with self._db.write() as db:
            return job_upkeep.take_duty(db, name, every_ms=every_ms, now_ms=now_ms)

    def purge_jobs(self, *, finished_before_ms: int, limit: int) -> int:
        with self._db.write() as db:
            return job_upkeep.purge(db, finished_before_ms=finished_before_ms, limit=limit)

    def finish_jobs(self, *, now_ms: int, limit: int) -> list[StoredJob]:
        with self._db.write() as db:
            return jobs.finish(db, now_ms=now_ms, limit=limit)

    def pull_back_sends(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        with self._db.write() as db:
            return sends.pull_back(db, now_ms=read_ms(), wait_ms_max=wait_ms_max)

    def due_webhooks(self, *, now_ms: int, limit: int) -> list[tuple[StoredJob, int]]:
        with self._db.read() as db:
            return jobs.due_webhooks(db, now_ms=now_ms, limit=limit)

    def note_webhook(self, number: int, *, tries: int, next_ms: int | None) -> bool:
        with self._db.write() as db:
            return jobs.note_webhook(db, number, tries=tries, next_ms=next_ms)

"""The half of the Store on DynamoDB that knows: jobs, accounts, keys and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from paceline.adapters.aws import (
    jobs_accounts,
    jobs_answers,
    jobs_blame,
    jobs_finish,
    jobs_follow,
    jobs_read,
    jobs_sends,
    jobs_submit,
    jobs_turns,
    jobs_upkeep,
    jobs_verify,
)
from paceline.adapters.aws.jobs_quiet import Quiet
from paceline.adapters.aws.jobs_seen import Seen
from paceline.adapters.aws.part import Part
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


class AwsJobStore(Part):
    """Fills ``ports.JobStore``."""

    @cached_property
    def _rounds(self) -> jobs_finish.Round:
        return jobs_finish.Round()

    @cached_property
    def _duties(self) -> jobs_upkeep.Duties:
        return jobs_upkeep.Duties()

    @cached_property
    def _seen(self) -> Seen:
        return Seen()

    @cached_property
    def _quiet(self) -> Quiet:
        return Quiet(self.news)

    def put_account(self, account_id: str, spec: AccountSpec, *, seen: SeenAccount | None = None) -> AccountPut:
        done = jobs_accounts.put_account(self._database, account_id, spec, seen=seen)
        if done in ("created", "replaced"):
            self.news.ring()
        return done

    def account(self, account_id: str, *, now_ms: int) -> Account | None:
        return jobs_accounts.account(self._database, account_id, now_ms=now_ms)

    def accounts(self, *, now_ms: int, releases_until_ms: int) -> list[Account]:
        return jobs_accounts.accounts(self._database, self._seen, now_ms=now_ms, releases_until_ms=releases_until_ms)

    def add_key(self, add: AddKey, *, now_ms: int) -> KeyAdded:
        added = jobs_accounts.add_key(self._database, self._numbers, add, now_ms=now_ms)
        if added.disposition == "created":
            self.news.ring()
        return added

    def keys(self, account_id: str) -> list[StoredKey]:
        return jobs_accounts.keys(self._database, account_id)

    def sealed_key(self, account_id: str, key_id: str) -> str | None:
        return jobs_accounts.sealed_key(self._database, self._seen, account_id, key_id)

    def enable_key(self, account_id: str, key_id: str, *, enabled: bool) -> StoredKey | None:
        key = jobs_accounts.enable_key(self._database, account_id, key_id, enabled=enabled)
        if key is not None and enabled:
            self.news.ring()
        return key

    def remove_key(self, account_id: str, key_id: str) -> bool:
        self._seen.take_sealed(account_id, jobs_accounts.key_number(key_id))
        return jobs_accounts.remove_key(self._database, account_id, key_id)

    def quarantine_key(self, account_id: str, key_id: str, *, reason: str) -> bool:
        return jobs_accounts.change_key(self._database, account_id, key_id, quarantine=reason or "refused") is not None

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        return jobs_accounts.sync_meters(self._database, account_id, readings, now_ms=now_ms)

    def slots_seen(self, account_id: str, atlas_ids: Sequence[int]) -> int:
        return jobs_accounts.slots_seen(self._database, account_id, atlas_ids)

    def submit(self, submission: Submission, *, now_ms: int) -> Admitted | Already | OverCredits | None:
        found = jobs_submit.submit(self._database, self._numbers, submission, now_ms=now_ms)
        if isinstance(found, Admitted):
            self._quiet.touch("turn")
            self.news.ring()
        return found

    def submitted_as(self, owner: str, idempotency_key: str) -> StoredJob | None:
        return jobs_submit.submitted_as(self._database, owner, idempotency_key)

    def budget(self, owner: str, *, now_ms: int) -> Budget | None:
        return jobs_submit.budget(self._database, owner, now_ms=now_ms)

    def job(self, job_id: str) -> StoredJob | None:
        return jobs_read.job(self._database, job_id)

    def jobs(self, owner: str | None, *, before: int | None, limit: int) -> list[StoredJob]:
        return jobs_read.jobs(self._database, owner, before=before, limit=limit)

    def job_counts(self, number: int) -> dict[MeasurementState, int]:
        return jobs_read.counts(self._database, number)

    def measurements(self, number: int, *, after: int, limit: int) -> list[StoredMeasurement]:
        return jobs_read.measurements(self._database, number, after=after, limit=limit)

    def measurement(self, handle: int) -> StoredMeasurement | None:
        return jobs_read.measurement(self._database, handle)

    def handle_of_number(self, number: int) -> tuple[int, int] | None:
        return jobs_read.handle_of_number(self._database, number)

    def measurements_of(
        self, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
    ) -> list[StoredMeasurement]:
        return jobs_read.measurements_of(self._database, owner, states=states, before=before, limit=limit)

    def count_of(self, owner: str, *, states: Sequence[MeasurementState]) -> int:
        return jobs_read.count_of(self._database, owner, states=states)

    def send_counts(self) -> SendCounts:
        return jobs_turns.counts(self._database)

    def site(self, proposed: str) -> str:
        return jobs_blame.site(self._database, proposed)

    def gates(self, targets: Sequence[str]) -> tuple[Paused | None, list[TargetFull]]:
        return jobs_blame.gates(self._database, self._seen, targets)

    def next_to_send(self, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
        return jobs_turns.next_to_send(
            self._database, self._seen, self._quiet, now_ms=now_ms, users_max=users_max, each_max=each_max
        )

    def next_send_ms(self) -> int | None:
        return jobs_turns.next_ms(self._database, self._quiet)

    def begin_send(
        self, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
    ) -> StoredMeasurement | Short | Busy | None:
        return jobs_sends.begin(
            self._database, self._seen, item, account=account, key=key, sending_max=sending_max, now_ms=now_ms
        )

    def park(self, items: Sequence[tuple[int, int]], *, next_ms: int, reason: str) -> list[bool]:
        return jobs_sends.park(self._database, self._seen, self._quiet, items, next_ms=next_ms, reason=reason)

    def note_passed(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> None:
        jobs_sends.note_passed(self._database, self._seen, fences, now_ms=now_ms)

    def refuse(self, fences: Sequence[tuple[int, int]], *, reason: str, now_ms: int) -> list[bool]:
        return jobs_sends.refuse(self._database, self._seen, fences, reason=reason, now_ms=now_ms)

    def answer(
        self, handle: int, attempt: int, outcome: SendOutcome, *, blame: Blame | None = None, now_ms: int
    ) -> bool:
        return jobs_answers.answer(
            self._database, self._seen, self._quiet, handle, attempt, outcome, blame=blame, now_ms=now_ms
        )

    def lose_sends(self, *, intent_before_ms: int, look_ms: int) -> int:
        return jobs_answers.lose(self._database, self._quiet, intent_before_ms=intent_before_ms, look_ms=look_ms)

    def to_look_up(self, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
        return jobs_follow.to_look_up(self._database, self._seen, self._quiet, now_ms=now_ms, limit=limit)

    def holding(self, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
        return jobs_follow.holding(self._database, self._seen, state, after=after, limit=limit)

    def note_progress(self, progress: Sequence[Progress]) -> list[bool]:
        return jobs_follow.note_progress(self._database, self._seen, progress)

    def end(self, endings: Sequence[Ending], *, now_ms: int) -> list[Ended]:
        ended = jobs_follow.end(self._database, self._seen, endings, now_ms=now_ms)
        if any(one.won and ending.frees_slot for one, ending in zip(ended, endings, strict=True)):
            self.news.ring()  # a dispatcher of another process may be waiting for the slot
        return ended

    def free_slots(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        freed = jobs_follow.free_slots(self._database, self._seen, fences, now_ms=now_ms)
        if any(freed):
            self.news.ring()
        return freed

    def known_atlas_ids(self, atlas_ids: Sequence[int]) -> set[int]:
        return jobs_follow.known_atlas_ids(self._database, atlas_ids)

    def cancel_job(self, number: int, *, now_ms: int) -> bool:
        return jobs_finish.cancel(self._database, number, now_ms=now_ms)

    def cancel_measurement(self, handle: int, *, now_ms: int) -> bool:
        return jobs_finish.cancel_one(self._database, handle, now_ms=now_ms)

    def take_duty(self, name: str, *, every_ms: int, now_ms: int) -> bool:
        return jobs_upkeep.take_duty(self._database, self._duties, name, every_ms=every_ms, now_ms=now_ms)

    def purge_jobs(self, *, finished_before_ms: int, limit: int) -> int:
        return jobs_upkeep.purge(self._database, finished_before_ms=finished_before_ms, limit=limit)

    def finish_jobs(self, *, now_ms: int, limit: int) -> list[StoredJob]:
        return jobs_finish.finish(self._database, self._rounds, self._quiet, now_ms=now_ms, limit=limit)

    def pull_back_sends(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        moved = jobs_upkeep.pull_back(self._database, read_ms, wait_ms_max=wait_ms_max)
        self._quiet.touch("parked", "unknown", "hook")
        return moved

    def due_webhooks(self, *, now_ms: int, limit: int) -> list[tuple[StoredJob, int]]:
        return jobs_finish.due_webhooks(self._database, self._quiet, now_ms=now_ms, limit=limit)

    def note_webhook(self, number: int, *, tries: int, next_ms: int | None) -> bool:
        noted = jobs_finish.note_webhook(self._database, number, tries=tries, next_ms=next_ms)
        self._quiet.touch("hook")
        return noted

    def verify_jobs(self) -> list[str]:
        """What is wrong with this half, in plain words."""
        return jobs_verify.verify(self._database)

"""The jobs' and accounts' part of the Store on SQLite. Each method is one transaction."""

from __future__ import annotations

from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.adapters.sqlite.jobs import accounts as accounts_sql
from paceline.adapters.sqlite.jobs import jobs as jobs_sql
from paceline.adapters.sqlite.jobs import sends, upkeep
from paceline.adapters.sqlite.methods import peeks, reads, writes
from paceline.core.jobs.meters import Short
from paceline.core.jobs.values import Busy, StoredMeasurement


class SqliteJobStore:
    """Fills ``ports.JobStore``."""

    _db: SqliteDatabase

    # -- accounts and keys

    put_account = writes(accounts_sql.put)
    account = reads(accounts_sql.account)
    accounts = reads(accounts_sql.accounts)
    add_key = writes(accounts_sql.add_key)
    keys = peeks(accounts_sql.keys)
    sealed_key = peeks(accounts_sql.sealed_key)
    change_key = writes(accounts_sql.change_key)
    remove_key = writes(accounts_sql.remove_key)
    sync_account = writes(accounts_sql.sync_meters)
    slots_seen = peeks(accounts_sql.slots_seen)

    # -- submission and reading

    submit = writes(jobs_sql.submit)
    submitted_as = reads(jobs_sql.submitted_as)
    budget = reads(jobs_sql.budget)
    job = peeks(jobs_sql.job)
    jobs = reads(jobs_sql.jobs)
    job_counts = peeks(jobs_sql.counts)
    measurements = reads(jobs_sql.measurements)
    measurement = reads(jobs_sql.measurement)
    handle_of_number = peeks(jobs_sql.handle_of_number)
    measurements_of = reads(jobs_sql.measurements_of)
    count_of = reads(jobs_sql.count_of)
    send_counts = reads(sends.counts)

    # -- sending

    site = writes(accounts_sql.site)
    gates = reads(accounts_sql.gates)
    next_to_send = writes(sends.next_to_send)
    send_line = reads(sends.send_line)
    queued_before = peeks(sends.queued_before)
    next_send_ms = reads(sends.next_ms)

    def begin_send(
        self, item: StoredMeasurement, *, account: str, key: str, sending_max: int, now_ms: int
    ) -> StoredMeasurement | Short | Busy | None:
        with self._db.write() as db:
            intent_ms = self._db.write_ms(now_ms)
            return sends.begin(
                db, item, account=account, key=key, sending_max=sending_max, now_ms=now_ms, intent_ms=intent_ms
            )

    park = writes(sends.park)
    note_passed = writes(sends.note_passed)
    refuse = writes(sends.refuse)
    answer = writes(sends.answer)
    lose_sends = writes(sends.lose)

    # -- following

    to_look_up = reads(sends.to_look_up)
    holding = reads(sends.holding)
    note_progress = writes(sends.note_progress)
    end = writes(sends.end)
    free_slots = writes(sends.free_slots)
    cancel_job = writes(jobs_sql.cancel)
    cancel_measurement = writes(jobs_sql.cancel_one)
    take_duty = writes(upkeep.take_duty)
    purge_jobs = writes(upkeep.purge)
    finish_jobs = writes(jobs_sql.finish)
    pull_back_sends = writes(sends.pull_back)
    due_webhooks = peeks(jobs_sql.due_webhooks)
    pending_webhooks = reads(jobs_sql.pending_webhooks)
    note_webhook = writes(jobs_sql.note_webhook)

"""The batches' part of the Store on SQLite. Each method is one transaction; the modules beside it hold the SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.adapters.sqlite.batches import claim_reads, claims, dead_letters, definitions, deletion, results, upkeep
from paceline.adapters.sqlite.batches import days as days_sql
from paceline.adapters.sqlite.batches import providers as providers_sql
from paceline.adapters.sqlite.batches import settlements as settlements_sql
from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.adapters.sqlite.methods import cached_peeks, peeks, reads, writes
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.values import ClaimedCall, DeadChoice


class SqliteBatchStore:
    """Fills ``ports.BatchStore``."""

    _db: SqliteDatabase
    _policies: providers_sql.SqlitePolicyCache

    # -- providers

    put_provider = writes(providers_sql.put)
    provider = peeks(providers_sql.provider)
    providers = reads(providers_sql.providers)
    remove_provider = writes(providers_sql.remove)
    provider_standing = reads(providers_sql.standing)
    provider_queue = reads(claim_reads.provider_queue)

    # -- batches and records

    put_batch = writes(definitions.put)
    batch = peeks(definitions.batch)
    batches = reads(definitions.batches)
    put_records = writes(definitions.put_records)
    record = peeks(definitions.record)
    find_records = reads(definitions.find_records)
    afters = peeks(definitions.afters)
    record_numbers = reads(definitions.record_numbers)
    records_of = peeks(definitions.records_of)
    remove_record = writes(definitions.remove_record)
    mark_batch_deleted = writes(deletion.mark)
    delete_batch_pass = writes(deletion.delete_pass)

    # -- days

    open_day = writes(days_sql.open_day)
    day = peeks(days_sql.day)
    days = reads(days_sql.days)
    plan_order = reads(days_sql.plan_order)
    plan_page = writes(days_sql.plan_page)
    close_day = writes(days_sql.close_day)
    late_records = reads(days_sql.late_records)
    late_order = reads(days_sql.late_order)
    unplanned = peeks(days_sql.unplanned)
    plan_late_records = writes(days_sql.plan_late_records)
    forget_late_records = writes(days_sql.forget_late_records)
    taken = reads(days_sql.taken)
    record_names = peeks(days_sql.record_names)
    latencies_ms = reads(providers_sql.latencies_ms)
    day_counts = reads(results.day_counts)
    day_dues = reads(results.day_dues)
    day_runs = reads(results.day_runs)

    # -- calls

    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
        with self._db.write() as db:
            now_ms = self._db.write_ms(now_ms)
            return claims.claim(db, self._policies, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)

    next_call_ms = cached_peeks(claims.next_ms)

    def claim_for_worker(
        self, provider: int, *, now_ms: int, runs_max: int, lease_ms: int, run: int | None = None
    ) -> list[ClaimedCall]:
        with self._db.write() as db:
            now_ms = self._db.write_ms(now_ms)
            return claims.claim_for_worker(
                db, self._policies, provider, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, run=run
            )

    next_for_worker_ms = peeks(claims.next_for_worker_ms)
    calls_for_workers = peeks(upkeep.calls_for_workers)
    out_calls = peeks(results.out_calls)
    extend_call = writes(settlements_sql.extend)

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        with self._db.write() as db:
            return settlements_sql.settle(db, self._policies, settlements)

    def settle_and_claim_calls(
        self, settlements: Sequence[CallSettlement], *, now_ms: int, runs_max: int, lease_ms: int
    ) -> tuple[list[bool], list[ClaimedCall]]:
        with self._db.write() as db:
            won, now_ms = settlements_sql.settle(db, self._policies, settlements), self._db.write_ms(now_ms)
            return won, claims.claim(db, self._policies, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)

    release_calls = writes(settlements_sql.release)

    def pull_back_calls(self, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
        with self._db.write() as db:
            return settlements_sql.pull_back(db, self._policies, now_ms=read_ms(), wait_ms_max=wait_ms_max)

    purge_calls = writes(upkeep.purge)
    purge_records = writes(upkeep.purge_records)
    find_call_run = reads(results.find_run)

    # -- dead letters

    dead = reads(dead_letters.dead)

    def redrive(self, choice: DeadChoice, *, gap_ms: int, now_ms: int, limit: int) -> int:
        with self._db.write() as db:
            return dead_letters.redrive(db, self._policies, choice, gap_ms=gap_ms, now_ms=now_ms, limit=limit)

    discard = writes(dead_letters.discard)

"""Providers, batches, days and runs on DynamoDB: the list of functions that fill the port.

Writes of many runs are not one transaction: each run, and each provider's lane, is written by itself, and what was cut
short is done again without harm.
"""

from __future__ import annotations

from paceline.adapters.aws.batches import claims, deletion, offers, results, settlements, upkeep, verify
from paceline.adapters.aws.batches import days as days_items
from paceline.adapters.aws.batches import dead_letters as dead_items
from paceline.adapters.aws.batches import providers as provider_items
from paceline.adapters.aws.batches import records as record_items
from paceline.adapters.aws.batches.parts import BatchParts


class AwsBatchStore(BatchParts):
    """Fills ``ports.BatchStore``."""

    # -- providers

    put_provider = provider_items.put_provider
    provider = provider_items.provider
    providers = provider_items.providers
    remove_provider = provider_items.remove_provider
    provider_standing = provider_items.provider_standing
    provider_queue = provider_items.provider_queue
    latencies_ms = provider_items.latencies_ms

    # -- batches and records

    put_batch = record_items.put_batch
    batch = record_items.batch
    batches = record_items.batches
    put_records = record_items.put_records
    record = record_items.record
    find_records = record_items.find_records
    afters = record_items.afters
    record_numbers = record_items.record_numbers
    records_of = record_items.records_of
    remove_record = record_items.remove_record
    mark_batch_deleted = deletion.mark
    delete_batch_pass = deletion.delete_pass
    record_names = record_items.record_names
    late_records = record_items.late_records
    forget_late_records = record_items.forget_late_records

    # -- days

    open_day = days_items.open_day
    day = days_items.day
    days = days_items.days
    plan_order = days_items.plan_order
    plan_page = days_items.plan_page
    close_day = days_items.close_day
    late_order = days_items.late_order
    unplanned = days_items.unplanned
    plan_late_records = days_items.plan_late_records
    taken = days_items.taken
    day_counts = results.day_counts
    day_dues = results.day_dues
    day_runs = results.day_runs
    find_call_run = results.find_call_run

    # -- calls

    claim_calls = claims.claim_calls
    claim_calls_of = claims.claim_calls_of
    claim_for_worker = claims.claim_for_worker
    next_for_worker_ms = claims.next_for_worker_ms
    out_calls = results.out_calls
    extend_call = settlements.extend_call
    next_call_ms = claims.next_call_ms
    ready_lanes = claims.ready_lanes
    ready_work = claims.ready_work
    ready_of = claims.ready_of
    offer_work = offers.offer_work
    offer_ready_work = offers.offer_ready_work
    settle_calls = settlements.settle_calls
    settle_and_claim_calls = claims.settle_and_claim_calls
    release_calls = settlements.release_calls
    pull_back_calls = settlements.pull_back_calls

    # -- dead letters and upkeep

    dead = dead_items.dead
    redrive = dead_items.redrive
    discard = dead_items.discard
    dead_letters = upkeep.dead_letters
    purge_calls = upkeep.purge_calls
    purge_records = upkeep.purge_records
    batch_counts = upkeep.batch_counts
    calls_for_workers = upkeep.calls_for_workers
    verify_batches = verify.verify_batches

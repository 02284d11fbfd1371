"""Jobs, accounts, keys and the ledger on DynamoDB: the list of functions that fill the port."""

from __future__ import annotations

from paceline.adapters.aws.jobs import accounts as accounts_items
from paceline.adapters.aws.jobs import answers, finish, follow, read, refusals, sends, turns, upkeep, verify
from paceline.adapters.aws.jobs import submit as submission
from paceline.adapters.aws.jobs.parts import JobParts


class AwsJobStore(JobParts):
    """Fills ``ports.JobStore``."""

    # -- accounts and keys

    put_account = accounts_items.put_account
    account = accounts_items.account
    accounts = accounts_items.accounts
    add_key = accounts_items.add_key
    keys = accounts_items.keys
    sealed_key = accounts_items.sealed_key
    change_key = accounts_items.change_key
    remove_key = accounts_items.remove_key
    sync_account = accounts_items.sync_meters
    slots_seen = accounts_items.slots_seen

    # -- submission and reading

    submit = submission.submit
    submitted_as = submission.submitted_as
    budget = submission.budget
    job = read.job
    jobs = read.jobs
    job_counts = read.counts
    measurements = read.measurements
    measurement = read.measurement
    handle_of_number = read.handle_of_number
    measurements_of = read.measurements_of
    count_of = read.count_of
    send_counts = turns.counts

    # -- sending

    site = refusals.site
    gates = refusals.gates
    next_to_send = turns.next_to_send
    send_line = turns.send_line
    queued_before = turns.queued_before
    next_send_ms = turns.next_ms
    begin_send = sends.begin
    park = sends.park
    note_passed = sends.note_passed
    refuse = sends.refuse
    answer = answers.answer
    lose_sends = answers.lose

    # -- following

    to_look_up = follow.to_look_up
    holding = follow.holding
    note_progress = follow.note_progress
    end = follow.end
    free_slots = follow.free_slots
    cancel_job = finish.cancel
    cancel_measurement = finish.cancel_one
    take_duty = upkeep.take_duty
    purge_jobs = upkeep.purge
    finish_jobs = finish.finish
    pull_back_sends = upkeep.pull_back
    due_webhooks = finish.due_webhooks
    pending_webhooks = finish.pending_webhooks
    note_webhook = finish.note_webhook
    verify_jobs = verify.verify

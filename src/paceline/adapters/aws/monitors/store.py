"""The monitors' part of the Store on DynamoDB: users, monitors, entries and runs. The modules beside it fill it."""

from __future__ import annotations

from functools import cached_property

from paceline.adapters.aws import uptime
from paceline.adapters.aws.monitors import (
    advances,
    alarms,
    claims,
    definitions,
    history,
    reoffer,
    settlements,
    upkeep,
    verify,
)
from paceline.adapters.aws.monitors import changes as recorded_changes
from paceline.adapters.aws.monitors import entries as entry_items
from paceline.adapters.aws.monitors import runs as open_runs
from paceline.adapters.aws.monitors import users as monitor_users
from paceline.adapters.aws.monitors.alerting import health, late
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.lists.query import FAILING, Facet
from paceline.core.store_status import StoreStatus


class AwsMonitorStore(MonitorParts):
    """Fills ``ports.MonitorStore`` and the monitors' part of ``ports.QueuedStore``."""

    # -- users and tokens

    add_user = monitor_users.add_user
    user = monitor_users.user
    users = monitor_users.users
    edit_user = monitor_users.edit_user
    remove_user = monitor_users.remove_user
    add_token = monitor_users.add_token
    token = monitor_users.token
    tokens = monitor_users.tokens
    remove_token = monitor_users.remove_token

    # -- definitions and their changes

    put_monitors = definitions.put_monitors
    rewrite_specs = definitions.rewrite_specs
    remove_monitors = definitions.remove_monitors
    monitor = definitions.monitor

    def monitors(self, owner: str, *, after: str, limit: int, having: Facet | None = None) -> list[Monitor]:
        read = health.failing_monitors if having == FAILING else definitions.monitors
        return read(self, owner, after=after, limit=limit)

    monitors_by_generation = definitions.monitors_by_generation
    narrowed = definitions.narrowed
    index_monitors = definitions.index_monitors
    changes = recorded_changes.changes
    react_alone = entry_items.react

    # -- entries

    entries = entry_items.entries
    schedulers = entry_items.schedulers
    due = entry_items.due
    next_due_ms = entry_items.next_due_ms
    commit = advances.commit
    make_extra_runs = advances.make_extra_runs
    superseded = advances.superseded_runs
    advance_on_time = advances.advance_on_time
    book_catch_up = advances.book_catch_up
    armed_after = entry_items.armed_after
    alarmed_entries = alarms.alarmed_entries
    sweep_alarms = alarms.sweep_alarms

    # -- runs

    claim = claims.claim
    claim_checks_of = claims.claim_checks_of
    next_run_ms = claims.next_run_ms
    take = claims.take
    offer_again = reoffer.offer_again
    extend = open_runs.extend
    settle = settlements.settle
    settle_and_claim = settlements.settle_and_claim
    pull_back_runs = upkeep.pull_back_runs
    release = open_runs.release
    runs = history.runs
    find_run = history.find_run
    monitor_runs = history.monitor_runs
    glances = history.glances
    health_records = health.health_records
    hours_to_close = health.hours_to_close
    late_runs = late.late_runs
    change_health = health.change_health

    # -- roll-ups

    fold_runs = uptime.fold_runs
    uptimes = uptime.uptimes
    put_rollups = uptime.put_rollups

    # -- upkeep

    purge = upkeep.purge
    leases = upkeep.leases
    verify_monitors = verify.verify_monitors

    @cached_property
    def _counts(self) -> upkeep.Counts:
        return upkeep.Counts(self.db)

    def monitor_counts(self) -> StoreStatus:
        """Return the counts of users, monitors, entries and runs; all others are 0."""
        return self._counts.read(next_due_ms=self.next_due_ms())

"""Attributes that the functions of this package share: each takes the store as its first argument."""

from __future__ import annotations

from functools import cached_property

from paceline.adapters.aws.alerts import AwsAlertStore
from paceline.adapters.aws.cache.index_cache import CachedIndex, IndexCache
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.client.tables import READY_INDEX, RUNS
from paceline.adapters.aws.monitors.alarm_sender import AwsAlarmSender
from paceline.adapters.aws.monitors.claim_memory import ClaimMemory
from paceline.adapters.aws.monitors.due import NextDue
from paceline.adapters.aws.monitors.keys import check_queues


class MonitorParts(AwsAlertStore):
    """The clients of the store, its alerts, and a process's memory of monitors."""

    superseded_runs = 0
    """Waiting runs that the commits of this process have superseded."""

    @cached_property
    def alarms(self) -> AwsAlarmSender:
        """Sends the messages that wake ticks and checkers; ``alarms.sends = False`` if nobody reads them."""
        return AwsAlarmSender(self._queues, self._database)

    @cached_property
    def next_due(self) -> NextDue:
        return NextDue(self._database, self.change_counter)

    @cached_property
    def claim_memory(self) -> ClaimMemory:
        return ClaimMemory()

    @cached_property
    def ready_checks(self) -> IndexCache:
        """The cached index of checks that may be claimed."""
        index = CachedIndex(RUNS, READY_INDEX, "at", lambda: check_queues(last_generation(self._database)))
        return IndexCache(self._database, self.change_counter, index)

"""The Store on DynamoDB and SQS: monitors, batches, jobs, items and alerts share one set of clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from paceline.adapters.aws import dead_queues
from paceline.adapters.aws.alerts import AwsAlertStore
from paceline.adapters.aws.batches.store import AwsBatchStore
from paceline.adapters.aws.cache.change_counter import ChangeCounter
from paceline.adapters.aws.client import connect, tables
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import DynamoKey, update
from paceline.adapters.aws.client.numbers import Numbers
from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.history import batches as batch_history
from paceline.adapters.aws.history import jobs as job_history
from paceline.adapters.aws.history import monitors as monitor_history
from paceline.adapters.aws.items import AwsItemStore
from paceline.adapters.aws.jobs.store import AwsJobStore
from paceline.adapters.aws.monitors.reoffer import offer_again
from paceline.adapters.aws.monitors.store import AwsMonitorStore
from paceline.core.batches.values import ReplayCounts
from paceline.core.engine_traits import EngineTraits
from paceline.core.monitors.values import Reacted
from paceline.core.store_status import StoreStatus
from paceline.errors import StoreUnavailable
from paceline.ports import Clock
from paceline.ports.monitors import Beside

SCHEMA_VERSION = 1
# Each request costs money, figures are counted over many partitions, and the clocks of hosts differ.
TRAITS = EngineTraits(remote=True, look_ms_min=1_000, rest_ms=30_000, keep_ms=60_000, beat_ms=30_000, apart_ms=5_000)


class AwsStore(AwsMonitorStore, AwsBatchStore, AwsJobStore, AwsItemStore, AwsAlertStore):
    """Fills ``ports.Store``. Any number of processes and hosts may have one open on the same tables."""

    def __init__(
        self,
        prefix: str,
        *,
        clients: connect.Clients | None = None,
        clock: Clock | None = None,
        retention: Retention | None = None,
    ) -> None:
        """Open the store. ``clients``, if given, are shared and stay open. ``create`` makes the tables.

        With a ``clock``, leases count from when they are written, after the reads before it. ``retention``: the
        settings by which items that end get their time to live; by default those of a new installation.
        """
        self._owned = clients is None
        self._clients = clients or connect.open_clients()
        self._threads = connect.Threads()
        self._database = DynamoDatabase(
            self._clients, prefix=prefix, threads=self._threads, clock=clock, retention=retention
        )
        self._queues = Queues(self._clients, prefix=prefix, threads=self._threads)
        self._numbers = Numbers(self._database)
        self.change_counter = ChangeCounter(self._database)

    def create(self) -> tables.TablesReport:
        """Create missing tables and queues."""
        return tables.create(self._clients, self._database.prefix)

    def react(self, reacted: Sequence[Reacted], *, now_ms: int, beside: Beside | None = None) -> list[bool]:
        won = self.react_alone(reacted, now_ms=now_ms)
        if beside is not None:
            beside(self, won)
        return won

    @property
    def traits(self) -> EngineTraits:
        return TRAITS

    def begin_loops(self) -> None:
        self.change_counter.caches_indexes = True

    @property
    def schema_version(self) -> int:
        return SCHEMA_VERSION

    def status(self) -> StoreStatus:
        return msgspec.structs.replace(self.monitor_counts(), **self.batch_counts()._asdict())

    def offer_again(self, *, now_ms: int, beside: Callable[[], int] | None = None) -> int:
        """Offer runs of monitors again, and those of batches that may start now. Return how many runs and providers."""
        return offer_again(self, now_ms=now_ms, beside=beside or (lambda: self.offer_ready_work(now_ms=now_ms)))

    def dead_messages(self) -> dict[str, int]:
        return dead_queues.depths(self._queues)

    def replay_dead(self, *, now_ms: int, limit: int, react: Callable[[], object]) -> dict[str, ReplayCounts]:
        def follow() -> None:
            react()
            self.sweep_alarms(now_ms=now_ms)

        return dead_queues.replay(self._database, self._queues, now_ms=now_ms, limit=limit, follow=follow)

    monitor_facts = monitor_history.monitor_facts
    call_facts = batch_history.call_facts
    job_facts = job_history.job_facts

    def verify(self) -> list[str]:
        return [*self.verify_monitors(), *self.verify_batches(), *self.verify_jobs()]

    def ping(self) -> None:
        written = self._database.write(update(tables.LEDGER, DynamoKey("ping", "-"), "ADD #pings :one", when="", one=1))
        assert written.won

    def watch(self) -> None:
        """Do nothing: AWS keeps the tables, and every request tells if it failed."""

    def within(self, wait_ms: int) -> AbstractContextManager[None]:
        """Set no limit: requests have their own time-outs, and writers do not wait for one another."""
        del wait_ms
        return nullcontext()

    def version(self) -> int:
        return self.change_counter.version()

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None:
        del progress
        raise StoreUnavailable(
            f"{target}: the store on AWS is not copied to a file: turn on point-in-time recovery of its tables."
        )

    def close(self) -> None:
        self._threads.close()
        if self._owned:
            connect.close_clients(self._clients)

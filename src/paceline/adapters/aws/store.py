"""The Store on DynamoDB and SQS: three halves on one set of clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from paceline.adapters.aws import connect, daemons, dead_queues, secret, tables
from paceline.adapters.aws.batches_store import AwsBatchStore
from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Key, update
from paceline.adapters.aws.jobs_store import AwsJobStore
from paceline.adapters.aws.monitors_store import AwsMonitorStore
from paceline.adapters.aws.monitors_upkeep import leases
from paceline.adapters.aws.news import News
from paceline.adapters.aws.numbers import Numbers
from paceline.adapters.aws.queues import Queues
from paceline.core.clock import set_back_ms
from paceline.core.daemons import Daemon
from paceline.errors import StoreUnavailable
from paceline.ports import Clock, Leases, Replayed, StoreStatus

SCHEMA_VERSION = 1
CLOCK = Key("clock", "-")


class AwsStore(AwsMonitorStore, AwsBatchStore, AwsJobStore):
    """Fills ``ports.Store``. Any number of processes and hosts may have one open on the same tables."""

    def __init__(self, prefix: str, *, clients: connect.Clients | None = None, clock: Clock | None = None) -> None:
        """``clients``, if given, are shared and stay open. The tables are made by ``create``, not here.

        ``clock``: leases then count from when they are written, however long what was read before took.
        """
        self._owned = clients is None
        self._clients = clients or connect.open_clients()
        self._threads = connect.Threads()
        self._database = Database(self._clients, prefix=prefix, threads=self._threads, clock=clock)
        self._queues = Queues(self._clients, prefix=prefix, threads=self._threads)
        self._numbers = Numbers(self._database)
        self.news = News(self._database)

    @property
    def queues(self) -> Queues:
        """For the functions, which are woken by messages of their own."""
        return self._queues

    def create(self) -> tables.Report:
        """Makes tables and queues that are missing."""
        return tables.create(self._clients, self._database.prefix)

    @property
    def schema_version(self) -> int:
        return SCHEMA_VERSION

    def proof(self) -> str | None:
        return secret.proof(self._database)

    def keep_proof(self, proof: str, *, was: str | None) -> bool:
        return secret.keep_proof(self._database, proof, was=was)

    def status(self) -> StoreStatus:
        return msgspec.structs.replace(self.monitor_counts(), **self.batch_counts()._asdict())

    def dead_messages(self) -> dict[str, int]:
        return dead_queues.depths(self._queues)

    def replay_dead(self, *, now_ms: int, limit: int, react: Callable[[], object]) -> dict[str, Replayed]:
        def follow() -> None:
            react()
            self.sweep_alarms(now_ms=now_ms)

        return dead_queues.replay(self._database, self._queues, now_ms=now_ms, limit=limit, follow=follow)

    def beat(self, daemon: Daemon) -> None:
        daemons.beat(self._database, daemon)

    def daemons(self, *, limit: int) -> list[Daemon]:
        return daemons.daemons(self._database, limit=limit)

    def forget_daemon(self, daemon_id: str) -> None:
        daemons.forget(self._database, daemon_id)

    def forget_daemons(self, *, before_ms: int) -> int:
        return daemons.forget_before(self._database, before_ms=before_ms)

    def leases(self, *, now_ms: int) -> Leases:
        return leases(self._database, now_ms=now_ms)

    def verify(self) -> list[str]:
        return [*self.verify_monitors(), *self.verify_batches(), *self.verify_jobs()]

    def ping(self) -> None:
        written = self._database.write(update(tables.LEDGER, Key("ping", "-"), "ADD #pings :one", when="", one=1))
        assert written.won

    def note_time(self, read_ms: Callable[[], int], *, apart_ms: int = 0) -> tuple[int | None, int]:
        kept = self._database.get(tables.LEDGER, CLOCK)
        now_ms = read_ms()  # after the answer, which shows what others have written by then
        latest_ms = None if kept is None else int(kept["latest_ms"])
        if not set_back_ms(now_ms, latest_ms=latest_ms, apart_ms=apart_ms):
            self.accept_time(lambda: now_ms)
        return latest_ms, now_ms

    def accept_time(self, read_ms: Callable[[], int]) -> None:
        self._database.write(update(tables.LEDGER, CLOCK, "SET #latest_ms = :now_ms", when="", now_ms=read_ms()))

    def watch(self) -> None:
        """Nothing to compare: AWS keeps the tables, and every request says if it failed."""

    def within(self, wait_ms: int) -> AbstractContextManager[None]:
        """Requests have their own time-outs, and writers do not wait for one another."""
        del wait_ms
        return nullcontext()

    def version(self) -> int:
        return self.news.version()

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None:
        del progress
        raise StoreUnavailable(
            f"{target}: the store on AWS is not copied to a file: turn on point-in-time recovery of its tables."
        )

    def close(self) -> None:
        self._threads.close()
        if self._owned:
            connect.close_clients(self._clients)

"""The Store on one SQLite file. Each method is one transaction; the modules beside this one hold the SQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from paceline.adapters.sqlite import alerts as alerts_sql
from paceline.adapters.sqlite import items, upkeep
from paceline.adapters.sqlite import users as users_sql
from paceline.adapters.sqlite.batches.providers import SqlitePolicyCache
from paceline.adapters.sqlite.batches.store import SqliteBatchStore
from paceline.adapters.sqlite.database import SqliteDatabase, file_bytes
from paceline.adapters.sqlite.history import batches as batch_history
from paceline.adapters.sqlite.history import jobs as job_history
from paceline.adapters.sqlite.history import monitors as monitor_history
from paceline.adapters.sqlite.identity import refuse_foreign
from paceline.adapters.sqlite.jobs.store import SqliteJobStore
from paceline.adapters.sqlite.methods import peeks, reads, streams, writes
from paceline.adapters.sqlite.migrate import migrate
from paceline.adapters.sqlite.monitors.retention import RunPurge
from paceline.adapters.sqlite.monitors.store import SqliteMonitorStore
from paceline.core.engine_traits import EngineTraits
from paceline.core.monitors.values import PurgeReport
from paceline.core.store_status import StoreStatus
from paceline.ports import Clock


class SqliteStore(SqliteMonitorStore, SqliteBatchStore, SqliteJobStore):
    """A store in a file, or in ``:memory:``. The schema is brought up to date when it is opened."""

    def __init__(self, path: str, *, synchronous: str = "full", clock: Clock | None = None) -> None:
        """Open the store. With a ``clock``, leases count from when they are written, after the wait for the lock."""
        refuse_foreign(path)
        self._db = SqliteDatabase(path, synchronous=synchronous, clock=clock)
        self._policies = SqlitePolicyCache()
        self._retention = RunPurge()
        self._remember_monitors()
        self._schema_version = migrate(self._db)

    @property
    def traits(self) -> EngineTraits:
        return EngineTraits()

    def begin_loops(self) -> None:
        """Do nothing: reading an index of the file costs microseconds."""

    @property
    def schema_version(self) -> int:
        return self._schema_version

    # -- users and tokens

    add_user = writes(users_sql.add_user)
    user = peeks(users_sql.user)
    users = reads(users_sql.users)
    edit_user = writes(users_sql.edit_user)
    remove_user = writes(users_sql.remove_user)
    add_token = writes(users_sql.add_token)
    token = peeks(users_sql.token)
    tokens = reads(users_sql.tokens)
    remove_token = writes(users_sql.remove_token)

    # -- named items

    get_items = reads(items.get_items)
    items_after = peeks(items.items_after)
    write_items = writes(items.write_items)

    # -- alerts

    add_alerts = writes(alerts_sql.add)
    due_alerts = peeks(alerts_sql.due)
    alert_records = peeks(alerts_sql.by_ids)
    open_alerts_after = peeks(alerts_sql.open_after)
    write_alerts = writes(alerts_sql.write)
    alert = peeks(alerts_sql.alert)
    alerts = peeks(alerts_sql.alerts)
    alert_counts = reads(alerts_sql.counts)
    purge_alerts = writes(alerts_sql.purge)

    # -- upkeep

    leases = peeks(upkeep.leases)

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        with self._db.write() as db:
            items.delete_expired(db, now_ms=now_ms)
            return self._retention.purge(
                db, settled_before_ms=settled_before_ms, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit
            )

    def status(self) -> StoreStatus:
        with self._db.read() as db:
            return upkeep.status(db, bytes_used=file_bytes(self._db.path))

    verify = reads(upkeep.verify)
    monitor_facts = streams(monitor_history.read_facts)
    call_facts = streams(batch_history.read_facts)
    job_facts = streams(job_history.read_facts)

    def ping(self) -> None:
        with self._db.write() as db:
            # Writing the same number still writes a page; an UPDATE to the same value would not.
            db.pragma("user_version", db.pragma("user_version"))

    def watch(self) -> None:
        self._db.watch()

    def within(self, wait_ms: int) -> AbstractContextManager[None]:
        return self._db.within(wait_ms)

    def version(self) -> int:
        with self._db.writer() as db:
            return int(db.pragma("data_version"))

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None:
        # One view for the whole backup: otherwise it would start over at each write of another process.
        with self._db.read() as db:
            db.execute("SELECT id FROM lane LIMIT 1").fetchall()
            upkeep.backup(db, target, progress=progress)

    def close(self) -> None:
        self._db.close()

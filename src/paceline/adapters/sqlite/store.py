"""The Store on one SQLite file. Each method is one transaction; the modules beside this one hold the SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from paceline.adapters.sqlite import (
    check_claims,
    claims,
    daemons,
    definitions,
    entries,
    history,
    runs,
    secret,
    strides,
    upkeep,
    users,
)
from paceline.adapters.sqlite.advances import book_catch_up
from paceline.adapters.sqlite.advances import commit as commit_advances
from paceline.adapters.sqlite.batch_store import SqliteBatchStore
from paceline.adapters.sqlite.cadences import Cadences
from paceline.adapters.sqlite.database import Connection, Database, file_bytes
from paceline.adapters.sqlite.identity import refuse_foreign
from paceline.adapters.sqlite.job_store import SqliteJobStore
from paceline.adapters.sqlite.lanes import Lanes
from paceline.adapters.sqlite.migrate import migrate
from paceline.adapters.sqlite.providers import Policies
from paceline.adapters.sqlite.retention import Retention
from paceline.core.daemons import Daemon
from paceline.core.definition import Monitor
from paceline.core.due import Advance, Due, OnTime
from paceline.core.health import Glance
from paceline.core.places import Places
from paceline.core.schedule import Entry
from paceline.ports import (
    Change,
    Claimed,
    Clock,
    Leases,
    Moved,
    PurgeReport,
    PutMonitor,
    PutResult,
    Queue,
    Reacted,
    RemoveMonitor,
    RemoveResult,
    Run,
    Scheduler,
    Settlement,
    StoreStatus,
    Take,
    Token,
    TokenAdded,
    User,
    UserEdit,
)


class SqliteStore(SqliteBatchStore, SqliteJobStore):
    """``path`` is a file, or ``:memory:``. The schema is brought up to date when it is opened."""

    def __init__(self, path: str, *, synchronous: str = "full", clock: Clock | None = None) -> None:
        """``clock``: leases then count from when they are written, however long the lock was waited for."""
        refuse_foreign(path)
        self._db = Database(path, synchronous=synchronous, clock=clock)
        self._cadences = Cadences()
        self._lanes = Lanes()
        self._checks = check_claims.CheckQueue()
        self._policies = Policies()
        self._retention = Retention()
        self._superseded = 0
        self._schema_version = migrate(self._db)

    @property
    def schema_version(self) -> int:
        return self._schema_version

    # -- users and tokens

    def add_user(self, user: User) -> bool:
        with self._db.write() as db:
            return users.add_user(db, user)

    def user(self, user_id: str) -> User | None:
        with self._db.peek() as db:
            return users.user(db, user_id)

    def users(self, *, after: str, limit: int) -> list[User]:
        with self._db.read() as db:
            return users.users(db, after=after, limit=limit)

    def edit_user(self, user_id: str, edit: UserEdit) -> User | None:
        with self._db.write() as db:
            return users.edit_user(db, user_id, edit)

    def remove_user(self, user_id: str) -> bool:
        with self._db.write() as db:
            return users.remove_user(db, user_id)

    def add_token(self, token: Token, *, tokens_max: int) -> TokenAdded:
        with self._db.write() as db:
            return users.add_token(db, token, tokens_max=tokens_max)

    def token(self, token_id: str) -> tuple[Token, User] | None:
        with self._db.peek() as db:
            return users.token(db, token_id)

    def tokens(self, user_id: str) -> list[Token]:
        with self._db.read() as db:
            return users.tokens(db, user_id)

    def remove_token(self, user_id: str, token_id: str) -> bool:
        with self._db.write() as db:
            return users.remove_token(db, user_id, token_id)

    # -- definitions and their changes

    def put_monitors(
        self, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
    ) -> list[PutResult]:
        with self._db.write() as db:
            return definitions.put(db, puts, monitors_max=monitors_max, firings_max=firings_max, now_ms=now_ms)

    def rewrite_specs(self, monitors: Sequence[Monitor]) -> int:
        with self._db.write() as db:
            rewritten = definitions.rewrite_specs(db, monitors)
        with self._db.writer() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return rewritten

    def remove_monitors(self, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
        with self._db.write() as db:
            return definitions.remove(db, removes)

    def monitor(self, owner: str, monitor_id: str) -> Monitor | None:
        with self._db.peek() as db:
            return definitions.monitor(db, owner, monitor_id)

    def monitors(self, owner: str, *, after: str, limit: int) -> list[Monitor]:
        with self._db.read() as db:
            return definitions.monitors(db, owner, after=after, limit=limit)

    def changes(self, *, limit: int, now_ms: int) -> list[Change]:
        with self._db.read() as db:
            return entries.changes(db, self._cadences, limit=limit, now_ms=now_ms)

    def react(self, reacted: Sequence[Reacted]) -> list[bool]:
        try:
            with self._db.write() as db:
                return entries.react(db, reacted, self._cadences)
        except BaseException:
            self._cadences.forget()
            raise

    # -- entries

    def entries(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Entry]:
        with self._db.read() as db:
            return entries.entries(db, generations, self._cadences, now_ms=now_ms)

    def schedulers(self, *, after_generation: int, limit: int, now_ms: int) -> list[Scheduler]:
        with self._db.read() as db:
            return entries.schedulers(db, self._cadences, after_generation=after_generation, limit=limit, now_ms=now_ms)

    def due(self, *, now_ms: int, limit: int) -> list[Due]:
        with self._db.read() as db:
            return entries.due(db, self._cadences, now_ms=now_ms, limit=limit)

    def next_due_ms(self) -> int | None:
        with self._db.peek() as db:
            return entries.first_due_ms(db)

    def commit(self, advances: Sequence[Advance], *, now_ms: int) -> list[bool]:
        with self._db.write() as db:
            won, superseded = commit_advances(db, advances, now_ms=now_ms)
        self._superseded += superseded
        return won

    def superseded(self) -> int:
        return self._superseded

    def advance_on_time(self, rule: OnTime, *, limit: int) -> Moved:
        with self._db.write() as db:
            return strides.advance_on_time(db, rule, limit=limit)

    def book_catch_up(self, wanted: Sequence[Sequence[int]], *, per_second: int, now_ms: int) -> list[list[int]]:
        with self._db.write() as db:
            return book_catch_up(db, wanted, per_second=per_second, now_ms=now_ms)

    def armed_after(self, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
        with self._db.read() as db:
            return entries.armed_after(db, self._cadences, after, from_ms=from_ms, limit=limit)

    # -- runs

    def claim(
        self, queue: Queue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        try:
            with self._db.write() as db:
                now_ms = self._db.write_ms(now_ms)
                if queue.outgoing:
                    return claims.claim(
                        db, self._lanes, owner=queue.owner, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms
                    )
                return self._checks.claim(db, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
        except BaseException:
            self._checks.forget()  # what it remembers may not have been committed
            raise

    def next_run_ms(self) -> int | None:
        with self._db.peek() as db:
            return check_claims.next_run_ms(db)

    def take(self, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
        with self._db.write() as db:
            now_ms = self._db.write_ms(now_ms)
            return [self._take(db, item, now_ms) for item in takes]

    def _take(self, db: Connection, item: Take, now_ms: int) -> Claimed | None:
        monitor = definitions.monitor(db, item.owner, item.monitor)
        if monitor is None or monitor.generation != item.generation:
            return None
        run = history.find_run(db, self._cadences, monitor, item.counter, now_ms=now_ms)
        return claims.take(db, run.handle, item.attempt, now_ms=now_ms, lease_ms=item.lease_ms) if run else None

    def offer_again(self, *, now_ms: int) -> int:
        """Nobody: the checkers of a file ask for runs."""
        del now_ms
        return 0

    def extend(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
        with self._db.write() as db:
            return runs.extend(db, handle, attempt, until_ms=until_ms, now_ms=now_ms)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        with self._db.write() as db:
            return runs.settle(db, settlements)

    def pull_back_runs(self, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
        with self._db.write() as db:
            return runs.pull_back(db, now_ms=read_ms(), wait_ms_max=wait_ms_max, later_ms_max=later_ms_max)

    def release(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        with self._db.write() as db:
            return runs.release(db, fences, now_ms=now_ms)

    def run(self, handle: int) -> Run | None:
        with self._db.read() as db:
            return history.run(db, handle)

    def runs(self, handles: Sequence[int]) -> dict[int, Run]:
        with self._db.read() as db:
            found = {handle: history.run(db, handle) for handle in handles}
        return {handle: run for handle, run in found.items() if run is not None}

    def find_run(self, owner: str, monitor_id: str, *, generation: int, counter: int, now_ms: int) -> Run | None:
        with self._db.read() as db:
            monitor = definitions.monitor(db, owner, monitor_id)
            if monitor is None or monitor.generation != generation:
                return None
            return history.find_run(db, self._cadences, monitor, counter, now_ms=now_ms)

    def monitor_runs(self, monitor: Monitor, *, before: int | None, limit: int, now_ms: int) -> list[Run]:
        with self._db.read() as db:
            return history.monitor_runs(db, self._cadences, monitor, before=before, limit=limit, now_ms=now_ms)

    def glances(self, generations: Sequence[int], *, now_ms: int) -> dict[int, Glance]:
        with self._db.read() as db:
            return history.glances(db, self._cadences, generations, now_ms=now_ms)

    # -- daemons

    def beat(self, daemon: Daemon) -> None:
        with self._db.write() as db:
            daemons.beat(db, daemon)

    def daemons(self, *, limit: int) -> list[Daemon]:
        with self._db.read() as db:
            return daemons.daemons(db, limit=limit)

    def forget_daemon(self, daemon_id: str) -> None:
        with self._db.write() as db:
            daemons.forget(db, daemon_id)

    def forget_daemons(self, *, before_ms: int) -> int:
        with self._db.write() as db:
            return daemons.forget_before(db, before_ms=before_ms)

    def leases(self, *, now_ms: int) -> Leases:
        with self._db.read() as db:
            return daemons.leases(db, now_ms=now_ms)

    # -- upkeep

    def proof(self) -> str | None:
        with self._db.peek() as db:
            return secret.proof(db)

    def keep_proof(self, proof: str, *, was: str | None) -> bool:
        with self._db.write() as db:
            return secret.keep_proof(db, proof, was=was)

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        with self._db.write() as db:
            return self._retention.purge(
                db, settled_before_ms=settled_before_ms, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit
            )

    def status(self) -> StoreStatus:
        with self._db.read() as db:
            return upkeep.status(db, bytes_used=file_bytes(self._db.path))

    def verify(self) -> list[str]:
        with self._db.read() as db:
            return upkeep.verify(db)

    def ping(self) -> None:
        with self._db.write() as db:
            # Writing the same number still writes a page, which an update to the same value would not.
            db.pragma("user_version", db.pragma("user_version"))

    def note_time(self, read_ms: Callable[[], int], *, apart_ms: int = 0) -> tuple[int | None, int]:
        with self._db.write() as db:
            return upkeep.note_time(db, now_ms=read_ms(), apart_ms=apart_ms)

    def accept_time(self, read_ms: Callable[[], int]) -> None:
        with self._db.write() as db:
            upkeep.accept_time(db, now_ms=read_ms())

    def watch(self) -> None:
        self._db.watch()

    def within(self, wait_ms: int) -> AbstractContextManager[None]:
        return self._db.within(wait_ms)

    def version(self) -> int:
        with self._db.writer() as db:
            return int(db.pragma("data_version"))

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None:
        # One snapshot for all of it: else a backup would begin anew at each write of another process.
        with self._db.read() as db:
            db.execute("SELECT id FROM lane LIMIT 1").fetchall()
            upkeep.backup(db, target, progress=progress)

    def close(self) -> None:
        self._db.close()

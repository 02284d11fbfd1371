"""One SQLite file: a single writer per process, a reader per thread, and errors in our own words."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from paceline.adapters.sqlite.file_watch import FileWatch
from paceline.adapters.sqlite.turns import FairLock
from paceline.core.leases import write_time_ms
from paceline.errors import PacelineError, StoreDamaged, StoreUnavailable
from paceline.ports import Clock

BUSY_TIMEOUT_MS = 10_000
"""One deadline for a whole wait: for this process's lock, then for other processes at SQLite's."""
CHECK_S = 30.0
CHECK_BYTES_MAX = 32 * 1024 * 1024
"""After checkpoints, and not more often than this, the structure of a file up to this size is looked through."""
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 4_096
STATEMENTS_KEPT = 256
"""Compiled statements that a connection keeps. Each row of an ``executemany`` counts as one use, and what was not used
for so many uses is compiled anew, which takes longer than running it: hence ``insert_rows``."""
ROWS_AT_ONCE = (64, 8, 1)
MEMORY = ":memory:"

_UNAVAILABLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.ReadOnlyError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.PermissionsError,
    apsw.NoMemError,
)

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The system had no room: the files are as they were."""


class Rows(Protocol):
    """What a statement returned. The columns' types are the schema's business: tables are STRICT."""

    @property
    def get(self) -> Any:
        """The one value of the one row."""

    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def fetchone(self) -> Any: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Connection(Protocol):
    """What the modules beside this one use of a connection."""

    def execute(self, statements: str, bindings: Sequence[Any] | dict[str, Any] | None = None, /) -> Rows: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]], /) -> Rows: ...
    def changes(self) -> int: ...
    def total_changes(self) -> int: ...
    def last_insert_rowid(self) -> int: ...
    def pragma(self, name: str, value: Any = ..., /) -> Any: ...


class Database:
    """Connections to one file. Writes of this process queue at one lock; other processes queue at SQLite's."""

    def __init__(self, path: str, *, synchronous: str, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock
        self._synchronous = synchronous
        self._lock = FairLock()  # else a thread that writes without a pause keeps the tick out
        self._readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()  # not the writer's: a first read must not wait for a commit
        self._local = threading.local()
        self._busy_ms = BUSY_TIMEOUT_MS
        self._damage: str | None = None
        self._rewritten = False
        self._checked_s = time.monotonic()
        with translated_errors():
            _make_private(path)
            self._writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, WRITER_CACHE_KIB)
            self._writer.execute("PRAGMA journal_mode = WAL").fetchall()
            self._writer.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'normal' else 'FULL'}")
            self._writer.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # the log and its index are open now
        self._files = None if path == MEMORY else FileWatch(path)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: committed on return, rolled back on any error.

        It counts only if the files are still those that were opened: else it would be lost with them.
        """
        with self._turn() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield cast("Connection", connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if self._files is not None and (gone := self._files.gone()):
                raise self._damaged(gone)

    @contextmanager
    def within(self, wait_ms: int) -> Iterator[None]:
        """All writes of this thread inside wait for their turns so long at most, together."""
        self._local.until_s = time.monotonic() + wait_ms / 1_000
        try:
            yield
        finally:
            self._local.until_s = None

    def write_ms(self, asked_ms: int) -> int:
        """For who holds the lock: the time now, where a clock was given. It may have waited for long to get there."""
        return write_time_ms(asked_ms, self._clock.now_ms() if self._clock else None)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view for all statements inside."""
        if self.path == MEMORY:
            with self._turn() as connection:
                yield cast("Connection", connection)
            return
        with self._guard(connection := self._reader()):
            connection.execute("BEGIN")
            try:
                yield cast("Connection", connection)
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def peek(self) -> Iterator[Connection]:
        """For a single statement, which is consistent by itself: no transaction around it."""
        if self.path == MEMORY:
            with self._turn() as connection:
                yield cast("Connection", connection)
            return
        with self._guard(connection := self._reader()):
            yield cast("Connection", connection)

    @contextmanager
    def writer(self) -> Iterator[apsw.Connection]:
        """The writing connection outside a transaction: for backup, checks and pragmas."""
        with self._turn() as connection:
            yield connection

    def watch(self) -> None:
        """Raises StoreDamaged if the files are not what they were. For one thread; it does not wait for writers."""
        if self._files is None:
            return
        self._refuse_if_damaged()
        seen = self._files.look()
        if seen.damage:
            raise self._damaged(seen.damage)
        self._rewritten |= seen.rewritten
        if seen.unclear:
            with self._guard(connection := self._reader()), contextlib.suppress(apsw.BusyError):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if self._rewritten and time.monotonic() - self._checked_s >= CHECK_S:
            self._rewritten, self._checked_s = False, time.monotonic()
            self._check_structure()

    def close(self) -> None:
        with self._lock, self._readers_lock:
            for connection in (*self._readers, self._writer):
                if self._damage is not None:
                    # SQLite deletes the log by its name when it closes: it may belong to another file by now.
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()
            self._readers.clear()

    def _check_structure(self) -> None:
        if Path(self.path).stat().st_size > CHECK_BYTES_MAX:
            return
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE, READER_CACHE_KIB)  # a new one has nothing in its cache
        try:
            with self._guard(connection):
                found = connection.execute("PRAGMA quick_check(1)").get
        finally:
            connection.close()
        if found != "ok":
            raise self._damaged(f"SQLite finds its structure broken ({found})")

    @contextmanager
    def _turn(self) -> Iterator[apsw.Connection]:
        """The writing connection, for one thread at a time. The wait for other processes is part of the deadline."""
        until_s = getattr(self._local, "until_s", None) or time.monotonic() + BUSY_TIMEOUT_MS / 1_000
        if not self._lock.acquire(max(0.0, until_s - time.monotonic())):
            raise _busy("this process is writing for too long")
        try:
            with self._guard(connection := self._writer):
                left_ms = max(0, int((until_s - time.monotonic()) * 1_000))
                if abs(left_ms - self._busy_ms) > BUSY_TIMEOUT_MS // 100:  # most have hardly waited
                    connection.set_busy_timeout(left_ms)
                    self._busy_ms = left_ms
                yield connection
        finally:
            self._lock.release()

    @contextmanager
    def _guard(self, connection: apsw.Connection) -> Iterator[None]:
        """Refuses what comes after damage; what SQLite says of the files is damage to all connections."""
        self._refuse_if_damaged()
        try:
            yield
        except (PacelineError, apsw.ConnectionClosedError):
            raise  # the second is a mistake of ours: we closed it, and its log went with it
        except (apsw.BusyError, apsw.FullError) as error:
            raise _unavailable(error) from error
        except Exception as error:
            if _is_damage(error, connection):
                raise self._damaged(f"SQLite reports: {error}") from error
            # Whatever it is, a page that is not what was written may be why: a table that is missing, say.
            if self._files is not None and (seen := self._files.look_closely().damage):
                raise self._damaged(seen) from error
            if isinstance(error, _UNAVAILABLE):
                raise _unavailable(error) from error
            raise

    def _refuse_if_damaged(self) -> None:
        if self._damage is not None:
            raise self._damaged(self._damage)

    def _damaged(self, what: str) -> StoreDamaged:
        """Remembers it: the first reason stays, whatever follows from it."""
        self._damage = self._damage or what
        return StoreDamaged(
            f"The store is damaged: {self._damage}. Nothing is written and nothing fires any more. Stop this process, "
            f"restore a backup to {self.path} (or put the right file back), run `paceline check`, and start again."
        )

    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            self._refuse_if_damaged()
            try:
                connection = self._connect(apsw.SQLITE_OPEN_READWRITE, READER_CACHE_KIB)
            except (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.CantOpenError) as error:
                if not _files_can_be_opened():
                    raise StoreUnavailable("This process has too many files open: try again in a moment.") from error
                raise self._damaged(f"SQLite reports: {error}") from error
            connection.execute("PRAGMA query_only = ON")
            self._local.connection = connection
            with self._readers_lock:
                self._readers.append(connection)
        return connection

    def _connect(self, flags: int, cache_kib: int) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=STATEMENTS_KEPT)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Otherwise a statement with a bound LIMIT is prepared anew for each value, which takes longer than running it.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA recursive_triggers = ON")  # else a replaced row would not be counted as deleted
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection


def insert_rows(db: Connection, into: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Many rows with few statements. ``into``: table and columns, a text of our own."""
    done = 0
    for lot in ROWS_AT_ONCE:
        while len(rows) - done >= lot:
            marks = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * lot)
            db.execute(f"INSERT INTO {into} VALUES {marks}", tuple(chain.from_iterable(rows[done : done + lot])))  # noqa: S608
            done += lot


@contextmanager
def translated_errors() -> Iterator[None]:
    """What the disk or another process does to us is StoreUnavailable; anything else is our own mistake."""
    try:
        yield
    except _UNAVAILABLE as error:
        raise _unavailable(error) from error


def _unavailable(error: apsw.Error) -> StoreUnavailable:
    hint = {
        apsw.BusyError: "another process is writing for too long",
        apsw.FullError: "the disk is full; free some space",
        apsw.ReadOnlyError: "the file or its folder is read-only; check its permissions",
        apsw.CantOpenError: "the file cannot be opened; check that its folder exists and is writable",
        apsw.NotADBError: "the file is not an SQLite database; check PACELINE_STORE",
        apsw.CorruptError: "the file is damaged; restore a backup",
    }.get(type(error), "the disk reported an error")
    return StoreUnavailable(f"The store cannot be used now: {hint} ({error}).", retry_after_s=5)


def _busy(who: str) -> StoreUnavailable:
    return StoreUnavailable(f"The store cannot be used now: {who}.", retry_after_s=5)


def _is_damage(error: Exception, connection: apsw.Connection) -> bool:
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return True
    if isinstance(error, apsw.ReadOnlyError):
        return getattr(error, "extendedresult", None) == apsw.SQLITE_READONLY_DBMOVED
    return isinstance(error, apsw.IOError | apsw.CantOpenError) and connection.system_errno not in _PASSING


def _files_can_be_opened() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


def _make_private(path: str) -> None:
    """A new file is its owner's alone: users' checks may carry secrets. SQLite's side files take its mode."""
    if path == MEMORY:
        return
    with contextlib.suppress(OSError):  # there already, or impossible: SQLite will say so in the words above
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def file_bytes(path: str) -> int:
    """The file with its write-ahead log."""
    if path == MEMORY:
        return 0
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())

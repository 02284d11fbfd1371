"""One SQLite file: a single writer per process, a reader per thread, and errors in Paceline's own words."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from paceline.adapters.sqlite.fair_lock import FairLock
from paceline.adapters.sqlite.file_watch import FileWatch
from paceline.core.leases import write_time_ms
from paceline.errors import PacelineError, StoreDamaged, StoreUnavailable
from paceline.ports import Clock

BUSY_TIMEOUT_MS = 10_000
"""Deadline of a whole wait: for this process's lock, then for other processes at SQLite's lock."""
CHECK_S_MIN = 1.0
CHECK_SHARE = 0.001
CHECK_BYTES_MAX = 32 * 1024 * 1024
"""After a checkpoint the structure of a file up to this size is checked, to find changes that something else made. The
check uses this share of a processor's time, and runs at most once a second."""
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 4_096
STATEMENTS_KEPT = 256
"""Compiled statements that a connection keeps. Each row of an ``executemany`` counts as one use, and a statement that
was not used for this many uses is compiled again, which takes longer than running it: hence ``insert_rows``."""
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
"""Errors of a system that has no room: the files are as they were."""


class Rows(Protocol):
    """Result of a statement. Column types are Any: the schema's STRICT tables ensure them."""

    @property
    def get(self) -> Any:
        """The single value of the single row."""

    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def fetchone(self) -> Any: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Connection(Protocol):
    """The methods of a connection that the modules beside this one use."""

    def execute(self, statements: str, bindings: Sequence[Any] | dict[str, Any] | None = None, /) -> Rows: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Any]], /) -> Rows: ...
    def changes(self) -> int: ...
    def total_changes(self) -> int: ...
    def last_insert_rowid(self) -> int: ...
    def pragma(self, name: str, value: Any = ..., /) -> Any: ...


class SqliteDatabase:
    """Connections to one file. Writes of this process queue at one lock; other processes queue at SQLite's."""

    def __init__(self, path: str, *, synchronous: str, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock
        self._lock = FairLock()  # with a plain lock, a thread that writes without a pause would keep the tick out
        self._readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()  # not the writer's lock: a first read must not wait for a commit
        self._local = threading.local()
        self._busy_ms = BUSY_TIMEOUT_MS
        self._damage: str | None = None
        self._rewritten = False
        self._checked_s = time.monotonic()
        self._check_pause_s = CHECK_S_MIN
        with translated_errors():
            _make_private(path)
            self._writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, WRITER_CACHE_KIB)
            self._writer.execute("PRAGMA journal_mode = WAL").fetchall()
            self._writer.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'normal' else 'FULL'}")
            self._writer.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # opens the log and its index
        self._files = None if path == MEMORY else FileWatch(path)

    def write(self) -> AbstractContextManager[Connection]:
        """Open one transaction: committed on return, rolled back on any error.

        It raises StoreDamaged if the files are no longer those that were opened: the commit would be lost with them.
        """
        return _Write(self)

    @contextmanager
    def within(self, wait_ms: int) -> Iterator[None]:
        """Limit the time that all writes of this thread inside the block wait for their turns, together."""
        self._local.until_s = time.monotonic() + wait_ms / 1_000
        try:
            yield
        finally:
            self._local.until_s = None

    def write_ms(self, asked_ms: int) -> int:
        """Return the time now, if there is a clock: the caller may have waited long for the lock that it holds."""
        return write_time_ms(asked_ms, self._clock.now_ms() if self._clock else None)

    def read(self) -> AbstractContextManager[Connection]:
        """Open one consistent view for all statements inside."""
        return _Writer(self) if self.path == MEMORY else _Read(self)

    def peek(self) -> AbstractContextManager[Connection]:
        """Open a connection for a single statement, which is consistent by itself: no transaction around it."""
        return _Writer(self) if self.path == MEMORY else _Peek(self)

    def commit_mark(self) -> bytes | None:
        """Return bytes that change with every commit of any process; None if that cannot be told."""
        self._refuse_if_damaged()
        return self._files.commit_mark() if self._files is not None else None

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a separate connection with one view, for a long read during which the thread may read other things.

        Sorting uses a file: there may be as many rows as the store has.
        """
        self._refuse_if_damaged()
        with translated_errors():
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE, READER_CACHE_KIB)
            try:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("PRAGMA temp_store = FILE")
                connection.execute("BEGIN")
                yield cast("Connection", connection)
            finally:
                connection.close()

    def writer(self) -> AbstractContextManager[apsw.Connection]:
        """Open the writing connection outside a transaction: for backup, checks and pragmas."""
        return cast("AbstractContextManager[apsw.Connection]", _Writer(self))

    def watch(self) -> None:
        """Raise StoreDamaged if something else changed the files. For one thread; it does not wait for writers."""
        if self._files is None:
            return
        self._refuse_if_damaged()
        seen = self._files.look()
        if seen.damage:
            raise self._damaged(seen.damage)
        self._rewritten |= seen.rewritten
        if seen.unclear:
            with self.peek() as connection, contextlib.suppress(apsw.BusyError):
                cast("apsw.Connection", connection).wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if self._rewritten and time.monotonic() - self._checked_s >= self._check_pause_s:
            self._rewritten, began_s = False, time.thread_time()
            self._check_structure()
            self._check_pause_s = max(CHECK_S_MIN, (time.thread_time() - began_s) / CHECK_SHARE)
            self._checked_s = time.monotonic()

    def close(self) -> None:
        with self._lock, self._readers_lock:
            for connection in (*self._readers, self._writer):
                if self._damage is not None:
                    # SQLite deletes the log by its name when it closes: it may be another file by now.
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()
            self._readers.clear()

    def _check_structure(self) -> None:
        if Path(self.path).stat().st_size > CHECK_BYTES_MAX:
            return
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE, READER_CACHE_KIB)  # a new connection has an empty cache
        try:
            found = connection.execute("PRAGMA quick_check(1)").get
        except Exception as error:
            self.refuse(error, connection)
            raise
        finally:
            connection.close()
        if found != "ok":
            raise self._damaged(f"SQLite finds its structure broken ({found})")

    def take_writer(self) -> apsw.Connection:
        """Return the writing connection to one thread at a time. The deadline covers the wait for other processes."""
        until_s = getattr(self._local, "until_s", None) or time.monotonic() + BUSY_TIMEOUT_MS / 1_000
        if not self._lock.acquire(max(0.0, until_s - time.monotonic())):
            raise _busy("this process is writing for too long")
        try:
            self._refuse_if_damaged()
            left_ms = max(0, int((until_s - time.monotonic()) * 1_000))
            if abs(left_ms - self._busy_ms) > BUSY_TIMEOUT_MS // 100:  # most writes have hardly waited
                self._writer.set_busy_timeout(left_ms)
                self._busy_ms = left_ms
        except BaseException:
            self._lock.release()
            raise
        return self._writer

    def give_back_writer(self) -> None:
        self._lock.release()

    def check_files(self) -> None:
        """Raise StoreDamaged if a file was removed or replaced."""
        if self._files is not None and (gone := self._files.gone()):
            raise self._damaged(gone)

    def refuse(self, error: BaseException, connection: apsw.Connection) -> None:
        """Raise a store's error in Paceline's own words; return if it is another error.

        An error by which SQLite reports damaged files closes the store for all connections.
        """
        if not isinstance(error, Exception) or isinstance(error, PacelineError | apsw.ConnectionClosedError):
            return  # the last one is our own mistake: we closed the connection, and its log went with it
        if isinstance(error, apsw.BusyError | apsw.FullError):
            raise _unavailable(error) from error
        if _is_damage(error, connection):
            raise self._damaged(f"SQLite reports: {error}") from error
        # Any other error may come from a page that something else wrote: a missing table, for example.
        if self._files is not None and (seen := self._files.look_closely().damage):
            raise self._damaged(seen) from error
        if isinstance(error, _UNAVAILABLE):
            raise _unavailable(error) from error

    def _refuse_if_damaged(self) -> None:
        if self._damage is not None:
            raise self._damaged(self._damage)

    def _damaged(self, what: str) -> StoreDamaged:
        """Return the error and remember it. The first reason stays, whatever follows from it."""
        self._damage = self._damage or what
        return StoreDamaged(
            f"The store is damaged: {self._damage}. Nothing is written and nothing fires any more. Stop this process, "
            f"restore a backup to {self.path} (or put the right file back), run `paceline check`, and start again."
        )

    def take_reader(self) -> apsw.Connection:
        """Return the reading connection of the calling thread."""
        self._refuse_if_damaged()
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
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
        # Otherwise a statement with a bound LIMIT is prepared again for each value, which takes longer than running it.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA recursive_triggers = ON")  # else a replaced row would not be counted as deleted
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection


# These are classes, not generators: a store enters one for each method, and three nested generators cost 10 µs more.


class _Writer:
    """The writing connection for one thread at a time, without a transaction."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> Connection:
        self._connection = self._database.take_writer()
        return cast("Connection", self._connection)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                self._database.refuse(error, self._connection)
        finally:
            self._database.give_back_writer()


class _Write:
    """One transaction on the writing connection."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> Connection:
        connection = self._connection = self._database.take_writer()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._end(error)
            raise
        return cast("Connection", connection)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._end(error)
            return
        try:
            self._connection.execute("COMMIT")
            self._database.check_files()
        except BaseException as failure:
            self._end(failure)
            raise
        self._database.give_back_writer()

    def _end(self, error: BaseException) -> None:
        """End a failed transaction: roll back, raise the error in Paceline's words if there are some, and unlock."""
        try:
            self._roll_back()
            self._database.refuse(error, self._connection)
        finally:
            self._database.give_back_writer()

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except Exception as failure:
            self._database.refuse(failure, self._connection)
            raise


class _Peek:
    """A thread's reading connection, without a transaction."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> Connection:
        self._connection = self._database.take_reader()
        return cast("Connection", self._connection)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._database.refuse(error, self._connection)


class _Read(_Peek):
    """A thread's reading connection, with one view for all statements."""

    __slots__ = ()

    def __enter__(self) -> Connection:
        connection = super().__enter__()
        try:
            connection.execute("BEGIN")
        except BaseException as error:
            self._database.refuse(error, self._connection)
            raise
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self._connection.execute("COMMIT")
        except BaseException as failure:
            self._database.refuse(failure, self._connection)
            raise
        super().__exit__(kind, error, trace)


def insert_rows(db: Connection, into: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows with few statements. ``into``: table and columns, a constant text."""
    done = 0
    for lot in ROWS_AT_ONCE:
        while len(rows) - done >= lot:
            db.execute(_insert_text(into, len(rows[0]), lot), tuple(chain.from_iterable(rows[done : done + lot])))
            done += lot


@cache
def _insert_text(into: str, columns: int, rows: int) -> str:
    """Return the statement; cached, because there are few different ones."""
    marks = ", ".join([f"({', '.join('?' * columns)})"] * rows)
    return f"INSERT INTO {into} VALUES {marks}"  # noqa: S608


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors of the disk or of other processes as StoreUnavailable; other errors are our own mistakes."""
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
    """Create a new file for its owner alone: users' checks may hold secrets. SQLite's side files get the same mode."""
    if path == MEMORY:
        return
    with contextlib.suppress(OSError):  # it exists, or cannot be created: SQLite reports that later, in the words above
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def file_bytes(path: str) -> int:
    """Return the size of the file with its write-ahead log."""
    if path == MEMORY:
        return 0
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())

"""One SQLite file: a single writer per process, a reader per thread, and errors in our own words."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from paceline.adapters.sqlite.turns import FairLock
from paceline.errors import StoreUnavailable

BUSY_TIMEOUT_MS = 10_000
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 4_096
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

    def __init__(self, path: str, *, synchronous: str) -> None:
        self.path = path
        self._synchronous = synchronous
        self._lock = FairLock()  # else a thread that writes without a pause keeps the tick out
        self._readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()  # not the writer's: a first read must not wait for a commit
        self._local = threading.local()
        with translated_errors():
            _make_private(path)
            self._writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, WRITER_CACHE_KIB)
            self._writer.execute("PRAGMA journal_mode = WAL").fetchall()
            self._writer.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'normal' else 'FULL'}")

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: committed on return, rolled back on any error."""
        with self._lock, translated_errors():
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield cast("Connection", connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view for all statements inside."""
        if self.path == MEMORY:
            with self._lock, translated_errors():
                yield cast("Connection", self._writer)
            return
        with translated_errors():
            connection = self._reader()
            connection.execute("BEGIN")
            try:
                yield cast("Connection", connection)
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def peek(self) -> Iterator[Connection]:
        """For a single statement, which is consistent by itself: no transaction around it."""
        if self.path == MEMORY:
            with self._lock, translated_errors():
                yield cast("Connection", self._writer)
            return
        with translated_errors():
            yield cast("Connection", self._reader())

    @contextmanager
    def writer(self) -> Iterator[apsw.Connection]:
        """The writing connection outside a transaction: for backup, checks and pragmas."""
        with self._lock, translated_errors():
            yield self._writer

    def close(self) -> None:
        with self._lock, self._readers_lock:
            for reader in self._readers:
                reader.close()
            self._readers.clear()
            self._writer.close()

    def _reader(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE, READER_CACHE_KIB)
            connection.execute("PRAGMA query_only = ON")
            self._local.connection = connection
            with self._readers_lock:
                self._readers.append(connection)
        return connection

    def _connect(self, flags: int, cache_kib: int) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=flags)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Otherwise a statement with a bound LIMIT is prepared anew for each value, which takes longer than running it.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection


@contextmanager
def translated_errors() -> Iterator[None]:
    """What the disk or another process does to us is StoreUnavailable; anything else is our own mistake."""
    try:
        yield
    except _UNAVAILABLE as error:
        hint = {
            apsw.BusyError: "another process is writing for too long",
            apsw.FullError: "the disk is full; free some space",
            apsw.ReadOnlyError: "the file or its folder is read-only; check its permissions",
            apsw.CantOpenError: "the file cannot be opened; check that its folder exists and is writable",
            apsw.NotADBError: "the file is not an SQLite database; check PACELINE_STORE",
            apsw.CorruptError: "the file is damaged; restore a backup",
        }.get(type(error), "the disk reported an error")
        raise StoreUnavailable(f"The store cannot be used now: {hint} ({error}).", retry_after_s=5) from error


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

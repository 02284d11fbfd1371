"""Values that loops poll are read again only after a commit of this or another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from paceline.adapters.sqlite.database import MEMORY, Connection, SqliteDatabase
from paceline.adapters.sqlite.methods import cached_peeks


class Notes:
    """A store of numbers. ``looks`` counts how often their total was read from the file."""

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self.looks = 0
        self.total = cached_peeks(self._read)

    def _read(self, db: Connection) -> int:
        self.looks += 1
        return int(db.execute("SELECT total(n) FROM note").get)

    def add(self, n: int) -> None:
        with self._db.write() as db:
            db.execute("CREATE TABLE IF NOT EXISTS note (n INTEGER)")
            db.execute("INSERT INTO note VALUES (?)", (n,))

    def checkpoint(self) -> None:
        with self._db.writer() as connection:
            connection.wal_checkpoint()


@contextmanager
def opened(path: str) -> Iterator[Notes]:
    with closing(SqliteDatabase(path, synchronous="normal")) as db:
        yield Notes(db)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "notes.db")


def test_cached_peek_without_a_commit_in_between_reads_nothing(path: str) -> None:
    with opened(path) as notes:
        notes.add(1)
        assert [notes.total(notes) for _ in range(5)] == [1] * 5
        assert notes.looks == 1


def test_cached_peek_sees_each_commit_of_this_process(path: str) -> None:
    with opened(path) as notes:
        for n in range(1, 300):
            notes.add(1)
            if n % 40 == 0:
                notes.checkpoint()  # after this checkpoint the log restarts
            assert notes.total(notes) == n


def test_cached_peek_sees_each_commit_of_another_connection(path: str) -> None:
    with opened(path) as notes, opened(path) as other:
        other.add(0)
        for n in range(1, 300):
            other.add(1)
            if n % 40 == 0:
                other.checkpoint()
            assert notes.total(notes) == n


def test_cached_peeks_of_two_stores_are_kept_apart(tmp_path: Path) -> None:
    with opened(str(tmp_path / "one.db")) as one, opened(str(tmp_path / "two.db")) as two:
        one.add(1)
        two.add(2)
        shared = cached_peeks(lambda db: int(db.execute("SELECT total(n) FROM note").get))
        assert [shared(one), shared(two), shared(one), shared(two)] == [1, 2, 1, 2]


def test_store_in_memory_is_read_at_each_peek() -> None:
    with opened(MEMORY) as notes:
        notes.add(1)
        assert [notes.total(notes), notes.total(notes)] == [1, 1]
        assert notes.looks == 2

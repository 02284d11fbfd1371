"""The file watch, without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.sqlite import database
from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.errors import StoreDamaged


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with closing(SqliteDatabase(str(tmp_path / "store.db"), synchronous="normal")) as opened:
        with opened.write() as db:
            db.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, words TEXT)")
            db.executemany("INSERT INTO thing VALUES (?, ?)", [(number, "word " * 50) for number in range(2_000)])
        yield opened


def checkpoint(opened: SqliteDatabase) -> None:
    with opened.writer() as connection:
        connection.wal_checkpoint()


def look_at_all(opened: SqliteDatabase) -> None:
    """The log is read in every second look."""
    for _ in range(4):
        opened.watch()


def check_at_once(opened: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHECK_S_MIN", 0.0)
    monkeypatch.setattr(database, "CHECK_SHARE", float("inf"))
    monkeypatch.setattr(opened, "_check_pause_s", 0.0)


def flip_a_byte(path: str) -> None:
    """Flips a byte inside a value at the end of the file: the structure stays valid."""
    with Path(path).open("r+b", buffering=0) as file:
        file.seek(-50, 2)
        byte = file.read(1)[0]
        file.seek(-50, 2)
        file.write(bytes([byte ^ 1]))


def break_structure(path: str) -> None:
    """The number of cells of many pages, which no page can have."""
    with Path(path).open("r+b", buffering=0) as file:
        for page in range(3, 40):
            file.seek(page * 4_096 + 3)
            file.write(b"\xff\xff")


def test_damage_in_the_same_moment_as_a_checkpoint_is_found_in_the_structure(
    opened: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_at_once(opened, monkeypatch)
    opened.watch()
    checkpoint(opened)
    break_structure(opened.path)
    with pytest.raises(StoreDamaged):
        opened.watch()
    with pytest.raises(StoreDamaged), opened.write():
        pytest.fail("nothing is written any more")


def test_byte_changed_by_another_program_is_found_between_checkpoints(opened: SqliteDatabase) -> None:
    checkpoint(opened)
    opened.watch()
    flip_a_byte(opened.path)
    with pytest.raises(StoreDamaged, match="written by something other than SQLite"):
        opened.watch()


def test_byte_changed_by_another_program_is_found_after_the_log_restarted(opened: SqliteDatabase) -> None:
    checkpoint(opened)
    opened.watch()
    with opened.write() as db:
        db.execute("UPDATE thing SET words = 'other' WHERE id < 20")  # the log begins again
    flip_a_byte(opened.path)
    with pytest.raises(StoreDamaged, match="written by something other than SQLite"):
        opened.watch()


def test_write_ahead_log_that_restarts_between_two_looks_is_not_damage(opened: SqliteDatabase) -> None:
    checkpoint(opened)
    opened.watch()
    for number in range(3):
        with opened.write() as db:
            db.execute("INSERT INTO thing VALUES (NULL, ?)", (f"more {number} " * 2_000,))
    with opened.write() as db:
        db.execute("UPDATE thing SET words = 'yet other' WHERE id > 1000")
    checkpoint(opened)
    with opened.write() as db:
        db.execute("UPDATE thing SET words = 'other' WHERE id < 20")  # the log begins again
    look_at_all(opened)


def test_a_page_that_sqlite_finds_damaged_stops_every_connection(opened: SqliteDatabase) -> None:
    checkpoint(opened)
    break_structure(opened.path)
    with pytest.raises(StoreDamaged, match="SQLite reports"), opened.read() as db:
        db.execute("SELECT count(*), max(words) FROM thing").fetchall()
    with pytest.raises(StoreDamaged, match="restore a backup"), opened.write():
        pytest.fail("nothing is written any more")


def test_writes_and_checkpoints_of_our_own_are_no_damage(
    opened: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_at_once(opened, monkeypatch)
    for number in range(20):
        with opened.write() as db:
            db.execute("UPDATE thing SET words = ? WHERE id % 20 = ?", (f"other {number} " * 30, number))
        if number % 3 == 0:
            checkpoint(opened)
        opened.watch()


def test_log_bytes_changed_before_the_first_look_are_found_by_their_checksums(opened: SqliteDatabase) -> None:
    look_at_all(opened)
    checkpoint(opened)
    with opened.write() as db:
        db.execute("UPDATE thing SET words = 'other' WHERE id < 20")  # the log begins again
    with Path(f"{opened.path}-wal").open("r+b", buffering=0) as log:
        log.seek(500)
        log.write(b"\xff\x00\xff")
    with pytest.raises(StoreDamaged, match="something other than SQLite"):
        look_at_all(opened)


def test_byte_of_an_idle_log_changed_by_another_program_is_found(opened: SqliteDatabase) -> None:
    for _ in range(3):
        look_at_all(opened)
    with Path(f"{opened.path}-wal").open("r+b", buffering=0) as log:
        log.seek(9_000)
        byte = log.read(1)[0]
        log.seek(9_000)
        log.write(bytes([byte ^ 1]))
    with pytest.raises(StoreDamaged, match="something other than SQLite"):
        look_at_all(opened)

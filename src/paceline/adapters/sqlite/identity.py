"""Recognizes a store of Paceline among other files, without changing it."""

from __future__ import annotations

from pathlib import Path

import apsw

from paceline.adapters.sqlite.database import BUSY_TIMEOUT_MS, MEMORY
from paceline.errors import StoreUnavailable

APPLICATION_ID = 0x50414345  # "PACE"
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_SCHEMA_AT, _ID_AT = 40, 68
"""Offsets in the header of the schema's change counter (0 without tables) and the application id, four bytes each."""


def is_store(path: str) -> bool:
    """Return True if the path is a store of Paceline, not a folder, an empty file or another program's database."""
    if path == MEMORY:
        return True
    header = _header(path)
    if not header.startswith(_MAGIC):
        return False
    if _number(header, _ID_AT) == APPLICATION_ID:
        return True
    # The id of a new store may still be only in its write-ahead log.
    return Path(f"{path}-wal").exists() and _asked(path) == APPLICATION_ID


def refuse_foreign(path: str) -> None:
    """Raise StoreUnavailable for a database of another program, before anything in it is changed."""
    header = _header(path)
    has_tables = header.startswith(_MAGIC) and _number(header, _SCHEMA_AT) != 0
    if has_tables and not is_store(path):
        raise StoreUnavailable(f"{path} is a database of another program; check PACELINE_STORE.")


def _header(path: str) -> bytes:
    """Return the file's first bytes; empty if it cannot be read: opening it will say why."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_HEADER_BYTES)
    except OSError:
        return b""


def _number(header: bytes, at: int) -> int:
    return int.from_bytes(header[at : at + 4], "big")


def _asked(path: str) -> int:
    """Return the application id as SQLite reads it."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            return int(connection.pragma("application_id"))
        finally:
            connection.close()
    except apsw.Error:
        return 0

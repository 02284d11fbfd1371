"""Checks that a store's files are still those that were opened, and that only SQLite has written them.

In WAL mode SQLite writes the main file in checkpoints only, and counts these in the first bytes of the ``-shm`` file
(https://sqlite.org/walformat.html). A main file that changes without a checkpoint was changed by something else.
"""

from __future__ import annotations

import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

WAL_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of the write-ahead log, from its beginning, that each look compares; SQLite keeps it at about 4 MB."""
PIECE_BYTES = 65_536
"""The log is compared in pieces of this size: memory for all of it takes ten times longer to allocate than to fill."""
LOOKS_PER_LOG = 2
"""The log is read in every second look: that takes milliseconds, the rest microseconds."""
FRAMES_MAX = 25
"""Frames new to a look that are compared with SQLite's own checksums, 0.1 ms each; if there are more, none is."""
INDEX_BYTES = 136
HEADER_BYTES = 48
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24

_descriptors: dict[tuple[int, int], int] = {}
"""Descriptors of ``-shm`` files, never closed: closing one would drop all locks of this process on the file, also
those of SQLite (POSIX)."""


class Identity(NamedTuple):
    device: int
    inode: int


class WalIndex(NamedTuple):
    """State of the log and of checkpoints, from the ``-shm`` file."""

    salts: bytes
    """New random values whenever the log begins again."""
    frames: int
    page_bytes: int
    copied: int
    """Frames that checkpoints have copied into the main file."""
    attempted: int

    @property
    def checkpoint(self) -> tuple[bytes, int, int]:
        """Value that changes with every checkpoint that writes into the main file."""
        return self.salts, self.copied, self.attempted

    @property
    def at_rest(self) -> bool:
        """True if no checkpoint is under way and none was broken off."""
        return self.copied == self.attempted

    @property
    def log_bytes(self) -> int:
        return WAL_HEADER_BYTES + self.frames * (FRAME_HEADER_BYTES + self.page_bytes) if self.frames else 0

    def began_again_after(self, before: WalIndex) -> bool:
        """Return True if this log directly follows ``before``.

        That one was copied whole, and nothing of this log was copied yet.
        """
        restarts = int.from_bytes(self.salts[:4]) - int.from_bytes(before.salts[:4])
        return restarts == 1 and before.copied == before.frames and self.attempted == 0


class Main(NamedTuple):
    """The main file at one moment, and the log's index at that moment."""

    log_index: WalIndex
    changed_ns: int
    size: int


class Log(NamedTuple):
    """A part of the log that stays the same until the log begins again."""

    salts: bytes
    size: int
    changed_ns: int
    at_rest: bool
    """True if the look before found the same. If its time is then still the same, nothing has written it since."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of one look. ``damage``: None if there is none. ``rewritten``: a checkpoint changed the main file."""

    damage: str | None = None
    rewritten: bool = False
    unclear: bool = False
    """True while a checkpoint is under way or was broken off: until it has ended, changes mean nothing."""


class FileWatch:
    """Watches the files of one open store. Any thread may ask."""

    def __init__(self, path: str) -> None:
        """Begin to watch. Call it after a first transaction: then all three files exist and stay."""
        self._paths = [Path(path), Path(f"{path}-wal"), Path(f"{path}-shm")]
        self._identities = [_identity(str(name)) for name in self._paths]
        self._opened = [
            (str(name), identity) for name, identity in zip(self._paths, self._identities, strict=True) if identity
        ]
        self._main: Main | None = None
        self._log: Log | None = None
        self._data = bytearray()
        """The log as it was read, at most 8 MB: comparing it costs a tenth of a checksum."""
        self._looks = 0
        self._lock = threading.Lock()

    def gone(self) -> str | None:
        """Return a text that names a file that was removed or replaced; else None.

        Three calls of stat: cheap enough for every commit.
        """
        for path, (device, inode) in self._opened:
            try:
                status = os.stat(path)  # noqa: PTH116  with pathlib it takes twice as long
            except OSError:
                status = None
            if status is None or status.st_ino != inode or status.st_dev != device:
                return f"{path} was removed or replaced while it was open"
        return None

    def commit_mark(self) -> bytes | None:
        """Return bytes that change with every commit of any process; None if one is being written or it cannot be told.

        One read of a few bytes; the cheapest SQL statement takes twenty times longer.
        """
        try:
            data = self._index_data()
        except OSError:
            return None
        return data[:HEADER_BYTES] if data else None

    def look(self) -> Seen:
        """Compare the files with the look before."""
        self._looks += 1
        return self._look(log=self._looks % LOOKS_PER_LOG == 1)

    def look_closely(self) -> Seen:
        """Compare the files and always the log, after an error that damage may explain."""
        return self._look(log=True)

    def _look(self, *, log: bool) -> Seen:
        with self._lock:
            try:
                if damage := self.gone():
                    return Seen(damage)
                if (index := self._index()) is None:
                    return Seen()
                return (self._look_at_log(index) if log else None) or self._look_at_main(index)
            except OSError as error:
                return Seen(self.gone() or f"{error.filename or self._paths[0]} cannot be read ({error.strerror})")

    def _look_at_main(self, index: WalIndex) -> Seen:
        path = self._paths[0]
        status = path.stat()
        if self._index() != index or not index.at_rest:
            return Seen(unclear=not index.at_rest)
        before, now = self._main, Main(index, status.st_mtime_ns, status.st_size)
        self._main = now
        if before is None or now[1:] == before[1:]:
            return Seen()
        if index.checkpoint == before.log_index.checkpoint or self._only_began_again(before.log_index, index):
            how = "cut short" if now.size < before.size else "written"
            return Seen(f"{path} was {how} by something other than SQLite")
        return Seen(rewritten=now.changed_ns != before.changed_ns)

    def _only_began_again(self, before: WalIndex, now: WalIndex) -> bool:
        """Return True if the log began again and SQLite has copied nothing into the main file since ``before``.

        Frames that were added to the old log, copied and then left behind are in the file after its old end.
        """
        if not now.began_again_after(before) or now.frames > before.frames:
            return False
        with self._paths[1].open("rb", buffering=0) as log:
            log.seek(before.log_bytes or WAL_HEADER_BYTES)
            header = log.read(FRAME_HEADER_BYTES)
        return header[8:16] != before.salts and self._index() == now

    def _look_at_log(self, index: WalIndex) -> Seen | None:
        """Compare the log with the look before; return damage, else None.

        Committed frames are never written again before the log begins again.
        """
        path, log = self._paths[1], self._log
        known = log.size if log is not None and log.salts == index.salts else 0
        size, changed_ns = min(index.log_bytes, WAL_BYTES_MAX), path.stat().st_mtime_ns
        same = log is not None and known == size and log.changed_ns == changed_ns
        if log is not None and same and log.at_rest:
            return None
        unchanged = _read_on(path, self._data, known, size)
        self._log = None
        if (after := self._index()) is None or after.salts != index.salts:
            return None  # it began again in the meantime
        if path.stat().st_size < index.log_bytes:
            return Seen(f"{path} was cut short by something other than SQLite")
        if not (unchanged and frames_are_whole(memoryview(self._data)[:size], new=known, page_bytes=index.page_bytes)):
            return Seen(f"{path} was written by something other than SQLite")
        self._log = Log(index.salts, size, changed_ns, at_rest=same)
        return None

    def _index(self) -> WalIndex | None:
        """Return the log's index; None if it is being written or its file cannot be read."""
        data = self._index_data()
        if not data:
            return None
        page_bytes, frames = struct.unpack_from("=HI", data, 14)
        (copied,) = struct.unpack_from("=I", data, 96)
        (attempted,) = struct.unpack_from("=I", data, 128)
        return WalIndex(data[32:40], frames, 65_536 if page_bytes == 1 else page_bytes, copied, attempted)

    def _index_data(self) -> bytes:
        """Return the raw index; empty if it is being written or missing.

        SQLite writes its header twice, one after the other.
        """
        identity = self._identities[2]
        if identity is None:
            return b""
        if identity not in _descriptors:
            _descriptors[identity] = os.open(self._paths[2], os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(_descriptors[identity], INDEX_BYTES, 0)
        whole = len(data) == INDEX_BYTES and data[:HEADER_BYTES] == data[HEADER_BYTES : 2 * HEADER_BYTES]
        return data if whole else b""


def frames_are_whole(log: memoryview, *, new: int, page_bytes: int) -> bool:
    """Return True if the frames from ``new`` on have SQLite's checksums; each continues from the one before."""
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    at = max(new, WAL_HEADER_BYTES)
    if len(log) <= at or (at - WAL_HEADER_BYTES) % frame_bytes or (len(log) - at) // frame_bytes > FRAMES_MAX:
        return True  # no new frames, or too many to check
    words = {0x377F0682: "<", 0x377F0683: ">"}.get(struct.unpack_from(">I", log)[0])
    if words is None:
        return False
    sums = struct.unpack_from(">II", log, 24 if at == WAL_HEADER_BYTES else at - page_bytes - 8)
    while at + frame_bytes <= len(log):
        sums = _checksum(struct.unpack_from(f"{words}2I", log, at), sums)
        sums = _checksum(struct.unpack_from(f"{words}{page_bytes // 4}I", log, at + FRAME_HEADER_BYTES), sums)
        if sums != struct.unpack_from(">II", log, at + 16):
            return False
        at += frame_bytes
    return True


def _checksum(words: tuple[int, ...], sums: tuple[int, ...]) -> tuple[int, int]:
    """Return SQLite's checksum: https://sqlite.org/fileformat2.html#checksum_algorithm."""
    first, second = sums
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _identity(path: str) -> Identity | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return Identity(status.st_dev, status.st_ino)


def _read_on(path: Path, data: bytearray, known: int, size: int) -> bool:
    """Compare a file with ``data`` up to ``known``, and read it from there up to ``size``.

    Return True if it is unchanged and as long as it should be.
    """
    data.extend(bytes(max(0, size - len(data))))
    with path.open("rb", buffering=0) as file:
        for first in range(0, known, PIECE_BYTES):
            before = data[first : min(first + PIECE_BYTES, known)]
            if file.read(len(before)) != before:
                return False
        return file.readinto(memoryview(data)[known:size]) == size - known

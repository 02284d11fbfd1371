"""A clock that the test moves, for processes of all kinds: libfaketime reads it from a file whenever they ask.

Only the time of day is moved. Sleeps, time-outs and the monotonic clock stay as they are, so what waits for a socket
waits for as long as it should, however fast the days pass.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from importlib import metadata
from pathlib import Path

BUILT = Path(__file__).parents[3] / "build" / "libfaketime"
# The variant with a lock: else two threads that read the file at once may read a time that never was.
LIBRARY = "libfaketimeMT.so.1"
# Only what asks for the time is to be changed: not sleeps, not time-outs, not locks, not the dates of files.
FLAGS = "-O2 -UFAKE_STAT -UFAKE_UTIME -UFAKE_SLEEP -UFAKE_TIMERS -UFAKE_PTHREAD"


class VirtualClock:
    """A clock that is ahead of real time by an offset that only grows."""

    def __init__(self, folder: Path, *, start_ms: int) -> None:
        self._file = folder / "clock"
        self._ahead_ms = start_ms - _real_ms()
        self.advance(0)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which a process and its children use this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @staticmethod
    def sweep() -> None:
        """What libfaketime left in shared memory for processes that were ended by a signal."""
        for file in Path("/dev/shm").glob("*faketime_*"):  # noqa: S108  where it puts them
            if not Path(f"/proc/{file.name.rpartition('_')[2]}").exists():
                file.unlink(missing_ok=True)

    def now_ms(self) -> int:
        return _real_ms() + self._ahead_ms

    def advance(self, ms: int) -> None:
        self._ahead_ms += ms
        written = self._file.with_suffix(".new")
        written.write_text(f"{self._ahead_ms / 1_000:+.3f}\n")
        written.replace(self._file)  # at once: nobody reads half a time


@cache
def library() -> Path:
    """Built once for each version of the package, from the source that it carries."""
    source = next(
        Path(str(file.locate())).parent for file in metadata.files("libfaketime") or () if file.name == "libfaketime.c"
    )
    name = hashlib.sha256(f"{metadata.version('libfaketime')} {FLAGS}".encode()).hexdigest()[:12]
    built = BUILT / name / LIBRARY
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "src"
            shutil.copytree(source, copy)
            make = ["make", "-C", str(copy), LIBRARY, f"FAKETIME_COMPILE_CFLAGS={FLAGS}"]
            subprocess.run(make, check=True, capture_output=True, timeout=120)
            made = built.with_name(f"{LIBRARY}.{os.getpid()}")
            shutil.copy(copy / LIBRARY, made)
            made.replace(built)
    return built


def _real_ms() -> int:
    return time.time_ns() // 1_000_000

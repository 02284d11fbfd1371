"""The clock is read inside the write lock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.adapters.sqlite.store import SqliteStore

T0_MS = 1_800_000_000_000
ACTS: dict[str, Callable[[SqliteStore, Callable[[], int]], object]] = {
    "runs": lambda store, read_ms: store.pull_back_runs(read_ms, wait_ms_max=1),
    "calls": lambda store, read_ms: store.pull_back_calls(read_ms, wait_ms_max=1),
    "sends": lambda store, read_ms: store.pull_back_sends(read_ms, wait_ms_max=1),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_the_clock_is_read_after_the_wait_for_another_writer(
    tmp_path: Path, act: Callable[[SqliteStore, Callable[[], int]], object]
) -> None:
    """Otherwise times written by others during the wait would look like times from before a clock set back."""
    path, read = str(tmp_path / "store.db"), threading.Event()

    def read_ms() -> int:
        read.set()
        return T0_MS

    with (
        contextlib.closing(SqliteStore(path)) as store,
        contextlib.closing(SqliteDatabase(path, synchronous="full")) as other,
    ):
        with other.write():
            thread = threading.Thread(target=act, args=(store, read_ms))
            thread.start()
            assert not read.wait(0.3)
        thread.join()
        assert read.is_set()

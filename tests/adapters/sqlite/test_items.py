"""Named items in the file: a process that is killed leaves each write whole or undone, and expired items go."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports.items import ItemKey, ItemWrite

pytestmark = pytest.mark.sqlite
KEYS = [ItemKey("thing", f"{n:02}") for n in range(25)]
WRITER = """
import sys
from itertools import count
from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports.items import ANYTHING, ItemKey, ItemWrite
store = SqliteStore(sys.argv[1])
for value in count():
    store.write_items([ItemWrite(ItemKey("thing", f"{n:02}"), b"%d" % value, ANYTHING) for n in range(25)])
    print(value, flush=True)
"""


def test_killed_writer_leaves_all_items_of_a_write_or_none(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    for kill_after in (1, 7, 20):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(kill_after):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        with closing(SqliteStore(path)) as store:
            values = {int(value) for value in store.get_items(KEYS).values()}
            assert len(values) == 1
            assert values.pop() >= acknowledged
            assert store.verify() == []


def test_purge_deletes_expired_items_alone(tmp_path: Path) -> None:
    with closing(SqliteStore(str(tmp_path / "store.db"))) as store:
        store.write_items([ItemWrite(at, b"1", None, expires_ms=1_000 * n) for n, at in enumerate(KEYS[:3], start=1)])
        store.write_items([ItemWrite(KEYS[3], b"1", None)])
        store.purge(settled_before_ms=0, due_before_ms=0, now_ms=2_000, limit=10)
        assert list(store.get_items(KEYS)) == [KEYS[2], KEYS[3]]

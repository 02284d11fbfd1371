"""A store of the version before monitors had an overlap policy is brought up to date."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from paceline.adapters.sqlite.identity import APPLICATION_ID
from paceline.adapters.sqlite.keys import due_key
from paceline.adapters.sqlite.migrate import _scripts
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.schedule import Cadence
from paceline.steps.monitors.tick import tick

T0_MS = 1_790_000_000_000
BEFORE = 8
SPEC = '{"check": {"kind": "http", "url": "http://example.org/"}, "every": "60s"}'


def old_store(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        for script in _scripts()[:BEFORE]:
            db.execute(script)
        db.execute("INSERT INTO user (name, role, daily_credits, created_ms) VALUES ('ann', 'user', 0, 0)")
        db.execute(
            "INSERT INTO monitor (owner, name, revision, spec, created_ms, updated_ms) VALUES (1, 'home', 1, ?, 0, 0)",
            (SPEC,),
        )
        db.execute("UPDATE user SET monitors = 1")
        db.execute(
            "INSERT INTO cadence (every_ms, cron, timezone, jitter_ms, missed) VALUES (60000, '', 'UTC', 0, 'all')"
        )
        db.execute("INSERT INTO entry (generation, cadence, base_ms) VALUES (1, 1, ?)", (T0_MS,))
        db.execute(
            "INSERT INTO due (k, counter, revision, cadence, lane, last_run) VALUES (?, 0, 1, 1, 1, 0)",
            (due_key(T0_MS, 1),),
        )
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", BEFORE)


def test_entries_of_an_older_store_get_the_overlap_policy_skip(tmp_path: Path) -> None:
    old_store(tmp_path / "old.db")
    with closing(SqliteStore(str(tmp_path / "old.db"))) as store:
        entry = store.entries([1], now_ms=T0_MS)[1]
        assert entry.cadence == Cadence(every_ms=60_000, missed="all", overlap="skip")
        assert store.verify() == []
        assert tick(store, now_ms=T0_MS, catch_up=CatchUp()).runs == 1
        assert tick(store, now_ms=T0_MS + 60_000, catch_up=CatchUp()).skipped == 1
        assert store.verify() == []

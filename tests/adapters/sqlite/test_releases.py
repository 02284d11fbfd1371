"""Stores as releases have written them: the newest code opens them, brings them up to date, reads them and goes on.

Beside ``test_upgrades.py``, which makes old stores from new rows, these are files as users have them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from paceline import __version__
from paceline.adapters.sqlite.migrate import _scripts
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.values import DeadChoice
from paceline.core.instants import parse_instant_ms
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.lists.query import FAILING
from paceline.errors import StoreTooNew
from paceline.steps.monitors.tick import tick
from tests.adapters.sqlite.support.release_store import DAY, RELEASES, fill
from tests.contract.support.stage import claim, settle

pytestmark = pytest.mark.sqlite
every_release = pytest.mark.parametrize("release", sorted(RELEASES.glob("*.sql")), ids=lambda file: file.stem)
SECOND_MS = 1_000
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    found = parse_instant_ms(text)
    assert found is not None
    return found


END_MS = ms("2026-01-01T03:10:00Z")
"""When the story of ``release_store`` ends."""


def restored(release: Path, file: Path) -> int:
    """Makes the store of that release again; returns the version of its schema."""
    with closing(apsw.Connection(str(file))) as db:
        db.execute(release.read_text())
        db.pragma("journal_mode", "wal")
        version: int = db.pragma("user_version")
        return version


@every_release
def test_store_of_a_release_is_brought_up_to_date_whole(release: Path, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    assert 32 <= restored(release, file) <= len(_scripts())
    with closing(SqliteStore(str(file))) as store:
        assert store.verify() == []
        monitors = {one.id: one for one in store.monitors("ann", after="", limit=10)}
        assert sorted(monitors) == ["broken", "home", "night", "own", "paused"]
        assert [one.id for one in store.monitors("ann", after="", limit=10, having=FAILING)] == ["broken"]
        assert monitors["paused"].spec.paused
        states = Counter(
            run.state for run in store.monitor_runs(monitors["home"], before=None, limit=100, now_ms=END_MS)
        )
        assert states == {"ok": 19, "out": 1}
        (alert,) = store.alerts("ann", since_ms=0, before=None, limit=10)
        assert (alert.alert.event, alert.alert.subject) == ("monitor.failing", "broken")
    with closing(apsw.Connection(str(file))) as db:
        assert db.pragma("user_version") == len(_scripts())


@every_release
def test_batch_and_job_of_a_releases_store_survive_the_upgrade(release: Path, tmp_path: Path) -> None:
    restored(release, tmp_path / "store.db")
    with closing(SqliteStore(str(tmp_path / "store.db"))) as store:
        batch = store.batch("orders")
        assert batch is not None
        assert [one.id for one in store.find_records(batch, after="", limit=9)[0]] == ["o1", "o2", "o3", "o4"]
        runs = {name: store.find_call_run("orders", name, DAY) for name in ("o1", "o2", "o3", "o4")}
        found = Counter(run.state for run in runs.values() if run is not None)
        assert (sum(found.values()), found["failed"]) == (4, 1)
        (dead,), _ = store.dead(DeadChoice(), after=-1, limit=9)
        assert dead.record == "o2"
        (job,) = store.jobs("ann", before=None, limit=9)
        assert job.title == "survey"
        assert Counter(one.state for one in store.measurements(job.number, after=-1, limit=9)) == {
            "done": 2,
            "ongoing": 1,
        }


@every_release
def test_monitors_of_a_releases_store_fire_on_after_the_upgrade(release: Path, tmp_path: Path) -> None:
    restored(release, tmp_path / "store.db")
    with closing(SqliteStore(str(tmp_path / "store.db"))) as store:
        made = 0
        for now_ms in range(END_MS, END_MS + HOUR_MS, SECOND_MS):
            made += tick(store, now_ms=now_ms, catch_up=CatchUp()).runs
            runs = claim(store, now_ms=now_ms)
            assert all(settle(store, runs, now_ms=now_ms))
        assert made == 2 * 6  # of home and broken
        assert store.verify() == []


@every_release
def test_store_of_a_future_version_is_refused_and_not_changed(release: Path, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    restored(release, file)
    with closing(apsw.Connection(str(file))) as db:
        db.pragma("user_version", len(_scripts()) + 1)
    before = file.read_bytes()
    with pytest.raises(StoreTooNew, match="Upgrade Paceline"):
        SqliteStore(str(file))
    assert file.read_bytes() == before


def test_there_is_a_store_of_every_release_of_the_changelog() -> None:
    text = (Path(__file__).parents[3] / "CHANGELOG.md").read_text()
    versions = {line.split()[1] for line in text.splitlines() if line.startswith("## ") and line[3].isdigit()}
    assert __version__ in versions
    assert versions == {file.stem for file in RELEASES.glob("*.sql")}


def test_story_of_a_release_still_runs(tmp_path: Path) -> None:
    """So that the next release can be kept as well."""
    from paceline.testing import VirtualPaceline

    with VirtualPaceline() as p:
        fill(p)
        assert p.now.timestamp() * 1_000 == END_MS
        p._system.store.backup(tmp_path / "now.db", progress=lambda _done, _all: None)
    with closing(SqliteStore(str(tmp_path / "now.db"))) as store:
        assert store.verify() == []

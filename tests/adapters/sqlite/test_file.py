"""The file itself: migrations, foreign files, damage, faults of the disk, and what `check` finds."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from paceline.adapters.sqlite import migrate as migrate_module
from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.adapters.sqlite.keys import CHECKS_LANE, LANE_BITS, due_key
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import SpecLimits
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CHECKS, Settlement
from paceline.core.users import User
from paceline.errors import StoreTooNew, StoreUnavailable
from paceline.steps.monitors.define import parse_put, put_monitor
from paceline.steps.monitors.send import claim_orders
from paceline.steps.monitors.tick import tick

NOW = 1_800_000_000_000
SPEC = b'{"check": {"kind": "http", "url": "http://example.org/"}, "every": "60s"}'


def loaded(path: Path) -> SqliteStore:
    """A store with a monitor that has fired and is out."""
    store = SqliteStore(str(path))
    store.add_user(User("ann", "user", 0, disabled=False, created_ms=NOW))
    for name in ("a", "b"):
        put_monitor(store, parse_put("ann", name, SPEC, SpecLimits()), monitors_max=10, now_ms=NOW)
    tick(store, now_ms=NOW, catch_up=CatchUp())
    claim_orders(store, now_ms=NOW, runs_max=1, lease_ms=60_000, policy=RetryPolicy())
    return store


def test_durability_is_full_and_the_log_is_write_ahead(tmp_path: Path) -> None:
    for synchronous, level in (("full", 2), ("normal", 1)):
        store = SqliteStore(str(tmp_path / f"{synchronous}.db"), synchronous=synchronous)
        with store._db.writer() as db:
            assert db.pragma("synchronous") == level
            assert db.pragma("journal_mode") == "wal"
        store.close()


def test_file_with_a_newer_schema_is_refused_and_the_error_says_to_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    loaded(path).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()
    with pytest.raises(StoreTooNew, match=r"schema 999.*Upgrade Paceline"):
        SqliteStore(str(path))


def test_a_database_of_another_program_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", 42)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        SqliteStore(str(path))
    tables = apsw.Connection(str(path)).execute("SELECT name FROM sqlite_schema").fetchall()
    assert tables == [("theirs",)]


def test_file_that_is_not_a_database_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is a letter, not a database" * 100)
    with pytest.raises(StoreUnavailable, match="not an SQLite database"):
        SqliteStore(str(path))


def test_error_for_a_missing_folder_says_to_check_that_it_exists(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="folder exists"):
        SqliteStore(str(tmp_path / "nowhere" / "p.db"))


def test_two_first_starts_at_once_make_one_schema(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    program = f"from paceline.adapters.sqlite.store import SqliteStore; SqliteStore({str(path)!r}).close()"
    starts = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [start.wait(60) for start in starts] == [0] * 4
    store = SqliteStore(str(path))
    assert store.verify() == []
    store.close()


def test_a_migration_that_fails_leaves_the_old_schema_whole(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    store = loaded(path)
    with pytest.raises(apsw.SQLError), store._db.write() as db:
        db.execute("CREATE TABLE half (x); ALTER TABLE nothing RENAME TO something;")
    assert store.verify() == []
    with store._db.read() as db:
        assert db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchone() is None
    store.close()


def test_store_on_a_full_disk_loses_nothing_and_works_again_once_there_is_space(tmp_path: Path) -> None:
    store = loaded(tmp_path / "p.db")
    with store._db.writer() as db:
        pages = db.pragma("page_count")
        db.pragma("max_page_count", pages)
    big = b'{"check": {"kind": "outgoing", "text": "%s"}, "every": "60s"}' % (b"x" * 60_000)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        put_monitor(store, parse_put("ann", "big", big, SpecLimits()), monitors_max=10, now_ms=NOW)
    assert store.monitor("ann", "big") is None
    assert store.verify() == []
    with store._db.writer() as db:
        db.pragma("max_page_count", 1 << 30)
    put_monitor(store, parse_put("ann", "big", big, SpecLimits()), monitors_max=10, now_ms=NOW)
    assert store.monitor("ann", "big") is not None
    store.close()


def test_threads_share_one_file_without_a_lost_write(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "p.db"), synchronous="normal")
    store.add_user(User("ann", "user", 0, disabled=False, created_ms=NOW))

    def write(worker: int) -> None:
        for index in range(25):
            put = parse_put("ann", f"m{worker}-{index}", SPEC, SpecLimits())
            put_monitor(store, put, monitors_max=1_000, now_ms=NOW)
            assert store.monitor("ann", f"m{worker}-{index}") is not None

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(store.monitors("ann", after="", limit=1_000)) == 200
    assert store.status().entries == 200
    assert store.verify() == []
    store.close()


DAMAGES: dict[str, tuple[str, str]] = {
    "a doubled next firing": (
        "INSERT INTO due SELECT k + (1 << 30), counter, revision, cadence, lane, last_run, 0, 0 FROM due LIMIT 1",
        "promise 1",
    ),
    "a lost entry": ("DELETE FROM due WHERE k = (SELECT min(k) FROM due)", "promise 10: a monitor has no entry"),
    "an entry of nobody": ("DELETE FROM monitor WHERE name = 'a'", "promise 3"),
    "a run made twice": (
        "INSERT INTO run SELECT handle + 100, generation, counter, due_ms, 0 FROM run LIMIT 1",
        "promise 5",
    ),
    "a counter set back": ("UPDATE due SET counter = 0", "promise 4"),
    "a settled run that is open": (
        "INSERT INTO outcome SELECT handle, 'ok', 1, 0, 0, NULL, NULL, '', '{}', NULL, NULL FROM open",
        "both settled and open",
    ),
    "a lease of nothing": ("UPDATE open SET handle = handle + 77", "has no record"),
    "a run passed over": ("UPDATE lane SET position = tail", "passed over"),
    "two out at once": (
        """INSERT INTO run SELECT handle + 1000, generation, counter + 50, due_ms, handle FROM run LIMIT 1;
           INSERT INTO open (handle, lane, state, at_ms) SELECT handle + 1000, lane, 'out', 0 FROM open""",
        "promise 6: two runs",
    ),
    "a wrong number of monitors": ("UPDATE user SET monitors = 7", "number of monitors"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_check_finds_planted_damage(tmp_path: Path, damage: str) -> None:
    statement, finding = DAMAGES[damage]
    store = loaded(tmp_path / "p.db")
    assert store.verify() == []
    with store._db.write() as db:
        db.execute(statement)
    assert any(finding in problem for problem in store.verify()), store.verify()
    store.close()


def test_a_backup_of_a_store_in_use_is_whole(tmp_path: Path) -> None:
    store = loaded(tmp_path / "p.db")
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    store.backup(tmp_path / "copy.db", progress=progress)
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(StoreUnavailable, match="exists already"):
        store.backup(tmp_path / "copy.db", progress=progress)
    copy = SqliteStore(str(tmp_path / "copy.db"))
    assert copy.monitors("ann", after="", limit=10) == store.monitors("ann", after="", limit=10)
    assert copy.verify() == []
    copy.close()
    store.close()


def test_a_backup_ends_while_another_process_keeps_writing(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    store = loaded(path)
    with store._db.write() as db:
        db.execute("CREATE TABLE bulk (x TEXT)")
        db.executemany("INSERT INTO bulk VALUES (?)", [("x" * 3_000,)] * 4_000)
    other = SqliteStore(str(path))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            other.ping()

    writer = threading.Thread(target=write)
    writer.start()
    steps: list[int] = []

    def progress(done: int, _total: int) -> None:
        steps.append(done)
        assert len(steps) < 100, "the backup starts over at each write"

    store.backup(tmp_path / "copy.db", progress=progress)
    stop.set()
    writer.join()
    copy = SqliteStore(str(tmp_path / "copy.db"))
    assert copy.verify() == []
    for opened in (copy, store, other):
        opened.close()


def test_new_store_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    loaded(tmp_path / "p.db").close()
    assert (tmp_path / "p.db").stat().st_mode & 0o777 == 0o600


def test_store_from_before_the_stored_counters_keeps_its_counts_after_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = migrate_module._scripts()
    path = str(tmp_path / "old.db")
    with monkeypatch.context() as patch:
        patch.setattr(migrate_module, "_scripts", lambda: scripts[:5])
        database = SqliteDatabase(path, synchronous="normal")
        migrate_module.migrate(database)
        with database.write() as db:
            first = CHECKS_LANE << LANE_BITS
            db.execute("UPDATE lane SET tail = 4, position = 3 WHERE id = ?", (CHECKS_LANE,))
            runs = [(first + number, number, 0, NOW, 0) for number in range(2, 5)]  # the first one was purged
            db.executemany("INSERT INTO run VALUES (?, ?, ?, ?, ?)", runs)
            db.execute("INSERT INTO open (handle, lane, state, at_ms) VALUES (?, ?, 'out', ?)", (first + 2, 1, NOW))
            db.execute("INSERT INTO outcome VALUES (?, 'ok', 1, 1, 1, NULL, NULL, '', '{}')", (first + 3,))
        database.close()
    store = SqliteStore(path)
    status = store.status()
    assert (status.runs_waiting, status.runs_out) == (1, 1)
    assert not [problem for problem in store.verify() if "number of runs" in problem]


def test_a_backup_to_a_full_disk_says_so_and_leaves_no_half_copy(tmp_path: Path) -> None:
    store = loaded(tmp_path / "p.db")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, hard))
    try:
        with pytest.raises(StoreUnavailable) as caught:
            store.backup(tmp_path / "copy.db", progress=lambda *_: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "disk is full" in caught.value.detail
    assert "not an error" not in caught.value.detail
    assert list(tmp_path.glob("copy.db*")) == []
    store.close()


def test_checks_waiting_in_the_shared_lane_are_served_after_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = migrate_module._scripts()
    path = str(tmp_path / "old.db")
    with monkeypatch.context() as patch:
        patch.setattr(migrate_module, "_scripts", lambda: scripts[:11])
        database = SqliteDatabase(path, synchronous="normal")
        migrate_module.migrate(database)
        first, spec = CHECKS_LANE << LANE_BITS, '{"check": {"kind": "http", "url": "http://x.org/"}, "every": "1m"}'
        with database.write() as db:
            db.execute("INSERT INTO user VALUES (7, 'ann', 'user', 0, 0, 1, ?)", (NOW,))
            db.execute("INSERT INTO lane (id, owner) VALUES (8, 7)")
            db.execute("INSERT INTO monitor VALUES (3, 7, 'a', 1, ?, ?, ?)", (spec, NOW, NOW))
            db.execute("INSERT INTO cadence VALUES (1, 60000, '', 'UTC', 0, 'skip', 'queue')")
            db.execute("INSERT INTO entry VALUES (3, 1, ?)", (NOW,))
            db.execute("INSERT INTO due VALUES (?, 2, 1, 1, 1, ?, 0)", (due_key(NOW, 3), first + 2))
            db.execute("UPDATE lane SET tail = 2 WHERE id = 1")
            db.executemany(
                "INSERT INTO run VALUES (?, 3, ?, ?, ?)", [(first + 1, 0, NOW, 0), (first + 2, 1, NOW, first + 1)]
            )
        database.close()
    store = SqliteStore(path)
    tick(store, now_ms=NOW, catch_up=CatchUp())
    counters = []
    while claimed := store.claim(CHECKS, now_ms=NOW, runs_max=10, lease_ms=60_000):
        counters += [item.counter for item in claimed]
        store.settle(
            [Settlement(item.handle, item.attempt, Done(ok=True), started_ms=NOW, ended_ms=NOW) for item in claimed]
        )
    assert counters == [0, 1, 2], "old runs first, and the new one in the owner's lane behind them"
    assert store.verify() == []
    store.close()


def test_checks_waiting_in_the_lane_of_one_owner_are_served_after_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An intermediate schema had a lane for each owner's checks; now the checks of all owners share one queue."""
    scripts = migrate_module._scripts()
    path = str(tmp_path / "old.db")
    with monkeypatch.context() as patch:
        patch.setattr(migrate_module, "_scripts", lambda: scripts[:19])
        database = SqliteDatabase(path, synchronous="normal")
        migrate_module.migrate(database)
        lane, spec = (1 << 21) + 7, '{"check": {"kind": "http", "url": "http://x.org/"}, "every": "1m"}'
        first = lane << LANE_BITS
        with database.write() as db:
            db.execute(
                """INSERT INTO user (id, name, role, daily_credits, monitors, created_ms)
                   VALUES (7, 'ann', 'user', 0, 3, ?)""",
                (NOW,),
            )
            db.execute("INSERT INTO lane (id, owner, outgoing) VALUES (8, 7, 1)")
            db.execute("INSERT INTO lane (id, owner, outgoing, tail, position, out) VALUES (?, 7, 0, 3, 1, 1)", (lane,))
            db.execute("INSERT INTO cadence VALUES (1, 60000, '', 'UTC', 0, 'skip', 'skip')")
            for number in (1, 2, 3):
                handle = first + number
                db.execute("INSERT INTO monitor VALUES (?, 7, ?, 1, ?, ?, ?)", (number, f"m{number}", spec, NOW, NOW))
                db.execute("INSERT INTO entry VALUES (?, 1, ?)", (number, NOW))
                db.execute("INSERT INTO due VALUES (?, 1, 1, 1, ?, ?, 0)", (due_key(NOW, number), lane, handle))
                db.execute("INSERT INTO run VALUES (?, ?, 0, ?, 0)", (handle, number, NOW - 60_000))
            db.execute("INSERT INTO open (handle, lane, state, at_ms) VALUES (?, ?, 'out', ?)", (first + 1, lane, NOW))
            db.execute("UPDATE tally SET value = 3 WHERE name = 'entries'")
        database.close()
    store = SqliteStore(path)
    assert store.verify() == []
    claimed = store.claim(CHECKS, now_ms=NOW - 1, runs_max=10, lease_ms=60_000)
    assert sorted(item.monitor for item in claimed) == ["m2", "m3"]
    (lost,) = store.claim(CHECKS, now_ms=NOW, runs_max=10, lease_ms=60_000)
    assert (lost.monitor, lost.lost) == ("m1", True)
    settlements = [Settlement(one.handle, one.attempt, Done(ok=True), NOW, NOW) for one in (*claimed, lost)]
    assert store.settle(settlements) == [True] * 3
    assert tick(store, now_ms=NOW, catch_up=CatchUp()).runs == 3
    assert len(store.claim(CHECKS, now_ms=NOW, runs_max=10, lease_ms=60_000)) == 3
    assert store.status().runs_out == 3
    assert store.verify() == []


def test_failed_rollback_raises_store_unavailable_and_releases_the_write_lock(tmp_path: Path) -> None:
    class Failing:
        """The disk is full when the transaction is rolled back."""

        in_transaction = True

        def execute(self, _: str) -> None:
            raise apsw.FullError

    store = SqliteStore(str(tmp_path / "p.db"))
    write = store._db.write()
    real = write.__enter__()
    write._connection = Failing()  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable):
        write.__exit__(ValueError, ValueError("a mistake of the act"), None)
    real.execute("ROLLBACK")
    assert store.add_user(User("ann", "user", 0, disabled=False, created_ms=NOW)), "the next writer has its turn"
    store.close()

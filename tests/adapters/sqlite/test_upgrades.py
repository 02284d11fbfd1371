"""Stores of every older version, with rows in them, are brought up to date: nothing is lost, and all goes on.

The rows are made by the store of today and put into the schema of then, as far as it has their tables and columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from paceline.adapters.sqlite.identity import APPLICATION_ID
from paceline.adapters.sqlite.migrate import _scripts
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import RecordSpec, record_document
from paceline.core.batches.records.request import render_request
from paceline.core.daemons import Daemon
from paceline.core.jobs.accounts import quarantine_key
from paceline.core.jobs.values import AccountSpec, AddKey
from paceline.core.monitors.alerting.record import HealthRecord
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.lists.query import FAILING
from paceline.core.monitors.load import UNIT
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.uptime.rollup import days_until
from paceline.core.monitors.values import PutMonitor
from paceline.ports import Store
from paceline.steps.monitors.tick import tick
from paceline.steps.upkeep.clock import note_time
from paceline.steps.upkeep.daemons import list_daemons
from paceline.steps.upkeep.secret import proof
from tests.contract.support import call_stage
from tests.contract.support.job_stage import CREDITS, admitted, again, done, heads, job_of, money, quotas, send
from tests.contract.support.stage import MINUTE_MS, MONITORS_MAX, T0_MS, armed, claim, settle, spec, user

pytestmark = pytest.mark.sqlite

NEWEST = len(_scripts())
JOBS_SINCE, LANES_SINCE, CLOCK_SINCE, TALLIES_SINCE, ITEMS_SINCE = 3, 12, 10, 18, 21
HEALTH_SINCE = next(number for number, script in enumerate(_scripts(), 1) if "CREATE TABLE health" in script)
JOB_TABLES = (
    "user",
    "meter",
    "release",
    "account",
    "key",
    "job",
    "measurement",
    "posting",
    "turn",
    "atlas_measurement",
)
BATCH_TABLES = ("provider", "pace", "batch", "record", "day", "planned", "queue", "result")
MONITOR_TABLES = ("user", "monitor", "cadence", "entry", "due", "run", "open", "outcome", "lane")
"""The queues last: in some versions the rows of ``open`` count themselves there."""


def columns(db: apsw.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]


def as_of(version: int, new: Path, old: Path, tables: Iterable[str]) -> None:
    """The rows of these tables, in a store of that version."""
    with closing(apsw.Connection(str(new))) as source, closing(apsw.Connection(str(old))) as target:
        for script in _scripts()[:version]:
            target.execute(script)
        target.pragma("application_id", APPLICATION_ID)
        target.pragma("user_version", version)
        for table in tables:
            kept = [name for name in columns(source, table) if name in columns(target, table)]
            names, marks = ", ".join(f'"{name}"' for name in kept), ", ".join("?" * len(kept))
            rows: list[Any] = source.execute(f'SELECT {names} FROM "{table}"').fetchall()  # noqa: S608  our own names
            assert rows or table in ("release", "open", "outcome"), f"nothing of {table} is tried"
            target.executemany(f'INSERT OR REPLACE INTO "{table}" ({names}) VALUES ({marks})', rows)  # noqa: S608
        for name, value in source.execute("SELECT name, value FROM tally").fetchall():
            target.execute("UPDATE tally SET value = ? WHERE name = ?", (value, name))


def keys_of(store: Store, account: str) -> list[tuple[str, str, bool, str]]:
    return [(key.id, key.label, key.enabled, key.quarantine) for key in store.keys(account)]


def with_jobs(store: Store) -> None:
    """One measurement has ended, one runs and one waits; an account is in use, and another is switched off."""
    store.add_user(user("ann"))
    store.put_account("lab", AccountSpec(concurrent=2, daily_results=500, daily_credits=1_000))
    store.put_account("off", AccountSpec(enabled=False))
    for name, sealed in (("lab", "first"), ("lab", "second"), ("off", "third")):
        store.add_key(AddKey(name, sealed, "1234", f"the {sealed}"), now_ms=T0_MS)
    store.change_key("lab", "k2", quarantine_key("RIPE says no"))
    admitted(store, 3)
    assert done(store, send(store, "k1"), spent=40).won
    send(store, "k1")


@pytest.mark.parametrize("version", range(JOBS_SINCE, NEWEST))
def test_jobs_accounts_and_their_ledger_survive_an_upgrade(tmp_path: Path, version: int) -> None:
    with closing(SqliteStore(str(tmp_path / "new.db"))) as store:
        with_jobs(store)
        (job,) = store.jobs("ann", before=None, limit=10)
        (waiting,) = heads(store)
        before = (job_of(store, job), money(store), quotas(store), keys_of(store, "lab"), keys_of(store, "off"))
    as_of(version, tmp_path / "new.db", tmp_path / "old.db", JOB_TABLES)
    with closing(SqliteStore(str(tmp_path / "old.db"))) as store:
        assert store.verify() == []
        after = (job_of(store, job), money(store), quotas(store), keys_of(store, "lab"), keys_of(store, "off"))
        assert after == before
        (head,) = heads(store)
        assert (head.handle, head.cost, head.measurement) == (waiting.handle, waiting.cost, waiting.measurement)
        # Of 0007: no measurement has passed it yet. Of 0014: the balance is unknown, and no type is barred.
        assert head.passed_ms is None
        lab = store.account("lab", now_ms=T0_MS)
        assert lab is not None
        assert (lab.balance, lab.barred, lab.concurrent.limit) == (None, (), 2)
        goes_on(store)


def goes_on(store: Store) -> None:
    """Sends the waiting measurement with the free slot and settles both running ones; finds keys by sealed text."""
    last = send(store, "k1")
    running = store.measurement(last.handle - 1)
    assert running is not None
    assert quotas(store)["concurrent"] == (0, 2)
    for item in (running, last):
        assert done(store, again(store, item), spent=CREDITS).won
    (finished,) = store.finish_jobs(now_ms=T0_MS, limit=10)
    assert finished.finished_ms is not None
    assert money(store) == (40 + 2 * CREDITS, 0)
    taken = store.add_key(AddKey("off", "first", "1234", "again"), now_ms=T0_MS)
    assert taken.disposition == "already"
    assert taken.key is not None
    assert taken.key.account == "lab"
    assert store.verify() == []


@pytest.mark.parametrize("version", range(LANES_SINCE, NEWEST))
def test_monitors_and_their_runs_survive_an_upgrade(tmp_path: Path, version: int) -> None:
    with closing(SqliteStore(str(tmp_path / "new.db"))) as store:
        store.add_user(user("ann"))
        for name in ("a", "b"):
            armed(store, name)
        assert tick(store, now_ms=T0_MS, catch_up=CatchUp()).runs == 2
        taken = claim(store, runs_max=1)
        before = store.monitors("ann", after="", limit=10)
        status = store.status()
    as_of(version, tmp_path / "new.db", tmp_path / "old.db", MONITOR_TABLES)
    with closing(SqliteStore(str(tmp_path / "old.db"))) as store:
        assert store.verify() == []
        assert store.monitors("ann", after="", limit=10) == before
        found = store.status()
        assert (found.entries, found.runs_waiting, found.runs_out) == (2, 1, 1)
        assert msgspec.structs.replace(found, file_bytes=status.file_bytes) == status
        runs = taken + claim(store)
        assert settle(store, runs) == [True, True]
        assert tick(store, now_ms=T0_MS + MINUTE_MS, catch_up=CatchUp()).runs == 2
        # Of 0030: outcomes that are not folded yet count.
        days = [days_until(one, T0_MS) for one in store.uptimes(before, now_ms=T0_MS)]
        assert [sum(day.ok for day in one.values()) for one in days] == [1, 1]
        # Of 0016: how often the monitors of before fire is added up, and counts against the limit.
        put = PutMonitor("ann", "c", spec(every="1s"))
        (refused,) = store.put_monitors([put], monitors_max=MONITORS_MAX, firings_max=1, now_ms=T0_MS)
        assert refused.disposition == "rate_reached"
        assert abs(refused.load - (UNIT + 2 * UNIT / 60)) < 2
        assert store.verify() == []


def test_monitor_whose_newest_run_failed_is_failing_after_the_upgrade(tmp_path: Path) -> None:
    with closing(SqliteStore(str(tmp_path / "new.db"))) as store:
        store.add_user(user("ann"))
        for name in ("bad", "good", "open"):
            armed(store, name)
        assert tick(store, now_ms=T0_MS, catch_up=CatchUp()).runs == 3
        runs = {item.monitor: item for item in claim(store)}
        settle(store, [runs["bad"]], Done(ok=False, reason="answered 500"))
        settle(store, [runs["good"]])
    as_of(HEALTH_SINCE - 1, tmp_path / "new.db", tmp_path / "old.db", MONITOR_TABLES)
    with closing(SqliteStore(str(tmp_path / "old.db"))) as store:
        assert store.verify() == []
        (monitor,) = store.monitors("ann", after="", limit=10, having=FAILING)
        assert monitor.id == "bad"
        record = store.health_records([monitor.generation])[monitor.generation]
        assert record == HealthRecord(failing=True, failures=1, failed=1, since_ms=T0_MS, reason="answered 500")
        assert store.alerts("ann", since_ms=0, before=None, limit=10) == []


@pytest.mark.parametrize("version", range(TALLIES_SINCE, NEWEST))
def test_batches_records_and_runs_survive_an_upgrade(tmp_path: Path, version: int) -> None:
    with closing(SqliteStore(str(tmp_path / "new.db"))) as store:
        call_stage.provide(store, "a", headers={"X-Key": "sealed"})
        batch = call_stage.make_batch(store)
        call_stage.plan(store, batch, call_stage.every(10, 3))
        old = RecordSpec("r1", "a", "/{date}/{what}", '{"a": "{run}"}')
        store.put_records(batch, [old], now_ms=T0_MS)
        (first,) = call_stage.claim(store)
        assert call_stage.settle(store, first)
        before = (
            store.find_records(batch, after="", limit=9)[0],
            store.providers(after="", limit=9),
            store.batch("daily"),
        )
    as_of(version, tmp_path / "new.db", tmp_path / "old.db", BATCH_TABLES)
    with closing(SqliteStore(str(tmp_path / "old.db"))) as store:
        assert store.verify() == []
        batch = call_stage.make_batch(store)
        assert (store.find_records(batch, after="", limit=9)[0], store.providers(after="", limit=9), batch) == before
        # Of 0025: a text of before with braces is sent as it is, and shown so that it means the same when put again.
        (second,) = call_stage.claim(store, T0_MS + 10)
        assert render_request(second) == ("/{date}/{what}", '{"a": "{run}"}')
        assert record_document(old)["endpoint"] == "/{{date}}/{{what}}"
        assert call_stage.settle(store, second, now_ms=T0_MS + 10)
        assert call_stage.names(call_stage.claim(store, T0_MS + 20)) == ["r2"]
        assert store.verify() == []


@pytest.mark.parametrize("version", range(CLOCK_SINCE, ITEMS_SINCE))
def test_rows_of_daemons_secret_and_clock_become_items(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    with closing(apsw.Connection(str(path))) as old:
        for script in _scripts()[:version]:
            old.execute(script)
        old.pragma("application_id", APPLICATION_ID)
        old.pragma("user_version", version)
        old.execute("INSERT INTO daemon VALUES ('d1', 'up', 'h\u00f6st \"a\"', 11, 'https://[::1]:8443', 1, 2, 5000)")
        old.execute("INSERT INTO secret VALUES (1, 'sealed+/=')")
        old.execute("INSERT INTO clock VALUES (1, ?)", (T0_MS,))
    with closing(SqliteStore(str(path))) as store:
        assert list_daemons(store, limit=9) == [
            Daemon("d1", "up", 'h\u00f6st "a"', 11, "https://[::1]:8443", 1, 2, 5_000)
        ]
        assert proof(store) == "sealed+/="
        assert note_time(store, lambda: T0_MS + 1) == (T0_MS, T0_MS + 1)
        assert store.verify() == []

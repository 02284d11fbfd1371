"""Many runs at once: their figures add up, and compiled statements are kept."""

from __future__ import annotations

from pathlib import Path

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import SpecLimits
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done, Retry
from paceline.core.monitors.values import CHECKS, Claimed, Settlement
from paceline.core.users import User
from paceline.steps.monitors.define import parse_put, put_monitors
from paceline.steps.monitors.react import react_to_all
from paceline.steps.monitors.tick import tick

NOW = 1_800_000_000_000
LEASE_MS = 60_000
OWNERS, MONITORS = 10, 600
SPEC = b'{"check": {"kind": "http", "url": "http://example.org/"}, "every": "60s", "initial_delay": "0s"}'


def loaded(path: Path) -> SqliteStore:
    """All monitors of all owners have fired."""
    store = SqliteStore(str(path), synchronous="normal")
    for owner in range(OWNERS):
        store.add_user(User(f"owner{owner}", "user", 0, disabled=False, created_ms=NOW))
    puts = [parse_put(f"owner{number % OWNERS}", f"m{number}", SPEC, SpecLimits()) for number in range(MONITORS)]
    put_monitors(store, puts, monitors_max=MONITORS, now_ms=NOW)
    react_to_all(store, now_ms=NOW)
    assert tick(store, now_ms=NOW, catch_up=CatchUp()).runs == MONITORS
    return store


def claim(store: SqliteStore, runs_max: int, *, now_ms: int = NOW) -> list[Claimed]:
    return store.claim(CHECKS, now_ms=now_ms, runs_max=runs_max, lease_ms=LEASE_MS)


def done(items: list[Claimed], outcome: Done | Retry, *, now_ms: int = NOW) -> list[Settlement]:
    return [Settlement(item.handle, item.attempt, outcome, started_ms=now_ms, ended_ms=now_ms) for item in items]


def test_the_number_of_runs_that_are_out_follows_claims_retries_returns_and_lost_leases(tmp_path: Path) -> None:
    store = loaded(tmp_path / "p.db")
    first = claim(store, 200)
    assert store.status().runs_out == 200
    assert all(store.settle([*done(first[:77], Done(ok=True)), *done(first[77:100], Retry("again", NOW + 1))]))
    assert store.status().runs_out == 100
    assert all(store.release([(item.handle, item.attempt) for item in first[100:110]], now_ms=NOW))
    assert store.status().runs_out == 90
    later_ms = NOW + LEASE_MS
    again = claim(store, MONITORS, now_ms=later_ms)
    assert len(again) == MONITORS - 77
    assert store.status().runs_out == MONITORS - 77
    assert all(store.settle(done(again, Done(ok=True), now_ms=later_ms)))
    assert (store.status().runs_out, store.status().runs_waiting) == (0, 0)
    assert store.verify() == []
    store.close()


def test_settling_many_runs_leaves_the_statements_of_a_claim_compiled(tmp_path: Path) -> None:
    store = loaded(tmp_path / "p.db")
    for _ in range(2):  # the first time compiles them
        assert all(store.settle(done(claim(store, 190), Done(ok=True))))
    with store._db.writer() as db:
        before = db.cache_stats()["misses"]
    assert all(store.settle(done(claim(store, 190), Done(ok=True))))
    with store._db.writer() as db:
        assert db.cache_stats()["misses"] == before
    store.close()

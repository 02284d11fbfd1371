"""A check passed by many others is moved out of the queue, so that a new process need not read past them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.adapters.sqlite.keys import CHECKS_LANE
from paceline.adapters.sqlite.monitors import check_claims
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import CHECKS, Claimed
from tests.contract.support.stage import LEASE_MS, T0_MS, armed_all, claim, make_run_of_each, put, settle, spec, user

HANGS, ANSWERS = HttpCheck(url="http://hangs.example/"), HttpCheck(url="http://answers.example/")
FULL = Places(40, 1, {("cem", "hangs.example:80"): 1})


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """Two processes on one file. Ann's two checks wait for a place at their target; bob's may start."""
    monkeypatch.setattr(check_claims, "PASSED_MAX", 3)
    first, second = (SqliteStore(str(tmp_path / "p.db")) for _ in range(2))
    for name in ("ann", "bob"):
        assert first.add_user(user(name))
    for owner, count, check in (("ann", 2, HANGS), ("bob", 6, ANSWERS)):
        names = [f"{owner}-{number}" for number in range(count)]
        make_run_of_each(first, armed_all(first, names, check=check, owner=owner))
    yield first, second
    assert first.verify() == []
    first.close()
    second.close()


def claim_one_by_one(store: SqliteStore, count: int) -> list[Claimed]:
    """Claims like a process whose target is full, and settles each run at once."""
    found = []
    for _ in range(count):
        some = store.claim(CHECKS, now_ms=T0_MS, runs_max=1, lease_ms=LEASE_MS, places=FULL)
        assert settle(store, some) == [True] * len(some)
        found += some
    return found


def position(store: SqliteStore) -> int:
    with store._db.read() as db:
        return int(db.execute("SELECT position FROM lane WHERE id = ?", (CHECKS_LANE,)).get)


def test_check_passed_by_many_others_is_set_aside_and_starts_once_a_place_is_free(
    stores: tuple[SqliteStore, SqliteStore],
) -> None:
    store, other = stores
    assert [item.owner for item in claim_one_by_one(store, 3)] == ["bob"] * 3
    assert position(store) == 0
    assert [item.owner for item in claim_one_by_one(store, 3)] == ["bob"] * 3
    assert position(store) == 8
    assert claim(other, now_ms=T0_MS + check_claims.ASIDE_MS - 1) == []
    (taken,) = claim(store, runs_max=1)
    (left,) = claim(other, now_ms=T0_MS + check_claims.ASIDE_MS)
    assert sorted([taken.monitor, left.monitor]) == ["ann-0", "ann-1"]
    assert settle(store, [taken]) == settle(other, [left]) == [True]
    assert claim(store, now_ms=T0_MS + 2 * check_claims.ASIDE_MS) == []


def test_check_that_another_process_has_ended_is_not_set_aside(stores: tuple[SqliteStore, SqliteStore]) -> None:
    store, other = stores
    assert [item.owner for item in claim_one_by_one(store, 2)] == ["bob"] * 2
    elsewhere = [item for item in claim(other) if item.owner == "ann"]
    assert settle(other, elsewhere) == [True, True]
    claim_one_by_one(store, 6)
    assert claim(store, now_ms=T0_MS + check_claims.ASIDE_MS) == []


def test_purged_run_in_the_cache_is_not_leased_after_an_edit_of_another_monitor(tmp_path: Path) -> None:
    """A remembered run of revision 1 is gone, and one of revision 1 is now of revision 2: the sums are equal."""
    store, other = (SqliteStore(str(tmp_path / "p.db")) for _ in range(2))
    assert store.add_user(user("ann"))
    make_run_of_each(store, armed_all(store, ["first", "gone", "edited"], check=HANGS))
    [first] = claim(store, runs_max=1)
    assert first.monitor == "first"
    [gone] = claim(other, runs_max=1)
    assert gone.monitor == "gone"
    assert settle(store, [first]) + settle(other, [gone]) == [True, True]
    purged = other.purge(settled_before_ms=T0_MS + 1, due_before_ms=0, now_ms=T0_MS, limit=10)
    assert purged.runs_deleted == 2
    put(other, "edited", spec(check=ANSWERS))
    assert [(item.monitor, item.check) for item in claim(store)] == [("edited", ANSWERS)]
    assert store.verify() == []
    store.close()
    other.close()

"""Edits of an account: an edit of an outdated version is refused, and of two simultaneous edits none is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from paceline.core.jobs.values import AccountSpec, MeterFull, NotSent, SeenAccount
from paceline.ports import Store
from paceline.steps.jobs.accounts import edit_account, see_account
from tests.contract.conftest import Opener
from tests.contract.support.job_stage import add_account, admitted, begin
from tests.contract.support.stage import T0_MS

FIELDS = ("concurrent", "daily_results", "daily_credits")
ROUNDS = 8


def spec(store: Store) -> AccountSpec:
    found = see_account(store, "lab", now_ms=T0_MS).spec
    assert found is not None
    return found


def test_account_put_based_on_a_stale_read_is_refused(store: Store) -> None:
    absent = SeenAccount(None)
    assert store.put_account("lab", AccountSpec(), seen=SeenAccount(AccountSpec())) == "revision_mismatch"
    assert store.account("lab", now_ms=T0_MS) is None
    assert store.put_account("lab", AccountSpec(), seen=absent) == "created"
    assert store.put_account("lab", AccountSpec(concurrent=7), seen=absent) == "revision_mismatch"
    seen = see_account(store, "lab", now_ms=T0_MS)
    assert seen == SeenAccount(AccountSpec())
    assert store.put_account("lab", AccountSpec(daily_credits=5), seen=seen) == "replaced"
    for stale in (AccountSpec(concurrent=7), AccountSpec(daily_results=7), AccountSpec(enabled=False), AccountSpec()):
        assert store.put_account("lab", stale, seen=seen) == "revision_mismatch"
    assert spec(store) == AccountSpec(daily_credits=5)
    seen = see_account(store, "lab", now_ms=T0_MS)
    assert store.put_account("lab", AccountSpec(daily_credits=5), seen=seen) == "unchanged"


def test_limit_lowered_by_ripe_is_not_overwritten_by_an_older_edit(store: Store) -> None:
    key = add_account(store)
    seen = see_account(store, "lab", now_ms=T0_MS)
    assert seen.spec is not None
    admitted(store)
    item = begin(store, key)
    lower = seen.spec.concurrent - 1
    full = MeterFull("concurrent", 1, lower)
    assert store.answer(item.handle, item.attempt, NotSent("no"), effect=full, now_ms=T0_MS)
    assert store.put_account("lab", seen.spec, seen=seen) == "revision_mismatch"
    assert spec(store).concurrent == lower


def test_simultaneous_edits_of_different_account_fields_are_all_kept(store: Store, store_factory: Opener) -> None:
    edit_account(store, "lab", {}, now_ms=T0_MS)
    line = threading.Barrier(len(FIELDS))
    handles = [store_factory() for _ in FIELDS]

    def edit(number: int) -> None:
        for value in range(ROUNDS):
            line.wait()
            edit_account(handles[number], "lab", {FIELDS[number]: value}, now_ms=T0_MS)
            line.wait()
            now = spec(handles[number])
            assert {name: getattr(now, name) for name in FIELDS} == dict.fromkeys(FIELDS, value)

    with ThreadPoolExecutor(len(FIELDS)) as pool:
        for done in [pool.submit(edit, number) for number in range(len(FIELDS))]:
            done.result()
    assert spec(store) == AccountSpec(ROUNDS - 1, ROUNDS - 1, ROUNDS - 1)

"""What keeps an account from sending beside its quotas: its balance, types of measurements, a key that another has."""

from __future__ import annotations

from paceline.core.jobs.accounts import enable_key
from paceline.core.jobs.meters import CreditBalance, Reading
from paceline.core.jobs.pool import Barred
from paceline.core.jobs.values import (
    AccountSpec,
    AddKey,
    MeasurementProgress,
    MeterFull,
    NotSent,
    StoredKey,
    TypeBarred,
)
from paceline.ports import Store
from tests.contract.support.job_stage import (
    CREDITS,
    add_account,
    admitted,
    again,
    begin,
    begin_short,
    done,
    send,
)
from tests.contract.support.stage import T0_MS


def balance(store: Store, account: str = "lab") -> CreditBalance | None:
    found = store.account(account, now_ms=T0_MS)
    assert found is not None
    listed = {one.id: one for one in store.accounts(now_ms=T0_MS, releases_until_ms=T0_MS)}
    assert listed[account].balance == found.balance
    return found.balance


def read(store: Store, figure: int, *, booked: int = 0, asked_ms: int = T0_MS) -> None:
    assert store.sync_account("lab", [("balance", Reading(asked_ms, figure, booked))], now_ms=asked_ms)


def test_balance_is_known_once_ripe_has_reported_it_and_reservations_reduce_it(store: Store) -> None:
    key = add_account(store)
    admitted(store, 3)
    first = send(store, key)
    assert balance(store) is None
    read(store, 200)
    assert balance(store) == CreditBalance(200 - CREDITS, 200, T0_MS), "what is held is not booked yet"
    second = begin(store, key)
    assert balance(store) == CreditBalance(200 - 2 * CREDITS, 200, T0_MS)
    assert store.answer(second.handle, second.attempt, NotSent("no"), now_ms=T0_MS)
    assert balance(store) == CreditBalance(200 - CREDITS, 200, T0_MS)
    assert done(store, first, spent=50).won
    assert balance(store) == CreditBalance(150, 200, T0_MS), "what was not delivered is back"
    read(store, 200, asked_ms=T0_MS + 1)
    assert balance(store) == CreditBalance(150, 200, T0_MS + 1), "RIPE books hours later, so its figure still has it"
    read(store, 150, booked=50, asked_ms=T0_MS + 2)
    assert balance(store) == CreditBalance(150, 150, T0_MS + 2)
    read(store, 999, asked_ms=T0_MS + 1)
    assert balance(store) == CreditBalance(150, 150, T0_MS + 2), "an answer to an older question changes nothing"


def test_promise_8_a_send_beyond_the_balance_is_not_begun(store: Store) -> None:
    key = add_account(store)
    admitted(store, 2)
    read(store, CREDITS)
    begin(store, key)
    short = begin_short(store, key)
    assert (short.meter, short.need, short.room) == ("account/lab/balance", CREDITS, 0)


def test_send_short_of_the_balance_and_of_a_meter_names_the_balance(store: Store) -> None:
    key = add_account(store, spec=AccountSpec(concurrent=1, daily_results=100_000, daily_credits=CREDITS))
    admitted(store, 2)
    read(store, CREDITS)
    begin(store, key)
    assert begin_short(store, key).meter == "account/lab/balance"
    read(store, 10 * CREDITS, asked_ms=T0_MS + 1)
    assert begin_short(store, key).meter == "account/lab/concurrent"


def test_refusal_for_lack_of_credits_is_stored_as_the_balance_and_not_as_the_days_credits(store: Store) -> None:
    key = add_account(store)
    admitted(store, 1)
    begun = begin(store, key)
    assert store.answer(
        begun.handle, begun.attempt, NotSent("not enough credits"), effect=MeterFull("balance", CREDITS), now_ms=T0_MS
    )
    assert balance(store) == CreditBalance(CREDITS - 1, None, T0_MS)
    found = store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert (found.credits.foreign, found.credits.held) == (0, 0)
    assert begin_short(store, key).meter == "account/lab/balance"
    read(store, 10_000, asked_ms=T0_MS + 1)
    begin(store, key, now_ms=T0_MS + 1)


def test_a_type_that_ripe_forbids_to_an_account_is_noted_until_its_keys_change(store: Store) -> None:
    key = add_account(store)
    admitted(store, 1)
    begun = begin(store, key)
    barred = TypeBarred(("http", "ping"), T0_MS + 1_000, "not permitted")
    assert store.answer(begun.handle, begun.attempt, NotSent("not permitted"), effect=barred, now_ms=T0_MS)
    found = store.account("lab", now_ms=T0_MS)
    assert found is not None
    assert found.barred == tuple(Barred(one, T0_MS + 1_000, "not permitted") for one in ("http", "ping"))
    assert store.change_key("lab", key, enable_key(enabled=True)) is not None
    after = store.account("lab", now_ms=T0_MS)
    assert after is not None
    assert after.barred == ()


def test_a_secret_belongs_to_one_account_until_it_is_removed_there(store: Store) -> None:
    add_account(store)
    store.put_account("other", AccountSpec())
    added = store.add_key(AddKey("lab", "one secret", "cret"), now_ms=T0_MS)
    assert isinstance(added.key, StoredKey)
    again_there = store.add_key(AddKey("other", "one secret", "cret"), now_ms=T0_MS)
    assert (again_there.disposition, again_there.key) == ("already", added.key)
    assert store.keys("other") == []
    assert store.remove_key("lab", added.key.id)
    moved = store.add_key(AddKey("other", "one secret", "cret"), now_ms=T0_MS)
    assert moved.disposition == "created"


def test_obstacle_of_a_running_measurement_is_recorded_and_removed(store: Store) -> None:
    key = add_account(store)
    admitted(store, 1)
    item = send(store, key)
    for reason in ("RIPE does not stop it", ""):
        assert store.note_progress([MeasurementProgress(item.handle, item.attempt, ((2, 0),), reason=reason)]) == [True]
        assert again(store, item).reason == reason
    assert store.note_progress([MeasurementProgress(item.handle, item.attempt, ((2, 1),))]) == [True]
    assert again(store, item).atlas[0].delivered == 1

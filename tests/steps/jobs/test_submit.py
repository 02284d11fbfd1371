from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.adapters.vault import SecretVault
from paceline.core.jobs.job import JobLimits
from paceline.core.users import UserEdit
from paceline.errors import AlreadyExists, InvalidInput, NotFound, OverDailyCredits, PacelineError
from paceline.ports import Store
from paceline.steps.jobs import accounts
from paceline.steps.jobs.submit import quote_job, submit_job
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS
from tests.steps.support.stored_keys import open_key

LIMITS = JobLimits()
VAULT = SecretVault(b"a secret key of enough bytes")
SECRET = "00000000-dead-beef-0000-c0ffee001234"
DEFINITION = {"type": "ping", "af": 4, "target": "192.0.2.1", "description": "a ping"}
PROBES = {"requested": 10, "type": "area", "value": "WW"}


def body(count: int = 1, **fields: Any) -> bytes:
    """Each measurement costs ten probes times three packets, twice for a one-off."""
    one = {"definitions": [DEFINITION], "probes": [PROBES], "is_oneoff": True}
    return json.dumps({"title": "a job", "measurements": [one] * count} | fields).encode()


@pytest.fixture(autouse=True)
def credits_of_ann(store: Store) -> None:
    store.edit_user("ann", UserEdit(daily_credits=150))


def test_a_job_is_validated_priced_and_admitted(store: Store) -> None:
    submitted = submit_job(store, "ann", body(2), limits=LIMITS, now_ms=T0_MS)
    assert (submitted.job.reserved, submitted.budget.left, submitted.job.measurements) == (120, 30, 2)
    assert (submitted.job.owner, submitted.job.title, submitted.again) == ("ann", "a job", False)
    [first, _] = store.measurements(submitted.job.number, after=-1, limit=10)
    assert first.cost.credits == 60
    assert first.measurement.definitions[0].target == "192.0.2.1"


def test_a_dry_run_prices_and_changes_nothing(store: Store) -> None:
    quote = quote_job(store, "ann", body(3), limits=LIMITS, now_ms=T0_MS)
    assert (quote.cost, quote.budget.left, quote.measurements, quote.fits) == (180, 150, 3, False)
    assert quote_job(store, "ann", body(2), limits=LIMITS, now_ms=T0_MS).fits
    assert store.jobs(None, before=None, limit=10) == []


def test_job_over_budget_is_refused_with_cost_credits_left_and_reset_time(store: Store) -> None:
    submit_job(store, "ann", body(2), limits=LIMITS, now_ms=T0_MS)
    with pytest.raises(OverDailyCredits) as refused:
        submit_job(store, "ann", body(1), limits=LIMITS, now_ms=T0_MS)
    error = refused.value
    assert (error.status, error.code, error.cost, error.credits_left) == (402, "over_daily_credits", 60, 30)
    assert error.resets_ms == (T0_MS // DAY_MS + 1) * DAY_MS
    assert "2026-09-22T00:00:00" in error.detail
    submit_job(store, "ann", body(1), limits=LIMITS, now_ms=error.resets_ms)


def test_a_wrong_field_is_named_and_nothing_is_written(store: Store) -> None:
    wrong = {"definitions": [DEFINITION | {"type": "wifi"}], "probes": [PROBES], "is_oneoff": True}
    with pytest.raises(InvalidInput) as refused:
        submit_job(store, "ann", body(measurements=[wrong]), limits=LIMITS, now_ms=T0_MS)
    assert refused.value.errors[0].pointer == "/measurements/0/definitions/0/type"
    assert store.jobs(None, before=None, limit=10) == []


def test_the_same_idempotency_key_gives_the_same_job(store: Store) -> None:
    first = submit_job(store, "ann", body(2), limits=LIMITS, idempotency_key="a", now_ms=T0_MS)
    again = submit_job(store, "ann", body(2), limits=LIMITS, idempotency_key="a", now_ms=T0_MS + HOUR_MS)
    assert (again.job, again.again, again.budget.left) == (first.job, True, 30)
    with pytest.raises(AlreadyExists, match=first.job.id):
        submit_job(store, "ann", body(1), limits=LIMITS, idempotency_key="a", now_ms=T0_MS)


def timed(**times: int) -> bytes:
    """One round of ten probes; priced at 30 credits."""
    one = {"definitions": [DEFINITION | {"interval": 3_600}], "probes": [PROBES], **times}
    return body(measurements=[one])


@pytest.mark.parametrize(
    "times",
    [
        {"start_time": T0_MS // 1000 + 600, "stop_time": T0_MS // 1000 + 4_200},
        {"stop_time": T0_MS // 1000 + 3_600},
    ],
)
def test_a_retry_after_its_start_or_stop_has_passed_answers_with_the_first_job(
    store: Store, times: dict[str, int]
) -> None:
    late_ms = T0_MS + 2 * HOUR_MS
    with pytest.raises(InvalidInput):  # a first submission that is so late is refused, whatever its key
        submit_job(store, "ann", timed(**times), limits=LIMITS, idempotency_key="late", now_ms=late_ms)
    first = submit_job(store, "ann", timed(**times), limits=LIMITS, idempotency_key="a", now_ms=T0_MS)
    again = submit_job(store, "ann", timed(**times), limits=LIMITS, idempotency_key="a", now_ms=late_ms)
    assert (again.job, again.again) == (first.job, True)
    with pytest.raises(AlreadyExists, match=first.job.id):
        submit_job(store, "ann", body(1), limits=LIMITS, idempotency_key="a", now_ms=late_ms)
    with pytest.raises(InvalidInput):
        submit_job(store, "bob", timed(**times), limits=LIMITS, idempotency_key="a", now_ms=late_ms)


@pytest.mark.parametrize("key", ["", "a\nb", "é", "x" * 256])
def test_an_idempotency_key_is_short_and_printable(store: Store, key: str) -> None:
    with pytest.raises(InvalidInput):
        submit_job(store, "ann", body(), limits=LIMITS, idempotency_key=key, now_ms=T0_MS)


def test_unknown_user_can_neither_submit_nor_price_a_job(store: Store) -> None:
    with pytest.raises(NotFound):
        submit_job(store, "zoe", body(), limits=LIMITS, now_ms=T0_MS)
    with pytest.raises(NotFound):
        quote_job(store, "zoe", body(), limits=LIMITS, now_ms=T0_MS)


def test_account_put_from_json_has_ripes_default_limits(store: Store) -> None:
    assert accounts.put_account(store, "lab", b'{"concurrent": 25}') == "created"
    found = accounts.get_account(store, "lab", now_ms=T0_MS)
    limits = (found.concurrent.limit, found.results.limit, found.credits.limit)
    assert (*limits, found.enabled) == (25, 100_000, 1_000_000, True)
    with pytest.raises(InvalidInput) as refused:
        accounts.put_account(store, "a/b", b'{"concurrent": -1, "daily_credits": 99999999999999}')
    assert [one.pointer for one in refused.value.errors] == ["/concurrent", "/daily_credits", "/id"]
    with pytest.raises(NotFound):
        accounts.get_account(store, "other", now_ms=T0_MS)


def test_promise_12_a_key_is_sealed_and_only_its_last_four_are_shown(store: Store) -> None:
    accounts.put_account(store, "lab", b"{}")
    key = accounts.add_key(store, VAULT, "lab", SECRET, label="first", now_ms=T0_MS)
    assert (key.last_four, key.label, key.enabled) == ("1234", "first", True)
    assert SECRET not in repr(key)
    sealed = store.sealed_key("lab", key.id)
    assert sealed is not None
    assert SECRET not in sealed
    assert open_key(store, VAULT, "lab", key.id) == SECRET
    with pytest.raises(AlreadyExists):
        accounts.add_key(store, VAULT, "lab", SECRET, now_ms=T0_MS)


def test_a_key_is_disabled_enabled_and_removed(store: Store) -> None:
    accounts.put_account(store, "lab", b"{}")
    key = accounts.add_key(store, VAULT, "lab", SECRET, now_ms=T0_MS)
    assert not accounts.set_key_enabled(store, "lab", key.id, enabled=False).enabled
    assert accounts.get_account(store, "lab", now_ms=T0_MS).keys[0].state == "disabled"
    assert accounts.set_key_enabled(store, "lab", key.id, enabled=True).enabled
    accounts.remove_key(store, "lab", key.id)
    assert open_key(store, VAULT, "lab", key.id) is None
    with pytest.raises(NotFound):
        accounts.remove_key(store, "lab", key.id)
    with pytest.raises(NotFound):
        accounts.set_key_enabled(store, "lab", key.id, enabled=True)


@pytest.mark.parametrize(
    ("account", "secret", "label", "error"),
    [
        ("other", SECRET, "", NotFound),
        ("lab", "short", "", InvalidInput),
        ("lab", "with a space in it", "", InvalidInput),
        ("lab", SECRET, "x" * 101, InvalidInput),
    ],
)
def test_malformed_key_is_refused_without_repeating_it(
    store: Store, account: str, secret: str, label: str, error: type[PacelineError]
) -> None:
    accounts.put_account(store, "lab", b"{}")
    with pytest.raises(error) as refused:
        accounts.add_key(store, VAULT, account, secret, label=label, now_ms=T0_MS)
    assert secret not in refused.value.detail

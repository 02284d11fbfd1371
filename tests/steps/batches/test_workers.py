"""Workers' claims and reports through the steps, where the API does not reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import parse_record
from paceline.core.instants import to_text
from paceline.ports import Store
from paceline.steps.batches.call import ProviderBook, make_calls
from paceline.steps.batches.outgoing import claim_for_worker, give_back_calls
from tests.contract.support.call_stage import DATE, LEASE_MS, every, make_batch, plan, provide, run_of
from tests.contract.support.stage import T0_MS
from tests.steps.batches.test_call import BackwardsVault


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(SqliteStore(":memory:")) as store:
        yield store
        assert store.verify() == []


def test_a_run_claimed_before_its_provider_became_outgoing_is_not_called_but_given_back(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 1))
    claimed = store.claim_calls(now_ms=T0_MS, runs_max=10, lease_ms=LEASE_MS)
    assert len(claimed) == 1
    provide(store, "a", kind="outgoing", base_url="")
    assert make_calls(store, ProviderBook(store, BackwardsVault()), claimed, now_ms=T0_MS + 1) == []
    (item,) = claim_for_worker(store, "a", now_ms=T0_MS + 2, runs_max=10, lease_ms=LEASE_MS).items
    assert (item.record.id, item.attempt) == ("r0", 1)


def test_a_run_that_a_worker_left_is_held_for_a_person_if_the_provider_says_so(store: Store) -> None:
    provide(store, "a", kind="outgoing", base_url="", unknown="hold")
    plan(store, make_batch(store), every(10, 2))
    assert len(claim_for_worker(store, "a", now_ms=T0_MS, runs_max=10, lease_ms=LEASE_MS).items) == 1
    late_ms = T0_MS + LEASE_MS
    assert claim_for_worker(store, "a", now_ms=late_ms, runs_max=1, lease_ms=LEASE_MS).items == []
    run = run_of(store, "r0")
    assert (run.state, run.dead) == ("unknown", True)
    (item,) = claim_for_worker(store, "a", now_ms=late_ms + 1_000, runs_max=1, lease_ms=LEASE_MS).items
    assert item.record.id == "r1"


def test_a_claim_that_finds_nothing_says_when_there_may_be_something(store: Store) -> None:
    provide(store, "a", kind="outgoing", base_url="")
    plan(store, make_batch(store), every(10, 1, first_ms=T0_MS + 400))
    assert claim_for_worker(store, "a", now_ms=T0_MS, runs_max=1, lease_ms=LEASE_MS) == ([], T0_MS + 400)
    items, _ = claim_for_worker(store, "a", now_ms=T0_MS + 400, runs_max=1, lease_ms=LEASE_MS)
    give_back_calls(store, items, now_ms=T0_MS + 401)
    assert run_of(store, "r0").attempt == 0


def test_a_worker_gets_endpoint_and_body_with_their_placeholders_filled_in(store: Store) -> None:
    provide(store, "a", kind="outgoing", base_url="")
    batch = make_batch(store)
    plan(store, batch, every(10, 1))
    record = (
        b'{"id": "r0", "provider": "a", "endpoint": "/{date}/{attempt}", "body": {"run": "{run}"}, "timeout": "9m"}'
    )
    store.put_records(batch, [parse_record(record)], now_ms=T0_MS)
    (item,) = claim_for_worker(store, "a", now_ms=T0_MS, runs_max=1, lease_ms=LEASE_MS).items
    assert item.record.endpoint == f"/{DATE}/1"
    assert msgspec.json.decode(item.record.body) == {"run": item.run}
    assert item.lease_until == to_text(T0_MS + LEASE_MS)  # the worker says how long its lease lasts

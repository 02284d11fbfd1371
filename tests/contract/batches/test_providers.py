from __future__ import annotations

import msgspec
import pytest

from paceline.core.batches.batch import BatchSpec, RecordSpec
from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import ProviderPut, PutProvider
from paceline.ports import Store
from tests.contract.support.batch_stage import due_runs, plan, put_provider, put_records
from tests.contract.support.stage import DAY_MS, LEASE_MS, T0_MS

SPEC = ProviderSpec(base_url="http://example.org", headers={"X-Key": "sealed"})


def put(store: Store, spec: ProviderSpec, *, seen: int | None = None, now_ms: int = T0_MS) -> ProviderPut:
    return store.put_provider(PutProvider("a", spec, seen), now_ms=now_ms)


def edited(**fields: object) -> ProviderSpec:
    return msgspec.structs.replace(SPEC, **fields)


def test_a_provider_is_created_replaced_or_left_as_it_is(store: Store, other: Store) -> None:
    created = put(store, SPEC)
    replaced = put(other, edited(rate="5/1s"), now_ms=T0_MS + 1)
    unchanged = put(store, edited(rate="5/1s"), now_ms=T0_MS + 2)
    assert [result.disposition for result in (created, replaced, unchanged)] == ["created", "replaced", "unchanged"]
    assert created.provider is not None
    assert replaced.provider is not None
    assert (created.provider.revision, replaced.provider.revision) == (1, 2)
    assert replaced.provider.number == created.provider.number
    assert (replaced.provider.created_ms, replaced.provider.updated_ms) == (T0_MS, T0_MS + 1)
    assert unchanged.provider == replaced.provider == store.provider("a") == other.provider("a")
    assert store.provider(created.provider.number) == store.provider("a")


@pytest.mark.parametrize(("seen", "disposition"), [(0, "revision_mismatch"), (1, "revision_mismatch"), (2, "replaced")])
def test_provider_put_with_another_revision_is_refused(store: Store, seen: int, disposition: str) -> None:
    put(store, SPEC)
    put(store, edited(rate="5/1s"))
    assert put(store, edited(rate="6/1s"), seen=seen).disposition == disposition


def test_provider_put_with_expected_revision_0_only_creates(store: Store) -> None:
    assert put(store, SPEC, seen=3).disposition == "revision_mismatch"
    assert store.provider("a") is None
    assert put(store, SPEC, seen=0).disposition == "created"


def test_providers_are_listed_in_order_of_their_ids(store: Store) -> None:
    for name in ("b", "c", "a"):
        put_provider(store, name)
    assert [provider.id for provider in store.providers(after="", limit=2)] == ["a", "b"]
    assert [provider.id for provider in store.providers(after="b", limit=2)] == ["c"]


def test_a_provider_is_removed_only_when_nothing_needs_it(store: Store) -> None:
    assert store.remove_provider("a") == "not_found"
    put_provider(store, "a")
    batch = put_records(store, {"r": "a"})
    assert store.remove_provider("a") == "in_use"
    plan(store, batch)
    assert store.remove_record(batch, "r")
    assert store.remove_provider("a") == "in_use", "one of its runs has not ended"
    assert store.claim_calls(now_ms=T0_MS + DAY_MS, runs_max=10, lease_ms=LEASE_MS) == []
    assert store.remove_provider("a") == "removed"
    assert store.provider("a") is None
    assert store.providers(after="", limit=10) == []


def test_a_removed_provider_leaves_its_name_in_results_but_no_secret(store: Store) -> None:
    created = put(store, SPEC).provider
    assert created is not None
    assert store.remove_provider("a") == "removed"
    gone = store.provider(created.number)
    assert gone is not None
    assert (gone.id, gone.spec.headers) == ("a", {})


def test_provider_put_after_removal_is_created_with_a_newer_revision(store: Store) -> None:
    first = put(store, SPEC).provider
    assert first is not None
    store.remove_provider("a")
    assert put(store, SPEC, seen=first.revision).disposition == "revision_mismatch"
    again = put(store, SPEC, seen=0, now_ms=T0_MS + 5)
    assert again.disposition == "created"
    assert again.provider is not None
    assert again.provider.revision > first.revision
    assert (again.provider.number, again.provider.created_ms) == (first.number, T0_MS + 5)


def test_records_cannot_name_a_removed_provider(store: Store) -> None:
    put_provider(store, "a")
    store.remove_provider("a")
    batch = store.put_batch("daily", BatchSpec(), expected_revision=None, now_ms=T0_MS).batch
    assert batch is not None
    assert store.put_records(batch, [RecordSpec("r", "a")], now_ms=T0_MS) == ["no_provider"]


def test_provider_paused_by_another_process_starts_nothing_at_the_next_claim(store: Store, other: Store) -> None:
    put_provider(store, "a", max_in_flight=10)
    plan(store, put_records(store, {"r": "a", "s": "a", "t": "a"}))
    first_ms, second_ms, third_ms = (due_ms for due_ms, _ in due_runs(store))
    assert len(store.claim_calls(now_ms=first_ms, runs_max=10, lease_ms=LEASE_MS)) == 1
    put_provider(other, "a", max_in_flight=10, paused=True)
    assert store.claim_calls(now_ms=second_ms, runs_max=10, lease_ms=LEASE_MS) == []
    put_provider(other, "a", max_in_flight=10)
    claimed: list[str] = []
    now_ms, end_ms = second_ms, third_ms + 3 * (third_ms - second_ms)
    while len(claimed) < 2 and now_ms < end_ms:
        claimed += [call.record for call in store.claim_calls(now_ms=now_ms, runs_max=10, lease_ms=DAY_MS)]
        now_ms = max(now_ms + 60_000, store.next_call_ms() or end_ms)
    assert len(set(claimed)) == 2, "a resumed provider goes on"


def test_provider_standing_counts_waiting_runs_and_calls_in_flight(store: Store) -> None:
    put_provider(store, "a")
    provider = store.provider("a")
    assert provider is not None
    idle = store.provider_standing(provider.number, now_ms=T0_MS)
    assert (idle.pace, idle.in_flight, idle.waiting, idle.head_due_ms, idle.ready_ms) == (Pace(), 0, 0, None, None)
    plan(store, put_records(store, {"r": "a", "s": "a"}))
    first_ms = due_runs(store)[0][0]
    planned = store.provider_standing(provider.number, now_ms=T0_MS)
    assert (planned.in_flight, planned.waiting, planned.head_due_ms, planned.ready_ms) == (0, 2, first_ms, first_ms)
    assert len(store.claim_calls(now_ms=first_ms, runs_max=10, lease_ms=LEASE_MS)) == 1
    busy = store.provider_standing(provider.number, now_ms=first_ms)
    assert (busy.in_flight, busy.waiting) == (1, 1)

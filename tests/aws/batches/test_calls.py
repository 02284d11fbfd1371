"""Claims and settlements by many at once, over an index that lags and a network that loses answers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import msgspec
import pytest

from paceline.adapters.aws.batches.keys import batch_key
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.items import put
from paceline.adapters.aws.client.tables import ITEMS
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.batch import BatchSpec
from paceline.core.batches.values import DeadChoice
from tests.aws.support.fault_proxy import Faults, fault_proxy
from tests.aws.support.ministack import guarded_clients, shared_emulator
from tests.aws.support.monitor_stage import counted
from tests.contract.support.call_stage import (
    claim,
    every,
    make_batch,
    names,
    plan,
    provide,
    run_of,
    settle,
    settlement,
)
from tests.contract.support.stage import T0_MS

pytestmark = pytest.mark.aws


@pytest.fixture
def others(clients: Clients, prefix: str, aws_store: AwsStore) -> Iterator[list[AwsStore]]:
    """Further stores, each like another process."""
    del aws_store
    with ExitStack() as stack:
        yield [stack.enter_context(closing(AwsStore(prefix, clients=clients))) for _ in range(4)]


def run_dry(store: AwsStore, log: list[tuple[str, str, str]], stop_at: int) -> None:
    """Claims and settles until so many have ended; every third call is tried again first."""
    for _ in range(400):
        for call in store.claim_calls(now_ms=T0_MS + 100, runs_max=3, lease_ms=60_000):
            log.append(("start", str(call.provider), call.record))
            again = call.attempt == 1 and int(call.record[1:]) % 3 == 0
            log.append(("end", str(call.provider), call.record))
            state = "retry" if again else "done"
            item = settlement(call, state, now_ms=T0_MS + 100, not_before_ms=T0_MS + 100, verdict="none")
            assert store.settle_calls([item]) == [True]
            if not again:
                log.append(("done", str(call.provider), call.record))
        if sum(kind == "done" for kind, _, _ in list(log)) >= stop_at:
            return


def test_promise_6_concurrent_claims_hand_out_each_run_once_and_in_order(
    aws_store: AwsStore, others: list[AwsStore]
) -> None:
    for name in ("a", "b"):
        provide(aws_store, name)
        plan(aws_store, make_batch(aws_store, name), every(1, 12), provider=name)
    log: list[tuple[str, str, str]] = []
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda store: run_dry(store, log, 24), others))
    done = Counter((provider, record) for kind, provider, record in log if kind == "done")
    assert len(done) == 24
    assert set(done.values()) == {1}
    for provider in ("1", "2"):
        mine = [(kind, record) for kind, at, record in log if at == provider and kind != "done"]
        starts = [record for kind, record in mine if kind == "start"]
        assert list(dict.fromkeys(starts)) == [f"r{number}" for number in range(12)], "first starts are in order"
        assert all(mine[at][1] == mine[at + 1][1] for at in range(0, len(mine), 2)), "one at a time"
    assert aws_store.verify_batches() == []


def test_promise_5_exactly_one_of_many_settlements_of_one_call_wins(
    aws_store: AwsStore, others: list[AwsStore]
) -> None:
    provide(aws_store, "a", max_in_flight=5)
    plan(aws_store, make_batch(aws_store), every(1, 5))
    calls = claim(aws_store, T0_MS + 10)
    barrier = threading.Barrier(4)

    def settle_all(store: AwsStore) -> list[bool]:
        barrier.wait(10)
        return store.settle_calls([settlement(call, now_ms=T0_MS + 20) for call in calls])

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(settle_all, others))
    assert [sum(answers) for answers in zip(*won, strict=True)] == [1] * 5


def test_promise_5_concurrent_redrives_put_each_dead_letter_back_once_and_in_order(
    aws_store: AwsStore, others: list[AwsStore]
) -> None:
    provide(aws_store, "a", max_in_flight=50)
    plan(aws_store, make_batch(aws_store), every(1, 40))
    calls = claim(aws_store, T0_MS + 100)
    assert all(aws_store.settle_calls([settlement(call, "failed", now_ms=T0_MS + 101) for call in calls]))
    with ThreadPoolExecutor(4) as pool:
        made = list(
            pool.map(lambda store: store.redrive(DeadChoice(), gap_ms=1_000, now_ms=T0_MS + 500, limit=100), others)
        )
    assert sum(made) == 40
    assert aws_store.dead(DeadChoice(), after=0, limit=100) == ([], None)
    dues = sorted((run_of(aws_store, f"r{number}").due_ms, number) for number in range(40))
    assert [number for _, number in dues] == list(range(40))
    assert len({due_ms for due_ms, _ in dues}) == 40
    assert aws_store.verify_batches() == []


def test_promise_10_calls_are_neither_lost_nor_repeated_with_lost_replies_and_a_lagging_index(
    aws_store: AwsStore, prefix: str
) -> None:
    provide(aws_store, "a", max_in_flight=4)
    plan(aws_store, make_batch(aws_store), every(1, 30))
    faults = Faults(drop_before=0.03, drop_after=0.08, throttle=0.03, duplicate=0.08, partial=0.2, stale=0.5)
    log: list[tuple[str, str, str]] = []
    with (
        fault_proxy(shared_emulator().url, seed=11, faults=faults) as proxy,
        guarded_clients(proxy.url) as clients,
        closing(AwsStore(prefix, clients=clients)) as store,
    ):
        run_dry(store, log, 30)
        assert proxy.hits["drop_after"] > 0
        assert proxy.hits["stale"] > 0
    done = Counter(record for kind, _, record in log if kind == "done")
    assert done == Counter({f"r{number}": 1 for number in range(30)})
    assert Counter(record for kind, _, record in log if kind == "start") == Counter(
        {f"r{number}": 2 if number % 3 == 0 else 1 for number in range(30)}
    )
    assert aws_store.verify_batches() == []


def test_process_sees_its_own_changes_before_the_index_does(aws_store: AwsStore, prefix: str) -> None:
    provide(aws_store, "a")
    plan(aws_store, make_batch(aws_store), every(10, 3))
    with (
        fault_proxy(shared_emulator().url, seed=1, faults=Faults()) as proxy,
        guarded_clients(proxy.url) as clients,
        closing(AwsStore(prefix, clients=clients)) as store,
    ):
        (call,) = claim(store, T0_MS + 20)
        proxy.faults = Faults(stale=1.0)
        assert settle(store, call, now_ms=T0_MS + 20)
        next_ms = store.next_call_ms()
        assert next_ms is not None
        assert next_ms <= T0_MS + 10, "too early does no harm, too late would"
        assert names(claim(store, T0_MS + 20)) == ["r1"]


def test_runs_set_aside_while_their_batch_was_resumed_come_back(aws_store: AwsStore, others: list[AwsStore]) -> None:
    """A process dies between a resume and the return of the runs that were set aside: the keeper brings them back."""
    provide(aws_store, "a")
    plan(aws_store, make_batch(aws_store), every(10, 3))
    make_batch(aws_store, paused=True)
    assert claim(aws_store, T0_MS + 15) == []
    assert run_of(aws_store, "r1").state == "aside"
    database = aws_store._database
    item = database.get(ITEMS, batch_key("daily"))
    assert item is not None
    database.write(put(ITEMS, item | {"spec": msgspec.json.encode(BatchSpec()).decode()}))
    assert claim(others[0], T0_MS + 16) == []
    others[0].purge_calls(ended_before_ms=0, dead_before_ms=0, after=0, limit=10)
    assert run_of(aws_store, "r1").state == "waiting"
    assert names(claim(others[0], T0_MS + 16)) == ["r0"]


def test_a_call_costs_a_query_and_two_writes(aws_store: AwsStore, clients: Clients) -> None:
    """Plus the reads of lanes and records, up to a hundred in one request, shared by all calls of a turn."""
    providers = 20
    for number in range(providers):
        provide(aws_store, f"p{number}")
        plan(aws_store, make_batch(aws_store, f"b{number}"), {"r": T0_MS}, provider=f"p{number}")
    aws_store.claim_calls(now_ms=T0_MS - 1, runs_max=1, lease_ms=1_000)
    with counted(clients) as requests:
        calls = claim(aws_store, T0_MS + 10)
        assert len(calls) == providers
        assert all(aws_store.settle_calls([settlement(call, now_ms=T0_MS + 20) for call in calls]))
    assert requests["PutItem"] == providers, "each claim is one write of a lane"
    assert requests["TransactWriteItems"] == providers, "each settlement moves the run and its lane"
    assert requests["Query"] <= providers + 4, "the front of each queue, and each shard of the index once"
    assert requests["BatchGetItem"] <= 5, "lanes; providers' names, policies and days, the first time; records"
    assert sum(requests.values()) <= 3 * providers + 9, requests


def test_many_runs_of_one_provider_share_their_writes(aws_store: AwsStore, clients: Clients) -> None:
    provide(aws_store, "wide", max_in_flight=90)
    plan(aws_store, make_batch(aws_store), every(1, 90), provider="wide")
    with counted(clients) as requests:
        calls = claim(aws_store, T0_MS + 100)
        assert len(calls) == 90
        assert all(aws_store.settle_calls([settlement(call, now_ms=T0_MS + 120) for call in calls]))
    assert (requests["PutItem"], requests["TransactWriteItems"]) == (1, 1)
    assert sum(requests.values()) <= 13, "their queue in two looks: how many are due is not known before"


def test_settlement_beside_calls_in_flight_causes_no_useless_read(aws_store: AwsStore, clients: Clients) -> None:
    provide(aws_store, "wide", max_in_flight=9)
    plan(aws_store, make_batch(aws_store), every(1, 3), provider="wide")
    calls = claim(aws_store, T0_MS + 10)
    assert settle(aws_store, calls[0], now_ms=T0_MS + 20)
    assert aws_store.next_call_ms() == calls[1].lease_until_ms
    with counted(clients) as requests:
        assert claim(aws_store, T0_MS + 21) == []
    assert requests["PutItem"] == 0, requests
    assert settle(aws_store, calls[1], "retry", now_ms=T0_MS + 30, not_before_ms=T0_MS + 40)
    assert names(claim(aws_store, T0_MS + 40)) == ["r1"]
    assert names(claim(aws_store, calls[2].lease_until_ms)) == ["r2"]


def test_providers_with_many_places_are_opened_together(aws_store: AwsStore, clients: Clients) -> None:
    """No provider takes the whole claim, although each could."""
    providers = 12
    for number in range(providers):
        provide(aws_store, f"p{number}", max_in_flight=1_000)
        plan(aws_store, make_batch(aws_store, f"b{number}"), every(1, 2), provider=f"p{number}")
    aws_store.claim_calls(now_ms=T0_MS - 1, runs_max=1, lease_ms=1_000)
    with counted(clients) as requests:
        assert len(claim(aws_store, T0_MS + 10, runs_max=40)) == 2 * providers
    assert requests["PutItem"] == providers
    assert requests["Query"] <= providers + 4, requests


def test_claim_of_a_wide_provider_reads_few_runs_that_are_not_due(aws_store: AwsStore, clients: Clients) -> None:
    provide(aws_store, "wide", max_in_flight=1_000)
    plan(aws_store, make_batch(aws_store), every(1_000, 60), provider="wide")
    asked: list[int] = []

    def note(params: dict[str, Any], **_: object) -> None:
        asked.extend([params["Limit"]] if "IndexName" not in params else [])

    clients.dynamodb.meta.events.register("provide-client-params.dynamodb.Query", note)
    assert names(claim(aws_store, T0_MS)) == ["r0"]
    assert aws_store.next_call_ms() == T0_MS + 1_000
    assert sum(asked) <= 20
    clients.dynamodb.meta.events.unregister("provide-client-params.dynamodb.Query", note)
    assert aws_store.verify_batches() == []


def test_claim_with_too_little_room_is_shared_by_the_providers(aws_store: AwsStore) -> None:
    wide = [provide(aws_store, name, max_in_flight=50) for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        plan(aws_store, make_batch(aws_store, name), every(1, 9), provider=name)
    assert Counter(call.provider for call in claim(aws_store, T0_MS + 10, runs_max=8)) == {
        wide[0]: 3,
        wide[1]: 3,
        wide[2]: 2,
    }
    assert len(claim(aws_store, T0_MS + 10, runs_max=2)) == 2
    assert len(claim(aws_store, T0_MS + 10)) == 17


def test_claim_of_a_late_run_reads_its_backlog_in_the_same_query(aws_store: AwsStore, clients: Clients) -> None:
    provide(aws_store, "a")
    plan(aws_store, make_batch(aws_store), every(10, 30))
    aws_store.claim_calls(now_ms=T0_MS - 1, runs_max=1, lease_ms=1_000)
    with counted(clients) as requests:
        assert names(claim(aws_store, T0_MS + 400)) == ["r0"]
    assert requests["Query"] <= 1 + 4, requests

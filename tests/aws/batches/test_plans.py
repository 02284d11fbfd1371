"""Days are planned by several at once, cut short and begun again: each run is made once, and the figures are true."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from paceline.adapters.aws.batches.enqueue import enqueue, placings
from paceline.adapters.aws.batches.keys import lane_key
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.tables import RUNS
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.batch import Batch, RecordSpec
from paceline.steps.batches.plan import plan_day
from tests.aws.support.fault_proxy import Faults, fault_proxy
from tests.aws.support.ministack import guarded_clients, shared_emulator
from tests.aws.support.monitor_stage import counted
from tests.contract.support.batch_stage import DATE, day_of, due_runs, placements, put_provider, put_records
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS

pytestmark = pytest.mark.aws
RECORDS = 120


def stage(store: AwsStore, records: int = RECORDS, providers: int = 3) -> Batch:
    for number in range(providers):
        put_provider(store, f"p{number}")
    return put_records(store, {f"r{number:04}": f"p{number % providers}" for number in range(records)})


def test_promise_5_four_concurrent_planners_enqueue_each_run_once_and_report_only_their_own(
    aws_store: AwsStore, clients: Clients, prefix: str
) -> None:
    batch = stage(aws_store)
    stores = [AwsStore(prefix, clients=clients) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda store: plan_day(store, batch, DATE, now_ms=T0_MS), stores))
    for store in stores:
        store.close()
    assert sum(report.enqueued for report in reports) == RECORDS
    day = day_of(aws_store, batch)
    assert (day.state, day.enqueued) == ("planned", RECORDS)
    assert len({record for _, record in due_runs(aws_store)}) == RECORDS
    assert aws_store.verify_batches() == []


def test_promise_10_a_planner_that_died_after_its_runs_is_followed_by_one_that_wakes_the_provider(
    aws_store: AwsStore,
) -> None:
    batch = stage(aws_store, 4, 1)
    day = aws_store.open_day(batch, DATE.isoformat(), start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    page = placements(*((number, 1, T0_MS + number * HOUR_MS) for number in range(1, 5)))
    made = enqueue(aws_store._database, day, placings(day, page, missed=False), now_ms=T0_MS)
    assert made.enqueued == 4
    assert aws_store.next_call_ms() is None, "it died here"
    assert any("never be looked at" in problem for problem in aws_store.verify_batches())
    assert day_of(aws_store, batch).enqueued == 4, "what it made is counted with it"
    again = aws_store.plan_page(day, page, cursor=(1, 4), skipped=placements(), now_ms=T0_MS)
    assert (again.won, again.enqueued, again.already) == (True, 0, 4)
    assert aws_store.next_call_ms() == T0_MS + HOUR_MS
    assert day_of(aws_store, batch).enqueued == 4
    assert aws_store.verify_batches() == []


def test_promise_10_runs_without_a_wake_message_are_found_by_the_keeper(aws_store: AwsStore) -> None:
    batch = stage(aws_store, 2, 1)
    day = aws_store.open_day(batch, DATE.isoformat(), start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    page = placements((1, 1, T0_MS + HOUR_MS))
    enqueue(aws_store._database, day, placings(day, page, missed=False), now_ms=T0_MS)
    assert aws_store.remove_record(batch, "r0000"), "so no later plan revisits it"
    later_ms = T0_MS + 9 * DAY_MS
    aws_store.purge_calls(ended_before_ms=later_ms, dead_before_ms=later_ms, after=0, limit=100)
    assert aws_store.claim_calls(now_ms=later_ms, runs_max=10, lease_ms=1_000) == []
    run = aws_store.find_call_run("daily", "r0000", DATE.isoformat())
    assert run is not None
    assert run.state == "skipped"


def test_planning_a_run_bumps_the_version_that_a_concurrent_claim_checks(aws_store: AwsStore) -> None:
    """A run planned between the read and the write of a claim is due before the run that the claim has read."""
    batch = stage(aws_store, 3, 1)
    day = aws_store.open_day(batch, DATE.isoformat(), start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    first = placements((1, 1, T0_MS), (2, 1, T0_MS + 2 * HOUR_MS))
    aws_store.plan_page(day, first, cursor=(1, 2), skipped=placements(), now_ms=T0_MS)
    seen = aws_store._database.get(RUNS, lane_key(1))
    more = placements((3, 1, T0_MS + HOUR_MS))
    aws_store.plan_page(day_of(aws_store, batch), more, cursor=(1, 3), skipped=placements(), now_ms=T0_MS)
    now = aws_store._database.get(RUNS, lane_key(1))
    assert seen is not None
    assert now is not None
    assert now["version"] > seen["version"], "so a write conditional on the old version fails"


def test_plan_over_a_faulty_network_enqueues_every_record_once(aws_store: AwsStore, prefix: str) -> None:
    batch = stage(aws_store)
    faults = Faults(drop_before=0.02, drop_after=0.05, throttle=0.02, duplicate=0.05, partial=0.2, stale=0.3)
    with (
        fault_proxy(shared_emulator().url, seed=7, faults=faults) as proxy,
        guarded_clients(proxy.url) as clients,
        closing(AwsStore(prefix, clients=clients)) as store,
    ):
        report = plan_day(store, batch, DATE, now_ms=T0_MS)
        assert proxy.hits["drop_after"] > 0
    assert (report.enqueued, report.already) == (RECORDS, 0)
    assert day_of(aws_store, batch).enqueued == RECORDS
    start_ms = day_of(aws_store, batch).start_ms
    dues = [due_ms for due_ms, _ in due_runs(aws_store)]
    assert dues == [start_ms + turn * DAY_MS // RECORDS for turn in range(RECORDS)]
    assert aws_store.verify_batches() == []


def test_records_with_the_largest_bodies_fit_into_transactions(aws_store: AwsStore) -> None:
    put_provider(aws_store, "a")
    batch = put_records(aws_store, {"first": "a"})
    body = '"' + "ä" * 65_000 + '"'
    records = [RecordSpec(f"r{number:02}", "a", "/", body) for number in range(40)]
    assert aws_store.put_records(batch, records, now_ms=T0_MS) == ["created"] * 40
    assert aws_store.record(batch, "r39") == records[39]


def test_requests_to_aws_for_planning_a_day_are_bounded(aws_store: AwsStore, clients: Clients) -> None:
    batch = stage(aws_store, 980, 4)
    with counted(clients) as requests:
        assert plan_day(aws_store, batch, DATE, now_ms=T0_MS).enqueued == 980
    assert requests["TransactWriteItems"] <= 980 // 49 + 2, requests
    assert requests["PutItem"] <= 4 + 1, "each provider is woken once, and the shares of the day are kept"
    assert requests["GetItem"] <= 1, "what was read is not read again"
    assert sum(requests.values()) <= 980 // 40 + 4 + 18, requests

"""The figures themselves."""

from __future__ import annotations

import threading
import time

import pytest

from paceline.core.jobs.meters import Meter
from paceline.core.jobs.pool import Account
from paceline.core.jobs.values import SendCounts
from paceline.core.store_status import StoreStatus
from paceline.shells.daemon.metrics import LATENESS_MS, Metrics
from tests.shells.api.conftest import World


def test_lateness_is_counted_in_its_buckets() -> None:
    metrics = Metrics()
    metrics.observe_many_ms([0, 5, 6, 250, 251, 999_999])
    metrics.observe_many_ms([])
    metrics.observe_many_ms([100])
    text = metrics.render().decode()
    assert 'paceline_lateness_seconds_bucket{le="0.005"} 2.0' in text
    assert 'paceline_lateness_seconds_bucket{le="0.25"} 5.0' in text
    assert 'paceline_lateness_seconds_bucket{le="300.0"} 6.0' in text
    assert 'paceline_lateness_seconds_bucket{le="+Inf"} 7.0' in text
    assert "paceline_lateness_seconds_count 7.0" in text
    assert "paceline_lateness_seconds_sum 1000.611" in text


def test_lateness_of_starts_is_counted_by_kind_and_waiting_runs_are_shown() -> None:
    metrics = Metrics()
    metrics.observe_starts_ms("http", [70_000, 3])
    metrics.observe_starts_ms("tcp", [])
    metrics.observe_starts_ms("outgoing", [1_000])
    status = StoreStatus(1, 2, 3, 0, 4, 0, 1_000, 500, 0, check_start_ms=1_000, outgoing_start_ms=99_000)
    metrics.set_status(status, now_ms=71_000)
    text = metrics.render().decode()
    for line in (
        'paceline_start_lateness_seconds_bucket{kind="http",le="60.0"} 1.0',
        'paceline_start_lateness_seconds_count{kind="http"} 2.0',
        'paceline_start_lateness_seconds_sum{kind="http"} 70.003',
        'paceline_start_lateness_seconds_count{kind="outgoing"} 1.0',
        'paceline_start_wait_seconds{kind="checks"} 70.0',
        'paceline_start_wait_seconds{kind="outgoing"} 0.0',
        'paceline_start_wait_seconds{kind="batches"} 0.0',
    ):
        assert line in text
    assert 'kind="tcp"' not in text


def test_observing_thousands_of_values_is_fast() -> None:
    metrics = Metrics()
    values = [number % 4_000 for number in range(50_000)]
    began_s = time.thread_time()
    metrics.observe_many_ms(values)
    assert time.thread_time() - began_s < 0.25
    assert len(LATENESS_MS) < 20


def test_every_method_changes_its_metric() -> None:
    metrics = Metrics(version="1.2.3")
    metrics.count_runs("http", "ok", 3)
    metrics.count_tick(entries=5, lost=2, late_ms=[1], skipped_by={"overlap": 3, "waiting_runs_max": 0})
    metrics.set_in_flight(7)
    metrics.set_queue(waiting=9, age_s=1.5)
    metrics.set_store_up(1)
    metrics.count_turn("tick")
    metrics.count_loop_error("send")
    metrics.set_loop_ages([("tick", 0.25)])
    metrics.count_request(route="/v1/x", method="GET", status=200, seconds=0.002)
    text = metrics.render().decode()
    for line in (
        'paceline_runs_total{kind="http",outcome="ok"} 3.0',
        "paceline_ticks_total 1.0",
        "paceline_entries_advanced_total 5.0",
        "paceline_races_lost_total 2.0",
        'paceline_firings_skipped_total{reason="overlap"} 3.0',
        'paceline_firings_skipped_total{reason="waiting_runs_max"} 0.0',
        "paceline_in_flight 7.0",
        "paceline_runs_waiting 9.0",
        "paceline_queue_age_seconds 1.5",
        "paceline_store_up 1.0",
        'paceline_loop_turns_total{loop="tick"} 1.0',
        'paceline_loop_errors_total{loop="send"} 1.0',
        'paceline_loop_age_seconds{loop="tick"} 0.25',
        'paceline_http_requests_total{method="GET",route="/v1/x",status="200"} 1.0',
        'paceline_http_seconds_bucket{le="0.0025",route="/v1/x"} 1.0',
        'paceline_build_info{version="1.2.3"} 1.0',
    ):
        assert line in text


def account(name: str, *, spent: int, held: int) -> Account:
    meter = Meter("a meter", 100, "sliding", spent=spent, held=held)
    return Account(name, concurrent=meter, results=meter, credits=meter, keys=())


def test_every_metric_of_jobs_and_accounts_changes() -> None:
    metrics = Metrics()
    metrics.count_runs("measurement", "done", 4)
    metrics.set_sends(SendCounts(5, 4, 1, 2, 3, 6, oldest_ms=10_000), now_ms=12_500)
    metrics.set_accounts([account("lab", spent=40, held=7), account("gone", spent=1, held=0)])
    metrics.set_accounts([account("lab", spent=41, held=6)])
    metrics.count_job(success=True)
    metrics.count_job(success=False)
    metrics.count_atlas("create", "lost")
    metrics.count_webhook("retry")
    text = metrics.render().decode()
    for line in (
        'paceline_runs_total{kind="measurement",outcome="done"} 4.0',
        'paceline_measurements{state="queued"} 5.0',
        'paceline_measurements{state="parked"} 4.0',
        'paceline_measurements{state="sending"} 1.0',
        'paceline_measurements{state="unknown"} 2.0',
        'paceline_measurements{state="ongoing"} 3.0',
        "paceline_jobs_open 6.0",
        "paceline_job_queue_age_seconds 2.5",
        'paceline_account_meter{account="lab",figure="spent",meter="credits"} 41.0',
        'paceline_account_meter{account="lab",figure="held",meter="concurrent"} 6.0',
        'paceline_account_meter{account="lab",figure="limit",meter="results"} 100.0',
        'paceline_jobs_finished_total{success="true"} 1.0',
        'paceline_jobs_finished_total{success="false"} 1.0',
        'paceline_atlas_requests_total{answer="lost",request="create"} 1.0',
        'paceline_webhook_tries_total{outcome="retry"} 1.0',
    ):
        assert line in text
    assert "gone" not in text, "an account that was removed is forgotten"


def test_metrics_read_the_store_at_most_once_a_second() -> None:
    metrics = Metrics()
    assert [metrics.take_refresh(ms) for ms in (5_000, 5_999, 6_000, 6_001, 3_000)] == [True, False, True, False, True]


def test_metrics_answer_with_known_figures_while_the_store_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store, released = world.system.store, threading.Event()
    status = store.status()

    def hang() -> StoreStatus:
        assert released.wait(300)
        return status

    monkeypatch.setattr(store, "status", hang)
    try:
        assert b"paceline_build_info" in world.client()("GET", "/metrics").body
        assert not released.is_set()
    finally:
        released.set()


def test_two_metrics_objects_share_no_figures() -> None:
    one, other = Metrics(), Metrics()
    one.count_runs("http", "ok")
    assert b'outcome="ok"' not in other.render()


@pytest.mark.parametrize("name", ["paceline_runs_total", "paceline_lateness_seconds", "paceline_in_flight"])
def test_metric_names_are_stable(name: str) -> None:
    assert name in Metrics().names()

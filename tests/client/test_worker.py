"""The worker over a queue that goes by a script: outcomes, places, leases, troubles, stopping."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from paceline_client import ClaimedRecord, ClaimedRun, Client, Retry, Unauthenticated, Worker
from paceline_client.log import PlainLog
from tests.client.support.queue import STALE, QueueScript, check_item, record_item, refusal, serving_queue
from tests.client.support.scripted import Act, HangUp, problem

Lines = list[Any]


def stop_when(worker: Worker, true: Callable[[], bool], *, within_s: float = 20) -> threading.Thread:
    """Stops the worker from another thread as soon as the condition is true."""

    def watch() -> None:
        until_s = time.monotonic() + within_s
        while not true() and time.monotonic() < until_s:
            time.sleep(0.01)
        worker.stop()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def carry_out(script: QueueScript, url: str, function: Callable[[Any], object], *, ends: int, **options: Any) -> Lines:
    """Runs the worker until this many runs have ended; returns the log."""
    client = Client(url, "t")
    worker = Worker(client)
    worker.checker(**options)(function)
    with structlog.testing.capture_logs() as lines:
        watcher = stop_when(worker, lambda: len(script.reported) + len(script.refused) >= ends)
        worker.run()
        watcher.join()
    client.close()
    return list(lines)


def events(lines: Lines) -> list[str]:
    return [line["event"] for line in lines]


def test_return_value_is_done_and_a_dictionary_is_the_detail() -> None:
    def check(run: ClaimedRun) -> object:
        return [None, {"found": 3}, 7][run.check["number"]]

    with serving_queue(*(check_item(number) for number in range(3))) as (script, url):
        carry_out(script, url, check, ends=3)
    told = [script.reported[f"ann/m{number}#1@0"] for number in range(3)]
    assert [one["status"] for one in told] == ["ok", "ok", "ok"]
    assert [one["lease"] for one in told] == ["lease-0", "lease-1", "lease-2"]
    details = [one["detail"] for one in told]
    assert all(detail.pop("latency_ms") >= 0 for detail in details)
    assert details == [{}, {"found": 3}, {"value": 7}]


def test_retry_comes_again_after_its_time_and_any_other_exception_is_a_failure() -> None:
    async def check(run: ClaimedRun) -> None:
        await asyncio.sleep(0)
        if run.check["number"] == 0:
            raise Retry(after="30s")
        if run.check["number"] == 1:
            raise Retry("the door is closed")
        raise ValueError("no such page")

    with serving_queue(*(check_item(number) for number in range(3))) as (script, url):
        lines = carry_out(script, url, check, ends=3, concurrency=3)
    later, again, failed = (script.reported[f"ann/m{number}#1@0"] for number in range(3))
    assert (later["status"], later["after"]) == ("retry", "30s")
    assert (again["status"], again["detail"]["reason"], "after" in again) == ("retry", "the door is closed", False)
    assert (failed["status"], failed["detail"]["reason"]) == ("failed", "ValueError: no such page")
    assert [line["run"] for line in lines if line["event"] == "run_failed"] == ["ann/m2#1@0"]


def test_function_that_wants_to_end_the_program_or_cancels_itself_has_failed() -> None:
    def leave(_: ClaimedRun) -> None:
        sys.exit(3)

    async def cancel(_: ClaimedRun) -> None:
        raise asyncio.CancelledError

    functions: list[tuple[Callable[[Any], object], str]] = [(leave, "SystemExit: 3"), (cancel, "CancelledError")]
    for function, reason in functions:
        with serving_queue(check_item(1)) as (script, url):
            carry_out(script, url, function, ends=1)
        report = script.reported["ann/m1#1@0"]
        assert (report["status"], report["detail"]["reason"]) == ("failed", reason)


def test_record_of_a_batch_has_its_fields_and_is_claimed_by_its_provider() -> None:
    seen: list[ClaimedRecord] = []
    with serving_queue(record_item(1), record_item(2)) as (script, url), Client(url, "t") as client:
        worker = Worker(client, lease="45s")

        @worker.batch("shop", concurrency=1)
        def order(record: ClaimedRecord) -> None:
            seen.append(record)
            if len(seen) == 2:
                worker.stop()

        worker.run()
    one = seen[0]
    assert (one.id, one.provider, one.endpoint, one.body) == ("r1", "shop", "/orders/1", {"number": 1})
    assert (one.run, one.due, one.attempt) == ("nightly/r1@2026-11-15", datetime(2026, 11, 15, tzinfo=UTC), 2)
    assert script.claims[0] == {"provider": "shop", "max": 1, "lease": "45s", "wait": "20s"}
    assert list(script.reported) == ["nightly/r1@2026-11-15", "nightly/r2@2026-11-15"]


def test_checker_claims_from_its_queue() -> None:
    with serving_queue(check_item(1)) as (script, url):
        carry_out(script, url, lambda _: None, ends=1, queue="browser", user="ann")
    assert script.claims[0] == {"max": 1, "lease": "60s", "wait": "20s", "user": "ann", "queue": "browser"}


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_worker_neither_runs_nor_claims_more_than_its_concurrency(kind: str) -> None:
    out, most, lock, full = 0, 0, threading.Lock(), threading.Event()

    def count(change: int) -> None:
        nonlocal out, most
        with lock:
            out += change
            most = max(most, out)
            if most >= 4:
                full.set()  # until then nothing ends, however late a thread starts

    def plain(_: ClaimedRun) -> None:
        count(1)
        full.wait(60)
        time.sleep(0.02)
        count(-1)

    async def asynchronous(_: ClaimedRun) -> None:
        count(1)
        await asyncio.to_thread(full.wait, 60)
        await asyncio.sleep(0.02)
        count(-1)

    with serving_queue(*(check_item(number) for number in range(40))) as (script, url):
        carry_out(script, url, plain if kind == "plain" else asynchronous, ends=40, concurrency=4)
    assert most == 4
    assert len(script.reported) == 40
    assert max(claim["max"] for claim in script.claims) == 4


def test_two_functions_of_one_worker_run_side_by_side() -> None:
    items = [check_item(1), record_item(2)]
    with serving_queue() as (script, url), Client(url, "t") as client:
        worker = Worker(client)
        both = threading.Barrier(2, timeout=20)

        @worker.checker("browser")
        def look(_: ClaimedRun) -> None:
            both.wait()

        @worker.batch("shop")
        def order(_: ClaimedRecord) -> None:
            both.wait()

        def hand_out(_: int) -> Act | None:
            wanted = 1 if "provider" in script.claims[-1] else 0
            script.waiting.extend([items[wanted]] if items[wanted] else [])
            items[wanted] = {}
            return None

        script.on_claim = hand_out
        watcher = stop_when(worker, lambda: len(script.reported) == 2)
        worker.run()
        watcher.join()
    assert len(script.reported) == 2


def test_lease_is_extended_while_the_function_runs() -> None:
    with serving_queue(check_item(1)) as (script, url):
        carry_out(script, url, lambda _: time.sleep(1.6), ends=1, lease="1s")
    assert len(script.extended) >= 3
    assert script.reported["ann/m1#1@0"]["status"] == "ok"


def test_lost_lease_cancels_an_async_function_and_its_result_is_dropped() -> None:
    cancelled = threading.Event()

    async def check(_: ClaimedRun) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with serving_queue(check_item(1)) as (script, url), Client(url, "t") as client:
        script.on_extend = lambda _: STALE
        worker = Worker(client)
        worker.checker(lease="1s")(check)
        with structlog.testing.capture_logs() as lines:
            watcher = stop_when(worker, cancelled.is_set)
            worker.run()
            watcher.join()
    assert cancelled.is_set()
    assert script.reported == {}
    assert {"lease_lost", "result_dropped"} <= set(events(lines))


def test_report_under_a_stale_lease_is_dropped_with_a_line_and_the_worker_goes_on() -> None:
    with serving_queue(check_item(1), check_item(2)) as (script, url):
        script.on_report = lambda _, item: (
            refusal(item["run"], "stale", "stale_lease", "the lease is over") if "m1" in item["run"] else None
        )
        lines = carry_out(script, url, lambda _: None, ends=2)
    assert list(script.reported) == ["ann/m2#1@0"]
    (dropped,) = [line for line in lines if line["event"] == "result_dropped"]
    assert (dropped["run"], dropped["why"]) == ("ann/m1#1@0", "the lease is over")


@pytest.mark.parametrize("trouble", [HangUp(), problem(503, "store_unavailable")])
def test_report_whose_answer_is_lost_is_sent_again(trouble: Act) -> None:
    with serving_queue(check_item(1)) as (script, url):
        script.on_report = lambda count, _: trouble if count <= 2 else None
        lines = carry_out(script, url, lambda _: {"found": 1}, ends=1)
    assert script.reported["ann/m1#1@0"]["detail"]["found"] == 1
    assert events(lines).count("report_failed") == 2


def test_reports_that_are_too_large_together_are_sent_in_parts() -> None:
    begun: list[ClaimedRun] = []
    all_begun = asyncio.Event()

    async def look(run: ClaimedRun) -> None:
        begun.append(run)
        if len(begun) == 8:
            all_begun.set()
        await all_begun.wait()

    with serving_queue(*(check_item(number) for number in range(8))) as (script, url):
        script.reports_max = 2
        lines = carry_out(script, url, look, ends=8, concurrency=8)
    assert len(script.reported) == 8
    assert script.too_large > 0
    assert "result_dropped" not in events(lines)


def test_report_is_given_up_when_its_lease_has_expired() -> None:
    with serving_queue(check_item(1)) as (script, url), Client(url, "t") as client:
        tried = threading.Event()

        def hang_up(*_: Any) -> Act:
            tried.set()
            return HangUp()

        script.on_report = hang_up
        worker = Worker(client)
        worker.checker(lease="1s")(lambda _: None)
        with structlog.testing.capture_logs() as lines:
            watcher = stop_when(worker, tried.is_set)
            worker.run()
            watcher.join()
    assert "result_dropped" in events(lines)


@pytest.mark.parametrize(("value", "said"), [("x" * 20_000, "left out"), (object(), "not JSON")], ids=["long", "odd"])
def test_detail_that_cannot_be_sent_does_not_undo_the_work(value: object, said: str) -> None:
    with serving_queue(check_item(1)) as (script, url):
        carry_out(script, url, lambda _: {"page": value}, ends=1)
    report = script.reported["ann/m1#1@0"]
    assert report["status"] == "ok"
    assert said in report["detail"]["reason"]
    assert "page" not in report["detail"]


def test_detail_that_the_service_refuses_is_left_out_of_a_second_report() -> None:
    with serving_queue(check_item(1)) as (script, url):
        script.on_report = lambda count, item: (
            refusal(item["run"], "refused", "invalid_input", "/detail: no") if count == 1 else None
        )
        carry_out(script, url, lambda _: {"odd": 1}, ends=2)
    assert script.reported["ann/m1#1@0"]["detail"] == {"reason": "the detail was refused: /detail: no"}


def test_claims_that_fail_are_made_again_and_the_worker_goes_on() -> None:
    troubles: list[Act] = [HangUp(), problem(503, "store_unavailable"), problem(404, "not_found")]
    with serving_queue(check_item(1)) as (script, url):
        script.on_claim = lambda count: troubles[count - 1] if count <= len(troubles) else None
        lines = carry_out(script, url, lambda _: None, ends=1)
    assert list(script.reported) == ["ann/m1#1@0"]
    assert events(lines).count("claim_failed") == 3


def test_revoked_token_ends_the_worker_after_its_open_runs() -> None:
    with serving_queue(check_item(1)) as (script, url), Client(url, "t") as client:
        script.on_claim = lambda count: None if count == 1 else problem(401, "unauthenticated")
        worker = Worker(client)
        worker.checker(concurrency=2)(lambda _: time.sleep(0.3))
        with pytest.raises(Unauthenticated):
            worker.run()
    assert list(script.reported) == ["ann/m1#1@0"]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_stop_from_inside_a_function_lets_open_runs_finish(kind: str) -> None:
    """Both runs are out when the first of them stops the worker; a third is never claimed."""
    both = threading.Barrier(2, timeout=20)
    with serving_queue(*(check_item(number) for number in range(3))) as (script, url), Client(url, "t") as client:
        worker = Worker(client)

        def plain(run: ClaimedRun) -> None:
            both.wait()
            if run.check["number"] == 0:
                worker.stop()
            else:
                time.sleep(0.3)

        async def asynchronous(run: ClaimedRun) -> None:
            await asyncio.get_running_loop().run_in_executor(None, both.wait)
            if run.check["number"] == 0:
                worker.stop()
            else:
                await asyncio.sleep(0.3)

        worker.checker(concurrency=2)(plain if kind == "plain" else asynchronous)
        worker.run()
        claims = len(script.claims)
        time.sleep(0.1)
    assert sorted(script.reported) == ["ann/m0#1@0", "ann/m1#1@0"]
    assert len(script.claims) == claims


def test_worker_runs_again_after_it_was_stopped_and_not_at_all_when_stopped_before() -> None:
    with serving_queue(check_item(1)) as (script, url), Client(url, "t") as client:
        worker = Worker(client)
        worker.checker()(lambda _: worker.stop())
        worker.stop()
        worker.run()
        assert script.reported == {}
        worker.run()
        assert list(script.reported) == ["ann/m1#1@0"]


def test_worker_serves_within_a_loop_that_is_there_already() -> None:
    with serving_queue(check_item(1)) as (script, url), Client(url, "t") as client:
        worker = Worker(client)
        worker.checker()(lambda _: worker.stop())
        asyncio.run(worker.serve())
    assert list(script.reported) == ["ann/m1#1@0"]


def test_worker_without_a_function_or_with_no_places_is_refused() -> None:
    with Client("http://127.0.0.1:9", "t") as client:
        with pytest.raises(ValueError, match="no function"):
            Worker(client).run()
        with pytest.raises(ValueError, match="at least 1"):
            Worker(client).checker(concurrency=0)(lambda _: None)


def test_decorated_function_can_still_be_called() -> None:
    with Client("http://127.0.0.1:9", "t") as client:
        worker = Worker(client)

        @worker.checker("browser")
        def look(run: ClaimedRun) -> str:
            return run.monitor

    assert look(ClaimedRun("r", "l", {}, datetime.now(UTC), 1, "home", "ann", datetime.now(UTC))) == "home"


def test_lines_go_through_logging_where_structlog_is_not_installed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "paceline_client"):
        PlainLog().warning("lease_lost", run="ann/home#1@7", exc_info=ValueError("why"))
        PlainLog().info("worker_started", works=["checker default"])
    assert [record.message for record in caplog.records] == [
        "lease_lost run='ann/home#1@7'",
        "worker_started works=['checker default']",
    ]
    assert "ValueError: why" in caplog.text

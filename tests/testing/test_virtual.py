"""VirtualPaceline: the real engine and API, a day in seconds, the same history from the same seed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paceline.testing import Answer, OutsideRequest, VirtualPaceline
from paceline_client.models.job_documents import MeasurementDocument

HTTP = {"kind": "http", "url": "https://example.org/"}
MEASUREMENT: MeasurementDocument = {
    "definitions": [{"type": "ping", "af": 4, "target": "192.0.2.1", "description": "d"}],
    "probes": [{"requested": 5, "type": "area", "value": "WW"}],
    "is_oneoff": True,
}


def test_monitor_fires_on_its_grid_for_a_day() -> None:
    with VirtualPaceline() as p:
        p.client.monitors.put("home", check=HTTP, every="5m")
        p.advance("1d")
        began = p.requests[0].at
        assert began - datetime(2026, 1, 1, tzinfo=UTC) < timedelta(seconds=1)
        assert [request.at for request in p.requests] == [began + n * timedelta(minutes=5) for n in range(289)]
        assert p.now == datetime(2026, 1, 2, tzinfo=UTC)


def test_monitor_does_not_fire_while_time_stands_still() -> None:
    with VirtualPaceline() as p:
        p.client.monitors.put("home", check=HTTP, every="1s")
        assert p.requests == []
        p.advance("0s")
        p.advance(timedelta(0))
        assert len(p.requests) <= 1


def test_failing_target_turns_health_and_an_edit_takes_effect_at_once() -> None:
    with VirtualPaceline() as p:
        p.client.monitors.put("home", check=HTTP, every="1h")
        p.answers = lambda _request: Answer(status=503)
        p.advance("1m")
        assert p.client.monitors.get("home").health == "failing"
        p.answers = lambda _request: Answer()
        p.client.monitors.put("home", check=HTTP, every="10s")
        before = len(p.requests)
        p.advance("1m")
        assert p.client.monitors.get("home").health == "ok"
        assert len(p.requests) - before >= 5


def test_expectations_are_judged_by_the_rule_of_production() -> None:
    with VirtualPaceline() as p:
        p.client.monitors.put("home", check={**HTTP, "expect": {"body_contains": "ready"}}, every="1h")
        p.answers = lambda _request: Answer(body="not yet")
        p.advance("1m")
        (run,) = p.client.monitors.runs("home")
        assert (run.state, run.reason) == ("failed", "the body does not contain 'ready'")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(Answer(after="30s"), "no answer within 10s"), (Answer(fails="connection refused"), "connection refused")],
)
def test_target_that_hangs_or_refuses_is_a_failed_run(answer: Answer, reason: str) -> None:
    with VirtualPaceline() as p:
        p.client.monitors.put("home", check=HTTP, every="1h")
        p.answers = lambda _request: answer
        p.advance("1m")
        (run,) = p.client.monitors.runs("home")
        assert (run.state, run.reason) == ("failed", reason)


def test_batch_day_is_spread_retried_and_done_once_each() -> None:
    refused: set[str] = set()

    def answers(request: OutsideRequest) -> Answer:
        first = request.run not in refused
        refused.add(request.run)
        return Answer(status=503 if first else 200)

    with VirtualPaceline() as p:
        p.answers = answers
        p.client.providers.put("shop", base_url="https://shop.example")
        p.client.batches.put("daily", start="00:00", window="24h")
        p.client.records.put("daily", [{"id": f"r{n}", "provider": "shop", "endpoint": f"/{n}"} for n in range(24)])
        p.advance("2d")
        day = p.client.days.get("daily", "2026-01-02")
        assert day.totals["done"] == 24
        firsts = [request for request in p.requests if request.attempt == 1 and "@2026-01-02" in request.run]
        hours = {request.at.hour for request in firsts}
        assert len(firsts) == len(hours) == 24


def test_job_is_sent_to_the_simulator_and_finishes() -> None:
    with VirtualPaceline() as p:
        (key,) = p.atlas.add_account("lab")
        p.client.accounts.put("lab", concurrent=100, daily_results=100_000, daily_credits=1_000_000)
        p.client.keys.add("lab", key)
        job = p.client.jobs.submit({"title": "t", "measurements": [MEASUREMENT]})
        p.advance("2h")
        assert p.client.jobs.get(job.id).success is True


def test_outgoing_run_is_claimed_settled_and_comes_back_after_its_lease() -> None:
    with VirtualPaceline() as p:
        p.client.monitors.put("page", check={"kind": "outgoing", "script": "look"}, every="1h")
        p.advance("1s")
        (lost,) = p.client.outgoing.claim(max=5, lease="60s")
        p.advance("2m")
        (again,) = p.client.outgoing.claim(max=5, lease="60s")
        assert (again.run, again.attempt) == (lost.run, 2)
        p.client.runs.report(again.run, lease=again.lease, status="ok")
        assert p.client.monitors.get("page").health == "ok"


def test_user_sees_only_their_own_monitors() -> None:
    with VirtualPaceline() as p:
        ann = p.client_for("ann")
        ann.monitors.put("home", check=HTTP, every="1h")
        assert [one.id for one in ann.monitors.list()] == ["home"]
        assert list(p.client_for("bob").monitors.list()) == []


def test_same_seed_makes_the_same_requests() -> None:
    def story(seed: int) -> list[OutsideRequest]:
        with VirtualPaceline(seed=seed) as p:
            p.answers = lambda _request: Answer(status=503)
            p.client.providers.put("shop", base_url="https://shop.example")
            p.client.batches.put("daily", start="00:00", window="24h")
            p.client.records.put("daily", [{"id": "r", "provider": "shop", "endpoint": "/"}])
            p.advance("2d")
            return p.requests

    assert story(1) == story(1)
    assert [one.at for one in story(1)] != [one.at for one in story(2)]


@pytest.mark.parametrize("by", ["soon", "-1s", timedelta(seconds=-1)])
def test_advance_refuses_text_that_is_not_a_duration(by: str | timedelta) -> None:
    with VirtualPaceline() as p, pytest.raises(ValueError, match="advance: write a whole number and a unit"):
        p.advance(by)


def test_start_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware datetime"):
        VirtualPaceline(start=datetime(2026, 1, 1))  # noqa: DTZ001

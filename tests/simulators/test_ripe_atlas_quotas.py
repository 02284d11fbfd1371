"""Quotas, prices and charges of the simulated RIPE Atlas."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from paceline.simulators.ripe_atlas import AtlasSimulator, Limits
from paceline.simulators.ripe_atlas.quotas import DailyUsage
from tests.simulators.support.atlas_client import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Client, definition_of, ping


def test_account_runs_at_most_a_hundred_measurements_at_once_over_all_its_keys(
    simulator: AtlasSimulator, client: Client
) -> None:
    for n in range(4):
        assert client.create(*[ping(target=f"192.0.2.{n}")] * 25).status == 201
    second = Client(simulator.base_url, simulator.add_key("alice").uuid)
    refused = second.create(ping(target="192.0.2.99"))
    assert refused.status == 400
    assert refused.details == ["You are not permitted to run more than 100 concurrent measurements."]
    assert client.get("/measurements/my/?status__in=0,1,2&page_size=1")["count"] == 100
    stranger = Client(simulator.base_url, simulator.add_account("bob")[0])
    assert stranger.create(ping(target="192.0.2.99")).status == 201
    simulator.clock.advance(10 * MINUTE_MS)
    assert second.create(ping(target="192.0.2.99")).status == 201


def test_the_daily_results_are_refused_with_ripes_figures(simulator: AtlasSimulator, client: Client) -> None:
    simulator.add_account("alice", keys=0, limits=Limits(daily_results=3_000))
    periodic = {"is_oneoff": False, "requested": 10}
    assert client.create(ping(interval=360), **periodic).status == 201
    refused = client.create(ping(interval=360), **periodic)
    (detail,) = refused.details
    assert detail == (
        "Executing this measurement request will increase your current (2400) number of results by 2400.0 totalling "
        "4800.0 which is higher than your maximum daily results limit 3000. Please stop some of your currently running "
        "measurements and try again."
    )
    assert refused.document["error"]["code"] == 102


def test_the_daily_credits_are_refused_until_a_day_has_passed(simulator: AtlasSimulator, client: Client) -> None:
    simulator.add_account("alice", keys=0, limits=Limits(daily_credits=10_000))
    assert client.create(definition_of("traceroute"), requested=150).status == 201
    refused = client.create(definition_of("traceroute"), requested=30)
    assert "higher than your maximum daily credits limit 10000" in refused.details[0]
    simulator.clock.advance(11 * MINUTE_MS)
    # Fewer answered than were asked: what was reserved for them is free again.
    assert client.create(definition_of("traceroute"), requested=25).status == 201
    simulator.clock.advance(DAY_MS + HOUR_MS)
    assert client.create(definition_of("traceroute"), requested=160).status == 201


def test_daily_sums_and_books_equal_a_recount(simulator: AtlasSimulator, client: Client) -> None:
    chance, day, world = random.Random(5), DailyUsage(), simulator.world
    for _ in range(80):
        stop_time = simulator.clock.now_ms() // 1_000 + chance.randrange(3_600, 90_000)
        often = {"is_oneoff": False, "stop_time": stop_time} if chance.random() < 0.3 else {}
        target = f"192.0.2.{chance.randrange(250)}"
        (created,) = client.create(ping(target=target, interval=600), requested=5, **often).ids
        day.add(world.measurements[created])
        now_ms = simulator.clock.advance(chance.randrange(2 * HOUR_MS))
        counts = [
            (max(one.results_per_day, recent) if one.is_running(now_ms) else recent, one.price)
            for one in world.measurements.values()
            for recent in [one.results_between(now_ms - DAY_MS, now_ms)]
        ]
        assert day.totals(now_ms) == (sum(count for count, _ in counts), sum(count * price for count, price in counts))
        alice = simulator.audit()["accounts"]["alice"]
        assert alice["charged"] + world.books.owed("alice", now_ms) == alice["spent"]
    assert alice["charged"] > 0


def test_a_measurement_has_at_most_a_thousand_probes_and_fifty_results_a_second(client: Client) -> None:
    assert client.create(requested=1_001).status == 400
    assert client.create(requested=-1).status == 400
    assert client.create(requested=1_000).status == 201
    assert client.create(ping(interval=3_600, spread=10), requested=501, is_oneoff=False).status == 400
    assert client.create(ping(interval=3_600, spread=10), requested=500, is_oneoff=False).status == 201


def test_measurement_without_credits_is_refused_unless_another_account_pays(simulator: AtlasSimulator) -> None:
    poor = Client(simulator.base_url, simulator.add_account("poor", balance=59)[0])
    rich = Client(simulator.base_url, simulator.add_account("rich", pays_for={"poor"})[0])
    assert poor.create().details == ["You do not have enough credits to schedule this measurement."]
    assert poor.create(requested=9).status == 201
    assert poor.create(bill_to="rich@example.org").status == 201
    simulator.clock.advance(5 * HOUR_MS)
    assert 0 < rich.get("/credits/")["past_day_credits_spent"] <= 60


def test_cap_on_a_target_counts_the_measurements_of_all_accounts(simulator: AtlasSimulator, client: Client) -> None:
    client.ask("POST", "/simulator/targets", {"8.8.8.8": 20})
    other = Client(simulator.base_url, simulator.add_account("bob")[0])
    assert other.create(*[ping(target="8.8.8.8")] * 4).status == 201
    refused = client.create(ping(target="8.8.4.4"), ping(target="8.8.8.8"), definition_of("dns", target="8.8.8.8"))
    assert refused.status == 400
    assert refused.details == ["We do not allow more than 25 concurrent measurements to the same target: 8.8.8.8."]
    assert client.get("/measurements/my/")["count"] == 0
    assert client.create(ping(target="8.8.8.8")).status == 201
    client.ask("POST", "/simulator/targets", {"8.8.8.8": 30})
    assert other.create(ping(target="8.8.8.8")).status == 400


def test_exactly_one_of_two_clients_gets_the_last_room(simulator: AtlasSimulator, client: Client) -> None:
    simulator.add_account("alice", keys=0, limits=Limits(concurrent=3))
    keys = [client.key, simulator.add_key("alice").uuid]
    barrier = threading.Barrier(10)
    statuses: list[int] = []

    def create(key: str) -> None:
        barrier.wait()
        statuses.append(Client(simulator.base_url, key).create().status)

    threads = [threading.Thread(target=create, args=(keys[n % 2],)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201] * 3 + [400] * 7
    audit = client.get("/simulator/audit")
    assert len(audit["measurements"]) == 3
    assert audit["accounts"]["alice"]["refusals"] == {"concurrent": 7}
    assert audit["accounts"]["alice"]["peaks"]["concurrent"] == 3


@pytest.mark.parametrize(
    ("definition", "unit"),
    [
        (ping(), 3),
        (ping(packets=5, size=1_499), 5),
        (ping(packets=5, size=1_500), 10),
        (ping(packet_size=1_600), 6),
        (definition_of("traceroute"), 30),
        (definition_of("traceroute", packets=1, size=2_000, paris=0), 20),
        (definition_of("dns"), 10),
        (definition_of("dns", protocol="TCP"), 20),
        (definition_of("sslcert"), 10),
        (definition_of("ntp"), 10),
        (definition_of("http"), 10),
    ],
)
def test_result_costs_the_price_of_the_credits_page_and_twice_in_a_one_off(
    simulator: AtlasSimulator, definition: dict[str, Any], unit: int
) -> None:
    client = Client(simulator.base_url, simulator.add_account("anchors", http_allowed=True)[0])
    (once,) = client.create(definition).ids
    (often,) = client.create(definition, is_oneoff=False, stop_time=START_MS // 1_000 + 3_600).ids
    assert {client.get(f"/measurements/{one}/")["credits_per_result"] for one in (once, often)} == {unit}
    rows = {row["id"]: row["price"] for row in client.get("/simulator/audit")["measurements"]}
    assert rows == {once: 2 * unit, often: unit}


def test_counters_lag_and_charge_for_delivered_results(simulator: AtlasSimulator, client: Client) -> None:
    before = client.get("/credits/")
    (created,) = client.create(definition_of("traceroute"), requested=100).ids
    simulator.clock.advance(4 * HOUR_MS - 1_000)
    delivered = len(client.get(f"/measurements/{created}/results/"))
    assert delivered < 100
    lagging = client.get("/credits/")
    assert (lagging["past_day_credits_spent"], lagging["past_day_measurement_results"]) == (0, 0)
    assert lagging["current_balance"] == before["current_balance"]
    assert client.get("/simulator/audit")["accounts"]["alice"]["spent"] == delivered * 60
    simulator.clock.advance(1_000)
    charged = client.get("/credits/")
    assert charged["past_day_credits_spent"] == delivered * 60
    assert charged["past_day_measurement_results"] == delivered
    assert charged["current_balance"] == before["current_balance"] - delivered * 60
    assert charged["max_daily_credits"] == 1_000_000
    assert client.get("/credits/transactions/")["results"][0]["amount"] == -delivered * 60
    simulator.clock.advance(DAY_MS)
    assert client.get("/credits/")["past_day_credits_spent"] == 0
    assert client.get("/credits/")["current_balance"] == charged["current_balance"]

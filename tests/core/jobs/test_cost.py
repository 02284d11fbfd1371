"""The price: by RIPE's own table, at its most when it is reserved, and never less than what is charged in the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.cost import (
    Cost,
    add_costs,
    credits_per_result,
    daily_actual,
    price,
    settle_cost,
    settled,
    unit_differs,
)
from paceline.core.jobs.job import JobLimits, parse_request
from paceline.core.jobs.measurement import Measurement

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
FIELDS: dict[str, dict[str, Any]] = {
    "traceroute": {"protocol": "UDP"},
    "dns": {"query_class": "IN", "query_type": "A", "query_argument": "example.org"},
}


def measurement(*definitions: dict[str, Any], probes: int = 1, **fields: Any) -> Measurement:
    full = [{"description": "d", "af": 4, "target": "192.0.2.1", **FIELDS.get(d["type"], {}), **d} for d in definitions]
    document = {"definitions": full, "probes": [{"requested": probes, "type": "area", "value": "WW"}], **fields}
    return parse_request(json.dumps(document).encode(), JobLimits(), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("definition", "unit"),
    [
        ({"type": "ping"}, 3),
        ({"type": "ping", "packets": 1, "size": 1_499}, 1),
        ({"type": "ping", "packets": 16, "size": 1_500}, 32),
        ({"type": "ping", "packet_size": 2_048}, 6),
        ({"type": "traceroute"}, 30),
        ({"type": "traceroute", "packets": 1, "size": 1_500, "paris": 64}, 20),
        ({"type": "dns"}, 10),
        ({"type": "dns", "protocol": "TCP"}, 20),
        ({"type": "dns", "tls": True}, 20),
        ({"type": "sslcert"}, 10),
        ({"type": "http"}, 10),
        ({"type": "ntp"}, 10),
    ],
)
def test_result_costs_the_price_of_ripe_and_twice_that_in_a_one_off(definition: dict[str, Any], unit: int) -> None:
    once = measurement(definition, is_oneoff=True)
    often = measurement(definition, stop_time=NOW_S + 60)
    assert credits_per_result(often, often.definitions[0]) == unit
    assert credits_per_result(once, once.definitions[0]) == 2 * unit


def test_a_one_off_costs_each_definition_on_each_probe() -> None:
    one = measurement({"type": "ping"}, {"type": "traceroute"}, probes=10, is_oneoff=True)
    assert price(one, now_ms=NOW_MS) == Cost(credits=660, results=20, concurrent=2, daily_credits=660, daily_results=20)


def test_a_periodic_measurement_costs_every_firing_that_begins_before_its_end() -> None:
    one = measurement({"type": "ping", "interval": 60}, probes=5, stop_time=NOW_S + 601)
    cost = price(one, now_ms=NOW_MS)
    assert (cost.results, cost.credits) == (55, 165)
    assert cost.daily_credits == 165


def test_ripe_counts_a_whole_days_flow_however_soon_it_ends() -> None:
    one = measurement({"type": "ping", "interval": 240}, probes=5, stop_time=NOW_S + 60)
    assert price(one, now_ms=NOW_MS).daily_results == 5 * 360


def test_measurement_over_days_reserves_one_day_of_the_account_and_all_days_of_the_user() -> None:
    one = measurement({"type": "ping", "interval": 240}, probes=5, stop_time=NOW_S + 10 * 86_400)
    cost = price(one, now_ms=NOW_MS)
    assert (cost.daily_credits, cost.credits) == (5 * 360 * 3, 10 * 5 * 360 * 3)
    assert daily_actual(cost, credits_spent=54_000, results=18_000) == (5_400, 1_800)
    assert daily_actual(cost, credits_spent=300, results=100) == (300, 100)


def test_a_start_in_the_past_costs_no_more_than_one_that_is_now() -> None:
    late = measurement({"type": "ping"}, start_time=NOW_S - 86_400, stop_time=NOW_S + 3_600)
    now = measurement({"type": "ping"}, stop_time=NOW_S + 3_600)
    assert price(late, now_ms=NOW_MS) == price(now, now_ms=NOW_MS)


def test_cost_of_a_job_is_the_sum_of_its_measurements() -> None:
    one = price(measurement({"type": "ping"}, is_oneoff=True), now_ms=NOW_MS)
    assert add_costs([one, one]) == Cost(*(2 * getattr(one, name) for name in one.__struct_fields__))
    assert add_costs([]) == Cost(0, 0, 0, 0, 0)


def test_ripes_own_unit_is_compared_with_and_without_the_one_off_factor() -> None:
    one = measurement({"type": "ntp"}, is_oneoff=True)
    assert [unit_differs(one, one.definitions[0], told) for told in (10, 20, 30)] == [False, False, True]


definitions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["ping", "traceroute", "dns", "sslcert", "ntp", "http"])},
        optional={"interval": st.integers(60, 90_000)},
    ),
    min_size=1,
    max_size=4,
)


@given(definitions, st.integers(1, 1_000), st.integers(1, 300 * 86_400), st.integers(0, 400 * 86_400), st.data())
def test_reservation_covers_every_delivery_at_every_send_time(
    parts: list[dict[str, Any]], probes: int, length_s: int, wait_s: int, data: st.DataObject
) -> None:
    one = measurement(*parts, probes=probes, stop_time=NOW_S + length_s)
    cost = price(one, now_ms=NOW_MS)
    later = price(one, now_ms=NOW_MS + wait_s * 1000)
    assert all(getattr(later, name) <= getattr(cost, name) for name in cost.__struct_fields__)
    assert cost.daily_credits <= cost.credits
    rounds = [-(-length_s // (d.interval or 1)) for d in one.definitions]
    assert cost.results == sum(rounds) * probes
    delivered = [data.draw(st.integers(0, n * probes)) for n in rounds]
    assert 0 <= settle_cost(one, delivered) <= cost.credits
    assert settle_cost(one, [n * probes for n in rounds]) == cost.credits


def test_a_settlement_is_results_times_unit() -> None:
    assert settled(7, 60) == 420

"""The figures and pictures of a job's results, from lines as the API writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.shells.dashboard.result_figures import HEIGHT, SHOWN_MAX, figures, latency_ms, read_lines

NOON_S = 1_795_003_200


def line(result: Any, *, measurement: int = 0, definition: int = 0, target: str | None = "192.0.2.1") -> bytes:
    place = {"measurement": measurement, "definition": definition, "atlas_id": 7, "target": target}
    return json.dumps(place | ({"error": "it is not sent yet"} if result is None else {"result": result})).encode()


def ping(avg: float, *, probe: int = 1, at_s: int = NOON_S) -> dict[str, Any]:
    return {"type": "ping", "avg": avg, "prb_id": probe, "timestamp": at_s}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"type": "ping", "avg": 12.5}, 12.5),
        ({"type": "ping", "avg": -1}, None),
        ({"type": "traceroute", "result": [{"result": [{"rtt": 1}]}, {"result": [{"rtt": 9.5}, {"rtt": 8.5}]}]}, 8.5),
        ({"type": "traceroute", "result": [{"result": [{"rtt": 1}]}, {"result": [{"x": "*"}]}]}, None),
        ({"type": "traceroute", "result": [{"error": "no route"}]}, None),
        ({"type": "dns", "result": {"rt": 20.0}}, 20.0),
        ({"type": "dns", "resultset": [{"error": {"timeout": 5000}}, {"result": {"rt": 30}}]}, 30.0),
        ({"type": "dns", "error": {"timeout": 5000}}, None),
        ({"type": "sslcert", "rt": 40.25}, 40.25),
        ({"type": "sslcert", "alert": {"level": 2}}, None),
        ({"type": "ntp", "result": [{"rtt": 0.05}, {"x": "*"}]}, 50.0),
        ({"type": "http", "result": [{"rt": 7}]}, 7.0),
        ({"type": "http", "result": [{"err": "connect: timeout"}]}, None),
        ({"type": "ping", "avg": "soon"}, None),
        ({"type": "traceroute", "result": "nothing"}, None),
        ({"type": "dns", "resultset": "nothing", "result": []}, None),
        ({}, None),
    ],
)
def test_latency_of_a_result_is_read_by_its_type(result: dict[str, Any], expected: float | None) -> None:
    assert latency_ms(result) == expected


def test_results_of_one_round_are_drawn_probe_by_probe_on_a_common_scale() -> None:
    read = read_lines(
        [
            line(ping(50, probe=2)),
            line(ping(100, probe=1)),
            line(ping(-1, probe=3)),
            line(None, measurement=1),
            line(ping(10), measurement=2, target="192.0.2.9"),
        ]
    )
    found = figures(read)
    assert found is not None
    first, second = found.smalls
    assert (found.results, found.lost, found.p50, found.p95, found.top, found.others) == (4, 1, 50, 100, 100, 0)
    assert (first.name, first.kind, first.target, first.results, first.lost) == ("0", "ping", "192.0.2.1", 3, 1)
    assert first.dots == f"M16.7 0.0h0M50.0 {HEIGHT / 2}h0"
    assert first.missing == f"M83.3 {HEIGHT - 2}v-6"
    assert (first.first, first.last) == ("", "3 probes")
    assert (second.name, second.target, second.dots) == ("2", "192.0.2.9", f"M50.0 {HEIGHT * 0.9:.1f}h0")


def test_results_of_several_rounds_are_drawn_over_time_with_dates_where_they_differ() -> None:
    found = figures(read_lines([line(ping(8, at_s=NOON_S)), line(ping(8, at_s=NOON_S + 3_600))]))
    assert found is not None
    assert (found.smalls[0].first, found.smalls[0].last) == ("12:00", "13:00")
    assert found.smalls[0].dots.startswith("M0.0 ")
    assert "M100.0 " in found.smalls[0].dots
    days = figures(read_lines([line(ping(8, at_s=NOON_S)), line(ping(8, at_s=NOON_S + 86_400))]))
    assert days is not None
    assert days.smalls[0].first == "18 Nov 12:00"


def test_definitions_of_one_measurement_have_pictures_of_their_own() -> None:
    found = figures(read_lines([line(ping(8)), line(ping(9), definition=1, target=None)]))
    assert found is not None
    assert [one.name for one in found.smalls] == ["0.0", "0.1"]
    assert found.smalls[1].target == ""


def test_measurements_beyond_those_that_are_drawn_are_counted() -> None:
    found = figures(read_lines([line(ping(8), measurement=number) for number in range(SHOWN_MAX + 3)]))
    assert found is not None
    assert (len(found.smalls), found.others, found.results) == (SHOWN_MAX, 3, SHOWN_MAX + 3)


def test_job_without_results_has_no_figures_and_unanswered_results_have_no_latency() -> None:
    assert figures(read_lines([line(None)])) is None
    found = figures(read_lines([line(ping(-1))]))
    assert found is not None
    assert (found.p50, found.smalls[0].p95, found.smalls[0].dots) == (None, None, "")

"""The measurement object and the results as RIPE's clients are shown them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from paceline.core.jobs.compatible.measurements import (
    ResultFilter,
    Shown,
    document_of,
    id_of_number,
    parse_result_filter,
    result_translator,
    states_for,
    stride_of,
    with_probes,
)
from paceline.core.jobs.job import Job
from paceline.errors import InvalidInput
from tests.core.support.measurements import NOW_MS, NOW_S, definition, measurement

BASE = "http://paceline.example"
TWO = measurement(definition(tags=["a", "b"]), definition("traceroute", protocol="ICMP", is_public=False))
PERIODIC = measurement(definition(interval=600), is_oneoff=False, start_time=NOW_S + 60, stop_time=NOW_S + 6_000)


def shown(**fields: Any) -> Shown:
    return Shown(7 << 14, 0, measurement(), "ongoing", 2, NOW_MS, None, number=40)._replace(**fields)


def document(one: Shown, created_ms: int | None = NOW_MS - 5_500) -> dict[str, Any]:
    return document_of(one, created_ms=created_ms, base_url=BASE)


def test_document_of_a_one_off_has_the_fields_that_ripes_clients_read() -> None:
    found = document(shown(scheduled=10))
    assert found["id"] == id_of_number(40)
    assert found["status"] == {"id": 2, "name": "Ongoing", "when": "2027-01-15T08:00:00"}
    assert (found["type"], found["target"], found["af"], found["description"]) == ("ping", "192.0.2.1", 4, "d")
    assert (found["creation_time"], found["start_time"], found["stop_time"]) == (NOW_S - 6, NOW_S, None)
    assert (found["probes_requested"], found["probes_scheduled"], found["participant_count"]) == (10, 10, 10)
    assert found["is_all_scheduled"] is True
    assert found["is_oneoff"] is True
    assert (found["credits_per_result"], found["estimated_results_per_day"]) == (6, 10)
    assert (found["group"], found["group_id"]) == (None, None)
    assert found["result"] == f"{BASE}/api/v2/measurements/{found['id']}/results/"
    assert found["target_ip"] is None


def test_document_before_the_send_is_specified_and_starts_when_it_was_submitted() -> None:
    found = document(shown(state="queued", atlas_status=None, answered_ms=None))
    assert found["status"] == {"id": 0, "name": "Specified", "when": None}
    assert found["start_time"] == found["creation_time"] == NOW_S - 6
    assert (found["probes_scheduled"], found["participant_count"]) == (0, None)
    assert found["is_all_scheduled"] is False
    assert document(shown(answered_ms=None), created_ms=None)["start_time"] is None


def test_document_after_the_end_says_when_it_ended() -> None:
    found = document(shown(state="done", ended_ms=NOW_MS + 61_000))
    assert found["status"] == {"id": 4, "name": "Stopped", "when": "2027-01-15T08:01:01"}
    assert found["stop_time"] == NOW_S + 61


def test_document_of_a_periodic_measurement_has_its_own_times_and_results_a_day() -> None:
    found = document(shown(measurement=PERIODIC))
    assert (found["start_time"], found["stop_time"]) == (NOW_S + 60, NOW_S + 6_000)
    assert (found["interval"], found["is_oneoff"]) == (600, False)
    assert found["estimated_results_per_day"] == 10 * 144


def test_definitions_of_one_request_are_a_group_named_by_the_first() -> None:
    first, second = (document(shown(measurement=TWO, definition=index)) for index in (0, 1))
    assert first["group_id"] == second["group_id"] == first["id"] == id_of_number(40)
    assert second["id"] == id_of_number(41)
    assert second["group"] == f"{BASE}/api/v2/measurements/groups/{first['id']}/"
    assert (first["tags"], second["tags"]) == (["a", "b"], [])
    assert (first["is_public"], second["is_public"]) == (True, False)


def test_status_that_ripe_has_no_name_for_is_called_unknown() -> None:
    assert document(shown(atlas_status=99))["status"]["name"] == "Unknown"


def test_measurement_that_is_done_here_and_still_runs_at_ripe_has_ripes_status() -> None:
    assert shown(state="done", running=True).status == 2
    assert shown(state="done", running=True, atlas_status=0).status == 0
    assert shown(state="done", running=True, atlas_status=4).status == 4
    assert shown(state="done").status == 4


def test_rank_follows_the_order_of_submission_whatever_the_ids_are() -> None:
    numbered, older = shown(handle=9 << 14), shown(handle=8 << 14, number=None)
    assert numbered.rank > older.rank
    assert shown(definition=1).rank > shown().rank
    assert older.id == older.rank


def test_every_measurement_of_a_job_has_as_many_numbers_as_the_longest_needs() -> None:
    assert stride_of(Job((measurement(), TWO, measurement()))) == 2


def test_filter_without_a_status_allows_any_state() -> None:
    assert states_for(None) == ()


def test_probes_are_added_with_their_addresses() -> None:
    found = with_probes({"id": 1}, [5, 6], base_url=BASE)
    assert found["probes"][1] == {"id": 6, "url": f"{BASE}/api/v2/probes/6/"}
    assert found["id"] == 1


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, ResultFilter()),
        ({"start": "1800000000", "stop": "2027-01-15T09:00:00+01:00"}, ResultFilter(NOW_S, NOW_S)),
        ({"start": "2027-01-15T08:00:00"}, ResultFilter(NOW_S)),
        ({"lookback_days": "2"}, ResultFilter(NOW_S - 172_800)),
        ({"lookback_days": "2", "start": str(NOW_S - 60)}, ResultFilter(NOW_S - 60)),
        ({"probe_ids": "1, 2,2"}, ResultFilter(probes=frozenset({1, 2}))),
        ({"lookback_days": "0", "start": " "}, ResultFilter()),
    ],
)
def test_result_filter_is_read_as_ripes_clients_write_it(query: dict[str, str], wanted: ResultFilter) -> None:
    assert parse_result_filter(query, now_ms=NOW_MS) == wanted


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"start": "yesterday"}, "/query/start"),
        ({"stop": "1" * 17}, "/query/stop"),
        ({"lookback_days": "16385"}, "/query/lookback_days"),
        ({"probe_ids": "1,x"}, "/query/probe_ids"),
        ({"probe_ids": "\u0661"}, "/query/probe_ids"),
    ],
)
def test_invalid_result_filter_is_refused_by_its_parameter(query: dict[str, str], pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_result_filter(query, now_ms=NOW_MS)
    assert [problem.pointer for problem in caught.value.errors] == [pointer]


def line(**fields: Any) -> bytes:
    return msgspec.json.encode({"prb_id": 5, "timestamp": NOW_S, "msm_id": 1_001, "rtt": 1.5} | fields)


def test_result_is_shown_under_pacelines_id_with_all_else_as_it_was() -> None:
    one = shown()
    found = result_translator(one, ResultFilter())(line(group_id=1_000))
    assert found is not None
    probe, text = found
    assert probe == 5
    expected = {"prb_id": 5, "timestamp": NOW_S, "msm_id": one.id, "rtt": 1.5, "group_id": one.id}
    assert json.loads(text) == expected
    grouped = shown(measurement=TWO, definition=1)
    found = result_translator(grouped, ResultFilter())(line(group_id=1_000))
    assert found is not None
    assert json.loads(found[1])["group_id"] == grouped.group_id


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (ResultFilter(NOW_S, NOW_S, frozenset({5})), True),
        (ResultFilter(start_s=NOW_S + 1), False),
        (ResultFilter(stop_s=NOW_S - 1), False),
        (ResultFilter(probes=frozenset({6})), False),
    ],
)
def test_result_outside_the_filter_is_left_out(wanted: ResultFilter, *, kept: bool) -> None:
    assert (result_translator(shown(), wanted)(line()) is not None) is kept

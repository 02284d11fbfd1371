"""Measurements through /api/v2: created, shown, stopped, and everything that is wrong in RIPE's own envelope."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paceline.core.jobs.atlas import Refused, read_answer
from paceline.core.jobs.measurement import Measurement
from paceline.shells.api.atlas_reads import READS_EACH_MAX, READS_MAX
from paceline.simulators.ripe_atlas import Fault
from tests.shells.api.conftest import Client
from tests.shells.ripe_api.conftest import PING, House, Ripe, lines_of, request_of
from tests.shells.ripe_api.support.stage import eventually

TRACE = {"type": "traceroute", "af": 4, "target": "192.0.2.2", "description": "two", "protocol": "ICMP"}


def test_a_request_becomes_one_measurement_and_its_ids_are_known_at_once(house: House) -> None:
    first = 2**21 + 100
    assert house.ann.create(PING, TRACE) == [first, first + 1]
    assert house.ann("POST", "/measurements", request_of()).json == {"measurements": [first + 2]}
    assert house.ann("POST", "/measurements/my/", request_of()).json == {"measurements": [first + 3]}
    job = house.world.system.store.jobs("ann", before=None, limit=9)[-1]
    assert (job.measurements, job.title) == (1, "one")
    shown = house.ann("GET", f"/measurements/{first + 1}").json
    assert (shown["id"], shown["type"], shown["target"]) == (first + 1, "traceroute", "192.0.2.2")
    assert shown["status"]["id"] == 0
    assert shown["group_id"] == first
    assert shown["start_time"] == shown["creation_time"] == job.created_ms // 1_000


def test_null_fields_are_ignored_and_unknown_fields_are_passed_to_ripe(house: House) -> None:
    odd = {**PING, "packet_size": 100, "size": None, "spread": None, "from_the_future": [1]}
    (number,) = house.ann.create(odd, bill_to=None)
    shown = house.ann("GET", f"/measurements/{number}/").json
    assert (shown["size"], shown["from_the_future"], shown["spread"]) == (100, [1], None)
    house.send()
    sent = next(iter(house.simulator.world.measurements.values()))
    assert (sent.definition["size"], sent.definition["from_the_future"]) == (100, [1])


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/measurements/", request_of({**PING, "af": 5}), "/definitions/0/af"),
        ("/measurements/", request_of(PING, {**PING, "target": None}), "/definitions/1/target"),
        ("/measurements/", request_of(bill_to="me@example.org"), "/bill_to"),
        ("/measurements/", {"definitions": [PING]}, "/probes"),
        ("/measurements/traceroute/", request_of(PING), "/definitions/0/type"),
        ("/measurements/", request_of(is_oneoff=False), "/definitions/0/stop_time"),
    ],
)
def test_wrong_fields_are_named_in_ripes_envelope(house: House, path: str, body: Any, pointer: str) -> None:
    answer = house.ann("POST", path, body)
    error = answer.json["error"]
    assert (answer.status, error["status"], error["code"], error["title"]) == (400, 400, 102, "Bad Request")
    assert [one["source"] for one in error["errors"]] == [{"pointer": pointer}]


def test_malformed_or_too_large_body_is_an_error_in_ripes_envelope(house: House) -> None:
    headers = {"Authorization": f"Key {house.ann.token}"}
    client = house.world.client()
    for raw, status in ((b"{", 400), (b"[" * 100_000, 400), (b" " * 9_000_000, 413)):
        answer = client("POST", "/api/v2/measurements/", raw=raw, headers=headers)
        assert (answer.status, answer.json["error"]["status"]) == (status, status)


def test_measurement_over_the_daily_credits_is_refused_in_words_that_ripe_clients_parse(house: House) -> None:
    house.ann.create()
    dear = request_of({**PING, "packets": 16}, probes=[{"requested": 900, "type": "area", "value": "WW"}])
    answer = house.ann("POST", "/measurements/", dear)
    read = read_answer(Measurement((), ()), status=answer.status, body=answer.body)
    assert isinstance(read, Refused)
    assert (read.scope, read.meter, read.limit, read.current) == ("account", "credits", 1_000, 18)
    assert house.ann("GET", "/measurements/my/").json["count"] == 1


def test_credits_are_those_of_the_users_own_day(house: House) -> None:
    house.ann.create()
    ann, bob = (one("GET", "/credits").json for one in (house.ann, house.bob))
    assert (ann["current_balance"], ann["max_daily_credits"], ann["past_day_credits_spent"]) == (982, 1_000, 18)
    assert (bob["current_balance"], bob["past_day_credits_spent"]) == (1_000, 0)


def test_sent_measurement_has_ripes_status_and_results_under_our_id(house: House) -> None:
    first, second = house.ann.create(PING, TRACE)
    assert house.ann("GET", f"/measurements/{first}/results/").json == []
    house.send()
    assert house.ann.status(first) == "Specified"
    assert eventually(lambda: house.has_ended(first))
    for number, kind in ((first, "ping"), (second, "traceroute")):
        results = house.ann("GET", f"/measurements/{number}/results").json
        assert {(one["msm_id"], one["type"], one["group_id"]) for one in results} == {(number, kind, first)}
        assert len(results) == 3
        lines = house.ann("GET", f"/measurements/{number}/results/?format=txt")
        assert lines_of(lines) == results


def test_results_are_filtered_by_time_and_probe_and_latest_is_a_list(house: House) -> None:
    (number,) = house.ann.create()
    house.send()
    assert eventually(lambda: len(house.ann("GET", f"/measurements/{number}/results/").json) == 3)
    results = house.ann("GET", f"/measurements/{number}/results/").json
    probes = sorted(one["prb_id"] for one in results)
    at_s = max(one["timestamp"] for one in results)

    def found(query: str, what: str = "results") -> list[int]:
        answer = house.ann("GET", f"/measurements/{number}/{what}?{query}")
        assert answer.status == 200, answer.body
        return sorted(one["prb_id"] for one in answer.json)

    assert found(f"probe_ids={probes[0]},{probes[1]}") == probes[:2]
    assert found(f"start={at_s + 1}") == []
    assert found(f"stop={at_s}&start=2020-01-01T00:00:00") == probes
    assert found("", "latest") == probes
    assert found(f"probe_ids={probes[2]}&versions=3", "latest") == probes[2:]
    assert house.ann("GET", f"/measurements/{number}/results?start=soon").json["error"]["errors"] == [
        {"source": {"parameter": "start"}, "detail": "Seconds since 1970, or ISO 8601 such as 2026-11-15T08:00:00Z."}
    ]


def test_results_that_ripe_does_not_deliver_completely_are_answered_with_503(house: House) -> None:
    (number,) = house.ann.create()
    house.send()
    assert eventually(lambda: len(house.ann("GET", f"/measurements/{number}/results/").json) == 3)
    for kind in ("error_before", "half_reply"):
        house.simulator.add_fault(Fault(kind=kind, path="/results"))
        answer = house.ann("GET", f"/measurements/{number}/results/")
        assert (answer.status, answer.json["error"]["status"]) == (503, 503), kind
        assert house.ann("GET", f"/measurements/{number}/results/").status == 200


def test_stopped_measurement_is_cancelled_and_refunded(house: House) -> None:
    (number,) = house.ann.create()
    assert house.ann("DELETE", f"/measurements/{number}/").status == 204
    assert house.ann.status(number) == "Canceled"
    assert house.ann("GET", "/credits/").json["current_balance"] == 1_000
    assert house.ann("DELETE", f"/measurements/{number}").status == 204


def test_running_measurement_is_stopped_at_ripe(house: House) -> None:
    (number,) = house.ann.create({**PING, "interval": 60}, is_oneoff=False, stop_time=_in_an_hour(house))
    house.send()
    assert house.ann("DELETE", f"/measurements/{number}").status == 204
    assert eventually(lambda: house.has_ended(number))
    assert [one.status_at(house.simulator.clock.now_ms()).id for one in _at_ripe(house)] == [4]


def test_one_measurement_of_a_group_is_stopped_alone_only_once_it_runs(house: House) -> None:
    periodic = {"is_oneoff": False, "stop_time": _in_an_hour(house)}
    first, second = house.ann.create({**PING, "interval": 900}, {**TRACE, "interval": 900}, **periodic)
    early = house.ann("DELETE", f"/measurements/{second}/")
    assert early.status == 409
    assert f"/measurements/groups/{first}/" in early.json["error"]["detail"]
    house.send()
    assert house.ann("DELETE", f"/measurements/{second}/").status == 204
    now_ms = house.simulator.clock.now_ms()
    assert [one.is_running(now_ms) for one in _at_ripe(house)] == [True, False]
    assert house.ann("DELETE", f"/measurements/groups/{first}/").status == 204
    assert eventually(lambda: house.has_ended(first))


def test_group_holds_the_measurements_submitted_together(house: House) -> None:
    first, second = house.ann.create(PING, TRACE)
    (alone,) = house.ann.create()
    members = house.ann("GET", f"/measurements/groups/{first}/").json["group_members"]
    assert [one["id"] for one in members] == [first, second]
    for number in (second, alone):
        assert house.ann("GET", f"/measurements/groups/{number}/").status == 404
    assert house.ann("DELETE", f"/measurements/groups/{first}").status == 204
    assert {house.ann.status(one) for one in (first, second)} == {"Canceled"}


def test_probes_as_in_an_earlier_measurement_are_named_by_our_id_and_asked_for_by_ripes(house: House) -> None:
    (earlier,) = house.ann.create()
    same = [{"requested": 3, "type": "msm", "value": earlier}]
    answer = house.ann("POST", "/measurements/", request_of(probes=same))
    assert answer.json["error"]["errors"][0]["source"] == {"pointer": "/probes/0/value"}
    house.send()
    house.ann.create(probes=same)
    house.send()
    first, second = _at_ripe(house)
    assert second.specs[0]["value"] == first.id
    answer = house.bob("POST", "/measurements/", request_of(probes=same))
    assert "you have no measurement of this id" in answer.json["error"]["errors"][0]["detail"]


def test_refused_measurement_is_shown_as_failed(house: House) -> None:
    (number,) = house.ann.create(probes=[{"requested": 1, "type": "asn", "value": 4_200_000_000}])
    house.send()
    assert house.ann.status(number) == "Failed"
    assert house.ann("GET", f"/measurements/{number}/results/").json == []


def test_probes_are_described_as_ripe_does_and_asked_for_once(house: House) -> None:
    for _ in range(2):
        found = house.ann("GET", "/probes/?id__in=11,12,999999").json
        assert [one["id"] for one in found["results"]] == [11, 12]
    assert house.ann("GET", "/probes/11").json["country_code"]
    assert house.ann("GET", "/probes/999999/").status == 404
    assert house.ann("GET", "/probes/?country_code=NL").status == 400
    asked = [name for name in house.simulator.audit()["requests"] if "/probes" in name]
    assert [house.simulator.audit()["requests"][name] for name in asked] == [1]


def _in_an_hour(house: House) -> int:
    return house.world.system.clock.now_ms() // 1_000 + 3_600


def _at_ripe(house: House) -> list[Any]:
    return list(house.simulator.world.measurements.values())


def test_promise_13_results_that_ripe_delays_do_not_keep_other_requests_waiting(house: House) -> None:
    users = [Ripe(house.world, house.world.add(f"user{number}").token or "") for number in range(4)]
    reads = [(user, user.create()[0]) for user in users for _ in range(READS_EACH_MAX)]
    house.send()
    house.simulator.add_fault(Fault(kind="delay", path="/results", delay_ms=30_000, times=None))
    with ThreadPoolExecutor(len(reads)) as pool:
        delayed = [pool.submit(user, "GET", f"/measurements/{number}/results/") for user, number in reads]
        eventually(lambda: sum(one.name == "paceline-api-atlas" for one in threading.enumerate()) == READS_MAX)
        assert Client(house.world.port, house.ann.token)("GET", "/v1/users/me/monitors").status == 200
        assert not any(one.done() for one in delayed)
        house.world.hooks.arrivals.close()  # as when the process ends: nobody waits for RIPE any longer

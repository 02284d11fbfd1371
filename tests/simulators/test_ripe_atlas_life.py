"""The life of a measurement in the simulated RIPE Atlas: statuses, results, and the lists it is found in."""

from __future__ import annotations

import json

import pytest

from paceline.simulators.ripe_atlas import (
    POOL_PERMISSIONS,
    AtlasSimulator,
    Limits,
    Model,
    SimulatorClock,
)
from tests.simulators.support.atlas_client import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Client, ping


def test_a_one_off_goes_from_specified_to_stopped_in_about_ten_minutes(
    simulator: AtlasSimulator, client: Client
) -> None:
    (created,) = client.create().ids
    seen = [client.status(created)]
    for step_ms in (2_000, 3_000, 588_000, 1_000):
        simulator.clock.advance(step_ms)
        seen.append(client.status(created))
    assert seen == [0, 1, 2, 2, 4]
    document = client.get(f"/measurements/{created}/")
    assert document["stop_time"] - document["start_time"] == 589
    assert document["status"]["name"] == "Stopped"


def test_periodic_measurement_runs_from_its_start_to_its_stop(simulator: AtlasSimulator, client: Client) -> None:
    start_s = START_MS // 1_000 + 3_600
    times = {"start_time": start_s, "stop_time": start_s + 7_200, "is_oneoff": False}
    (created,) = client.create(ping(interval=600), **times).ids
    simulator.clock.advance(HOUR_MS - 1_000)
    assert client.status(created) == 1
    simulator.clock.advance(1_000)
    assert client.status(created) == 2
    simulator.clock.advance(2 * HOUR_MS)
    assert client.status(created) == 4
    results = client.get(f"/measurements/{created}/results/")
    answering = {one["prb_id"] for one in results}
    assert len(results) == 12 * len(answering)
    assert client.get(f"/measurements/{created}/latest")[0]["step"] == 600


def test_measurement_without_suitable_probes_has_status_6_and_then_7(simulator: AtlasSimulator, client: Client) -> None:
    nobody = [{"type": "area", "value": "WW", "requested": 5, "tags": {"include": ["on-the-moon"]}}]
    (created,) = client.create(probes=nobody).ids
    simulator.clock.advance(MINUTE_MS)
    assert client.status(created) == 6
    simulator.clock.advance(10 * MINUTE_MS)
    assert client.status(created) == 7
    assert client.get(f"/measurements/{created}/results/") == []


def test_a_measurement_that_no_probe_answered_has_failed(client: Client, simulator: AtlasSimulator) -> None:
    assert client.ask("POST", "/simulator/fates", {"target": "192.0.2.66", "status": 7}).status == 200
    good, bad = client.create(ping(), ping(target="192.0.2.66")).ids
    simulator.clock.advance(11 * MINUTE_MS)
    assert (client.status(good), client.status(bad)) == (4, 7)


def test_running_measurement_is_stopped_when_the_credits_run_out(simulator: AtlasSimulator) -> None:
    client = Client(simulator.base_url, simulator.add_account("poor", balance=100_000)[0])
    (created,) = client.create(ping(interval=60), is_oneoff=False, requested=20).ids
    simulator.clock.advance(DAY_MS)
    assert client.status(created) == 2
    simulator.clock.advance(DAY_MS)
    assert client.status(created) == 5
    assert client.get("/credits/")["current_balance"] < 0


@pytest.mark.parametrize("status", [5, 6, 7, 8])
def test_any_status_can_be_scripted(client: Client, status: int) -> None:
    (created,) = client.create().ids
    client.ask("POST", "/simulator/statuses", {"id": created, "status": status})
    assert client.status(created) == status
    assert client.get(f"/measurements/my/?status__in={status}")["count"] == 1


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_stop_is_final_and_frees_the_place(simulator: AtlasSimulator, client: Client, slash: str) -> None:
    simulator.add_account("alice", keys=0, limits=Limits(concurrent=1))
    (created,) = client.create().ids
    assert client.create().details == ["You are not permitted to run more than 1 concurrent measurements."]
    assert client.ask("DELETE", f"/measurements/{created}{slash}").status == 204
    assert client.status(created) == 4
    assert client.create().status == 201


def test_only_the_owner_may_stop_or_edit_a_measurement(simulator: AtlasSimulator, client: Client) -> None:
    (created,) = client.create().ids
    full = ("measurements.update_measurement", *POOL_PERMISSIONS)
    simulator.add_account("eve")
    eve = Client(simulator.base_url, simulator.add_key("eve", grants=full).uuid)
    assert eve.ask("DELETE", f"/measurements/{created}/").status == 403
    assert eve.ask("PATCH", f"/measurements/{created}/", {"description": "hers"}).status == 403
    owner = Client(simulator.base_url, simulator.add_key("alice", grants=full).uuid)
    edited = owner.ask("PATCH", f"/measurements/{created}/", {"description": "mine"})
    assert edited.document["description"] == "mine"
    assert owner.ask("PATCH", f"/measurements/{created}/", {"target": "192.0.2.9"}).status == 400
    assert owner.ask("POST", f"/measurements/{created}/tags/", {"tag": "blue"}).status == 201
    assert owner.get("/measurements/my/?tags=blue")["count"] == 1
    assert owner.ask("DELETE", f"/measurements/{created}/tags/blue/").status == 204
    assert owner.get("/measurements/my/?tags=blue")["count"] == 0


def test_private_measurement_is_not_found_by_others(simulator: AtlasSimulator, client: Client) -> None:
    (hidden,) = client.create(ping(is_public=False)).ids
    for other in (Client(simulator.base_url), Client(simulator.base_url, simulator.add_account("eve")[0])):
        assert other.ask("GET", f"/measurements/{hidden}/").status == 404
        assert other.ask("GET", f"/measurements/{hidden}/results/").status == 404
        assert other.get(f"/measurements/?id__in={hidden}")["count"] == 0
    assert client.ask("GET", f"/measurements/{hidden}/results/").status == 200


def test_results_come_over_time_and_not_from_every_probe(simulator: AtlasSimulator, client: Client) -> None:
    (created,) = client.create(requested=500).ids
    path = f"/measurements/{created}/results/"
    counts = []
    for _ in range(6):
        counts.append(len(client.get(path)))
        simulator.clock.advance(3_000)
    simulator.clock.advance(10 * MINUTE_MS)
    whole = client.get(path)
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] > counts[-3]
    document = client.get(f"/measurements/{created}/")
    assert 0.85 * 500 < len(whole) < document["probes_scheduled"] < 500
    assert document["is_all_scheduled"] is False


def test_results_can_be_narrowed_and_come_as_lines(simulator: AtlasSimulator, client: Client) -> None:
    (created,) = client.create(ping(interval=60), is_oneoff=False).ids
    simulator.clock.advance(HOUR_MS)
    whole = client.get(f"/measurements/{created}/results/")
    probe = whole[0]["prb_id"]
    of_one = client.get(f"/measurements/{created}/results?probe_ids={probe}")
    assert of_one == [one for one in whole if one["prb_id"] == probe]
    begin, end = START_MS // 1_000 + 600, START_MS // 1_000 + 1_200
    part = client.get(f"/measurements/{created}/results/?start={begin}&stop={end}")
    assert part == [one for one in whole if begin <= one["timestamp"] <= end]
    assert 0 < len(part) < len(whole)
    lines = client.ask("GET", f"/measurements/{created}/results/?format=txt").body.splitlines()
    assert [json.loads(line) for line in lines] == whole
    latest = client.get(f"/measurements/{created}/latest/?versions=2")
    assert len(latest) == 2 * len({one["prb_id"] for one in whole})
    assert max(one["timestamp"] for one in latest) == max(one["timestamp"] for one in whole)


def test_a_marker_is_found_by_tag_and_by_description(client: Client) -> None:
    client.create(ping(tags=["plat-7"], description="[plat:7] web"))
    client.create(ping(tags=["plat-8"], description="[plat:8] web"))
    last = client.create(ping(description="[plat:9] mail")).ids[0]
    for query, descriptions in {
        "tags=plat-7": ["[plat:7] web"],
        "description__startswith=[plat:8]": ["[plat:8] web"],
        "description__contains=web&sort=id": ["[plat:7] web", "[plat:8] web"],
        "description__endswith=mail": ["[plat:9] mail"],
        "description=web": [],
        f"id__gt={last - 2}&sort=-id": ["[plat:9] mail", "[plat:8] web"],
        f"id__gte={last}&status__in=0,1,2": ["[plat:9] mail"],
        "status=specified,Ongoing&id__lt=1000002": ["[plat:7] web"],
        "search=WEB&sort=-id": ["[plat:8] web", "[plat:7] web"],
        "is_oneoff=false": [],
        "type=ping&af=4&target=192.0.2.1&tags=plat-8": ["[plat:8] web"],
    }.items():
        page = client.get(f"/measurements/my/?{query}")
        assert [one["description"] for one in page["results"]] == descriptions, query
        assert page["count"] == len(descriptions)
        assert "warnings" not in page


def test_pages_are_followed_by_next_and_previous(simulator: AtlasSimulator, client: Client) -> None:
    ids = client.create(*[ping(description=f"n {n}") for n in range(25)]).ids
    seen: list[int] = []
    url, previous = "/measurements/my/?page_size=10&sort=id&fields=id,status", None
    while url:
        page = client.get(url)
        assert page["count"] == 25
        assert {frozenset(one) for one in page["results"]} == {frozenset({"id", "status"})}
        assert (page["previous"] is None) == (previous is None)
        seen += [one["id"] for one in page["results"]]
        previous, url = url, (page["next"] or "").removeprefix(f"{simulator.base_url}/api/v2")
    assert seen == ids
    assert client.get("/measurements/my/?page_size=0")["results"] == []
    assert client.get("/measurements/my/?page_size=0")["count"] == 25
    after = client.get(f"/measurements/my/?sort=id&page_size=10&after={ids[19]}")
    assert [one["id"] for one in after["results"]] == ids[20:]


def test_list_reports_unknown_filters(client: Client) -> None:
    warned = client.get("/measurements/?mine=true")["warnings"]
    assert warned[0]["source"] == {"parameter": "mine"}
    for wrong in ("page_size=1000", "id__gt=x", "status=mad", "sort=size", "page=0", "page=500&page_size=500"):
        refused = client.ask("GET", f"/measurements/my/?{wrong}")
        assert refused.status == 400, wrong
        assert refused.pointers == {wrong.partition("=")[0]}


def test_many_statuses_come_in_one_call_without_a_key(simulator: AtlasSimulator, client: Client) -> None:
    simulator.add_account("alice", keys=0, limits=Limits(concurrent=500))
    wanted = [one for n in range(6) for one in client.create(*[ping(target=f"192.0.2.{n}")] * 25).ids]
    ids = ",".join(map(str, wanted))
    page = Client(simulator.base_url).get(f"/measurements/?id__in={ids}&fields=id,status&page_size=500")
    assert {one["id"] for one in page["results"]} == set(wanted)


def test_a_new_measurement_is_in_the_lists_only_after_a_while() -> None:
    model = Model(index_lag_ms=30_000)
    with AtlasSimulator(model, clock=SimulatorClock(start_ms=START_MS, speed=0)) as simulator:
        client = Client(simulator.base_url, simulator.add_account("alice")[0])
        (created,) = client.create(ping(tags=["mine"])).ids
        assert client.status(created) == 0
        simulator.clock.advance(29_999)
        assert client.get("/measurements/my/?tags=mine")["count"] == 0
        simulator.clock.advance(1)
        assert client.get("/measurements/my/?tags=mine")["count"] == 1
        client.ask("DELETE", f"/measurements/{created}/")
        assert client.status(created) == 4
        assert client.get(f"/measurements/?id__in={created}")["results"][0]["status"]["id"] == 0

"""The simulator of RIPE Atlas behaves as RIPE's documentation and those who met the real one say."""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from typing import Any

import dns.message
import pytest
from cryptography import x509

from paceline.simulators.ripe_atlas import POOL_PERMISSIONS, AtlasSimulator, Grant, Limits, Model, SimulatorClock
from paceline.simulators.ripe_atlas.quotas import Day
from tests.simulators.atlas_client import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Client, definition_of, order, ping

ALL_TYPES = ("ping", "traceroute", "dns", "sslcert", "ntp", "http")


# -- creating


@pytest.mark.parametrize("type_", ALL_TYPES)
def test_every_type_can_be_created_and_delivers_results_of_its_shape(simulator: AtlasSimulator, type_: str) -> None:
    client = Client(simulator.base_url, simulator.add_account("anchors", http_allowed=True)[0])
    (created,) = client.create(definition_of(type_)).ids
    simulator.clock.advance(10 * MINUTE_MS)
    results = client.get(f"/measurements/{created}/results/")
    assert 5 <= len(results) <= 10
    for result in results:
        assert (result["msm_id"], result["type"], result["af"]) == (created, type_, 4)
        assert result["timestamp"] * 1_000 > START_MS
        check_shape(result)


def check_shape(result: dict[str, Any]) -> None:
    match result["type"]:
        case "ping":
            times = [one["rtt"] for one in result["result"] if "rtt" in one]
            assert result["sent"] == len(result["result"]) == 3
            assert (result["rcvd"], result["min"], result["max"]) == (len(times), min(times), max(times))
        case "traceroute":
            assert [hop["hop"] for hop in result["result"]] == list(range(1, len(result["result"]) + 1))
            assert result["result"][-1]["result"][0]["from"] == result["dst_addr"]
        case "dns":
            answer = dns.message.from_wire(base64.b64decode(result["result"]["abuf"]))
            assert str(answer.question[0]) == "example.org. IN AAAA"
            assert answer.id == result["result"]["ID"]
        case "sslcert":
            x509.load_pem_x509_certificate(result["cert"][0].encode())
        case "ntp":
            assert result["result"][0]["final-ts"] > result["result"][0]["origin-ts"]
        case _:
            assert result["result"][0]["res"] == 200
            assert result["uri"] == "http://www.example.org:80/"


def test_ids_come_in_the_order_of_the_definitions_and_share_a_group(client: Client) -> None:
    ids = client.create(ping(description="a"), definition_of("dns"), ping(description="c")).ids
    documents = [client.get(f"/measurements/{one}/") for one in ids]
    assert [one["description"] for one in documents] == ["a", "dns", "c"]
    assert len({one["group_id"] for one in documents}) == 1
    group = client.get(f"/measurements/groups/{documents[0]['group_id']}/")
    assert [one["id"] for one in group["group_members"]] == ids
    assert client.ask("DELETE", f"/measurements/groups/{group['group_id']}").status == 204
    assert [client.status(one) for one in ids] == [4, 4, 4]


def test_one_more_can_join_a_group_of_ones_own(simulator: AtlasSimulator, client: Client) -> None:
    first = client.create(ping(), ping()).ids[0]
    (joined,) = client.create(ping(group_id=first)).ids
    assert client.get(f"/measurements/{joined}/")["group_id"] == first
    stranger = Client(simulator.base_url, simulator.add_account("eve")[0])
    assert stranger.create(ping(group_id=first)).status == 400


def test_nulls_and_unknown_fields_are_accepted(client: Client) -> None:
    odd = definition_of("traceroute", destination_option_size=None, priority="high", packet_size=40, max_hops=255)
    assert client.create(odd).status == 201


def test_a_path_for_one_type_takes_only_that_type(client: Client) -> None:
    assert client.ask("POST", "/measurements/dns/", order(definition_of("dns"))).status == 201
    assert client.ask("POST", "/measurements/my", order(ping())).status == 201
    refused = client.ask("POST", "/measurements/dns/", order(ping()))
    assert (refused.status, refused.pointers) == (400, {"/definitions/0/type"})


def without(definition: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if key != name}


REQUIRED = "This field is required."


@pytest.mark.parametrize(
    ("definition", "pointer", "detail"),
    [
        (without(ping(), "af"), "af", REQUIRED),
        (without(ping(), "target"), "target", REQUIRED),
        (without(ping(), "description"), "description", REQUIRED),
        (without(definition_of("traceroute"), "protocol"), "protocol", REQUIRED),
        (without(definition_of("dns"), "query_argument"), "query_argument", REQUIRED),
        (without(definition_of("dns"), "target"), "target", REQUIRED),
        (ping(af=5), "af", '"5" is not a valid choice.'),
        (ping(type="smoke"), "type", '"smoke" is not a valid choice.'),
        (ping(packets=17), "packets", "Ensure this value is less than or equal to 16."),
        (ping(packets=True), "packets", "A valid integer is required."),
        (ping(size=0), "size", "Ensure this value is greater than or equal to 1."),
        (ping(interval=59), "interval", "Ensure this value is greater than or equal to 60."),
        (ping(description="<b>"), "description", "Text contains disallowed characters"),
        (ping(tags=["not a tag"]), "tags", "Text contains disallowed characters"),
        (ping(is_public="yes"), "is_public", "Must be a valid boolean."),
        (ping(target="nowhere.invalid"), "target", "This target cannot be resolved"),
        (definition_of("dns", retry=11), "retry", "Ensure this value is less than or equal to 10."),
        (definition_of("sslcert", port=0), "port", "Ensure this value is greater than or equal to 1."),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_in_ripes_envelope(
    client: Client, definition: dict[str, Any], pointer: str, detail: str
) -> None:
    refused = client.create(ping(), definition)
    error = refused.document["error"]
    assert (refused.status, error["status"], error["code"], error["title"]) == (400, 400, 102, "Bad Request")
    assert {"source": {"pointer": f"/definitions/1/{pointer}"}, "detail": detail} in error["errors"]
    assert client.get("/measurements/my/")["count"] == 0


def test_a_target_that_nobody_asks_for_need_not_resolve(client: Client) -> None:
    assert client.create(ping(target="nowhere.invalid", skip_dns_check=True)).status == 201
    assert client.create(ping(target="nowhere.invalid", resolve_on_probe=True)).status == 201
    assert client.create(without(definition_of("dns", use_probe_resolver=True), "target")).status == 201


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"probes": []}, "/probes"),
        ({"definitions": []}, "/definitions"),
        ({"probes": [{"type": "area", "requested": 1}]}, "/probes/0/value"),
        ({"probes": [{"type": "moon", "value": "x", "requested": 1}]}, "/probes/0/type"),
        ({"probes": [{"type": "area", "value": "Moon", "requested": 1}]}, "/probes/0/value"),
        ({"probes": [{"type": "area", "value": "WW", "requested": 0}]}, "/probes/0/requested"),
        ({"probes": [{"type": "asn", "value": 64_500, "requested": 1}]}, "/probes/0/value"),
        ({"start_time": START_MS // 1_000 - 7_200}, "/start_time"),
        ({"is_oneoff": False, "stop_time": START_MS // 1_000 - 1}, "/stop_time"),
        ({"start_time": "tomorrow"}, "/start_time"),
        ({"bill_to": "somebody@example.org"}, "/bill_to"),
    ],
)
def test_a_wrong_order_is_refused_whole(client: Client, changes: dict[str, Any], pointer: str) -> None:
    refused = client.create(**changes)
    assert (refused.status, refused.pointers) == (400, {pointer})


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"NaN", b"\xff", b"[" * 100_000, b'{"definitions": 1}'])
def test_a_body_that_is_no_order_is_a_bad_request(client: Client, raw: bytes) -> None:
    assert client.ask("POST", "/measurements/", raw=raw).status == 400


def test_an_asn_without_probes_is_refused_in_ripes_words(client: Client) -> None:
    refused = client.create(probes=[{"type": "asn", "value": "64500", "requested": 1}])
    assert refused.details == ["Your selected ASN is not covered by our network."]


def test_http_is_for_approved_accounts_and_wifi_for_nobody(client: Client) -> None:
    assert client.create(definition_of("http")).status == 403
    assert client.create(ping(type="wifi")).status == 400


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "country", "value": "NL", "requested": 5},
        {"type": "countries", "value": "NL,DE", "requested": 5},
        {"type": "asn", "value": 3333, "requested": 5},
        {"type": "probes", "value": "11,12,13,14,15", "requested": 5},
        {"type": "probes", "value": 11, "requested": 1},
        {"type": "prefix", "value": "10.0.0.0/16", "requested": 5},
        {"type": "area", "value": "West", "requested": 5, "tags": {"include": ["home"], "exclude": ["datacentre"]}},
    ],
)
def test_probes_are_chosen_as_asked(spec: dict[str, Any]) -> None:
    with AtlasSimulator(Model(scheduled_share=1), clock=SimulatorClock(start_ms=START_MS, speed=0)) as simulator:
        client = Client(simulator.base_url, simulator.add_account("alice")[0])
        (created,) = client.create(probes=[spec]).ids
        simulator.clock.advance(MINUTE_MS)
        document = client.get(f"/measurements/{created}/?optional_fields=probes")
        assert document["probes_requested"] == document["probes_scheduled"] == spec["requested"]
        probes = [client.get(f"/probes/{one['id']}/") for one in document["probes"]]
        if spec["type"] == "country":
            assert {one["country_code"] for one in probes} == {"NL"}
        if "tags" in spec:
            slugs = [{tag["slug"] for tag in one["tags"]} for one in probes]
            assert all("home" in tags and "datacentre" not in tags for tags in slugs)
        (again,) = client.create(probes=[{"type": "msm", "value": str(created), "requested": spec["requested"]}]).ids
        simulator.clock.advance(MINUTE_MS)
        reused = client.get(f"/measurements/{again}/?optional_fields=probes")["probes"]
        assert {one["id"] for one in reused} == {one["id"] for one in document["probes"]}


# -- keys


def test_a_key_is_taken_from_the_header_and_from_the_query(simulator: AtlasSimulator, client: Client) -> None:
    anonymous = Client(simulator.base_url)
    assert anonymous.ask("GET", f"/credits/?key={client.key}").status == 200
    assert anonymous.ask("GET", "/credits/").status == 401
    created = anonymous.ask("POST", f"/measurements/?key={client.key}", order(ping()))
    assert created.status == 201
    page = anonymous.get(f"/measurements/my/?key={client.key}&page_size=1&status=Specified")
    assert client.key not in json.dumps(page)


def test_an_unknown_key_does_not_exist(simulator: AtlasSimulator) -> None:
    refused = Client(simulator.base_url, "00000000-0000-0000-0000-000000000000").create()
    assert (refused.status, refused.document["error"]["code"]) == (401, 104)
    assert refused.details == ["The provided API key does not exist"]


@pytest.mark.parametrize(
    ("permission", "method", "path"),
    [
        ("measurements.create_measurement", "POST", "/measurements/"),
        ("measurements.list_measurements", "GET", "/measurements/my/"),
        ("measurements.stop_measurement", "DELETE", "/measurements/1000001/"),
        ("credits.get_credit_info", "GET", "/credits/"),
    ],
)
def test_a_key_without_the_permission_is_refused_that_and_nothing_else(
    simulator: AtlasSimulator, client: Client, permission: str, method: str, path: str
) -> None:
    client.create()
    left = tuple(one for one in POOL_PERMISSIONS if one != permission)
    poorer = Client(simulator.base_url, simulator.add_key("alice", grants=left).uuid)
    body = order(ping()) if method == "POST" else None
    assert poorer.ask(method, path, body).status == 403
    others = {"/credits/", "/measurements/my/"} - {path}
    assert [poorer.ask("GET", other).status for other in others] == [200] * len(others)
    assert client.ask(method, path, body).status in (200, 201, 204)


def test_a_grant_for_one_measurement_stops_only_that(simulator: AtlasSimulator, client: Client) -> None:
    one, other = client.create(ping(), ping()).ids
    grant = Grant("measurements.stop_measurement", one)
    narrow = Client(simulator.base_url, simulator.add_key("alice", grants=(grant,)).uuid)
    assert narrow.ask("DELETE", f"/measurements/{other}/").status == 403
    assert narrow.ask("DELETE", f"/measurements/{one}/").status == 204


def test_a_key_can_be_disabled_and_enabled_while_it_runs(client: Client) -> None:
    change = f"/simulator/keys/{client.key}"
    assert client.ask("PATCH", change, {"enabled": False}).status == 200
    assert client.ask("GET", "/credits/").status == 403
    client.ask("PATCH", change, {"enabled": True})
    assert client.ask("GET", "/credits/").status == 200


def test_keys_and_permissions_are_listed(simulator: AtlasSimulator) -> None:
    simulator.add_account("alice")
    full = ("keys.list_keys", "keys.get_key", *POOL_PERMISSIONS)
    client = Client(simulator.base_url, simulator.add_key("alice", grants=full).uuid)
    simulator.add_account("bob")
    keys = client.get("/keys/")
    assert keys["count"] == 2
    own = next(one for one in keys["results"] if one["uuid"] == client.key)
    assert [one["permission"] for one in own["grants"]] == list(full)
    assert client.get(f"/keys/{client.key}/") == own
    known = {one["permission"] for one in client.get("/keys/permissions/")["results"]}
    assert set(full) <= known


# -- statuses


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


def test_a_periodic_one_runs_from_its_start_to_its_stop(simulator: AtlasSimulator, client: Client) -> None:
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


def test_without_suitable_probes_it_waits_as_6_and_ends_as_7(simulator: AtlasSimulator, client: Client) -> None:
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


def test_when_the_credits_run_out_what_runs_is_forced_to_stop(simulator: AtlasSimulator) -> None:
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


def test_only_the_owner_may_stop_or_edit(simulator: AtlasSimulator, client: Client) -> None:
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


def test_what_is_not_public_is_not_there_for_others(simulator: AtlasSimulator, client: Client) -> None:
    (hidden,) = client.create(ping(is_public=False)).ids
    for other in (Client(simulator.base_url), Client(simulator.base_url, simulator.add_account("eve")[0])):
        assert other.ask("GET", f"/measurements/{hidden}/").status == 404
        assert other.ask("GET", f"/measurements/{hidden}/results/").status == 404
        assert other.get(f"/measurements/?id__in={hidden}")["count"] == 0
    assert client.ask("GET", f"/measurements/{hidden}/results/").status == 200


# -- results


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


# -- lists


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


def test_what_a_list_does_not_know_it_says(client: Client) -> None:
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


# -- quotas


def test_an_account_runs_a_hundred_at_once_whichever_key_asks(simulator: AtlasSimulator, client: Client) -> None:
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


def test_the_sums_of_a_day_and_the_books_are_those_of_counting_all_again(
    simulator: AtlasSimulator, client: Client
) -> None:
    chance, day, world = random.Random(5), Day(), simulator.world
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


def test_without_credits_nothing_is_created_unless_somebody_else_pays(simulator: AtlasSimulator) -> None:
    poor = Client(simulator.base_url, simulator.add_account("poor", balance=59)[0])
    rich = Client(simulator.base_url, simulator.add_account("rich", pays_for={"poor"})[0])
    assert poor.create().details == ["You do not have enough credits to schedule this measurement."]
    assert poor.create(requested=9).status == 201
    assert poor.create(bill_to="rich@example.org").status == 201
    simulator.clock.advance(5 * HOUR_MS)
    assert 0 < rich.get("/credits/")["past_day_credits_spent"] <= 60


def test_the_cap_on_a_target_counts_everybody(simulator: AtlasSimulator, client: Client) -> None:
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


def test_two_clients_at_once_with_room_for_one_get_one(simulator: AtlasSimulator, client: Client) -> None:
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


# -- prices and charges


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
def test_a_result_costs_what_the_credits_page_says_and_twice_for_a_one_off(
    simulator: AtlasSimulator, definition: dict[str, Any], unit: int
) -> None:
    client = Client(simulator.base_url, simulator.add_account("anchors", http_allowed=True)[0])
    (once,) = client.create(definition).ids
    (often,) = client.create(definition, is_oneoff=False, stop_time=START_MS // 1_000 + 3_600).ids
    assert {client.get(f"/measurements/{one}/")["credits_per_result"] for one in (once, often)} == {unit}
    rows = {row["id"]: row["price"] for row in client.get("/simulator/audit")["measurements"]}
    assert rows == {once: 2 * unit, often: unit}


def test_the_counters_lag_and_charge_what_was_delivered(simulator: AtlasSimulator, client: Client) -> None:
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


# -- the clock


def test_the_clock_can_be_driven_from_outside(client: Client) -> None:
    assert client.get("/simulator/clock") == {"now": "2026-05-28T20:26:40.000Z", "now_ms": START_MS, "speed": 0}
    assert client.ask("POST", "/simulator/clock", {"advance": "10m"}).document["now_ms"] == START_MS + 10 * MINUTE_MS
    for wrong in ({"advance": "soon"}, {"speed": -1}, {"backwards": 1}, {"advance": "-5m"}):
        assert client.ask("POST", "/simulator/clock", wrong).status == 400
    assert client.get("/simulator/clock")["now_ms"] == START_MS + 10 * MINUTE_MS


def test_a_fast_clock_brings_a_one_off_to_its_end_in_a_second() -> None:
    with AtlasSimulator(Model(index_lag_ms=0), clock=SimulatorClock(speed=1_000)) as simulator:
        client = Client(simulator.base_url, simulator.add_account("alice")[0])
        (created,) = client.create().ids
        deadline = time.monotonic() + 10
        while client.status(created) != 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert client.get(f"/measurements/{created}/results/")


def test_the_clock_can_follow_that_of_a_simulation() -> None:
    now_ms = [START_MS]
    clock = SimulatorClock(source=lambda: now_ms[0])
    assert clock.now_ms() == START_MS
    now_ms[0] += 5_000
    assert clock.now_ms() == START_MS + 5_000
    clock.advance(1_000)
    clock.set_speed(2)
    now_ms[0] += 1_000
    assert clock.now_ms() == START_MS + 8_000


# -- the same again


def history(seed: int) -> str:
    clock = SimulatorClock(start_ms=START_MS, speed=0)
    with AtlasSimulator(Model(seed=seed), clock=clock) as simulator:
        client = Client(simulator.base_url, simulator.add_account("alice")[0])
        client.ask("POST", "/simulator/faults", {"kind": "error_after", "chance": 0.5, "times": None})
        said = [client.create(definition_of(type_), requested=20).body.decode() for type_ in ALL_TYPES]
        clock.advance(10 * MINUTE_MS)
        client.ask("DELETE", "/simulator/faults")
        said += [client.ask("GET", f"/measurements/{1_000_001 + n}/results/").body.decode() for n in range(3)]
        audit = client.ask("GET", "/simulator/audit").body.decode()
        return "\n".join([*said, audit]).replace(str(simulator.port), "PORT")


def test_the_same_seed_and_script_give_the_same_history() -> None:
    assert history(7) == history(7)
    assert history(7) != history(8)


def test_what_nobody_knows_is_not_found_and_wrong_methods_are_refused(client: Client) -> None:
    assert client.ask("GET", "/anchors/").status == 404
    assert client.ask("PUT", "/measurements/").status == 405
    assert client.ask("GET", "/measurements/7/").status == 404
    assert client.ask("GET", "/simulator/nothing").status == 404

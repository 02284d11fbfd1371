"""Orders and keys of the simulated RIPE Atlas: what is accepted, and what is refused in which words."""

from __future__ import annotations

import base64
import json
from typing import Any

import dns.message
import pytest
from cryptography import x509

from paceline.simulators.ripe_atlas import (
    POOL_PERMISSIONS,
    AtlasSimulator,
    Model,
    SimulatedGrant,
    SimulatorClock,
)
from tests.simulators.support.atlas_client import MINUTE_MS, START_MS, Client, definition_of, order, ping

ALL_TYPES = ("ping", "traceroute", "dns", "sslcert", "ntp", "http")


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


def test_measurement_can_join_a_group_of_the_same_user(simulator: AtlasSimulator, client: Client) -> None:
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


def test_unused_target_need_not_resolve(client: Client) -> None:
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


def test_http_is_for_approved_accounts_and_wifi_for_no_account(client: Client) -> None:
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


def test_a_key_is_taken_from_the_header_and_from_the_query(simulator: AtlasSimulator, client: Client) -> None:
    anonymous = Client(simulator.base_url)
    assert anonymous.ask("GET", f"/credits/?key={client.key}").status == 200
    assert anonymous.ask("GET", "/credits/").status == 401
    created = anonymous.ask("POST", f"/measurements/?key={client.key}", order(ping()))
    assert created.status == 201
    page = anonymous.get(f"/measurements/my/?key={client.key}&page_size=1&status=Specified")
    assert client.key not in json.dumps(page)


def test_unknown_key_is_refused_as_not_existing(simulator: AtlasSimulator) -> None:
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
def test_key_without_a_permission_is_refused_only_the_action_that_needs_it(
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
    grant = SimulatedGrant("measurements.stop_measurement", one)
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

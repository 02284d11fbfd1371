"""What a job may ask of RIPE Atlas: good measurements come back as they were, bad ones are refused by their field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.job import PROBLEMS_MAX, Job, JobLimits, job_digest, parse_job, parse_request
from paceline.core.jobs.measurement import (
    KINDS,
    Measurement,
    Ping,
    encode_measurement,
    is_oneoff,
    is_overdue,
    kind_of,
    parse_stored_measurement,
    requested_probes,
    span_s,
    targets_of,
)
from paceline.errors import FieldProblem, InvalidInput, MalformedBody, PacelineError

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
LIMITS = JobLimits()
COMMON: dict[str, Any] = {"description": "a description", "af": 4, "target": "192.0.2.1"}
DEFINITIONS: dict[str, dict[str, Any]] = {
    "ping": {**COMMON, "type": "ping"},
    "traceroute": {**COMMON, "type": "traceroute", "protocol": "ICMP"},
    "dns": {**COMMON, "type": "dns", "query_class": "IN", "query_type": "AAAA", "query_argument": "example.org"},
    "sslcert": {**COMMON, "type": "sslcert"},
    "ntp": {**COMMON, "type": "ntp"},
    "http": {**COMMON, "type": "http"},
}
RANGES: dict[str, dict[str, tuple[int, int]]] = {
    "ping": {"packets": (1, 16), "size": (1, 2_048), "packet_size": (1, 2_048), "packet_interval": (2, 300_000)},
    "traceroute": {
        "packets": (1, 16),
        "size": (0, 2_048),
        "paris": (0, 64),
        "first_hop": (1, 255),
        "max_hops": (1, 255),
        "port": (1, 65_535),
        "response_timeout": (1, 60_000),
    },
    "dns": {"udp_payload_size": (512, 4_096), "retry": (0, 10), "timeout": (1, 60_000), "port": (1, 65_535)},
    "sslcert": {"port": (1, 65_535)},
    "ntp": {"packets": (1, 16), "timeout": (1, 60_000)},
    "http": {"port": (1, 65_535), "header_bytes": (0, 2_048)},
}
CASES = [(kind, field, bounds) for kind, fields in RANGES.items() for field, bounds in fields.items()]


def definition(kind: str = "ping", **fields: Any) -> dict[str, Any]:
    return DEFINITIONS[kind] | fields


def request(*definitions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    probes = [{"requested": 10, "type": "area", "value": "WW"}]
    return {"definitions": list(definitions) or [definition()], "probes": probes, "is_oneoff": True} | fields


def sources(*probes: dict[str, Any]) -> dict[str, Any]:
    return request(probes=list(probes))


def parse(*requests: dict[str, Any], limits: JobLimits = LIMITS) -> Job:
    return parse_job(json.dumps({"measurements": requests}).encode(), limits, now_ms=NOW_MS)


def parse_one(one: dict[str, Any]) -> Measurement:
    return parse(one).measurements[0]


def problems(*requests: dict[str, Any], limits: JobLimits = LIMITS) -> tuple[FieldProblem, ...]:
    with pytest.raises(InvalidInput) as caught:
        parse(*requests, limits=limits)
    return tuple(caught.value.errors)


def problem(one: dict[str, Any]) -> FieldProblem:
    (found,) = problems(one)
    assert found.pointer.startswith("/measurements/0")
    return FieldProblem(found.pointer.removeprefix("/measurements/0"), found.detail)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_type_is_accepted_and_comes_back_as_it_was(kind: str) -> None:
    measurement = parse_one(request(definition(kind)))
    assert kind_of(measurement.definitions[0]) == kind
    assert json.loads(encode_measurement(measurement)) == request(definition(kind))


@pytest.mark.parametrize("kind", list(KINDS))
def test_null_stands_for_not_given_in_every_optional_field(kind: str) -> None:
    required = set(definition(kind))
    nulls = {name: None for name in KINDS[kind].__struct_fields__ if name not in required}
    assert parse_one(request(definition(kind, **nulls))) == parse_one(request(definition(kind)))


@pytest.mark.parametrize(("kind", "field", "bounds"), CASES)
def test_numbers_are_taken_up_to_their_bounds_and_not_beyond(kind: str, field: str, bounds: tuple[int, int]) -> None:
    for value in bounds:
        parse_one(request(definition(kind, **{field: value})))
    for value in (bounds[0] - 1, bounds[1] + 1):
        assert problem(request(definition(kind, **{field: value}))).pointer == f"/definitions/0/{field}"


@pytest.mark.parametrize(
    ("kind", "field"),
    [("ping", f) for f in ("type", "af", "description", "target")]
    + [("traceroute", "protocol"), ("dns", "query_class"), ("dns", "query_type"), ("dns", "query_argument")],
)
def test_a_missing_field_is_named(kind: str, field: str) -> None:
    short = {name: value for name, value in definition(kind).items() if name != field}
    assert problem(request(short)) == (f"/definitions/0/{field}", "this field is required")


@pytest.mark.parametrize(
    ("wrong", "pointer", "word"),
    [
        ({"af": 5}, "/af", "4, 6"),
        ({"af": "4"}, "/af", "int"),
        ({"af": 6}, "/target", "IPv4"),
        ({"target": "not a host"}, "/target", "host name"),
        ({"tags": ["ok", 7]}, "/tags/1", "str"),
        ({"interval": 300}, "/interval", "one-off"),
        ({"spread": 401}, "/spread", "400"),
        ({"is_oneoff": False}, "/is_oneoff", "contradicts"),
        ({"group_id": 7}, "/group_id", "account"),
        ({"aggregator_client_id": "alice"}, "/aggregator_client_id", "regex"),
        ({"packet_size": 40, "size": 50}, "/packet_size", "size"),
        ({"sise": 40}, "/sise", "unknown field"),
        ({"start_time": "tomorrow"}, "/start_time", "ISO 8601"),
    ],
)
def test_a_wrong_field_of_a_definition_is_named(wrong: dict[str, Any], pointer: str, word: str) -> None:
    found = problem(request(definition(**wrong)))
    assert found.pointer == f"/definitions/0{pointer}"
    assert word in found.detail


def test_wifi_measurement_is_refused_as_restricted() -> None:
    found = problem(request({"type": "wifi", "ssid": "eduroam"}))
    assert found.pointer == "/definitions/0/type"
    assert "restricted" in found.detail


def test_fields_that_paceline_sets_cannot_be_given() -> None:
    assert problem(request(bill_to="payer@example.org")).pointer == "/bill_to"


def test_all_errors_are_named_at_once() -> None:
    first = request(definition(af=5), definition(packets=17), probes=[{"requested": 1, "type": "planet", "value": "x"}])
    second = request(definition(target="a b"), unknown=1)
    assert [p.pointer for p in problems(first, request(), second)] == [
        "/measurements/0/definitions/0/af",
        "/measurements/0/definitions/1/packets",
        "/measurements/0/probes/0/type",
        "/measurements/2/unknown",
    ]


def test_list_of_errors_is_bounded() -> None:
    assert len(problems(*[request(definition(af=5))] * 200)) == PROBLEMS_MAX


def test_packet_size_is_another_word_for_size() -> None:
    assert parse_one(request(definition(packet_size=1_600))) == parse_one(request(definition(size=1_600)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("area", "WW"),
        ("area", "South-Central"),
        ("country", "NL"),
        ("countries", "NL,DE"),
        ("asn", 3333),
        ("asn", "3333"),
        ("prefix", "192.0.2.0/24"),
        ("prefix", "2001:db8::/32"),
        ("probes", 6434),
        ("probes", "1,2,3"),
        ("msm", 1_000_192),
        ("region", "Western Europe"),
    ],
)
def test_every_kind_of_probe_source_is_accepted(kind: str, value: int | str) -> None:
    source = {"requested": 1, "type": kind, "value": value}
    assert json.loads(encode_measurement(parse_one(sources(source))))["probes"] == [source]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("area", "Mars"),
        ("country", "NLD"),
        ("countries", "NL;DE"),
        ("asn", "AS3333"),
        ("asn", 2**32),
        ("prefix", "192.0.2.1"),
        ("prefix", "192.0.2.0/33"),
        ("prefix", 7),
        ("probes", "1,,3"),
        ("probes", "٣"),
        ("msm", -1),
        ("region", "x" * 65),
    ],
)
def test_invalid_probe_source_is_named(kind: str, value: int | str) -> None:
    assert problem(sources({"requested": 1, "type": kind, "value": value})).pointer == "/probes/0/value"


def test_request_for_all_matching_probes_is_refused_because_it_has_no_price() -> None:
    found = problem(sources({"requested": -1, "type": "area", "value": "WW"}))
    assert found.pointer == "/probes/0/requested"
    assert "price" in found.detail
    assert problem(sources({"requested": 0, "type": "area", "value": "WW"})).pointer == "/probes/0/requested"


def test_a_measurement_has_at_most_a_thousand_probes() -> None:
    half = {"requested": 500, "type": "area", "value": "WW"}
    assert requested_probes(parse_one(sources(half, half))) == 1_000
    assert problem(sources(half, half, half | {"requested": 1})).pointer == "/probes"


def test_probe_tags_may_be_null() -> None:
    tags = {"include": ["system-ipv4-works"], "exclude": None}
    measurement = parse_one(sources({"requested": 1, "type": "area", "value": "WW", "tags": tags}))
    assert measurement.probes[0].tags is not None
    assert measurement.probes[0].tags.include == ("system-ipv4-works",)


def test_one_off_flag_may_stand_in_the_request_or_in_the_definition() -> None:
    one = parse_one(request(definition(is_oneoff=True), is_oneoff=None))
    both = parse_one(request(definition(is_oneoff=True)))
    whole = parse_one(request())
    assert [is_oneoff(m, m.definitions[0]) for m in (one, both, whole)] == [True] * 3


def test_a_periodic_measurement_needs_an_end_in_the_future() -> None:
    assert problem(request(is_oneoff=False)).pointer == "/definitions/0/stop_time"
    assert problem(request(is_oneoff=False, stop_time=NOW_S)).pointer == "/definitions/0/stop_time"
    far = NOW_S + 367 * 86_400
    assert problem(request(is_oneoff=False, stop_time=far)).pointer == "/definitions/0/stop_time"
    assert problem(request(is_oneoff=False, start_time=far, stop_time=far + 60)).pointer == "/definitions/0/start_time"
    parse_one(request(is_oneoff=False, stop_time=NOW_S + 1))


def test_an_interval_that_is_not_given_is_spelled_out() -> None:
    measurement = parse_one(request(definition("traceroute"), is_oneoff=False, stop_time=NOW_S + 3_600))
    assert measurement.definitions[0].interval == 900


@pytest.mark.parametrize("text", ["2027-01-15T09:00:00Z", "2027-01-15T09:00:00", "2027-01-15T10:00:00+01:00"])
def test_times_are_unix_or_iso_and_utc_without_a_zone(text: str) -> None:
    by_text = parse_one(request(is_oneoff=False, stop_time=text))
    by_number = parse_one(request(is_oneoff=False, stop_time=1_800_003_600))
    own = parse_one(request(definition(stop_time=text), is_oneoff=False))
    assert by_text == by_number
    assert span_s(own, own.definitions[0]) == span_s(by_text, by_text.definitions[0]) == (None, 1_800_003_600)


def test_a_spread_too_short_for_its_probes_is_refused() -> None:
    thousand = {"requested": 1_000, "type": "area", "value": "WW"}
    assert problem(request(definition(spread=19), probes=[thousand])).pointer == "/definitions/0/spread"
    parse_one(request(definition(spread=20), probes=[thousand]))


def test_dns_asks_a_target_or_the_probes_own_resolver() -> None:
    bare = {name: value for name, value in definition("dns").items() if name != "target"}
    assert problem(request(bare)).pointer == "/definitions/0/target"
    assert targets_of(parse_one(request(bare | {"use_probe_resolver": True}))) == frozenset()


def test_targets_are_compared_as_host_names() -> None:
    measurement = parse_one(request(definition(target="Example.ORG."), definition(target="example.org")))
    assert targets_of(measurement) == {"example.org"}


def test_a_measurement_that_waited_past_its_end_is_overdue() -> None:
    measurement = parse_one(request(is_oneoff=False, stop_time=NOW_S + 60))
    assert not is_overdue(measurement, now_ms=NOW_MS + 59_999)
    assert is_overdue(measurement, now_ms=NOW_MS + 60_000)


def test_a_job_is_bounded_in_bytes_measurements_and_definitions() -> None:
    assert problems(request(), request(), limits=JobLimits(measurements_max=1))[0].pointer == "/measurements"
    two = request(definition(), definition())
    assert problems(two, limits=JobLimits(definitions_max=1))[0].pointer == "/measurements/0/definitions"
    assert problems(request(), limits=JobLimits(bytes_max=10))[0].pointer == ""
    assert problems(request(definitions=[]))[0].pointer == "/measurements/0/definitions"
    assert problems(request(probes=[]))[0].pointer == "/measurements/0/probes"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"measurements": ' + b"[" * 100_000])
def test_text_that_is_not_json_is_malformed(body: bytes) -> None:
    for parser in (parse_job, parse_request):
        with pytest.raises(MalformedBody):
            parser(body, LIMITS, now_ms=NOW_MS)


def test_a_nul_is_refused_and_a_backslash_that_looks_like_one_is_not() -> None:
    with pytest.raises(InvalidInput):
        parse_one(request(definition(description="a\x00b")))
    assert parse_one(request(definition(description="a\\u0000b"))).definitions[0].description == "a\\u0000b"


def test_an_unknown_field_is_refused_in_a_job_and_handed_on_for_ripes_own_clients() -> None:
    probes = [{"requested": 1, "type": "area", "value": "WW", "colour": "red"}]
    one = request(definition(priority={"a": [1]}, unset=None), probes=probes, mood="good")
    assert {p.pointer for p in problems(one)} == {"/measurements/0/mood"}
    measurement = parse_request(json.dumps(one).encode(), LIMITS, now_ms=NOW_MS)
    assert measurement.extra == {
        "": {"mood": "good"},
        "/definitions/0": {"priority": {"a": [1]}},
        "/probes/0": {"colour": "red"},
    }
    assert parse_stored_measurement(encode_measurement(measurement)) == measurement


def test_pointer_of_an_error_in_a_ripe_request_has_no_job_prefix() -> None:
    for one, pointer in (
        (request(definition(af=5)), "/definitions/0/af"),
        (request({"type": "wifi"}), "/definitions/0/type"),
        (sources({"requested": -1, "type": "area", "value": "WW"}), "/probes/0/requested"),
        ([], ""),
        ({"definitions": 7, "probes": []}, "/definitions"),
    ):
        with pytest.raises(InvalidInput) as caught:
            parse_request(json.dumps(one).encode(), LIMITS, now_ms=NOW_MS)
        assert caught.value.errors[0].pointer == pointer


def test_the_digest_does_not_depend_on_the_order_of_fields() -> None:
    one, other = request(definition(packets=2)), request(dict(reversed(definition(packets=2).items())))
    assert job_digest(parse(one)) == job_digest(parse(dict(reversed(other.items()))))
    assert job_digest(parse(one)) != job_digest(parse(request(definition(packets=3))))


def test_a_webhook_is_a_url() -> None:
    for url, good in (("https://example.org/done", True), ("ftp://example.org", False)):
        body = json.dumps({"measurements": [request()], "webhook": url}).encode()
        if good:
            assert parse_job(body, LIMITS, now_ms=NOW_MS).webhook == url
        else:
            with pytest.raises(InvalidInput):
                parse_job(body, LIMITS, now_ms=NOW_MS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
wild = st.one_of(
    json_values,
    st.dictionaries(st.sampled_from(["definitions", "probes", "is_oneoff", "start_time", "stop_time"]), json_values),
    st.builds(
        lambda kind, fields, probe: request(definition(kind, **fields), probes=[probe]),
        st.sampled_from(list(KINDS)),
        st.dictionaries(st.sampled_from(sorted(set(Ping.__struct_fields__) | {"type"})), json_values, max_size=3),
        st.dictionaries(st.sampled_from(["requested", "type", "value", "tags"]), json_values),
    ),
)


@given(wild)
def test_every_measurement_document_is_parsed_or_refused_and_a_parsed_one_is_stable(one: Any) -> None:
    job = json.dumps({"measurements": [one]}).encode()
    for parser, body in ((parse_job, job), (parse_request, json.dumps(one).encode())):
        try:
            found: Any = parser(body, LIMITS, now_ms=NOW_MS)
        except PacelineError:
            continue
        for measurement in found.measurements if isinstance(found, Job) else (found,):
            assert parse_stored_measurement(encode_measurement(measurement)) == measurement


def test_measurement_with_too_many_probe_sources_is_refused_whole() -> None:
    source = {"requested": 1, "type": "area", "value": "WW"}
    body = json.dumps(sources(source, source, source)).encode()
    parse_request(body, JobLimits(sources_max=3), now_ms=NOW_MS)
    with pytest.raises(InvalidInput) as caught:
        parse_request(body, JobLimits(sources_max=2), now_ms=NOW_MS)
    assert caught.value.errors == (FieldProblem("/probes", "at most 2 probe sources"),)

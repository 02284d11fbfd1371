"""What a user may declare: good documents come back as they were, bad ones are refused with the field's name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.checks import OutgoingCheck, check_document, repeatable
from paceline.core.monitors.definition import (
    MonitorSpec,
    SpecLimits,
    encode_spec,
    parse_spec,
    parse_stored_spec,
    spec_document,
    wish_of,
)
from paceline.core.monitors.schedule import Cadence
from paceline.core.targets import HEADER_CHARS_MAX, URL_CHARS_MAX
from paceline.errors import InvalidInput, MalformedBody, PacelineError

LIMITS = SpecLimits(every_ms_min=1_000)
HTTP: dict[str, Any] = {"kind": "http", "url": "https://example.org/"}

plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
one_line = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
    max_leaves=8,
)
checks = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.just("http"),
            "url": st.sampled_from(["http://a/", "https://xn--bcher-kva.example:8443/x?y=%20#z"]),
        },
        optional={
            "method": st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]),
            "headers": st.dictionaries(st.sampled_from(["Accept", "X-A", "Cookie"]), st.just("v")),
            "expect": st.fixed_dictionaries(
                {},
                optional={
                    "status": st.sampled_from([[200, 204], ["2xx", 404]]),
                    "body_contains": plain_text,
                    "body_matches": st.sampled_from(["ok|up", r"(?i)^\d+$"]),
                    "json": st.lists(
                        st.fixed_dictionaries({"pointer": st.just("/a~1b/0"), "is": json_values}),
                        min_size=1,
                        max_size=2,
                    ),
                    "header": st.just({"Server": "x", "Via": {"matches": "."}, "Vary": {"contains": "y"}}),
                    "latency_max": st.just("500ms"),
                },
            ),
            "auth": st.sampled_from(
                [{"kind": "basic", "username": "ann", "password": "p:w"}, {"kind": "bearer", "token": "t"}]
            ),
            "timeout": st.sampled_from(["100ms", "10s", "2m"]),
            "verify_tls": st.booleans(),
            "follow_redirects": st.integers(0, 10),
        },
    ),
    st.fixed_dictionaries({"kind": st.just("tcp"), "host": st.just("::1"), "port": st.integers(1, 65_535)}),
    st.fixed_dictionaries(
        {"kind": st.just("dns"), "name": st.just("_sip._tcp.example.org"), "type": st.sampled_from(["A", "SRV"])},
        optional={
            "server": st.just("192.0.2.1"),
            "expect": st.sampled_from([{"contains": ["192.0.2.7"]}, {"equals": ["192.0.2.7", "192.0.2.8"]}]),
        },
    ),
    st.fixed_dictionaries(
        {"kind": st.just("tls"), "host": st.just("example.org")}, optional={"min_days": st.integers(0, 99)}
    ),
    st.dictionaries(plain_text, json_values, max_size=4).map(lambda document: document | {"kind": "outgoing"}),
)
cadences = st.one_of(
    st.fixed_dictionaries({"every": st.sampled_from(["1s", "60s", "1050ms", "366d"])}),
    st.fixed_dictionaries(
        {"cron": st.sampled_from(["0 3 * * *", "*/5 * * * MON"])}, optional={"timezone": st.just("Asia/Tokyo")}
    ),
)
rest = st.fixed_dictionaries(
    {},
    optional={
        "initial_delay": st.sampled_from(["0s", "7s", "1d"]),
        "jitter": st.sampled_from(["0s", "10s"]),
        "missed": st.sampled_from(["skip", "once", "all"]),
        "paused": st.booleans(),
        "tags": st.lists(one_line, max_size=3),
    },
)
documents = st.builds(lambda check, cadence, more: {"check": check} | cadence | more, checks, cadences, rest)


def body_of(document: Any) -> bytes:
    return json.dumps(document).encode()


def monitor(**fields: Any) -> dict[str, Any]:
    document = {"check": HTTP, "every": "60s"} | fields
    return {name: value for name, value in document.items() if value is not ...}


def check(**fields: Any) -> dict[str, Any]:
    return monitor(check=HTTP | fields)


@given(document=documents)
def test_a_spec_survives_being_written_and_read(document: dict[str, Any]) -> None:
    spec = parse_spec(body_of(document), LIMITS)
    assert parse_spec(msgspec.json.encode(spec_document(spec)), LIMITS) == spec
    assert parse_stored_spec(encode_spec(spec)) == spec
    assert encode_spec(parse_stored_spec(encode_spec(spec))) == encode_spec(spec)


@given(document=documents)
def test_spec_has_the_values_of_the_users_document(document: dict[str, Any]) -> None:
    written = spec_document(parse_spec(body_of(document), LIMITS))
    for name, value in document.items():
        if name != "check":
            assert written[name] == value
    assert written["check"]["kind"] == document["check"]["kind"]
    if document["check"]["kind"] == "outgoing":
        assert written["check"] == document["check"]


@given(body=st.one_of(st.binary(max_size=200), json_values.map(body_of), documents.map(body_of)))
def test_any_body_is_a_spec_or_a_named_refusal(body: bytes) -> None:
    answer: MonitorSpec | PacelineError
    try:
        answer = parse_spec(body, LIMITS)
    except (InvalidInput, MalformedBody) as error:
        answer = error
    assert not isinstance(answer, InvalidInput) or answer.errors
    assert isinstance(answer, MonitorSpec) or answer.detail


def refusal(body: bytes, *, pointer: str = "") -> list[str]:
    """The pointers of what is wrong."""
    with pytest.raises(InvalidInput) as caught:
        parse_spec(body, LIMITS, pointer=pointer)
    assert all(problem.detail for problem in caught.value.errors)
    return [problem.pointer for problem in caught.value.errors]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        # fields of the store, and unknown fields
        (monitor(owner="eve"), "/owner"),
        (monitor(counter=1), "/counter"),
        (monitor(credits_spent=1), "/credits_spent"),
        (check(**{"a/b~c": 1}), "/check/a~1b~0c"),
        # the cadence
        (monitor(every=...), "/every"),
        (monitor(cron="0 0 * * *"), "/every"),
        (monitor(every="0s"), "/every"),
        (monitor(every="-1s"), "/every"),
        (monitor(every="1e-9"), "/every"),
        (monitor(every="999ms"), "/every"),
        (monitor(every="1001ms"), "/every"),
        (monitor(every="367d"), "/every"),
        (monitor(every="1000000000000s"), "/every"),
        (monitor(every=60), "/every"),
        (monitor(every="60s", timezone="Europe/Berlin"), "/timezone"),
        (monitor(every=..., cron="0 0 30 2 *"), "/cron"),
        (monitor(every=..., cron="@reboot"), "/cron"),
        (monitor(every=..., cron="* " * 5_000), "/cron"),
        (monitor(every=..., cron="0 0 * * *", timezone="Mars/Olympus"), "/timezone"),
        (monitor(initial_delay="soon"), "/initial_delay"),
        (monitor(jitter="400d"), "/jitter"),
        (monitor(missed="maybe"), "/missed"),
        (monitor(paused="no"), "/paused"),
        (monitor(attempts=0), "/attempts"),
        (monitor(attempts=6), "/attempts"),
        (monitor(attempts=2, check={"kind": "outgoing"}), "/attempts"),
        (monitor(tags=["x"] * 33), "/tags"),
        (monitor(tags=["ok", "x" * 65]), "/tags/1"),
        (monitor(tags=["\x00"]), "/tags/0"),
        (monitor(tags=[1]), "/tags/0"),
        # the check
        (monitor(check=...), "/check"),
        (monitor(check=None), "/check"),
        (monitor(check={}), "/check/kind"),
        (monitor(check={"kind": "ftp"}), "/check/kind"),
        (monitor(check={"kind": "http"}), "/check/url"),
        (monitor(check={"kind": "outgoing", "x": ["\x00"]}), "/check"),
        (monitor(check={"kind": "outgoing", "\x00": 1}), "/check"),
        (monitor(check={"kind": "outgoing", "x": "y" * 70_000}), "/check"),
        (check(timeout="0s"), "/check/timeout"),
        (check(timeout="3m"), "/check/timeout"),
        (check(method="TRACE"), "/check/method"),
        (check(body="x"), "/check/body"),
        (check(method="POST", body="\x00"), "/check/body"),
        (check(follow_redirects=11), "/check/follow_redirects"),
        (check(max_bytes=0), "/check/max_bytes"),
        (check(max_bytes=10**12), "/check/max_bytes"),
        (check(expect={"status": []}), "/check/expect/status"),
        (check(expect={"status": [99]}), "/check/expect/status/0"),
        (check(expect={"status": ["200"]}), "/check/expect/status/0"),
        (check(expect={"status": [200, "6xx"]}), "/check/expect/status/1"),
        (check(expect={"status": [200] * 51}), "/check/expect/status"),
        (check(expect={"body_contains": "\x00"}), "/check/expect/body_contains"),
        (check(expect={"headers": {"x": "\x00"}}), "/check/expect/header/x"),
        (check(expect={"header": {"x": "\x00"}}), "/check/expect/header/x"),
        (check(expect={"header": {"x": {}}}), "/check/expect/header/x"),
        (check(expect={"header": {"x": {"matches": "("}}}), "/check/expect/header/x/matches"),
        (check(expect={"header": {f"x{n}": "" for n in range(33)}}), "/check/expect/header"),
        (check(expect={"body_matches": "("}), "/check/expect/body_matches"),
        (check(expect={"body_matches": "x" * 1_001}), "/check/expect/body_matches"),
        (check(expect={"json": [{"is": 1}]}), "/check/expect/json/0/pointer"),
        (check(expect={"json": [{"pointer": "/a"}]}), "/check/expect/json/0"),
        (check(expect={"json": [{"pointer": "a", "is": 1}]}), "/check/expect/json/0/pointer"),
        (check(expect={"json": [{"pointer": "/~2", "is": 1}]}), "/check/expect/json/0/pointer"),
        (check(expect={"json": [{"pointer": "", "is": "x" * 5_000}]}), "/check/expect/json/0/is"),
        (check(expect={"json": [{"pointer": "", "is": "\x00"}]}), "/check/expect/json/0/is"),
        (check(expect={"json": [{"pointer": "", "matches": "("}]}), "/check/expect/json/0/matches"),
        (check(expect={"json": [{"pointer": "", "at_least": "1"}]}), "/check/expect/json/0/at_least"),
        (check(expect={"json": [{"pointer": "", "is": 1}] * 33}), "/check/expect/json"),
        (check(expect={"latency_max": "0s"}), "/check/expect/latency_max"),
        (check(expect={"latency_max": "3m"}), "/check/expect/latency_max"),
        (check(expect={"days_left": -1}), "/check/expect/days_left"),
        (check(url="http://example.org/", expect={"days_left": 7}), "/check/expect/days_left"),
        (check(auth={"kind": "digest"}), "/check/auth/kind"),
        (check(auth={"kind": "bearer"}), "/check/auth/token"),
        (check(auth={"kind": "bearer", "token": ""}), "/check/auth/token"),
        (check(auth={"kind": "bearer", "token": "a b"}), "/check/auth/token"),
        (check(auth={"kind": "bearer", "token": "\u00e9"}), "/check/auth/token"),
        (check(auth={"kind": "basic", "username": "a:b", "password": ""}), "/check/auth/username"),
        (check(auth={"kind": "basic", "username": "a", "password": "\n"}), "/check/auth/password"),
        (check(auth={"kind": "bearer", "token": "x"}, headers={"authorization": "y"}), "/check/auth"),
        (monitor(check={"kind": "tls", "host": "a", "expect": {"days_left": 3_651}}), "/check/expect/days_left"),
        (monitor(check={"kind": "dns", "name": "a", "expect": {"equals": ["\x00"]}}), "/check/expect/equals/0"),
        (monitor(check={"kind": "dns", "name": "a", "expect": {"contains": ["a"] * 101}}), "/check/expect/contains"),
        (check(expect={"bodycontains": "x"}), "/check/expect/bodycontains"),
        (monitor(check={"kind": "tcp", "host": "a b", "port": 1}), "/check/host"),
        (monitor(check={"kind": "tcp", "host": "a", "port": 0}), "/check/port"),
        (monitor(check={"kind": "tcp", "host": "a", "port": 70_000}), "/check/port"),
        (monitor(check={"kind": "tls", "host": "a", "server_name": "a/b"}), "/check/server_name"),
        (monitor(check={"kind": "tls", "host": "a", "min_days": -1}), "/check/min_days"),
        (monitor(check={"kind": "dns", "name": "a..b/c"}), "/check/name"),
        (monitor(check={"kind": "dns", "name": "a", "type": "ANY"}), "/check/type"),
        (monitor(check={"kind": "dns", "name": "a", "server": "@1"}), "/check/server"),
        (monitor(check={"kind": "dns", "name": "a", "expect": {"contains": ["\x00"]}}), "/check/expect/contains/0"),
    ],
)
def test_a_wrong_field_is_refused_by_name(document: dict[str, Any], pointer: str) -> None:
    assert refusal(body_of(document)) == [pointer]
    assert refusal(body_of(document), pointer="/items/7") == [f"/items/7{pointer}"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.org/",
        "ftp://example.org/",
        "javascript:alert(1)",
        "//example.org/",
        "example.org",
        "http://",
        "http:///path",
        "http://user:password@example.org/",
        "http://user@example.org/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "http://example.org/\x00",
        "http://example.org\\@evil.example/",
        "http://bücher.example/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://example.org:x/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://a%2eb/",
        f"http://{'a' * 64}.example/",
        f"http://example.org/{'a' * URL_CHARS_MAX}",
        "",
    ],
)
def test_a_url_that_must_not_be_reached_is_refused_when_saved(url: str) -> None:
    assert refusal(body_of(check(url=url))) == ["/check/url"]


@pytest.mark.parametrize(
    "url", ["http://[2001:db8::1]:8080/", "HTTPS://Example.ORG", "http://127.0.0.1/?q=@", "http://a_b.c/"]
)
def test_an_ordinary_url_is_accepted(url: str) -> None:
    assert spec_document(parse_spec(body_of(check(url=url)), LIMITS))["check"]["url"] == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "evil.example"),
        ("host", "evil.example"),
        ("Content-Length", "0"),
        ("TRANSFER-ENCODING", "chunked"),
        ("Connection", "close"),
        ("X-A", "a\r\nB: c"),
        ("X-A", "a\nb"),
        ("X-A", "a\x00b"),
        ("X-A", "a\x7fb"),
        ("X-A", "ä"),
        ("X-A", "a" * (HEADER_CHARS_MAX + 1)),
        ("X A", "v"),
        ("X-A:", "v"),
        ("X\r\nA", "v"),
        ("", "v"),
        ("a~b c", "v"),
        ("a/b", "v"),
    ],
)
def test_header_with_forbidden_characters_is_refused_when_saved(name: str, value: str) -> None:
    escaped = name.replace("~", "~0").replace("/", "~1")
    assert refusal(body_of(check(headers={name: value}))) == [f"/check/headers/{escaped}"]


def test_too_many_headers_are_refused() -> None:
    assert refusal(body_of(check(headers={f"X-{n}": "v" for n in range(33)}))) == ["/check/headers"]


def test_all_errors_are_named_at_once() -> None:
    document = monitor(check=HTTP | {"url": "ftp://a/", "timeout": "9d"}, every="0s", jitter="x", tags=["\x00"])
    assert refusal(body_of(document)) == ["/check/url", "/check/timeout", "/every", "/jitter", "/tags/0"]


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"9" * 5_000,
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        b"[" * 100_000,
        b"\xff",
        b"1,,2",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 500 + b"]" * 500,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"a":1,"a":' * 30_000 + b"1" + b"}" * 30_000,
    ],
    ids=lambda value: repr(value[:12]),
)
@pytest.mark.parametrize(
    "place", [b'{"check": {"kind": "outgoing", "x": %s}, "every": "60s"}', b'{"check": %s, "every": "60s"}', b"%s"]
)
def test_a_hostile_shape_is_refused_and_never_raises_anything_else(place: bytes, value: bytes) -> None:
    with pytest.raises((InvalidInput, MalformedBody)):
        parse_spec(place % value, LIMITS)


def test_a_checkers_own_document_may_be_nested_reasonably() -> None:
    nested = b"[" * 20 + b"]" * 20
    spec = parse_spec(b'{"check": {"kind": "outgoing", "x": %s}, "every": "60s"}' % nested, LIMITS)
    assert parse_stored_spec(encode_spec(spec)) == spec


def test_current_limits_do_not_apply_to_stored_definitions() -> None:
    body = body_of(monitor(every="1s"))
    assert parse_stored_spec(body).every == "1s"
    with pytest.raises(InvalidInput, match="must be from 1m"):
        parse_spec(body, SpecLimits(every_ms_min=60_000))


def test_wish_of_a_monitor_has_its_cadence_and_rests_when_paused_or_disabled() -> None:
    spec = parse_spec(
        body_of(monitor(every=..., cron="0  3 * * *", timezone="Asia/Tokyo", jitter="10s", missed="all")), LIMITS
    )
    wish = wish_of(spec, created_ms=5, owner_disabled=False)
    assert wish.cadence == Cadence(cron="0 3 * * *", timezone="Asia/Tokyo", jitter_ms=10_000, missed="all")
    assert not wish.resting
    assert not wish.outgoing
    assert wish_of(spec, created_ms=5, owner_disabled=True).resting
    paused = msgspec.structs.replace(spec, paused=True)
    assert wish_of(paused, created_ms=5, owner_disabled=False).resting


def test_only_checks_safe_to_repeat_are_repeatable() -> None:
    spec = parse_spec(body_of(check(method="POST", body="x")), LIMITS)
    assert not repeatable(spec.check)
    assert repeatable(OutgoingCheck(document={"kind": "outgoing"}))
    assert check_document(spec.check)["kind"] == "http"

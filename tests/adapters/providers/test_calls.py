"""Calls to providers over real HTTP on loopback."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import format_datetime
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.adapters.providers.calls import HttpCaller, parse_retry_after_ms, payload_text
from paceline.core.batches.calls import PAYLOAD_BYTES_MAX, Call, CallResult
from paceline.core.instants import to_datetime
from paceline.ports import Caller
from paceline.simulators.http import ModelHttpServer
from paceline.simulators.providers import ModelProviders, Script, serve_providers
from tests.adapters.providers.support.drive import LOOPBACK, RealClock

CANARY = "Bearer canary-4711"


def open_caller(*allow: str, own: tuple[tuple[str, int], ...] = ()) -> HttpCaller:
    return HttpCaller(allow=[ip_network(text) for text in allow], clock=RealClock(), own=own)


@pytest.fixture
def caller() -> Iterator[HttpCaller]:
    opened = open_caller(*LOOPBACK)
    yield opened
    opened.close()


@pytest.fixture
def model() -> Iterator[tuple[str, ModelProviders]]:
    server, providers = serve_providers()
    with server:
        yield server.base_url, providers


def call(url: str, method: Any = "POST", *, body: str | None = '{"n": 1}', **fields: Any) -> Call:
    headers = {"Idempotency-Key": "b/r@2026-11-15", **fields.pop("headers", {})}
    given: dict[str, Any] = {"handle": 1, "attempt": 1, "timeout_ms": 5_000, **fields}
    return Call(run_id="b/r@2026-11-15", method=method, url=url, headers=headers, body=body, **given)


def gather(caller: Caller, count: int, *, within_s: float = 60.0) -> list[CallResult]:
    results: list[CallResult] = []
    until_s = time.monotonic() + within_s
    while len(results) < count:
        assert time.monotonic() < until_s, f"only {len(results)} of {count} ended"
        results += caller.finished(wait_ms=200)
    return results + caller.finished(wait_ms=20)


def made(caller: Caller, one: Call) -> CallResult:
    caller.start([one])
    (result,) = gather(caller, 1)
    assert caller.in_flight == 0
    return result


def echoed(result: CallResult) -> Any:
    assert result.payload is not None
    return json.loads(result.payload)


# -- what is sent


def test_a_call_carries_method_body_key_and_headers_to_the_provider(
    caller: HttpCaller, model: tuple[str, ModelProviders]
) -> None:
    base_url, providers = model
    result = made(caller, call(f"{base_url}/north/query?id=7", headers={"X-Key": "k"}))
    (arrival,) = providers.arrivals("north")
    assert (result.code, result.fault, result.reason, result.payload) == (200, None, "", '{"ok": true}')
    assert (arrival.method, arrival.target, arrival.body) == ("POST", "/north/query?id=7", b'{"n": 1}')
    assert (arrival.key, arrival.headers["X-Key"]) == ("b/r@2026-11-15", "k")
    assert arrival.headers["Content-Type"] == "application/json"
    assert result.latency_ms is not None
    assert result.started_ms <= result.ended_ms


@pytest.mark.parametrize(
    ("body", "headers", "sent", "content_type"),
    [
        ('{"a": [1, "x"]}', {}, '{"a": [1, "x"]}', "application/json"),
        ("17", {}, "17", "application/json"),
        ('"a=1&b=\\u00fc"', {}, "a=1&b=ü", "text/plain; charset=utf-8"),
        ('"<a/>"', {"content-type": "application/xml"}, "<a/>", "application/xml"),
        ("{}", {"Content-Type": "application/vnd.x+json"}, "{}", "application/vnd.x+json"),
        ('""', {}, "", "text/plain; charset=utf-8"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
def test_a_body_goes_as_json_and_a_json_string_as_its_text(
    caller: HttpCaller,
    server: ModelHttpServer,
    method: str,
    body: str,
    headers: dict[str, str],
    sent: str,
    content_type: str,
) -> None:
    seen = echoed(made(caller, call(f"{server.base_url}/echo", method, body=body, headers=headers)))
    assert (seen["method"], seen["body"]) == (method, sent)
    assert {value for name, value in seen["headers"].items() if name.lower() == "content-type"} == {content_type}
    assert seen["headers"]["Content-Length"] == str(len(sent.encode()))


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "PUT", "PATCH"])
def test_call_without_a_body_has_no_body_headers(caller: HttpCaller, server: ModelHttpServer, method: str) -> None:
    seen = echoed(made(caller, call(f"{server.base_url}/echo", method, body=None)))
    assert (seen["method"], seen["body"]) == (method, "")
    assert "content-type" not in {name.lower() for name in seen["headers"]}
    assert seen["headers"].get("Content-Length", "0") == "0"


def test_call_leaves_no_options_on_the_handle_for_the_next_call(caller: HttpCaller, server: ModelHttpServer) -> None:
    url = f"{server.base_url}/echo"
    made(caller, call(url, body='"secret text"', headers={"X-First": "1"}))
    seen = echoed(made(caller, call(url, body="{}")))
    assert seen["body"] == "{}"
    assert "X-First" not in seen["headers"]


# -- what comes back


@pytest.mark.parametrize(
    ("code", "reason"), [(404, "status 404"), (500, "status 500"), (204, ""), (301, "not followed")]
)
def test_call_result_has_the_status_and_its_reason(
    caller: HttpCaller, server: ModelHttpServer, code: int, reason: str
) -> None:
    path = "/redirect?to=/ok&status=301" if code == 301 else f"/status/{code}"
    result = made(caller, call(f"{server.base_url}{path}"))
    assert (result.code, result.fault, result.arrived) == (code, None, True)
    assert result.reason == reason or (code == 301 and reason in result.reason)
    assert server.log.count("/ok") == 0


def test_retry_after_is_read_as_seconds_and_as_a_date(caller: HttpCaller, model: tuple[str, ModelProviders]) -> None:
    base_url, providers = model
    providers.behave("busy", Script(busy_every=1, retry_after="7"))
    assert made(caller, call(f"{base_url}/busy/x")).retry_after_ms == 7_000
    soon = format_datetime(to_datetime(RealClock().now_ms() + 30_000), usegmt=True)
    providers.behave("busy", Script(busy_every=1, retry_after=soon))
    result = made(caller, call(f"{base_url}/busy/x"))
    assert result.code == 429
    assert result.retry_after_ms is not None
    assert 20_000 < result.retry_after_ms <= 30_000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("0", 0),
        ("120", 120_000),
        ("999999999999999", 86_400_000),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200_000),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("²", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400_000),
    ],
)
def test_a_retry_after_is_bounded_and_nonsense_is_none(value: str, ms: int | None) -> None:
    now_ms = 784_111_777_000 if "1994" in value else 1_000_000
    assert parse_retry_after_ms(value, now_ms=now_ms) == ms


@given(st.text(max_size=60))
def test_any_retry_after_text_is_parsed_within_a_day_or_ignored(value: str) -> None:
    ms = parse_retry_after_ms(value, now_ms=0)
    assert ms is None or 0 <= ms <= 86_400_000


def test_the_payload_is_bounded_and_the_rest_is_read_and_dropped(
    caller: HttpCaller, model: tuple[str, ModelProviders]
) -> None:
    base_url, providers = model
    providers.behave("wordy", Script(body="ä".encode() * 100_000))
    result = made(caller, call(f"{base_url}/wordy/x"))
    assert result.code == 200
    assert result.payload == "ä" * (PAYLOAD_BYTES_MAX // 2)


def test_endless_answer_is_truncated_and_still_counts_as_an_answer(caller: HttpCaller, server: ModelHttpServer) -> None:
    for path in ("/endless", "/gzip-bomb"):
        result = made(caller, call(f"{server.base_url}{path}", "GET", body=None))
        assert (result.code, result.fault) == (200, None)
        assert len((result.payload or "").encode()) <= PAYLOAD_BYTES_MAX


@given(st.binary(max_size=200) | st.binary(max_size=20).map(lambda piece: piece * 2_000))
def test_any_bytes_become_bounded_text_without_nulls(body: bytes) -> None:
    text = payload_text(body) or ""
    assert len(text.encode()) <= PAYLOAD_BYTES_MAX
    assert "\0" not in text
    if len(body) <= PAYLOAD_BYTES_MAX and b"\0" not in body:
        try:
            assert text == body.decode()
        except UnicodeDecodeError:
            assert "\ufffd" in text


# -- no answer


def test_call_with_a_refused_connection_has_not_arrived(caller: HttpCaller, server: ModelHttpServer) -> None:
    assert made(caller, call(f"{server.base_url}/ok")).arrived
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        result = made(caller, call(f"http://127.0.0.1:{port}/x"))
    assert (result.fault, result.arrived, result.code) == ("network", False, None)
    assert result.reason == "connection refused"


def test_call_with_a_failed_tls_handshake_has_not_arrived(caller: HttpCaller, server: ModelHttpServer) -> None:
    result = made(caller, call(server.base_url.replace("http:", "https:") + "/x"))
    assert (result.fault, result.arrived) == ("network", False)
    assert server.log.total == 0


def test_outbound_guard_refuses_a_call_before_anything_is_sent(server: ModelHttpServer) -> None:
    strict = open_caller()
    result = made(strict, call(f"{server.base_url}/ok"))
    strict.close()
    assert (result.fault, result.arrived) == ("refused", False)
    assert "PACELINE_OUTBOUND_ALLOW" in result.reason
    assert server.log.total == 0


def test_call_to_pacelines_own_api_is_refused(server: ModelHttpServer) -> None:
    strict = open_caller(*LOOPBACK, own=(("127.0.0.1", server.port),))
    result = made(strict, call(f"{server.base_url}/ok"))
    strict.close()
    assert (result.fault, server.log.total) == ("refused", 0)


@pytest.mark.parametrize("path", ["/hang", "/drip?every=50"])
def test_the_deadline_covers_all_of_a_call_that_may_have_arrived(
    caller: HttpCaller, server: ModelHttpServer, path: str
) -> None:
    begun_s = time.monotonic()
    result = made(caller, call(f"{server.base_url}{path}", timeout_ms=300))
    assert (result.fault, result.arrived, result.code) == ("time_out", True, None)
    assert "300ms" in result.reason
    assert time.monotonic() - begun_s < 8


@pytest.mark.parametrize(("method", "body"), [("POST", '{"n": 1}'), ("POST", None), ("PATCH", '"x"')])
def test_promise_9_a_reply_that_is_lost_on_a_kept_connection_is_not_sent_a_second_time(
    caller: HttpCaller, model: tuple[str, ModelProviders], method: str, body: str | None
) -> None:
    base_url, providers = model
    providers.behave("lossy", Script(lost_every=2, honours_keys=False))
    assert made(caller, call(f"{base_url}/lossy/x", method, body=body)).code == 200
    result = made(caller, call(f"{base_url}/lossy/x", method, body=body))
    assert (result.fault, result.arrived) == ("network", True)
    assert result.reason == "the connection was closed without an answer"
    assert len(providers.arrivals("lossy")) == 2


def test_answer_cut_short_by_the_server_is_a_network_fault(caller: HttpCaller) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

        thread = threading.Thread(target=serve)
        thread.start()
        result = made(caller, call(f"http://127.0.0.1:{listener.getsockname()[1]}/x"))
        thread.join()
    assert (result.code, result.fault, result.arrived, result.payload) == (None, "network", True, None)
    assert result.reason.startswith("status 200, then the connection was closed")


def test_a_url_that_cannot_be_called_is_refused(caller: HttpCaller) -> None:
    for url in ("http://", "ftp://127.0.0.1/x", "http://127.0.0.1:99999/"):
        result = made(caller, call(url))
        assert (result.fault, result.arrived, result.code) == ("refused", False, None), url


# -- secrets


def test_promise_12_header_values_are_in_a_result_only_if_the_provider_repeats_them(
    caller: HttpCaller, server: ModelHttpServer, model: tuple[str, ModelProviders]
) -> None:
    base_url, providers = model
    providers.behave("lossy", Script(lost_every=1))
    urls = [
        f"{server.base_url}/status/401",
        f"{server.base_url}/hang",
        f"{base_url}/lossy/x",
        "http://127.0.0.1:1/x",
        "http://127.0.0.1:99999/x",
        "https://" + server.base_url.removeprefix("http://"),
        "http://192.0.2.1/x",
    ]
    headers = {"Authorization": CANARY}
    for url in urls:
        result = made(caller, call(url, headers=headers, timeout_ms=300))
        assert "canary" not in f"{result.reason} {result.payload}", url
    broken = call(f"{server.base_url}/ok", headers={**headers, "X-Ü": "ü"})
    assert "canary" not in made(caller, broken).reason


# -- many at once


def test_hundreds_of_calls_are_in_flight_at_once_and_each_ends_once(
    caller: HttpCaller, model: tuple[str, ModelProviders]
) -> None:
    base_url, providers = model
    providers.behave("slow", Script(latency_ms=300))
    begun_s = time.monotonic()
    caller.start([call(f"{base_url}/slow/{n}", handle=n) for n in range(300)])
    assert caller.in_flight == 300
    results = gather(caller, 300)
    assert sorted(result.handle for result in results) == list(range(300))
    assert {result.code for result in results} == {200}
    assert time.monotonic() - begun_s < 30
    assert max(one.others for one in providers.arrivals("slow")) > 100


def test_wake_ends_the_wait_of_a_caller(caller: HttpCaller) -> None:
    threading.Timer(0.1, caller.wake).start()
    begun_s = time.monotonic()
    assert caller.finished(wait_ms=20_000) == []
    assert time.monotonic() - begun_s < 10


# -- the model itself


def test_model_provider_answers_a_lookup_with_200_once_the_call_took_effect(model: tuple[str, ModelProviders]) -> None:
    base_url, _ = model
    address = base_url.removeprefix("http://")

    def ask(method: str, path: str, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection(address, timeout=5)
        connection.request(method, path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    assert ask("GET", "/north/calls/b%2Fr", {}) == 404
    assert ask("POST", "/north/x", {"Idempotency-Key": "b/r"}) == 200
    assert ask("GET", "/north/calls/b%2Fr", {}) == 200

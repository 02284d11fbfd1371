from __future__ import annotations

import socket
import time

import msgspec
import pytest

from paceline import __version__
from paceline.adapters.providers.checks import CheckProvider
from paceline.core.http.expectations import HeaderExpect, HttpExpect
from paceline.core.monitors.checks import HttpCheck, Method
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.certificates import make_authority, make_chain_file, tls_server
from tests.adapters.providers.support.drive import open_provider, outcome
from tests.adapters.providers.support.raw_server import raw_server

CANARY = "canary-7f3a-secret"


def test_a_good_answer_is_ok_and_measured(provider: CheckProvider, server: ModelHttpServer) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/ok"))
    assert (done.ok, done.reason, done.code) == (True, "", 200)
    assert done.latency_ms is not None
    assert set(done.detail["phases_ms"]) == {"name_lookup", "connect", "tls", "first_byte", "total"}
    assert 0 < done.detail["phases_ms"]["connect"] <= done.detail["phases_ms"]["total"] == done.latency_ms
    assert done.detail["bytes"] == 3
    assert done.detail["address"] == "127.0.0.1"
    assert done.detail["http_version"] == "1.1"
    assert done.detail["reused"] is False


def test_phases_add_up_and_a_slow_answer_shows_in_the_first_byte(
    provider: CheckProvider, server: ModelHttpServer
) -> None:
    phases = outcome(provider, HttpCheck(url=f"{server.base_url}/slow/150")).detail["phases_ms"]
    assert phases["first_byte"] >= 150
    assert sum(phases.values()) - phases["total"] <= phases["total"] + 0.01


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_2xx_is_good_if_no_status_is_named(status: int, provider: CheckProvider, server: ModelHttpServer) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/status/{status}"))
    assert (done.ok, done.code) == (True, status)


@pytest.mark.parametrize(
    ("status", "expected", "reason"),
    [
        (503, [200], "status 503, expected 200"),
        (503, None, "status 503, expected 2xx"),
        (404, [200, 204], "status 404, expected 200 or 204"),
        (200, [404], "status 200, expected 404"),
        (302, [204, "4xx"], "status 302, expected 204 or 4xx; redirects are followed only with follow_redirects"),
    ],
)
def test_unexpected_status_fails_with_both_statuses_named(
    status: int, expected: list[int | str] | None, reason: str, provider: CheckProvider, server: ModelHttpServer
) -> None:
    check = HttpCheck(url=f"{server.base_url}/status/{status}", expect=HttpExpect(status=expected))
    done = outcome(provider, check)
    assert (done.ok, done.reason, done.code) == (False, reason, status)


def test_a_named_status_is_good(provider: CheckProvider, server: ModelHttpServer) -> None:
    assert outcome(provider, HttpCheck(url=f"{server.base_url}/status/404", expect=HttpExpect(status=[200, 404]))).ok


@pytest.mark.parametrize(
    ("expect", "reason"),
    [
        (HttpExpect(body_contains="ok"), ""),
        (HttpExpect(body_contains="fine"), "the body does not contain 'fine'"),
        (HttpExpect(body_lacks="error"), ""),
        (HttpExpect(body_lacks="ok"), "the body contains 'ok'"),
        (HttpExpect(header={"content-TYPE": HeaderExpect(contains="text/plain")}), ""),
        (
            HttpExpect(header={"Content-Type": HeaderExpect(contains="json")}),
            "the header Content-Type is 'text/plain; charset=utf-8', expected to contain 'json'",
        ),
        (HttpExpect(header={"X-Missing": ""}), "the header X-Missing is missing"),
        (HttpExpect(status=[500], body_contains="fine"), "status 200, expected 500"),
    ],
)
def test_each_expectation_of_an_http_check_is_judged(
    expect: HttpExpect, reason: str, provider: CheckProvider, server: ModelHttpServer
) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/ok", expect=expect))
    assert (done.ok, done.reason) == (not reason, reason)


def test_a_body_is_searched_in_its_own_character_set(provider: CheckProvider) -> None:
    body = "schön".encode("latin-1")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=iso-8859-1\r\nContent-Length: 5\r\n\r\n"
    with raw_server(head + body) as url:
        assert outcome(provider, HttpCheck(url=url, expect=HttpExpect(body_contains="schön"))).ok


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_each_method_is_sent_as_such(method: Method, provider: CheckProvider, server: ModelHttpServer) -> None:
    body = '{"a": "ä"}' if method in ("POST", "PUT", "PATCH", "DELETE") else None
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/echo", method=method, body=body))
    assert done.ok
    request = server.log.latest[-1]
    assert (request.method, request.body.decode()) == (method, body or "")
    assert request.headers["User-Agent"] == f"Paceline/{__version__}"
    assert request.headers.get("Content-Type") == ("text/plain; charset=utf-8" if body else None)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_request_without_a_body_has_content_length_zero(
    method: Method, provider: CheckProvider, server: ModelHttpServer
) -> None:
    assert outcome(provider, HttpCheck(url=f"{server.base_url}/echo", method=method)).ok
    headers = server.log.latest[-1].headers
    assert headers["Content-Length"] == "0"
    assert "Content-Type" not in headers


def test_headers_are_sent_as_declared(provider: CheckProvider, server: ModelHttpServer) -> None:
    headers = {"X-Api-Key": CANARY, "X-Empty": "", "User-Agent": "mine", "Content-Type": "application/json"}
    assert outcome(provider, HttpCheck(url=f"{server.base_url}/echo", method="POST", headers=headers, body="{}")).ok
    sent = server.log.latest[-1].headers
    assert {name: sent[name] for name in headers} == headers
    assert "Cookie" not in sent


def test_check_leaves_no_options_on_the_handle_for_the_next_check(
    provider: CheckProvider, server: ModelHttpServer
) -> None:
    url = f"{server.base_url}/echo"
    outcome(provider, HttpCheck(url=url, method="POST", headers={"X-Api-Key": CANARY}, body=CANARY, timeout="1s"))
    outcome(provider, HttpCheck(url=url, headers={"X-Other": "1"}))
    outcome(provider, HttpCheck(url=url))
    first, second, third = server.log.latest
    assert (first.headers["X-Api-Key"], first.body) == (CANARY, CANARY.encode())
    for request in (second, third):
        assert request.method == "GET"
        assert request.body == b""
        assert "X-Api-Key" not in request.headers
    assert "X-Other" not in third.headers


@pytest.mark.parametrize("path", ["/echo", "/status/500", "/hang", "/redirect?to=gopher://x/", "/drip"])
def test_a_secret_in_a_header_or_body_is_found_in_no_outcome(
    path: str, provider: CheckProvider, server: ModelHttpServer
) -> None:
    check = HttpCheck(
        url=f"{server.base_url}{path}",
        method="POST",
        headers={"Authorization": f"Bearer {CANARY}"},
        body=CANARY,
        follow_redirects=1,
        timeout="200ms",
        expect=HttpExpect(body_contains="nothing like it"),
    )
    done = outcome(provider, check)
    assert not done.ok
    assert CANARY not in msgspec.json.encode(done).decode()


def test_secret_of_a_check_that_cannot_be_sent_is_not_in_its_outcome(provider: CheckProvider) -> None:
    check = HttpCheck(url="http://127.0.0.1/", headers={"X-Api-Key": f"{CANARY}\udcff"})
    done = outcome(provider, check)
    assert not done.ok
    assert done.reason
    assert CANARY not in msgspec.json.encode(done).decode()


def test_a_redirect_is_not_followed_by_default(provider: CheckProvider, server: ModelHttpServer) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/redirect?to=http://u:p@example.org/x"))
    assert not done.ok
    assert done.reason == "status 302, expected 2xx; redirects are followed only with follow_redirects"
    assert done.detail["location"] == "http://example.org/x"
    assert server.log.total == 1


def test_redirects_are_followed_as_far_as_asked(provider: CheckProvider, server: ModelHttpServer) -> None:
    twice = "/redirect?to=/redirect%3Fto=/ok"
    done = outcome(provider, HttpCheck(url=server.base_url + twice, follow_redirects=2))
    assert (done.ok, done.code, done.detail["redirects"]) == (True, 200, 2)
    done = outcome(provider, HttpCheck(url=server.base_url + twice, follow_redirects=1))
    assert (done.ok, done.reason) == (False, "more redirects than follow_redirects allows")


def test_expected_headers_are_compared_with_the_last_answer_after_redirects(
    provider: CheckProvider, server: ModelHttpServer
) -> None:
    check = HttpCheck(
        url=f"{server.base_url}/redirect?to=/ok", follow_redirects=1, expect=HttpExpect(header={"Location": "/ok"})
    )
    assert outcome(provider, check).reason == "the header Location is missing"


@pytest.mark.parametrize(
    ("path", "phase"),
    [
        ("/hang", "while waiting for the answer"),
        ("/drip?every=20", "while reading the answer"),
        ("/slow/5000", "while waiting for the answer"),
    ],
)
def test_an_answer_that_takes_too_long_ends_at_the_total_deadline(
    path: str, phase: str, provider: CheckProvider, server: ModelHttpServer
) -> None:
    began_s = time.monotonic()
    done = outcome(provider, HttpCheck(url=f"{server.base_url}{path}", timeout="300ms"))
    assert (done.ok, done.reason) == (False, f"timed out after 300ms {phase}")
    assert 0.29 < time.monotonic() - began_s < 4.5
    assert provider.in_flight == 0


def test_an_endless_body_is_read_to_the_cap_and_judged(provider: CheckProvider, server: ModelHttpServer) -> None:
    url = f"{server.base_url}/endless"
    done = outcome(provider, HttpCheck(url=url, max_bytes=100_000, expect=HttpExpect(body_contains="on and on")))
    assert (done.ok, done.code) == (True, 200)
    assert (done.detail["bytes"], done.detail["truncated"]) == (100_000, True)
    done = outcome(provider, HttpCheck(url=url, max_bytes=100_000, expect=HttpExpect(body_contains="the end")))
    assert not done.ok
    assert done.reason == (
        "the first 100000 bytes of the body do not contain 'the end'; the rest was not read (max_bytes)"
    )


def test_a_gzip_bomb_is_cut_at_the_cap_after_unpacking(provider: CheckProvider, server: ModelHttpServer) -> None:
    began_s = time.monotonic()
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/gzip-bomb", max_bytes=1_000_000))
    assert (done.ok, done.detail["bytes"], done.detail["truncated"]) == (True, 1_000_000, True)
    assert time.monotonic() - began_s < 10


def test_body_of_exactly_max_bytes_is_not_truncated(provider: CheckProvider, server: ModelHttpServer) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/ok", max_bytes=3))
    assert (done.ok, done.detail["bytes"]) == (True, 3)
    assert "truncated" not in done.detail


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the connection was closed without an answer"),
        (b"220 mail.example.org ESMTP\r\n", "the answer is not HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "the connection was closed before the whole answer had come",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\nnotgzip",
            "the answer cannot be unpacked: its Content-Encoding is broken",
        ),
    ],
)
def test_broken_http_answer_is_reported_in_plain_words(answer: bytes, reason: str, provider: CheckProvider) -> None:
    with raw_server(answer) as url:
        done = outcome(provider, HttpCheck(url=url))
    assert (done.ok, done.reason) == (False, reason)


def test_refused_connection_is_reported_as_such(provider: CheckProvider) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        done = outcome(provider, HttpCheck(url=f"http://127.0.0.1:{held.getsockname()[1]}/"))
    assert (done.ok, done.reason, done.code) == (False, "connection refused", None)


def test_a_certificate_is_verified_unless_asked_not_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority(folder)
    good = make_chain_file(folder, authority, hosts=["localhost"])
    expired = make_chain_file(folder, authority, hosts=["localhost"], days=(-9, -2))
    provider = open_provider("127.0.0.0/8", ca_file=authority.file)
    try:
        with tls_server(good) as port:
            done = outcome(provider, HttpCheck(url=f"https://localhost:{port}/"))
            assert (done.ok, done.code) == (True, 200)
            assert done.detail["phases_ms"]["tls"] > 0
            done = outcome(provider, HttpCheck(url=f"https://127.0.0.1:{port}/"))
            assert done.reason == "the certificate is for another host name"
        with tls_server(expired) as port:
            done = outcome(provider, HttpCheck(url=f"https://localhost:{port}/"))
            assert (done.ok, done.reason) == (False, "the certificate has expired")
            assert outcome(provider, HttpCheck(url=f"https://localhost:{port}/", verify_tls=False)).ok
            done = outcome(provider, HttpCheck(url=f"https://localhost:{port}/"))
            assert not done.ok, "a connection made without verification is not reused for a check with verification"
    finally:
        provider.close()


@pytest.mark.parametrize(
    "head", [b"X: " + b"a" * 200_000 + b"\r\n", b"X: y\r\n" * 60_000], ids=["one line", "many lines"]
)
def test_too_large_answer_headers_are_reported_as_such(head: bytes, provider: CheckProvider) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: 0\r\n\r\n") as url:
        done = outcome(provider, HttpCheck(url=url))
    assert (done.ok, done.reason) == (False, "the headers of the answer are too large")


def test_text_is_found_in_the_character_set_of_the_answer(provider: CheckProvider) -> None:
    body = "größer".encode("latin-1")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with raw_server(head + body) as url:
        assert outcome(provider, HttpCheck(url=url, expect=HttpExpect(body_contains="größer"))).ok

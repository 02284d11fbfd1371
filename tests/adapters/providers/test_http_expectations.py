"""Expectations of HTTP checks, against real servers, hostile ones included."""

from __future__ import annotations

import base64
import gzip
import time
from pathlib import Path

import pytest

from paceline.adapters.providers.checks import CheckProvider
from paceline.core.http.auth import BasicAuth, BearerAuth
from paceline.core.http.expectations import KEPT_BYTES_MAX, HeaderExpect, HttpExpect, JsonExpect
from paceline.core.monitors.checks import HttpCheck
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.certificates import make_authority, make_chain_file, tls_server
from tests.adapters.providers.support.drive import gather, open_provider, order, outcome
from tests.adapters.providers.support.raw_server import page, raw_server

UP = HttpExpect(json=[JsonExpect(pointer="/status", is_="up")])


def reason(provider: CheckProvider, answer: bytes, expect: HttpExpect, max_bytes: int = 1_048_576) -> str:
    with raw_server(answer) as url:
        done = outcome(provider, HttpCheck(url=url, expect=expect, max_bytes=max_bytes))
    assert done.ok is (not done.reason)
    return done.reason


def test_json_answer_is_compared(provider: CheckProvider) -> None:
    assert reason(provider, page(b'{"status": "up"}'), UP) == ""
    words = 'the JSON at \'/status\' is "down", expected "up"'
    assert reason(provider, page(b'{"status": "down"}'), UP) == words


def test_packed_json_in_another_character_set_is_read(provider: CheckProvider) -> None:
    body = gzip.compress('{"name": "schön"}'.encode("utf-16"))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-16\r\nContent-Encoding: gzip\r\n"
    answer = head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    expect = HttpExpect(json=[JsonExpect(pointer="/name", is_="schön")], body_matches="sch.n")
    assert reason(provider, answer, expect) == ""


def test_body_is_matched_and_searched_at_once(provider: CheckProvider) -> None:
    body = b"version 2.4" + b" " * 200_000 + b"the end"
    expect = HttpExpect(body_matches=r"^version \d", body_contains="the end", body_lacks="error")
    assert reason(provider, page(body, "text/plain"), expect) == ""
    at_the_end = HttpExpect(body_matches="the end")
    words = f"the first {KEPT_BYTES_MAX} bytes of the body do not match 'the end'; the rest is not looked at"
    assert reason(provider, page(body, "text/plain"), at_the_end) == words


def test_json_body_above_the_size_limit_fails_and_names_the_limit(provider: CheckProvider) -> None:
    body = b'{"status": "up", "rest": "' + b"x" * KEPT_BYTES_MAX + b'"}'
    words = f"the body is longer than {KEPT_BYTES_MAX} bytes, which is the most that is read as JSON"
    assert reason(provider, page(body), UP) == words
    exact = body[: KEPT_BYTES_MAX - 2] + b'"}'
    assert reason(provider, page(exact), UP) == ""
    assert "longer than 10 bytes" in reason(provider, page(b'{"status": "up"}'), UP, max_bytes=10)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"a":' * 12_000 + b"1" + b"}" * 12_000,
        b"\xff\xfe" * 30_000,
        b'{"status": ' + b"9" * 60_000 + b"}",
        b"[" + b"[]," * 20_000 + b"[]]",
        b'{"status": "\\ud800"}',
        b"\x00" * 60_000,
    ],
)
@pytest.mark.parametrize("charset", ["utf-8", "punycode", "idna", "unicode_escape", "no-such", "utf-16"])
def test_hostile_json_fails_soon_and_harms_nothing(body: bytes, charset: str, provider: CheckProvider) -> None:
    began_s = time.monotonic()
    expect = HttpExpect(json=UP.json, body_matches="(x+x+)+y|.*")
    assert reason(provider, page(body, f"application/json; charset={charset}"), expect)
    assert time.monotonic() - began_s < 5.0


def test_slow_answer_that_is_stored_still_ends_at_the_deadline(
    provider: CheckProvider, server: ModelHttpServer
) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/drip?every=20", expect=UP, timeout="300ms"))
    assert done.reason == "timed out after 300ms while reading the answer"


def test_stored_body_is_not_reused_by_the_next_check(provider: CheckProvider, server: ModelHttpServer) -> None:
    matching = HttpCheck(url=f"{server.base_url}/ok", expect=HttpExpect(body_matches="^ok\n?$"))
    searching = HttpCheck(url=f"{server.base_url}/ok", expect=HttpExpect(body_contains="ok"))
    for check in (matching, searching, matching, matching):
        assert outcome(provider, check).reason == ""


def test_slow_good_answer_fails_with_both_times(provider: CheckProvider, server: ModelHttpServer) -> None:
    url = f"{server.base_url}/slow/150"
    assert outcome(provider, HttpCheck(url=url, expect=HttpExpect(latency_max="10s"))).ok
    done = outcome(provider, HttpCheck(url=url, expect=HttpExpect(latency_max="100ms")))
    assert done.reason == f"the answer took {done.latency_ms:.0f}ms, longer than the 100ms allowed"
    assert done.code == 200


def test_header_is_compared_whole(provider: CheckProvider, server: ModelHttpServer) -> None:
    url = f"{server.base_url}/ok"
    whole = HttpExpect(header={"content-type": "text/plain; charset=utf-8"})
    assert outcome(provider, HttpCheck(url=url, expect=whole)).ok
    part = HttpExpect(header={"content-type": "text/plain"})
    words = "the header content-type is 'text/plain; charset=utf-8', expected 'text/plain'"
    assert outcome(provider, HttpCheck(url=url, expect=part)).reason == words
    pattern = HttpExpect(header={"content-type": HeaderExpect(matches="^text/")})
    assert outcome(provider, HttpCheck(url=url, expect=pattern)).ok


def test_https_check_fails_if_its_certificate_expires_too_soon(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    provider = open_provider("127.0.0.0/8", ca_file=authority.file)
    try:
        with tls_server(make_chain_file(tmp_path, authority, hosts=["localhost"], days=(-1, 9))) as port:
            url = f"https://localhost:{port}/"
            for _ in range(2):  # neither a connection nor a session that is used again hides the certificate
                done = outcome(provider, HttpCheck(url=url, expect=HttpExpect(days_left=9)))
                assert (done.reason, done.detail["days_left"]) == ("", 9)
            done = outcome(provider, HttpCheck(url=url, expect=HttpExpect(days_left=10)))
            assert done.reason == "the certificate expires in 9 days, fewer than the 10 asked for"
            assert "days_left" not in outcome(provider, HttpCheck(url=url)).detail
    finally:
        provider.close()


@pytest.mark.parametrize(
    ("auth", "sent"),
    [
        (BasicAuth(username="ann", password="s:é"), "Basic " + base64.b64encode("ann:s:é".encode()).decode()),
        (BearerAuth(token="abc.def"), "Bearer abc.def"),
    ],
)
def test_auth_is_sent_to_its_host_and_to_no_other(
    auth: BasicAuth | BearerAuth, sent: str, provider: CheckProvider, server: ModelHttpServer
) -> None:
    with ModelHttpServer() as other:
        same = f"{server.base_url}/redirect?to=/ok"
        assert outcome(provider, HttpCheck(url=same, auth=auth, follow_redirects=1)).ok
        assert [one.headers.get("Authorization") for one in server.log.latest] == [sent, sent]
        away = f"{server.base_url}/redirect?to={other.base_url}/ok"
        assert outcome(provider, HttpCheck(url=away, auth=auth, follow_redirects=1)).ok
        assert [one.headers.get("Authorization") for one in other.log.latest] == [None]
        assert outcome(provider, HttpCheck(url=f"{server.base_url}/ok")).ok
        assert "Authorization" not in server.log.latest[-1].headers


def test_concurrent_checks_do_not_mix_their_stored_answers(provider: CheckProvider, server: ModelHttpServer) -> None:
    orders = [
        order(HttpCheck(url=f"{server.base_url}/ok", expect=HttpExpect(body_matches="ok" if n % 2 else "no")), n)
        for n in range(1, 101)
    ]
    provider.start(orders)
    assert {done.handle: done.outcome.ok for done in gather(provider, 100)} == {n: bool(n % 2) for n in range(1, 101)}

"""Bodies and requests that mean harm, or make no sense: a 4xx with a problem, never a 500."""

from __future__ import annotations

import resource
import socket
import time
from pathlib import Path

import pytest

from paceline.shells.api.http.serving import BoundedProtocol
from tests.shells.api.conftest import HTTP, Client, World, serving

MONITORS = "/v1/users/me/monitors"
DEEP = b"[" * 100_000 + b"]" * 100_000
VALUES = {
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "1e999": b"1e999",
    "100,000 deep": DEEP,
    "100,000 open": b"[" * 100_000,
    "900 deep": b"[" * 900 + b"]" * 900,
    "100,000 objects deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "5,000 digits": b"9" * 5_000,
    "NUL": b'"\\u0000"',
    "NUL raw": b'"\x00"',
    "lone surrogate": b'"\\ud800"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "broken UTF-8": b'"\xff\xfe"',
    "comment": b"/* x */ 1",
}


def monitor_with(value: bytes) -> bytes:
    return b'{"check": {"kind": "outgoing", "x": ' + value + b'}, "every": "1h"}'


@pytest.mark.parametrize("name", VALUES)
def test_a_hostile_value_in_a_monitor_is_refused(guest: Client, name: str) -> None:
    reply = guest("PUT", f"{MONITORS}/x", raw=monitor_with(VALUES[name]))
    assert reply.status in (400, 422)
    assert reply.code in ("malformed_body", "invalid_input")
    assert guest("GET", MONITORS).json["items"] == []


@pytest.mark.parametrize("name", VALUES)
def test_a_hostile_value_is_refused_in_every_other_body(guest: Client, chief: Client, name: str) -> None:
    value = VALUES[name]
    guest("PUT", f"{MONITORS}/web", HTTP)
    bulk = guest("PUT", MONITORS, raw=b'{"items": [' + monitor_with(value)[:-1] + b', "id": "x"}]}')
    if bulk.status == 200:
        assert [item["disposition"] for item in bulk.json["items"]] == ["refused"]
    else:
        assert bulk.status in (400, 422)
    for client, method, path, body in (
        (guest, "PATCH", f"{MONITORS}/web", b'{"check": {"kind": "outgoing", "x": %s}}'),
        (guest, "PATCH", f"{MONITORS}/web", b'{"tags": [%s]}'),
        (guest, "POST", "/v1/outgoing/claim", b'{"max": %s}'),
        (
            chief,
            "POST",
            "/v1/runs/guest%2Fweb%231%400/outcome",
            b'{"lease": "1.1", "status": "ok", "detail": {"x": %s}}',
        ),
        (guest, "POST", "/v1/users/me/tokens", b'{"label": %s}'),
        (chief, "POST", "/v1/users", b'{"id": "zoe", "daily_credits": %s}'),
        (chief, "PATCH", "/v1/users/me", b'{"daily_credits": %s}'),
        (chief, "POST", "/v1/users", b"%s"),
    ):
        reply = client(method, path, raw=body % value)
        assert reply.status in (400, 404, 422), (path, reply.status)
        assert reply.code in ("malformed_body", "invalid_input", "not_found")
    assert guest("GET", f"{MONITORS}/web").json["revision"] == 1


def test_big_json_numbers_come_back_unchanged(guest: Client) -> None:
    check = {"kind": "outgoing", "big": 10**100, "negative": -(10**30), "small": 1e-300}
    assert guest("PUT", f"{MONITORS}/x", {"check": check, "every": "1h"}).json["check"] == check
    assert guest("GET", f"{MONITORS}/x").json["check"] == check


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"every": "0s"}, "/every"),
        ({"every": "-5s"}, "/every"),
        ({"every": "1e-9s"}, "/every"),
        ({"every": "1000000000000s"}, "/every"),
        ({"every": 60}, "/every"),
        ({"every": None}, "/every"),
        ({"every": None, "cron": "0 0 30 2 *"}, "/cron"),
        ({"every": None, "cron": "@reboot"}, "/cron"),
        ({"every": None, "cron": "* " * 5_000}, "/cron"),
        ({"every": None, "cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "/timezone"),
        ({"cron": "0 0 * * *"}, "/every"),
        ({"owner": "bob"}, "/owner"),
        ({"counter": 7}, "/counter"),
        ({"id": "web"}, "/id"),
        ({"revision": 1}, "/revision"),
        ({"credits_spent": 0}, "/credits_spent"),
        ({"check": {"kind": "http", "url": "file:///etc/passwd"}}, "/check/url"),
        ({"check": {"kind": "http", "url": "https://u:p@example.org/"}}, "/check/url"),
        ({"check": {"kind": "http", "url": "https://e.org/", "headers": {"Host": "x"}}}, "/check/headers/Host"),
        ({"check": {"kind": "http", "url": "https://e.org/", "headers": {"X": "a\r\nb"}}}, "/check/headers/X"),
        ({"check": {"kind": "nope"}}, "/check/kind"),
        ({"check": {"kind": "tcp", "host": "h", "port": 70_000}}, "/check/port"),
    ],
)
def test_wrong_field_of_a_monitor_is_named(guest: Client, change: dict[str, object], pointer: str) -> None:
    document = {**HTTP, **change}
    if "cron" in change and change.get("every", 1) is None:
        del document["every"]
    reply = guest("PUT", f"{MONITORS}/x", document)
    assert (reply.status, reply.code) == (422, "invalid_input")
    assert pointer in reply.pointers


@pytest.mark.parametrize("name", ["%00", "-x", "a b", "%2F", "a%2Fb", "\xe9".encode().hex(), "x" * 129, "%ff", ".."])
def test_monitor_id_is_stored_unchanged_or_refused(guest: Client, name: str) -> None:
    reply = guest("PUT", f"{MONITORS}/{name.replace(' ', '%20')}", HTTP)
    assert reply.status in (201, 404, 405, 422)
    if reply.status == 422:
        assert reply.pointers == ["/id"]
    assert guest("GET", f"{MONITORS}/{name.replace(' ', '%20')}").status in (200, 404, 405)


def test_body_of_another_content_type_than_json_is_refused(guest: Client) -> None:
    for kind in ("text/html", "application/xml", "multipart/form-data; boundary=x", "x", "\xff"):
        reply = guest("PUT", f"{MONITORS}/x", HTTP, headers={"Content-Type": kind})
        assert (reply.status, reply.code) == (415, "unsupported_media_type")
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        assert guest("PUT", f"{MONITORS}/x", HTTP, headers={"Content-Type": kind}).status in (200, 201)
    patch = guest("PATCH", f"{MONITORS}/x", {"paused": True}, headers={"Content-Type": "application/merge-patch+json"})
    assert patch.status == 200
    assert guest("PUT", f"{MONITORS}/x", raw=b"").code == "malformed_body"


def test_an_unknown_address_and_an_unknown_method_are_problems_too(world: World, alice: Client) -> None:
    for path in ("/nothing", "/v1", "/v1/users/me/", "/v1/users//monitors", "/v1/users/me/monitors/x/y", "/%00"):
        assert alice("GET", path).code == "not_found"
    for method, path, allow in (
        ("POST", f"{MONITORS}/x", "DELETE, GET, HEAD, PATCH, PUT"),
        ("DELETE", "/v1/users", "GET, HEAD, POST"),
        ("OPTIONS", "/healthz", "GET, HEAD"),
        ("GET", "/v1/outgoing/claim", "POST"),
        ("TRACE", "/v1/users/me", "DELETE, GET, HEAD, PATCH"),
    ):
        reply = world.client()(method, path)
        assert (reply.status, reply.code, reply.headers["allow"]) == (405, "method_not_allowed", allow)
    assert alice("HEAD", "/v1/users/me").body == b""


def test_every_answer_carries_the_guarding_headers(guest: Client) -> None:
    for reply in (guest("GET", "/v1/users/me"), guest("GET", "/nothing"), guest("GET", "/docs"), guest("GET", "/")):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert "server" not in reply.headers


# -- size and time


def exchange(world: World, *parts: bytes, pause_s: float = 0.0, timeout_s: float = 10.0) -> bytes:
    """Sends the parts as they are and reads until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", world.port), timeout=timeout_s) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause_s)
        received = b""
        try:
            while chunk := connection.recv(65_536):
                received += chunk
                if b"\r\n\r\n" in received and b"connection: close" not in received:
                    break
        except TimeoutError:
            pass
        return received


def head(world: World, *lines: str) -> bytes:
    start = [f"PUT {MONITORS}/x HTTP/1.1", "Host: x", f"Authorization: Bearer {world.tokens['alice']}", *lines]
    return ("\r\n".join(start) + "\r\n\r\n").encode()


def test_a_body_over_the_limit_is_refused_with_length_or_chunked(tmp_path: Path) -> None:
    with serving(tmp_path, body_bytes_max=10_000) as world:
        alice = world.add("alice")
        assert alice("PUT", f"{MONITORS}/x", raw=b" " * 9_000 + b"{}").status == 422
        large = alice("PUT", f"{MONITORS}/x", raw=b" " * 10_001)
        assert (large.status, large.code) == (413, "body_too_large")
        assert alice("PUT", f"{MONITORS}/x", raw=b" " * 5_000_000).status == 413
        announced = exchange(world, head(world, "Content-Length: 99999999999999999"))
        assert announced.startswith(b"HTTP/1.1 413")
        chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
        chunked = exchange(world, head(world, "Transfer-Encoding: chunked"), *[chunk] * 50)
        assert chunked.startswith(b"HTTP/1.1 413")
        assert b"body_too_large" in chunked


def test_an_endless_body_does_not_grow_the_memory(tmp_path: Path) -> None:
    with serving(tmp_path) as world:
        world.add("alice")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        answer = exchange(world, head(world, "Transfer-Encoding: chunked"), *[chunk] * 60)
        assert answer.startswith(b"HTTP/1.1 413")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 40_000


def test_body_that_stops_halfway_is_refused_after_a_time(tmp_path: Path) -> None:
    with serving(tmp_path, body_timeout="300ms") as world:
        world.add("alice")
        started = time.monotonic()
        answer = exchange(world, head(world, "Content-Length: 100"), b'{"check"')
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"body_too_slow" in answer
        assert b"connection: close" in answer
        assert time.monotonic() - started < 8
        dripped = exchange(world, head(world, "Content-Length: 100"), *[b" "] * 4, pause_s=0.09)
        assert dripped.startswith(b"HTTP/1.1 408")


def test_client_that_disconnects_during_its_body_causes_no_error(world: World, alice: Client) -> None:
    with socket.create_connection(("127.0.0.1", world.port)) as connection:
        connection.sendall(head(world, "Content-Length: 100") + b'{"check"')
    time.sleep(0.2)
    assert alice("GET", MONITORS).json["items"] == []
    assert "request_failed" not in world.log.getvalue()


def fill(connection: socket.socket, line: bytes) -> None:
    for _ in range(200):
        connection.sendall(line)
        time.sleep(0.002)


def test_endless_request_head_is_cut_off(world: World, alice: Client) -> None:
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            fill(connection, b"X-Filler: " + b"x" * 10_000 + b"\r\n")
    assert alice("GET", "/healthz").status == 200


class Hasty(BoundedProtocol):
    """The same bounds, reached within a test."""

    head_timeout_s = 0.3
    unread_bytes_max = 1_000_000


@pytest.mark.parametrize("start", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_connection_without_a_head_is_closed_after_a_time(tmp_path: Path, start: bytes) -> None:
    with serving(tmp_path, protocol=Hasty) as world:
        began = time.monotonic()
        assert exchange(world, start) == b""
        assert 0.2 < time.monotonic() - began < 8
        whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        with socket.create_connection(("127.0.0.1", world.port), timeout=5) as connection:
            for _ in range(2):
                connection.sendall(whole)
                assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
                time.sleep(0.5)
            connection.sendall(whole + start)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
            if start:
                assert connection.recv(65_536) == b""


def test_a_refused_body_that_does_not_end_is_cut(tmp_path: Path) -> None:
    with serving(tmp_path, protocol=Hasty) as world:
        world.add("alice")
        refused = head(world, "Transfer-Encoding: chunked").replace(b"Bearer pl", b"Bearer no")
        with socket.create_connection(("127.0.0.1", world.port), timeout=10) as connection:
            connection.sendall(refused)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 401")
            with pytest.raises(OSError, match=r"reset|Broken pipe"):
                fill(connection, b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def test_data_that_is_not_http_is_answered_and_the_server_goes_on(world: World, alice: Client) -> None:
    assert exchange(world, b"\x16\x03\x01\x02\x00\x01\x00").startswith(b"HTTP/1.1 400")
    assert exchange(world, b"GET / HTTP/9.9\r\n\r\n")[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 200")
    assert alice("GET", "/healthz").status == 200

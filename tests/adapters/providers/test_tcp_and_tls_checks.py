from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from paceline.adapters.providers.authorities import find_authorities
from paceline.adapters.providers.checks import CheckProvider
from paceline.core.monitors.checks import HttpCheck, TcpCheck, TlsCheck
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.certificates import Authority, make_authority, make_chain_file, tls_server
from tests.adapters.providers.support.drive import LOOPBACK, gather, open_provider, order, outcome


class Trust(NamedTuple):
    folder: Path
    authority: Authority
    provider: CheckProvider


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[Trust]:
    """A provider that trusts one authority of the test's own."""
    authority = make_authority(tmp_path)
    provider = open_provider(*LOOPBACK, ca_file=authority.file)
    yield Trust(tmp_path, authority, provider)
    provider.close()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_an_open_port_is_ok(family: socket.AddressFamily, host: str, provider: CheckProvider) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        done = outcome(provider, TcpCheck(host=host, port=listener.getsockname()[1]))
    assert (done.ok, done.reason, done.code) == (True, "", None)
    assert done.detail["address"] == host
    assert 0 < done.detail["phases_ms"]["connect"] <= done.detail["phases_ms"]["total"] == done.latency_ms


def test_tcp_check_sends_nothing_and_closes_its_connection(provider: CheckProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert outcome(provider, TcpCheck(host="localhost", port=listener.getsockname()[1])).ok
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(2)
            assert connection.recv(100) == b""


def test_a_closed_port_is_connection_refused(provider: CheckProvider) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        done = outcome(provider, TcpCheck(host="127.0.0.1", port=held.getsockname()[1]))
    assert (done.ok, done.reason) == (False, "connection refused")


def test_a_connection_kept_by_an_http_check_is_not_taken_for_an_open_port(provider: CheckProvider) -> None:
    with ModelHttpServer() as server:
        assert outcome(provider, HttpCheck(url=f"{server.base_url}/ok")).ok
        done = outcome(provider, TcpCheck(host="127.0.0.1", port=server.port))
        assert done.ok
        assert done.detail["phases_ms"]["connect"] > 0


def test_a_port_that_does_not_answer_times_out(provider: CheckProvider) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        place = listener.getsockname()
        with socket.create_connection(place), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(place)  # the queue is full: the next one waits
            began_s = time.monotonic()
            done = outcome(provider, TcpCheck(host="127.0.0.1", port=place[1], timeout="300ms"))
    assert (done.ok, done.reason) == (False, "timed out after 300ms while connecting")
    assert time.monotonic() - began_s < 8


def test_a_good_certificate_is_ok_with_its_days(trust: Trust) -> None:
    with tls_server(make_chain_file(trust.folder, trust.authority, hosts=["localhost"])) as port:
        done = outcome(trust.provider, TlsCheck(host="localhost", port=port))
    assert (done.ok, done.reason) == (True, "")
    assert done.detail["days_left"] == 90
    assert done.detail["not_after"].endswith("Z")
    assert "Test Authority" in done.detail["issuer"]
    assert "Server" in done.detail["subject"]
    assert done.detail["phases_ms"]["tls"] > 0


@pytest.mark.parametrize(
    ("hosts", "days", "reason"),
    [
        (["localhost"], (-9, -2), "the certificate has expired"),
        (["localhost"], (2, 9), "the certificate is not valid yet"),
        (["other.example"], (-1, 90), "the certificate is for another host name"),
        (["localhost"], (-1, 5), "the certificate expires in 5 days, fewer than the 14 asked for"),
        (["localhost"], (-1, 1), "the certificate expires in 1 day, fewer than the 14 asked for"),
    ],
)
def test_a_bad_certificate_fails_with_the_exact_reason(
    hosts: list[str], days: tuple[int, int], reason: str, trust: Trust
) -> None:
    with tls_server(make_chain_file(trust.folder, trust.authority, hosts=hosts, days=days)) as port:
        done = outcome(trust.provider, TlsCheck(host="localhost", port=port))
    assert (done.ok, done.reason) == (False, reason)
    assert done.detail["days_left"] == days[1]


def test_certificate_must_last_at_least_min_days(trust: Trust) -> None:
    chain = make_chain_file(trust.folder, trust.authority, hosts=["localhost"], days=(-1, 5))
    with tls_server(chain) as port:
        assert outcome(trust.provider, TlsCheck(host="localhost", port=port, min_days=5)).ok
        assert not outcome(trust.provider, TlsCheck(host="localhost", port=port, min_days=6)).ok


def test_self_signed_certificate_is_reported_as_such(trust: Trust) -> None:
    with tls_server(make_chain_file(trust.folder, None, hosts=["localhost"])) as port:
        done = outcome(trust.provider, TlsCheck(host="localhost", port=port))
    assert (done.ok, done.reason) == (False, "the certificate is self-signed")


def test_certificate_of_an_unknown_authority_is_reported_as_such(trust: Trust) -> None:
    stranger = make_authority(trust.folder, "Stranger")
    with tls_server(make_chain_file(trust.folder, stranger, hosts=["localhost"])) as port:
        done = outcome(trust.provider, TlsCheck(host="localhost", port=port))
    assert not done.ok
    assert done.reason == "the certificate is of an authority that is not trusted here, or its chain is incomplete"


def test_tls_check_connects_to_its_host_and_compares_its_server_name(trust: Trust) -> None:
    with tls_server(make_chain_file(trust.folder, trust.authority, hosts=["shop.example"])) as port:
        done = outcome(trust.provider, TlsCheck(host="127.0.0.1", port=port, server_name="shop.example"))
        assert (done.ok, done.detail["address"]) == (True, "127.0.0.1")
        done = outcome(trust.provider, TlsCheck(host="127.0.0.1", port=port, server_name="other.example"))
        assert done.reason == "the certificate is for another host name"


def test_certificate_for_an_ip_address_is_accepted_for_that_address(trust: Trust) -> None:
    with tls_server(make_chain_file(trust.folder, trust.authority, hosts=["127.0.0.1"])) as port:
        assert outcome(trust.provider, TlsCheck(host="127.0.0.1", port=port)).ok


def test_port_without_tls_is_reported_as_such(trust: Trust) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(2)
        trust.provider.start([order(TlsCheck(host="127.0.0.1", port=listener.getsockname()[1], timeout="2s"))])
        trust.provider.finished(wait_ms=50)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"220 mail.example.org ESMTP\r\n")
            done = gather(trust.provider, 1)[0].outcome
    assert not done.ok
    assert done.reason.startswith("the TLS handshake failed")


def test_a_server_silent_in_the_handshake_times_out(trust: Trust) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = outcome(trust.provider, TlsCheck(host="127.0.0.1", port=listener.getsockname()[1], timeout="300ms"))
    assert (done.ok, done.reason) == (False, "timed out after 300ms in the TLS handshake")


def test_the_trusted_authorities_of_this_machine_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert find_authorities().file == str(bundle)
    assert find_authorities(tmp_path / "mine.pem").file == str(tmp_path / "mine.pem")

"""Addresses that a check may not reach, in every spelling: the real provider blocks the socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from paceline.adapters.providers.checks import CheckProvider
from paceline.adapters.providers.guard import NOT_PUBLIC, OWN_API
from paceline.core.monitors.checks import DnsCheck, HttpCheck, PolledCheck, TcpCheck, TlsCheck
from paceline.core.monitors.outcome import Done
from paceline.simulators.http import ModelHttpServer
from tests.adapters.providers.support.drive import gather, open_provider, order, outcome

LOOPBACK_SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.000.000.001",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0177.0.0.1",
    "017700000001",
    "127.1.2.3",
    "0.0.0.0",  # noqa: S104 - a target, not a binding
    "0",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "any.localhost",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
]
OTHERS = [
    "169.254.169.254",
    "0xa9fea9fe",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "[fe80::1]",
    "[fc00::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[2001::1]",
]
BLOCKED = Done(ok=False, reason=NOT_PUBLIC)
"""No code, no time, no detail: nothing that could tell an open port from a closed one."""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port without a listener, reserved so that no other process gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("host", [*LOOPBACK_SPELLINGS, *OTHERS])
def test_an_address_that_is_not_public_is_blocked_alike_for_open_and_closed_ports(
    host: str, strict_provider: CheckProvider, server: ModelHttpServer, closed_port: int
) -> None:
    checks: list[PolledCheck] = []
    for port in (server.port, closed_port):
        checks += [
            HttpCheck(url=f"http://{host}:{port}/ok"),
            HttpCheck(url=f"https://{host}:{port}/ok", verify_tls=False, follow_redirects=3),
            TcpCheck(host=host, port=port),
            TlsCheck(host=host, port=port),
            TlsCheck(host=host, port=port, server_name="example.org"),
        ]
    began_s = time.monotonic()
    strict_provider.start([order(check, handle) for handle, check in enumerate(checks)])
    finished = gather(strict_provider, len(checks))
    assert [item.outcome for item in finished] == [BLOCKED] * len(checks)
    assert time.monotonic() - began_s < 6
    assert server.log.total == 0


def test_an_address_with_a_dot_behind_it_is_blocked(strict_provider: CheckProvider, server: ModelHttpServer) -> None:
    assert outcome(strict_provider, HttpCheck(url=f"http://127.0.0.1.:{server.port}/ok")) == BLOCKED
    assert outcome(strict_provider, TcpCheck(host="127.0.0.1.", port=server.port)) == BLOCKED


def test_refusal_of_one_check_is_not_reported_for_the_next(closed_port: int) -> None:
    provider = open_provider("127.0.0.1/32")
    try:
        assert outcome(provider, HttpCheck(url=f"http://127.0.0.2:{closed_port}/")) == BLOCKED
        assert outcome(provider, HttpCheck(url=f"http://127.0.0.1:{closed_port}/")).reason == "connection refused"
    finally:
        provider.close()


@pytest.mark.parametrize(
    "server_name", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost", "::1", "[::1]", "::ffff:127.0.0.1"]
)
def test_a_dns_server_that_is_not_public_is_blocked(server_name: str, strict_provider: CheckProvider) -> None:
    assert outcome(strict_provider, DnsCheck(name="example.org", server=server_name, port=5353)) == BLOCKED


def test_a_redirect_into_a_network_that_is_not_allowed_is_blocked(server: ModelHttpServer) -> None:
    with ModelHttpServer("127.0.0.2") as allowed:
        provider = open_provider("127.0.0.2/32")
        try:
            direct = outcome(provider, HttpCheck(url=f"{allowed.base_url}/ok"))
            assert direct.ok
            for status in (301, 302, 303, 307, 308):
                url = f"{allowed.base_url}/redirect?status={status}&to={server.base_url}/ok"
                assert outcome(provider, HttpCheck(url=url, follow_redirects=5)) == BLOCKED
        finally:
            provider.close()
    assert server.log.total == 0


def test_a_kept_connection_opens_no_way_around_the_guard(server: ModelHttpServer) -> None:
    """The provider that may reach the server does; the strict one in the same process still may not."""
    open_one, strict = open_provider("127.0.0.1/32"), open_provider()
    try:
        assert outcome(open_one, HttpCheck(url=f"{server.base_url}/ok")).ok
        assert outcome(strict, HttpCheck(url=f"{server.base_url}/ok")) == BLOCKED
        assert outcome(open_one, HttpCheck(url=f"{server.base_url}/ok")).detail["reused"]
    finally:
        open_one.close()
        strict.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])  # noqa: S104
def test_own_api_is_blocked_even_where_loopback_is_allowed(host: str, server: ModelHttpServer) -> None:
    provider = open_provider("127.0.0.0/8", "0.0.0.0/8", own=[("127.0.0.1", server.port)])
    try:
        for check in (HttpCheck(url=f"http://{host}:{server.port}/ok"), TcpCheck(host=host, port=server.port)):
            done = outcome(provider, check)
            assert not done.ok
            # localhost may also have an IPv6 address, which is not allowed; the reason is that of the last address.
            assert done.reason in ({OWN_API, NOT_PUBLIC} if host == "localhost" else {OWN_API})
            assert done.detail == {}
    finally:
        provider.close()
    assert server.log.total == 0


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "dict://127.0.0.1/"]
)
def test_a_redirect_leads_to_http_and_https_only(target: str, provider: CheckProvider, server: ModelHttpServer) -> None:
    done = outcome(provider, HttpCheck(url=f"{server.base_url}/redirect?to={target}", follow_redirects=3))
    assert (done.ok, done.reason) == (False, "the redirect leads to something other than http or https")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://127.0.0.1:1/", "ftp://127.0.0.1:1/", "ldap://127.0.0.1:1/"]
)
def test_check_with_a_scheme_other_than_http_or_https_fails_without_an_answer(
    url: str, provider: CheckProvider
) -> None:
    done = outcome(provider, HttpCheck(url=url))
    assert not done.ok
    assert done.detail["bytes"] == 0


def test_a_proxy_in_the_environment_is_not_used(server: ModelHttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    provider = open_provider("127.0.0.0/8")
    try:
        assert outcome(provider, HttpCheck(url=f"{server.base_url}/ok")).ok
    finally:
        provider.close()

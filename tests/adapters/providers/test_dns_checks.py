from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import dns.rcode
import msgspec
import pytest

from paceline.adapters.providers.checks import CheckProvider
from paceline.core.http.expectations import DnsExpect
from paceline.core.monitors.checks import DnsCheck, DnsType
from tests.adapters.providers.support.dns_server import Zone, dns_server
from tests.adapters.providers.support.drive import gather, order, outcome

LONG_TEXTS = [f'"{index} {"x" * 200}"' for index in range(100)]
ZONE: Zone = {
    ("web.example", "A"): ["192.0.2.1", "192.0.2.2"],
    ("web.example", "AAAA"): ["2001:db8::1"],
    ("web.example", "MX"): ["10 Mail.web.example."],
    ("web.example", "TXT"): ['"v=spf1 " "-all"'],
    ("web.example", "CAA"): ['0 issue "ca.example"'],
    ("web.example", "NS"): ["ns1.web.example."],
    ("web.example", "SOA"): ["ns1.web.example. admin.web.example. 1 2 3 4 5"],
    ("web.example", "SRV"): [],
    ("www.example", "CNAME"): ["web.example."],
    ("1.2.0.192.in-addr.arpa", "PTR"): ["web.example."],
    ("long.example", "TXT"): LONG_TEXTS,
    ("broken.example", "A"): dns.rcode.SERVFAIL,
    ("closed.example", "A"): dns.rcode.REFUSED,
    ("silent.example", "A"): None,
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with dns_server(ZONE) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "kind", "contains", "answers"),
    [
        ("web.example", "A", ["192.0.2.2"], ["192.0.2.1", "192.0.2.2"]),
        ("web.example", "AAAA", ["2001:0db8:0:0::1"], ["2001:db8::1"]),
        ("web.example", "MX", ["10 mail.WEB.example."], ["10 Mail.web.example"]),
        ("web.example", "TXT", ["v=spf1 -all"], ["v=spf1 -all"]),
        ("web.example", "CAA", ['0 issue "ca.example"'], ['0 issue "ca.example"']),
        ("web.example", "NS", ["ns1.web.example"], ["ns1.web.example"]),
        ("web.example", "SOA", [], ["ns1.web.example. admin.web.example. 1 2 3 4 5"]),
        ("www.example", "CNAME", ["web.example"], ["web.example"]),
        ("192.0.2.1", "PTR", ["web.example."], ["web.example"]),
        ("1.2.0.192.in-addr.arpa", "PTR", ["web.example"], ["web.example"]),
    ],
)
def test_each_dns_record_type_is_queried_and_compared(
    name: str, kind: DnsType, contains: list[str], answers: list[str], provider: CheckProvider, port: int
) -> None:
    check = DnsCheck(name=name, type=kind, server="127.0.0.1", port=port, expect=DnsExpect(contains=contains))
    done = outcome(provider, check)
    assert (done.ok, done.reason) == (True, "")
    assert sorted(done.detail["answers"]) == answers
    assert (done.detail["server"], done.detail["ttl_s"]) == ("127.0.0.1", 60)
    assert done.latency_ms is not None


@pytest.mark.parametrize(
    ("name", "kind", "contains", "reason"),
    [
        ("web.example", "AAAA", ["2001:db8::2"], "the answers do not contain '2001:db8::2'; they are '2001:db8::1'"),
        ("gone.example", "A", [], "the name does not exist (NXDOMAIN)"),
        ("web.example", "SRV", [], "the name exists but has no SRV record"),
        ("broken.example", "A", [], "the DNS server answered SERVFAIL"),
        ("closed.example", "A", [], "the DNS server answered REFUSED"),
        ("silent.example", "A", [], "timed out after 400ms"),
        (f"{'a' * 80}.example", "A", [], "the name cannot be asked for; check its spelling"),
    ],
)
def test_each_dns_failure_is_reported_in_plain_words(
    name: str, kind: DnsType, contains: list[str], reason: str, provider: CheckProvider, port: int
) -> None:
    expect = DnsExpect(contains=contains)
    check = DnsCheck(name=name, type=kind, server="127.0.0.1", port=port, expect=expect, timeout="400ms")
    began_s = time.monotonic()
    done = outcome(provider, check)
    assert (done.ok, done.reason) == (False, reason)
    assert time.monotonic() - began_s < 4


@pytest.mark.parametrize(
    ("equals", "reason"),
    [
        (["2001:DB8:0::1"], ""),
        (["2001:db8::1", "2001:db8::2"], "the answers do not contain '2001:db8::2'; they are '2001:db8::1'"),
        (["2001:db8::3"], "the answers do not contain '2001:db8::3'; they are '2001:db8::1'"),
    ],
)
def test_dns_answers_must_be_the_expected_ones_and_no_others(
    equals: list[str], reason: str, provider: CheckProvider, port: int
) -> None:
    expect = DnsExpect(equals=equals)
    check = DnsCheck(name="web.example", type="AAAA", server="127.0.0.1", port=port, expect=expect)
    assert outcome(provider, check).reason == reason


def test_dns_answer_beside_the_expected_ones_is_named(provider: CheckProvider, port: int) -> None:
    check = DnsCheck(name="web.example", server="127.0.0.1", port=port)
    first, *others = outcome(provider, check).detail["answers"]
    assert others, "the zone has several addresses"
    done = outcome(provider, msgspec.structs.replace(check, expect=DnsExpect(equals=[first])))
    assert done.reason.startswith("the answers are ")
    assert done.reason.endswith(f", expected {first!r} alone")
    assert outcome(provider, msgspec.structs.replace(check, expect=DnsExpect(equals=[*others, first]))).ok


def test_long_dns_answer_is_read_over_tcp_and_its_detail_is_truncated(provider: CheckProvider, port: int) -> None:
    contains = [LONG_TEXTS[-1].strip('"')]
    check = DnsCheck(
        name="long.example", type="TXT", server="127.0.0.1", port=port, expect=DnsExpect(contains=contains)
    )
    done = outcome(provider, check)
    assert (done.ok, done.reason) == (True, "")
    assert len(done.detail["answers"]) == 32


def test_missing_dns_server_is_reported_as_such(provider: CheckProvider) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        closed = held.getsockname()[1]
    done = outcome(provider, DnsCheck(name="web.example", server="127.0.0.1", port=closed, timeout="400ms"))
    assert not done.ok
    assert done.reason in ("the DNS server could not be reached or gave no valid answer", "timed out after 400ms")


def test_silent_dns_servers_do_not_delay_other_checks(provider: CheckProvider, port: int) -> None:
    """Holds even with far more silent servers than any thread pool has threads."""
    silent = DnsCheck(name="silent.example", server="127.0.0.1", port=port, timeout="10s")
    good = DnsCheck(name="web.example", server="127.0.0.1", port=port)
    provider.start([order(silent, handle) for handle in range(200)])
    began_s = time.monotonic()
    provider.start([order(good, 1_000)])
    (first,) = gather(provider, 1)
    assert (first.handle, first.outcome.ok) == (1_000, True)
    assert time.monotonic() - began_s < 8
    assert provider.in_flight == 200

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.adapters.providers.guard import NOT_PUBLIC, OWN_API, AddressGuard

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "172.32.0.1",
    "100.128.0.1",
    "192.0.1.1",
    "198.20.0.1",
    "223.255.255.255",
]
PUBLIC += ["2606:4700:4700::1111", "2a00:1450:4001:829::200e", "64:ff9b::808:808", "::ffff:8.8.8.8", "2620:fe::fe"]

NOT_PUBLIC_ADDRESSES = {
    "loopback": ["127.0.0.1", "127.0.0.53", "127.255.255.255", "::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],  # noqa: S104 - a target, not a binding
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fd12:3456::1"],
    "link-local": ["169.254.0.1", "fe80::1", "febf::1", "fe80::1%1"],
    "site-local": ["fec0::1"],
    "cloud metadata": ["169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"],
    "carriers": ["100.64.0.1", "100.127.255.255"],
    "assignments": ["192.0.0.1", "192.0.0.170", "192.88.99.1", "2001:2::1", "2001:10::1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "100::1", "4000::1", "5f00::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"],
    "compatible": ["::127.0.0.1", "::8.8.8.8"],
    "translated": ["::ffff:0:127.0.0.1"],
    "6to4": ["2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1"],
    "Teredo": ["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "NAT64": ["64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::808:808"],
    "not an address": ["", "example.org", "127.1", "/run/socket"],
}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_reached(address: str) -> None:
    assert AddressGuard().refusal(address, 443) is None


@pytest.mark.parametrize(
    "address",
    [pytest.param(text, id=f"{kind} {text}") for kind, texts in NOT_PUBLIC_ADDRESSES.items() for text in texts],
)
def test_an_address_that_is_not_public_is_refused_in_the_same_words(address: str) -> None:
    assert AddressGuard().refusal(address, 443) == NOT_PUBLIC
    assert AddressGuard().refusal(address) == NOT_PUBLIC


@given(st.ip_addresses(v=4))
def test_ipv6_form_of_an_ipv4_address_is_refused_like_the_address_itself(address: IPv4Address) -> None:
    guard = AddressGuard()
    plain = guard.refusal(str(address))
    assert guard.refusal(str(IPv6Address(0xFFFF << 32 | int(address)))) == plain
    assert guard.refusal(str(IPv6Address(0x64FF9B << 96 | int(address)))) == plain
    assert guard.refusal(str(IPv6Address(int(address)))) == NOT_PUBLIC
    assert guard.refusal(str(IPv6Address(0x2002 << 112 | int(address) << 80 | 1))) == NOT_PUBLIC


@given(st.ip_addresses())
def test_every_address_that_python_calls_private_is_refused(address: IPv4Address | IPv6Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_link_local:
        mapped_public = isinstance(address, IPv6Address) and (
            address.ipv4_mapped or int(address) >> 32 == 0x64FF9B << 64
        )
        assert mapped_public or AddressGuard().refusal(str(address)) == NOT_PUBLIC


def test_an_allowed_network_may_be_reached_and_its_neighbour_not() -> None:
    guard = AddressGuard([ip_network("10.1.0.0/16"), ip_network("fd00:1::/32")])
    assert guard.refusal("10.1.2.3") is None
    assert guard.refusal("::ffff:10.1.2.3") is None
    assert guard.refusal("fd00:1::5") is None
    assert guard.refusal("10.2.0.1") == NOT_PUBLIC
    assert guard.refusal("::ffff:10.2.0.1") == NOT_PUBLIC
    assert guard.refusal("fd00:2::5") == NOT_PUBLIC


def test_own_api_is_refused_even_in_an_allowed_network() -> None:
    guard = AddressGuard([ip_network("127.0.0.0/8"), ip_network("0.0.0.0/8")], own=[("127.0.0.1", 8080)])
    assert guard.refusal("127.0.0.1", 8080) == OWN_API
    assert guard.refusal("::ffff:127.0.0.1", 8080) == OWN_API
    assert guard.refusal("0.0.0.0", 8080) == OWN_API  # noqa: S104 - a target, not a binding
    assert guard.refusal("127.0.0.1", 8081) is None
    assert guard.refusal("127.0.0.2", 8080) is None


def test_an_api_on_every_address_is_closed_on_every_address_of_the_machine() -> None:
    guard = AddressGuard([ip_network("0.0.0.0/0"), ip_network("::/0")], own=[("0.0.0.0", 8080)])  # noqa: S104 - under test
    assert guard.refusal("127.0.0.1", 8080) == OWN_API
    assert guard.refusal("127.9.9.9", 8080) == OWN_API
    assert guard.refusal("192.0.2.1", 8080) is None, "an address of another machine"
    assert guard.refusal("127.0.0.1", 9090) is None


def test_an_api_named_by_a_host_name_is_closed_on_its_addresses() -> None:
    guard = AddressGuard([ip_network("127.0.0.0/8")], own=[("localhost", 8080)])
    assert socket.gethostbyname("localhost") == "127.0.0.1"
    assert guard.refusal("127.0.0.1", 8080) == OWN_API


def test_own_port_is_refused_like_any_other_where_loopback_is_not_allowed() -> None:
    guard = AddressGuard(own=[("127.0.0.1", 8080)])
    assert guard.refusal("127.0.0.1", 8080) == guard.refusal("127.0.0.1", 8081) == NOT_PUBLIC

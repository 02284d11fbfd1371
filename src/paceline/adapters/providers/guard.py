"""The guard: it decides which addresses a user's check may reach, public ones and those an operator allowed.

The guard judges the very address that a socket is about to connect to, so it does not matter how the address was
spelled, what a name resolved to a moment ago, or which redirect led there.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

NOT_PUBLIC = "the address is not public; an operator can allow it with PACELINE_OUTBOUND_ALLOW"
OWN_API = "the address is Paceline's own API, which checks cannot reach"
VERDICTS_CACHED_MAX = 4_096

_NOT_PUBLIC_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; connecting to 0.0.0.0 reaches loopback
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared address space of carriers, and a cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # public by registry, yet a cloud's host service from within its machines
        "169.254.0.0/16",  # link-local, and the clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments, and a cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_UNICAST_V6 = IPv6Network("2000::/3")
"""All addresses for global use; loopback, link-local, unique local, multicast and the rest lie outside."""
_NOT_PUBLIC_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_LOOPBACK: dict[int, Address] = {4: IPv4Address("127.0.0.1"), 6: IPv6Address("::1")}


class AddressGuard:
    """Judges addresses. ``own`` endpoints stay closed even if ``allow`` opens their network."""

    def __init__(self, allow: Sequence[Network] = (), *, own: Sequence[tuple[str, int]] = ()) -> None:
        self._allow = tuple(allow)
        self._own = _own_by_port(own)
        self._verdict = lru_cache(VERDICTS_CACHED_MAX)(self._judge)

    def refusal(self, address: str, port: int | None = None) -> str | None:
        """Return why no socket may be opened to this address; None if it may. The text does not depend on the port."""
        if (refusal := self._verdict(address)) is not None:
            return refusal
        owners = self._own.get(port) if port is not None else None
        return OWN_API if owners is not None and _is_own(_plain(ip_address(address)), owners) else None

    def _judge(self, text: str) -> str | None:
        try:
            address = ip_address(text)
        except ValueError:
            return NOT_PUBLIC
        plain = _plain(address)
        if self._allowed(address) or self._allowed(plain) or _is_public(plain):
            return None
        return NOT_PUBLIC

    def _allowed(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._allow)


def _plain(address: Address) -> Address:
    """Return the IPv4 address inside an IPv4-mapped or NAT64 address, where its packets really go; else the address."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _UNICAST_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def _own_by_port(own: Sequence[tuple[str, int]]) -> dict[int, frozenset[Address]]:
    by_port: dict[int, frozenset[Address]] = {}
    for host, port in own:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = {_plain(ip_address(str(place[0]).partition("%")[0])) for *_, place in found}
        by_port[port] = by_port.get(port, frozenset()) | addresses
    return by_port


def _is_own(address: Address, owners: frozenset[Address]) -> bool:
    target = _LOOPBACK[address.version] if address.is_unspecified else address
    return target in owners or (any(owner.is_unspecified for owner in owners) and _is_of_this_machine(target))


def _is_of_this_machine(address: Address) -> bool:
    """Return True if this machine has the address: only then can a socket be bound to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True

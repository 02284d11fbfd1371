"""The price of a result, written from RIPE's credits page alone, so that other code can be checked against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ONE_OFF_FACTOR = 2
_FULL_PACKET_BYTES = 1_500


def unit_price(definition: Mapping[str, Any]) -> int:
    """Return the credits for one result of a periodic measurement."""
    match definition["type"]:
        case "ping":
            return _packets(definition) * _per_packet(definition)
        case "traceroute":
            return 10 * _packets(definition) * _per_packet(definition)
        case "dns":
            return 20 if str(definition.get("protocol") or "UDP").upper() == "TCP" else 10
        case _:  # sslcert and http; for ntp no published price could be found
            return 10


def result_price(definition: Mapping[str, Any], *, is_oneoff: bool) -> int:
    """Return the credits that are charged for one result."""
    return unit_price(definition) * (ONE_OFF_FACTOR if is_oneoff else 1)


def _packets(definition: Mapping[str, Any]) -> int:
    return _number(definition.get("packets"), 3)


def _per_packet(definition: Mapping[str, Any]) -> int:
    size = definition.get("size")
    return _number(definition.get("packet_size") if size is None else size, 48) // _FULL_PACKET_BYTES + 1


def _number(value: Any, default: int) -> int:
    return default if value is None else int(value)

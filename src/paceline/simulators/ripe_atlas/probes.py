"""The probes, and the choice of probes for a request."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from paceline.simulators.ripe_atlas.messages import ErrorAnswer, ErrorLine

AREAS = ("West", "North-Central", "South-Central", "North-East", "South-East")
REGIONS = {"EU": "North-Central", "NA": "West", "AS": "South-East", "AF": "South-Central", "OC": "South-East"}
# fmt: off
COUNTRIES = (
    "NL", "DE", "FR", "GB", "US", "CA", "BR", "AR", "ZA", "KE", "EG", "IN", "JP", "SG", "AU",
    "NZ", "SE", "NO", "FI", "PL", "CZ", "IT", "ES", "PT", "CH", "AT", "RU", "UA", "TR", "ID",
)
# fmt: on
MEMO_MAX = 1_000
ASNS = (3333, 1103, 3320, 3215, 2856, 7922, 6830, 1136, 3303, 2119, 1257, 5089, 9009, 16276, 24940, 4713, 9299, 37100)


class Probe(NamedTuple):
    id: int
    country: str
    area: str
    asn: int
    address_v4: str
    address_v6: str
    tags: frozenset[str]

    @property
    def prefix_v4(self) -> str:
        return str(ipaddress.ip_network(f"{self.address_v4}/20", strict=False))


class Chosen(NamedTuple):
    """The probes of a measurement: how many were requested, which are scheduled, and which will answer."""

    requested: int
    scheduled: tuple[int, ...]
    answering: tuple[int, ...]


class Population(NamedTuple):
    """All probes; ``memo`` caches which match a specification, since probes never change."""

    probes: dict[int, Probe]
    memo: dict[str, list[int]]


@lru_cache(maxsize=4)
def population(seed: int, count: int) -> Population:
    chance = random.Random(f"probes/{seed}")  # noqa: S311 - a model, not a secret
    return Population({probe_id: _probe(probe_id, chance) for probe_id in range(1, count + 1)}, {})


def _probe(probe_id: int, chance: random.Random) -> Probe:
    works = {"system-ipv4-works": 0.97, "system-ipv6-works": 0.5, "system-resolves-a-correctly": 0.96}
    works |= {"system-resolves-aaaa-correctly": 0.93, "home": 0.6, "datacentre": 0.15, "system-anchor": 0.05}
    country = chance.choice(COUNTRIES)
    return Probe(
        id=probe_id,
        country=country,
        area=AREAS[COUNTRIES.index(country) % len(AREAS)],
        asn=chance.choice(ASNS),
        address_v4=str(ipaddress.IPv4Address(0x0A00_0000 + probe_id * 16 + 1)),
        address_v6=str(ipaddress.IPv6Address((0x2001_0DB8 << 96) + (probe_id << 64) + 1)),
        tags=frozenset(tag for tag, share in works.items() if chance.random() < share),
    )


class Choice:
    """Chooses the probes of one request: for each of its specifications in turn, no probe twice."""

    def __init__(self, those: Population, *, af: int, of_measurement: Callable[[int], Sequence[int]]) -> None:
        self._probes = those.probes
        self._memo = those.memo
        self._works = f"system-ipv{af}-works"
        self._of_measurement = of_measurement
        self.requested = 0
        self.chosen: dict[int, None] = {}

    def add(self, spec: dict[str, Any], *, index: int, chance: random.Random) -> None:
        matching = self._fitting(spec, index)
        wanted = spec["requested"] if spec["requested"] >= 0 else len(matching)
        self.requested += wanted
        free = [probe_id for probe_id in matching if probe_id not in self.chosen] if self.chosen else matching
        for probe_id in free if len(free) <= wanted else chance.sample(free, wanted):
            self.chosen[probe_id] = None

    def _fitting(self, spec: dict[str, Any], index: int) -> list[int]:
        name = f"{self._works} {spec['type']} {spec['value']} {spec.get('tags')}"
        if name not in self._memo or spec["type"] == "msm":
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            self._memo[name] = [one.id for one in self._matching(spec, index) if self._has_tags(one, spec)]
        return self._memo[name]

    def _has_tags(self, probe: Probe, spec: dict[str, Any]) -> bool:
        tags = spec.get("tags") or {}
        if spec["type"] != "probes" and self._works not in probe.tags:
            return False
        return probe.tags.issuperset(tags.get("include") or ()) and probe.tags.isdisjoint(tags.get("exclude") or ())

    def _matching(self, spec: dict[str, Any], index: int) -> Iterable[Probe]:
        every, value = self._probes.values(), str(spec["value"])
        where = f"/probes/{index}/value"
        match spec["type"]:
            case "area":
                return [probe for probe in every if value in ("WW", probe.area)]
            case "region":
                return [probe for probe in every if probe.area == REGIONS.get(value.upper(), value)]
            case "country" | "countries":
                wanted = {code.strip().upper() for code in value.split(",")}
                return [probe for probe in every if probe.country in wanted]
            case "asn":
                return self._of_asn(value, where)
            case "prefix":
                return self._of_prefix(value, where)
            case "msm":
                return self._by_id(self._of_measurement(_number(value, where)))
            case _:
                return self._by_id([_number(part, where) for part in value.split(",")])

    def _of_asn(self, value: str, where: str) -> list[Probe]:
        asn = _number(value.upper().removeprefix("AS"), where)
        matching = [probe for probe in self._probes.values() if probe.asn == asn]
        if not matching:
            raise _wrong(where, "Your selected ASN is not covered by our network.")
        return matching

    def _of_prefix(self, value: str, where: str) -> list[Probe]:
        try:
            network = ipaddress.ip_network(value, strict=False)
        except ValueError:
            raise _wrong(where, "Enter a valid prefix.") from None
        return [
            probe
            for probe in self._probes.values()
            if ipaddress.ip_address(probe.address_v4 if network.version == 4 else probe.address_v6) in network
        ]

    def _by_id(self, ids: Iterable[int]) -> list[Probe]:
        return [self._probes[probe_id] for probe_id in dict.fromkeys(ids) if probe_id in self._probes]


def take(choice: Choice, *, scheduled_share: float, answering_share: float, chance: random.Random) -> Chosen:
    """Return the choice, where some probes are not scheduled and some of the scheduled ones never answer."""
    scheduled = tuple(probe for probe in choice.chosen if chance.random() < scheduled_share)
    answering = tuple(probe for probe in scheduled if chance.random() < answering_share)
    return Chosen(choice.requested, scheduled, answering)


def _number(text: str, where: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 12):
        raise _wrong(where, "A valid integer is required.")
    return int(stripped)


def _wrong(where: str, detail: str) -> ErrorAnswer:
    return ErrorAnswer(400, problems=[ErrorLine(where, detail)])

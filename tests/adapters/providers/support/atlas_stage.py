"""A RIPE Atlas client against the simulator, in as few words as a test needs."""

from __future__ import annotations

import json
from typing import Any

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas import Answer, Created, Marker, client_id, request_body
from paceline.core.jobs.job import JobLimits, parse_request
from paceline.core.jobs.measurement import Measurement
from paceline.simulators.ripe_atlas import AtlasSimulator

START_MS = 1_780_000_000_000
MINUTE_MS = 60_000
READS = ("measurements.list_measurements", "credits.get_credit_info")
"""Grants of a key that may only read."""
SITE = "site1"
CANARY = "c0ffee00-cafe-4711-beef-c0ffee004711"


def measurement(*kinds: str, requested: int = 5, probes: dict[str, Any] | None = None, **fields: Any) -> Measurement:
    """Returns a one-off measurement with one definition for each kind; ``fields`` go into every definition."""
    own: dict[str, Any] = {"traceroute": {"protocol": "ICMP"}}
    definitions = [
        {"type": kind, "af": 4, "target": "192.0.2.1", "description": "d"} | own.get(kind, {}) | fields
        for kind in kinds or ("ping",)
    ]
    source = probes or {"type": "area", "value": "WW"}
    document = {"definitions": definitions, "probes": [source | {"requested": requested}], "is_oneoff": True}
    return parse_request(json.dumps(document).encode(), JobLimits(), now_ms=START_MS)


def marker(index: int = 0) -> Marker:
    return Marker(SITE, "j1", index)


def body_of(wanted: Measurement, index: int = 0) -> bytes:
    return request_body(wanted, marker(index), client=client_id("ada", b"secret"), now_ms=START_MS)


def send(atlas: RipeAtlas, key: str, wanted: Measurement | None = None, index: int = 0) -> Answer:
    wanted = wanted or measurement()
    return atlas.create(key, wanted, body_of(wanted, index))


def sent(atlas: RipeAtlas, key: str, wanted: Measurement | None = None, index: int = 0) -> tuple[int, ...]:
    answer = send(atlas, key, wanted, index)
    assert isinstance(answer, Created), answer
    return answer.ids


def posts(simulator: AtlasSimulator) -> int:
    """Returns how many creation requests reached the simulator, answered or not."""
    return sum(request.method == "POST" for request, _ in simulator.latest)

"""Stored measurements that scenes of sending and reading back are made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.job import JobLimits, parse_request
from paceline.core.jobs.measurement import Measurement
from paceline.core.jobs.values import StoredMeasurement

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1_000


def definition(kind: str = "ping", target: str = "192.0.2.1", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "af": 4, "target": target, "description": "d", **fields}


def measurement(*definitions: dict[str, Any], **fields: Any) -> Measurement:
    probes = [{"requested": 10, "type": "area", "value": "WW"}]
    document = {"definitions": list(definitions) or [definition()], "probes": probes, "is_oneoff": True, **fields}
    return parse_request(json.dumps(document).encode(), JobLimits(), now_ms=NOW_MS)


def stored(number: int = 1, owner: str = "ada", asked: Measurement | None = None, **fields: Any) -> StoredMeasurement:
    cost = Cost(credits=60, results=10, concurrent=1, daily_credits=60, daily_results=10)
    item = StoredMeasurement(number, 0, "j1", number, owner, "queued", asked or measurement(), cost)
    return msgspec.structs.replace(item, **fields)

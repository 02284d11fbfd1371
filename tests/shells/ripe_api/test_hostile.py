"""What no client of RIPE's would send: refused in the envelope, never a 500."""

from __future__ import annotations

import pytest

from paceline.shells.ripe_api.routes import ROUTES
from tests.shells.api.conftest import Client
from tests.shells.ripe_api.conftest import PING, House

BODIES = [
    b"",
    b"null",
    b"[]",
    b'{"definitions": {}}',
    b'{"definitions": [], "probes": []}',
    b'{"definitions": [null], "probes": [7]}',
    b'{"definitions": [{"type": 7}], "probes": [{"type": [], "value": {}, "requested": 1e999}]}',
    b'{"definitions": [{"type": "ping", "af": NaN}]}',
    b'{"definitions": [{"type": "ping", "description": "\\ud800"}]}',
    b'{"x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"is_oneoff": ' + b"9" * 5_000 + b"}",
    b"\xff\xfe",
]
QUERIES = [
    "page=%00",
    "page_size=99999999999999999999",
    "id__in=" + "1," * 2_000,
    "id=-1",
    "sort=",
    "fields=%ff,,id",
    "status__in=,",
    "tags=%00",
    "description__contains=%F0%9F%98%80",
    "start_time__gt=1e9",
    "&".join(f"p{number}=1" for number in range(200)),
    "continue=%00.%00.%00",
    "continue=....",
    "format=txt&probe_ids=1,,2",
    "lookback_days=99999",
    "versions=0",
    "key=%C3%A9",
]
NUMBERS = [
    "0",
    "1",
    "2097151",
    "2097279",
    "9999999999999999",
    "12345678901234567",
    "%D9%A3",
    "-1",
    "1.5",
    "x",
    "..",
    "",
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:40]))
def test_invalid_body_is_refused_by_the_ripe_api(house: House, body: bytes) -> None:
    headers = {"Authorization": f"Key {house.ann.token}"}
    answer = Client(house.world.port)("POST", "/api/v2/measurements/", raw=body, headers=headers)
    assert answer.status == 400, answer.body
    assert answer.json["error"]["title"] == "Bad Request"


def test_hostile_queries_and_numbers_cause_no_500(house: House) -> None:
    house.ann.create({**PING, "description": "a", "tags": ["b"]})
    for route in ROUTES:
        if route.method != "GET":
            continue
        path = route.name.removeprefix("/api/v2").replace("{type}", "ping")
        for query in QUERIES:
            answer = house.ann("GET", path.replace("{id}", str(1 << 21)) + "?" + query)
            assert answer.status in (200, 400, 404), (route.name, query, answer.body)
        for number in NUMBERS if "{id}" in path else ():
            answer = house.ann("GET", path.replace("{id}", number))
            assert answer.status in (200, 400, 404), (route.name, number, answer.body)
    assert "request_failed" not in house.world.log.getvalue()


def test_hostile_headers_cause_no_500(house: House) -> None:
    for value in ("Key", "Key ", "Basic", "Basic !!", "Basic Og==", "Basic /w==", "Digest x=1", "Key \u00e9" * 100):
        answer = Client(house.world.port)("GET", "/api/v2/measurements/", headers={"Authorization": value})
        assert answer.status in (200, 401, 429), value
    assert "request_failed" not in house.world.log.getvalue()

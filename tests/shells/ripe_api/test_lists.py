"""Lists through /api/v2: filters, order, fields, pages, counts."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tests.shells.ripe_api.conftest import PING, House

DNS = {
    "type": "dns",
    "af": 6,
    "description": "Three",
    "query_class": "IN",
    "query_type": "A",
    "query_argument": "example.org",
    "use_probe_resolver": True,
}


def filled(house: House) -> list[int]:
    """Five of three requests: the ids, oldest first."""
    numbers = house.ann.create({**PING, "tags": ["a", "b"]}, {**PING, "description": "two", "tags": ["b"]})
    numbers += house.ann.create(DNS)
    numbers += house.ann.create({**PING, "target": "www.example.net"}, {**PING, "af": 6, "target": "2001:db8::1"})
    house.bob.create()
    return numbers


def ids(house: House, query: str, path: str = "/measurements/") -> list[int]:
    answer = house.ann("GET", f"{path}?{query}")
    assert answer.status == 200, answer.body
    assert "warnings" not in answer.json, answer.json["warnings"]
    assert answer.json["count"] == len(answer.json["results"])
    return [one["id"] for one in answer.json["results"]]


def test_a_user_sees_all_own_measurements_newest_first(house: House) -> None:
    a, b, c, d, e = filled(house)
    for path in ("/measurements/", "/measurements", "/measurements/my/", "/measurements/my"):
        assert ids(house, "", path) == [e, d, c, b, a]


def test_filters_are_those_that_clients_use(house: House) -> None:
    a, b, c, d, e = filled(house)
    assert house.ann("DELETE", f"/measurements/{c}").status == 204
    wanted: dict[str, list[int]] = {
        f"id__in={a},{c},{a},{1 << 40}": [c, a],
        f"id={b}": [b],
        f"id__gt={b}&id__lt={e}": [d, c],
        "status=0": [e, d, b, a],
        "status__in=0,1,2": [e, d, b, a],
        "status__in=specified,Canceled": [e, d, c, b, a],
        "status=Canceled": [c],
        "status=ongoing": [],
        "type=dns": [c],
        "af=6": [e, c],
        "tags=b": [b, a],
        "tags=a,b": [a],
        "description__contains=hre": [c],
        "description=two": [b],
        "target__endswith=.net": [d],
        "search=EXAMPLE.net": [d],
        "is_oneoff=true": [e, d, c, b, a],
        "is_oneoff=false": [],
        "start_time__gt=1&sort=id": [a, b, c, d, e],
        "sort=-type&type=ping": [e, d, b, a],
        "sort=status.id&id__gte=0": [a, b, d, e, c],
        "optional_fields=probes&format%5Bdatetime%5D=iso-8601&sort=id": [a, b, c, d, e],
    }
    for query, numbers in wanted.items():
        assert ids(house, query) == numbers, query
    assert ids(house, "", "/measurements/dns/") == [c]


def test_pages_link_to_each_other_and_never_carry_the_key(house: House) -> None:
    numbers = filled(house)
    seen: list[int] = []
    path = f"/measurements/my/?page_size=2&sort=id&key={house.ann.token}"
    following: str | None = path
    while following is not None:
        page = house.ann("GET", following).json
        assert page["count"] == 5
        seen += [one["id"] for one in page["results"]]
        link = page["next"]
        assert house.ann.token not in str(link) + str(page["previous"])
        following = urlsplit(link).path.removeprefix("/api/v2") + "?" + urlsplit(link).query if link else None
    assert seen == numbers


def test_a_count_needs_no_page_and_fields_are_cut(house: House) -> None:
    filled(house)
    assert house.ann("GET", "/measurements/my/?page_size=0").json == {
        "count": 5,
        "next": None,
        "previous": None,
        "results": [],
    }
    assert house.ann("GET", "/measurements/my/?status__in=0,1,2&page_size=1").json["count"] == 5
    page = house.ann("GET", "/measurements/?fields=id,type&page_size=1").json
    assert [sorted(one) for one in page["results"]] == [["id", "type"]]


def test_unknown_filter_is_ignored_with_a_warning(house: House) -> None:
    filled(house)
    page = house.ann("GET", "/measurements/?mine=true&tls=1").json
    assert page["count"] == 5
    assert [one["source"] for one in page["warnings"]] == [{"parameter": "mine"}, {"parameter": "tls"}]


def test_invalid_filter_values_are_refused_with_their_parameter(house: House) -> None:
    for query, parameter in (
        ("page_size=501", "page_size"),
        ("page_size=-1", "page_size"),
        ("page=0", "page"),
        ("page=9999999999999999", "page"),
        ("sort=price", "sort"),
        ("status=melting", "status"),
        ("id__in=1,x", "id__in"),
        ("af=%D9%A4", "af"),
    ):
        answer: Any = house.ann("GET", f"/measurements/?{query}")
        assert answer.status == 400, query
        assert answer.json["error"]["errors"][0]["source"] == {"parameter": parameter}

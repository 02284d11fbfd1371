"""Lists of monitors: what can be asked for, which monitors match, and cursors that lead on."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.monitors.definition import TAG_CHARS_MAX, Monitor, MonitorSpec
from paceline.core.monitors.lists.query import (
    HEALTH_ORDER,
    START,
    TEXT_CHARS_MAX,
    Facet,
    Kind,
    Mark,
    MonitorQuery,
    address_of,
    facets_of,
    kind_of,
    matches,
    parse_query,
    read_mark,
    search_text,
    trigrams,
    wanted_facets,
    write_mark,
)
from paceline.errors import InvalidInput

CHECKS: list[tuple[Check, Kind, str]] = [
    (HttpCheck(url="https://Example.org/"), "http", "https://Example.org/"),
    (TcpCheck(host="db.example", port=5_432), "tcp", "db.example:5432"),
    (TlsCheck(host="example.org"), "tls", "example.org:443"),
    (DnsCheck(name="example.net"), "dns", "example.net"),
    (OutgoingCheck(document={"kind": "outgoing"}), "outgoing", ""),
]
marks = st.builds(
    Mark,
    st.integers(0, len(HEALTH_ORDER) - 1),
    st.integers(0, 2**60 - 1),
    st.integers(0, 2**60 - 1),
    st.text(max_size=5),
    st.text(max_size=5),
)


def monitor(check: Check = CHECKS[0][0], owner: str = "ada", *tags: str) -> Monitor:
    return Monitor(owner, "Web", 7, 1, MonitorSpec(check, every="60s", tags=tags), 0, 0)


@pytest.mark.parametrize(("check", "kind", "address"), CHECKS)
def test_every_check_has_a_kind_and_an_address_by_which_it_is_found(check: Check, kind: Kind, address: str) -> None:
    one = monitor(check)
    assert (kind_of(check), address_of(check)) == (kind, address)
    assert search_text(one) == f"Web\n{address}"
    assert {asked for asked in get_args(Kind) if matches(MonitorQuery(kind=asked), one)} == {kind}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (MonitorQuery(), True),
        (MonitorQuery(owner="ada"), True),
        (MonitorQuery(owner="bob"), False),
        (MonitorQuery(tag="prod"), True),
        (MonitorQuery(tag="pro"), False),
        (MonitorQuery(q="wEb"), True),
        (MonitorQuery(q="EXAMPLE.ORG"), True),
        (MonitorQuery(q="web\nhttps"), True),
        (MonitorQuery(q="nowhere"), False),
        (MonitorQuery(owner="ada", tag="prod", kind="http", q="web"), True),
        (MonitorQuery(owner="ada", tag="prod", kind="tcp", q="web"), False),
    ],
)
def test_monitor_matches_a_query_if_every_filter_holds(query: MonitorQuery, *, found: bool) -> None:
    assert matches(query, monitor(CHECKS[0][0], "ada", "prod", "eu")) is found


def test_query_is_read_from_texts_and_an_empty_text_is_as_good_as_none() -> None:
    assert parse_query(owner=None, tag="", health="", kind="", q="", sort="") == MonitorQuery()
    asked = parse_query(owner="ada", tag="prod", health="failing", kind="tls", q="x", sort="health")
    assert asked == MonitorQuery("ada", "prod", "failing", "tls", "x", "health")


def test_invalid_query_is_refused_with_every_wrong_parameter() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_query(
            owner=None,
            tag="x" * (TAG_CHARS_MAX + 1),
            health="well",
            kind="ping",
            q="x" * (TEXT_CHARS_MAX + 1),
            sort="price",
        )
    assert [problem.pointer.removeprefix("/query/") for problem in caught.value.errors] == [
        "health",
        "kind",
        "sort",
        "tag",
        "q",
    ]


def test_each_query_has_cursors_of_its_own() -> None:
    queries = [MonitorQuery(), MonitorQuery(owner="a"), MonitorQuery(tag="a"), MonitorQuery(q="a", sort="health")]
    assert len({query.scope for query in queries}) == len(queries)
    assert MonitorQuery(owner="a").scope == MonitorQuery(owner="a").scope


@given(marks)
def test_cursor_leads_back_to_where_its_page_ended(mark: Mark) -> None:
    assert read_mark(write_mark(mark)) == mark


def test_list_without_a_cursor_begins_at_the_start() -> None:
    assert read_mark("") == START


@pytest.mark.parametrize(
    "text", ["x", "{}", '["a"]', '[3,0,0,"",""]', '[-1,0,0,"",""]', f'[0,{2**60},0,"",""]', '[0,0,-1,"",""]']
)
def test_text_that_no_page_wrote_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_mark(text)
    assert [problem.pointer for problem in caught.value.errors] == ["/query/cursor"]


@given(st.text(max_size=12), st.text(max_size=6))
def test_text_has_all_trigrams_of_its_parts(text: str, part: str) -> None:
    whole = trigrams(f"{text}{part}{text}")
    assert len(set(whole)) == len(whole)
    assert set(trigrams(part)) <= set(whole)
    assert all(len(one) == 3 for one in whole)


def test_facets_of_a_monitor_cover_those_of_every_query_that_it_matches() -> None:
    found = facets_of(monitor(CHECKS[0][0], "ada", "prod", "eu", "prod"))
    assert found == [Facet("kind", "http"), Facet("tag", "prod"), Facet("tag", "eu")]
    assert wanted_facets(MonitorQuery()) == []
    assert wanted_facets(MonitorQuery(tag="prod")) == [Facet("tag", "prod")]
    assert wanted_facets(MonitorQuery(kind="http")) == [Facet("kind", "http")]
    assert wanted_facets(MonitorQuery(kind="http", tag="eu")) == [Facet("tag", "eu"), Facet("kind", "http")]

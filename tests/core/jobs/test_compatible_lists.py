"""Lists as RIPE's clients ask for them: filters, order, fields and pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.compatible.lists import (
    IDS_MAX,
    PAGE_SIZE_DEFAULT,
    PAGED_MAX,
    WantedFields,
    parse_fields,
    parse_wanted,
)
from paceline.errors import InvalidInput

DOCUMENT: dict[str, Any] = {
    "id": 7,
    "af": 4,
    "interval": None,
    "start_time": 100,
    "stop_time": 200,
    "group_id": None,
    "description": "Ping of Example",
    "target": "www.example.org",
    "type": "ping",
    "is_oneoff": True,
    "is_public": False,
    "tags": ["a", "b"],
    "status": {"id": 2, "name": "Ongoing"},
}


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        *(("af", "4", True), ("af", "6", False), ("interval", "60", False), ("interval__lt", "60", False)),
        *(("start_time__lt", "101", True), ("start_time__lt", "100", False), ("start_time__lte", "100", True)),
        *(("stop_time__gt", "199", True), ("stop_time__gt", "200", False), ("stop_time__gte", "200", True)),
        *(("description", "Ping of Example", True), ("description", "ping of example", False)),
        *(
            ("description__contains", "OF", True),
            ("target__startswith", "WWW", True),
            ("target__endswith", "com", False),
        ),
        *(("protocol", "", True), ("protocol", "ICMP", False), ("type", "ping", True)),
        *(
            ("is_oneoff", "true", True),
            ("is_oneoff", "0", False),
            ("is_public", "False", True),
            ("is_public", "1", False),
        ),
        *(("tags", "a", True), ("tags", "b, a", True), ("tags", "a,c", False)),
        *(("search", "EXAMPLE.org", True), ("search", "of example www", True), ("search", "nowhere", False)),
        *(
            ("status", "2", True),
            ("status", "ongoing", True),
            ("status__in", "4, Ongoing", True),
            ("status", "4", False),
        ),
    ],
)
def test_filter_keeps_the_documents_that_it_describes(name: str, value: str, *, fits: bool) -> None:
    wanted = parse_wanted({name: value})
    assert wanted.ignored == ()
    assert wanted.fits(DOCUMENT) is fits
    assert not wanted.is_plain


def test_search_reads_a_document_without_a_target() -> None:
    assert parse_wanted({"search": "ping"}).fits(DOCUMENT | {"target": None})
    assert not parse_wanted({"search": "none"}).fits(DOCUMENT | {"target": None})


def test_several_filters_must_all_fit() -> None:
    assert parse_wanted({"af": "4", "type": "ping"}).fits(DOCUMENT)
    assert not parse_wanted({"af": "4", "type": "dns"}).fits(DOCUMENT)
    assert parse_wanted({"status": "1,2", "status__in": "2,4"}).statuses == frozenset({2})


def test_list_of_one_type_has_no_other() -> None:
    assert parse_wanted({}, only_type="ping").fits(DOCUMENT)
    assert not parse_wanted({}, only_type="dns").fits(DOCUMENT)


def test_list_without_parameters_is_plain_with_the_newest_first() -> None:
    wanted = parse_wanted({"key": "secret", "format": "json"})
    assert wanted.is_plain
    assert (wanted.page, wanted.size, wanted.begin, wanted.sort) == (1, PAGE_SIZE_DEFAULT, 0, "-id")
    assert wanted.statuses is None
    assert wanted.ids is None


def test_filter_that_is_not_known_is_named_and_ignored() -> None:
    wanted = parse_wanted({"probe_bias": "x", "af__contains": "4", "n" * 100: "y"})
    assert wanted.ignored == ("probe_bias", "af__contains", "n" * 64)
    assert wanted.fits(DOCUMENT)
    assert wanted.is_plain


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"sort": "price"}, "/query/sort"),
        ({"sort": "--id"}, "/query/sort"),
        ({"page": "0"}, "/query/page"),
        ({"page": "201"}, "/query/page"),
        ({"page": "x"}, "/query/page"),
        ({"page_size": "501"}, "/query/page_size"),
        ({"page_size": "101", "fields": "id,probes"}, "/query/page_size"),
        ({"af": "four"}, "/query/af"),
        ({"status": "2,running"}, "/query/status"),
        ({"status": "1000"}, "/query/status"),
        ({"id": "7,x"}, "/query/id"),
        ({"id__in": ",".join(map(str, range(IDS_MAX + 1)))}, "/query/id__in"),
    ],
)
def test_list_with_a_wrong_parameter_is_refused_by_its_name(query: dict[str, str], pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_wanted(query)
    assert [problem.pointer for problem in caught.value.errors] == [pointer]


@given(page=st.integers(1, 10**6), size=st.integers(1, 500))
def test_pages_follow_each_other_without_a_gap_up_to_the_limit(page: int, size: int) -> None:
    query = {"page": str(page), "page_size": str(size)}
    if page * size > PAGED_MAX:
        with pytest.raises(InvalidInput):
            parse_wanted(query)
    else:
        assert parse_wanted(query).begin == (page - 1) * size


def test_ids_are_those_asked_for_each_once() -> None:
    assert parse_wanted({"id": "7"}).ids == (7,)
    wanted = parse_wanted({"id__in": "9,7, 9,,8", "id": "1"})
    assert wanted.ids == (9, 7, 8)
    assert not wanted.is_plain
    assert wanted.tests == ()


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        *(("id", 3), ("start_time", 100), ("-stop_time", 200), ("is_oneoff", True), ("type", "ping"), ("af", 4)),
        *(("status.id", 2), ("status.name", "Ongoing")),
    ],
)
def test_list_is_ordered_by_the_field_then_by_submission(sort: str, value: Any) -> None:
    assert parse_wanted({"sort": sort}).order(DOCUMENT, 3) == (False, value, 3)


def test_document_without_the_value_comes_after_those_with_one() -> None:
    wanted = parse_wanted({"sort": "interval"})
    assert wanted.order(DOCUMENT, 1) > wanted.order(DOCUMENT | {"interval": 900}, 2)


@pytest.mark.parametrize(
    ("query", "needs"),
    [({}, False), ({"sort": "-start_time"}, True), ({"start_time__gt": "5"}, True), ({"stop_time__gt": "5"}, False)],
)
def test_time_of_submission_is_read_only_where_the_start_matters(query: dict[str, str], *, needs: bool) -> None:
    assert parse_wanted(query).needs_creation is needs


def test_fields_are_cut_to_those_asked_for() -> None:
    assert parse_fields({"fields": "id, af ,nothing"}).cut(DOCUMENT) == {"id": 7, "af": 4}
    assert parse_fields({}).cut(DOCUMENT) == DOCUMENT
    assert parse_fields({"optional_fields": "probes"}).cut(DOCUMENT) == DOCUMENT


def test_probes_are_shown_only_if_they_are_asked_for() -> None:
    assert not parse_fields({}).with_probes
    assert not parse_fields({"fields": "id"}).with_probes
    assert parse_fields({"optional_fields": "probes"}).with_probes
    assert parse_fields({"fields": "id", "optional_fields": "probes"}) == WantedFields(("id", "probes"), ("probes",))
    assert parse_fields({"fields": "id", "optional_fields": "probes"}).with_probes

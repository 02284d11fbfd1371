"""Batches and records as they are declared: what is refused by its field, and when a day's window lies."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import (
    DAY_MS,
    BatchSpec,
    Window,
    batch_document,
    call_url,
    day_at,
    parse_batch,
    parse_date,
    parse_record,
    parse_stored_batch,
    record_document,
    window_of,
)
from paceline.core.batches.deletion import is_let_finish, no_batch
from paceline.core.instants import parse_instant_ms
from paceline.errors import InvalidInput, MalformedBody, NotFound

RECORD: dict[str, Any] = {"id": "r1", "provider": "shop"}


def ms(text: str) -> int:
    found = parse_instant_ms(text)
    assert found is not None
    return found


def pointers(caught: pytest.ExceptionInfo[InvalidInput]) -> list[str]:
    return [problem.pointer for problem in caught.value.errors]


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        ({"start": "24:00"}, ["/start"]),
        ({"window": "999ms"}, ["/window"]),
        ({"window": "25h", "jitter": "soon"}, ["/window", "/jitter"]),
        ({"window": "1h", "jitter": "61m"}, ["/jitter"]),
        ({"timezone": "Mars/Olympus"}, ["/timezone"]),
        ({"channels": ["ok", "not ok"]}, ["/channels/1"]),
        ({"channels": ["a"] * 11}, ["/channels"]),
    ],
)
def test_invalid_batch_is_refused_by_its_fields(document: dict[str, Any], wrong: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_batch(json.dumps(document).encode(), pointer="/batch")
    assert pointers(caught) == [f"/batch{pointer}" for pointer in wrong]


def test_stored_batch_comes_back_as_it_was() -> None:
    spec = parse_batch(b'{"start": "02:30:15", "window": "6h", "jitter": "6h", "timezone": "Europe/Berlin"}')
    assert parse_stored_batch(json.dumps(batch_document(spec))) == spec


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"id": "", "provider": "a b"}, ["/id", "/provider"]),
        ({"endpoint": "/" + "a" * 2_048}, ["/endpoint"]),
        ({"endpoint": "/a b"}, ["/endpoint"]),
        ({"endpoint": "/b\u00fccher"}, ["/endpoint"]),
        ({"endpoint": "https://evil.example/"}, ["/endpoint"]),
        ({"endpoint": "//evil.example/"}, ["/endpoint"]),
        ({"endpoint": "/{nothing}"}, ["/endpoint"]),
        ({"body": {"text": "x" * 65_536}}, ["/body"]),
        ({"body": "{nothing}"}, ["/body"]),
        ({"priority": 1_000_001}, ["/priority"]),
        ({"after": "not ok"}, ["/after"]),
        ({"timeout": "1ms", "expect": {"done": [99]}}, ["/timeout", "/expect/done/0"]),
    ],
)
def test_invalid_record_is_refused_by_its_fields(fields: dict[str, Any], wrong: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_record(json.dumps(RECORD | fields).encode(), pointer="/records/3")
    assert pointers(caught) == [f"/records/3{pointer}" for pointer in wrong]


@pytest.mark.parametrize("endpoint", ["", "/a/b?to=http://x", "a:b", "?q=1", "/a:b//c"])
def test_record_with_a_path_below_its_provider_is_saved(endpoint: str) -> None:
    assert parse_record(json.dumps(RECORD | {"endpoint": endpoint}).encode()).endpoint == endpoint


def test_record_whose_body_is_not_utf_8_is_no_json() -> None:
    with pytest.raises(MalformedBody):
        parse_record(b'{"id": "r1", "provider": "shop", "body": "\xff"}')


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"body": None},
        {"endpoint": "/a?day={date}", "body": {"run": "{run}", "brace": "{{"}},
        {"priority": 3, "after": "r0", "active": False},
    ],
)
def test_record_that_is_put_again_as_it_is_shown_is_the_same(fields: dict[str, Any]) -> None:
    spec = parse_record(json.dumps(RECORD | fields).encode())
    shown = record_document(spec)
    shown["body"] = None if shown["body"] is None else json.loads(bytes(shown["body"]))
    assert parse_record(json.dumps(shown).encode()) == spec


@pytest.mark.parametrize(
    ("base", "endpoint", "url"),
    [
        ("http://a/", "", "http://a/"),
        ("http://a", "b", "http://a/b"),
        ("http://a/", "/b", "http://a/b"),
        ("http://a/v1/", "b", "http://a/v1/b"),
        ("http://a", "?q=1", "http://a?q=1"),
    ],
)
def test_url_of_a_call_has_exactly_one_slash_between_base_and_endpoint(base: str, endpoint: str, url: str) -> None:
    assert call_url(base, endpoint) == url


@given(st.dates(date(1990, 1, 1), date(2070, 1, 1)))
def test_date_is_read_if_it_can_be_planned(day: date) -> None:
    assert parse_date(day.isoformat()) == (day if 2000 <= day.year <= 2059 else None)


@pytest.mark.parametrize("text", ["", "2026-02-30", "2026-1-1", "20260101", "2026-11-15T00:00", "\u0662026-01-01"])
def test_text_that_is_no_date_is_none(text: str) -> None:
    assert parse_date(text) is None


@pytest.mark.parametrize(
    ("spec", "day", "start", "end"),
    [
        (BatchSpec(), date(2026, 11, 15), "2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z"),
        (BatchSpec("02:30:15", "6h"), date(2026, 11, 15), "2026-11-15T02:30:15Z", "2026-11-15T08:30:15Z"),
        # The local day has 23 hours: clocks are set forward at 02:00.
        (
            BatchSpec(timezone="Europe/Berlin"),
            date(2027, 3, 28),
            "2027-03-27T23:00:00Z",
            "2027-03-28T22:00:00Z",
        ),
        # There is no 02:30 that day: the start moves on by the hour that is missing.
        (
            BatchSpec("02:30", "1h", "Europe/Berlin"),
            date(2027, 3, 28),
            "2027-03-28T01:30:00Z",
            "2027-03-28T02:30:00Z",
        ),
    ],
)
def test_window_of_a_day_begins_at_its_local_time_and_lasts_as_asked(
    spec: BatchSpec, day: date, start: str, end: str
) -> None:
    assert window_of(spec, day) == Window(ms(start), ms(end))


@given(
    now_ms=st.integers(1_767_225_600_000, 1_900_000_000_000),
    start=st.sampled_from(["00:00", "02:30", "23:59:59"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"]),
)
def test_day_at_a_time_is_the_one_whose_window_began_last(now_ms: int, start: str, zone: str) -> None:
    spec = BatchSpec(start, timezone=zone)
    window = window_of(spec, day_at(spec, now_ms))
    assert window.start_ms <= now_ms < window.end_ms
    assert abs(window.end_ms - window.start_ms - DAY_MS) <= 3_600_000


def test_deletion_lets_a_run_finish_that_is_out_within_its_lease() -> None:
    assert is_let_finish("out", 11, now_ms=10)
    assert not is_let_finish("out", 10, now_ms=10)
    assert not is_let_finish("retry", 11, now_ms=10)
    assert isinstance(no_batch("daily"), NotFound)
    assert "'daily'" in no_batch("daily").detail

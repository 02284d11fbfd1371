"""Reasons of failed expectations: what was wanted and what came, in a bounded sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.http.answers import Body, HttpAnswer, http_mismatch
from paceline.core.monitors.checks import HttpCheck, parse_check
from paceline.core.monitors.outcome import REASON_CHARS_MAX


def reason(expect: dict[str, Any], body: bytes = b"", **answer: Any) -> str:
    document = {"kind": "http", "url": "https://example.org/", "expect": expect}
    check = parse_check(msgspec.json.encode(document), "/check")
    assert isinstance(check, HttpCheck)
    text = body.decode("utf-8", "replace")
    headers = answer.pop("headers", {})
    kept = Body(body, answer.pop("kept_max", None))
    heard = HttpAnswer(answer.pop("code", 200), lambda: headers, lambda part: part in text, body=lambda: kept)
    return http_mismatch(check, heard._replace(**answer))


@pytest.mark.parametrize(
    ("status", "code", "good"),
    [(["2xx"], 204, True), (["2xx"], 301, False), ([404, "2xx"], 404, True), (["1xx", "5xx"], 503, True)],
)
def test_status_class_matches_each_of_its_statuses(status: list[int | str], code: int, good: bool) -> None:  # noqa: FBT001
    assert (reason({"status": status}, code=code) == "") is good


HEADERS = {"content-type": "application/json; charset=utf-8", "x-version": "2.4"}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"X-Version": "2.4"}, ""),
        ({"x-VERSION": "2"}, "the header x-VERSION is '2.4', expected '2'"),
        ({"Content-Type": {"contains": "json"}}, ""),
        ({"X-Version": {"contains": "3"}}, "the header X-Version is '2.4', expected to contain '3'"),
        ({"X-Version": {"matches": r"^2\."}}, ""),
        ({"X-Version": {"matches": "^3"}}, "the header X-Version is '2.4', expected to match '^3'"),
        ({"X-Gone": {"matches": ""}}, "the header X-Gone is missing"),
    ],
)
def test_header_is_compared_whole_or_by_its_operator(header: dict[str, Any], words: str) -> None:
    assert reason({"header": header}, headers=HEADERS) == words


def test_headers_as_they_were_written_before_contain_a_text() -> None:
    assert reason({"headers": {"Content-Type": "json"}}, headers=HEADERS) == ""
    words = "the header X-Version is '2.4', expected to contain '3'"
    assert reason({"headers": {"X-Version": "3"}}, headers=HEADERS) == words


JSON = (
    b'{"status": "up", "free": 12.5, "on": true, "none": null, "list": [1, {"a": "b"}], "big": 123456789012345678901}'
)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"pointer": "/status", "is": "up"}, ""),
        ({"pointer": "/status", "is": "down"}, 'the JSON at \'/status\' is "up", expected "down"'),
        ({"pointer": "/none", "is": None}, ""),
        ({"pointer": "/on", "is": 1}, "the JSON at '/on' is true, expected 1"),
        ({"pointer": "/list", "is": [1.0, {"a": "b"}]}, ""),
        ({"pointer": "/list", "is": []}, "the JSON at '/list' is a list of 2, expected a list of 0"),
        ({"pointer": "/gone", "is": None}, "the JSON at '/gone' is missing"),
        ({"pointer": "/status", "matches": "^u"}, ""),
        ({"pointer": "/free", "matches": "1"}, "the JSON at '/free' is 12.5, expected text that matches '1'"),
        ({"pointer": "/free", "at_least": 12, "at_most": 13}, ""),
        ({"pointer": "/free", "at_least": 13}, "the JSON at '/free' is 12.5, expected at least 13"),
        ({"pointer": "/free", "at_most": 12.4}, "the JSON at '/free' is 12.5, expected at most 12.4"),
        ({"pointer": "/on", "at_least": 0}, "the JSON at '/on' is true, expected at least 0"),
        ({"pointer": "/big", "at_least": 1}, ""),
    ],
)
def test_json_place_is_compared_as_asked(wanted: dict[str, Any], words: str) -> None:
    assert reason({"json": [wanted]}, JSON) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body is empty, expected JSON"),
        (b"<html>", "the body is not JSON"),
        (b'{"a": NaN}', "the body is not JSON"),
        (b'{"a": "\xff"}', "the body is not JSON"),
        (b"[" * 60_000, "the body is not JSON"),
        (b"\xef\xbb\xbf" + JSON, ""),
    ],
)
def test_body_that_is_no_json_is_called_so(body: bytes, words: str) -> None:
    assert reason({"json": [{"pointer": "/status", "is": "up"}]}, body) == words


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ({"body_contains": "up"}, ""),
        ({"body_contains": "down"}, "the body does not contain 'down'"),
        ({"body_lacks": "down"}, ""),
        ({"body_lacks": "up"}, "the body contains 'up'"),
        ({"body_matches": "u."}, ""),
        ({"body_matches": "^u"}, "the body does not match '^u'"),
    ],
)
def test_body_must_contain_lack_or_match_a_text_as_asked(expect: dict[str, Any], words: str) -> None:
    assert reason(expect, JSON) == words


def test_body_that_was_cut_says_that_its_rest_was_not_searched() -> None:
    words = "the first 64 bytes of the body do not contain 'down'; the rest was not read (max_bytes)"
    assert reason({"body_contains": "down"}, JSON, read_max=64) == words


def test_long_body_is_searched_at_its_start_and_not_read_as_json() -> None:
    assert reason({"body_matches": "status"}, JSON, kept_max=65_536) == ""
    words = "the first 65536 bytes of the body do not match 'down'; the rest is not looked at"
    assert reason({"body_matches": "down"}, JSON, kept_max=65_536) == words
    words = "the body is longer than 65536 bytes, which is the most that is read as JSON"
    assert reason({"json": [{"pointer": "/status", "is": "up"}]}, JSON, kept_max=65_536) == words


def test_slow_good_answer_is_a_failure_and_a_bad_one_says_what_is_wrong_first() -> None:
    slow = "the answer took 501ms, longer than the 500ms allowed"
    assert reason({"latency_max": "500ms"}, latency_ms=500.0) == ""
    assert reason({"latency_max": "500ms"}, latency_ms=500.7) == slow
    assert reason({"latency_max": "500ms"}, latency_ms=501.0, code=500) == "status 500, expected 2xx"


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (14, ""),
        (13, "the certificate expires in 13 days, fewer than the 14 asked for"),
        (1, "the certificate expires in 1 day, fewer than the 14 asked for"),
        (None, "the server showed no certificate"),
    ],
)
def test_certificate_must_last_as_many_days_as_expected(days: int | None, words: str) -> None:
    assert reason({"days_left": 14}, days_left=days) == words


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(values, values, st.binary(max_size=300))
def test_any_answer_is_judged_within_the_length_of_a_reason(wanted: Any, found: Any, body: bytes) -> None:
    expect = {"json": [{"pointer": "/a", "is": wanted, "matches": "x", "at_least": 1}], "body_matches": ".*"}
    for text in (msgspec.json.encode({"a": found}), body):
        assert len(reason(expect, text)) <= REASON_CHARS_MAX
    assert reason({"json": [{"pointer": "/a", "is": found}]}, msgspec.json.encode({"a": found})) == ""

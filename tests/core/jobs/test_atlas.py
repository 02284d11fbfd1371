"""What RIPE says and what follows: the very texts, statuses, broken replies, and marks that are found again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.atlas import (
    Created,
    Failed,
    Lost,
    Marker,
    Ongoing,
    Refused,
    Scope,
    Succeeded,
    client_id,
    deadline_ms,
    judge_measurement,
    judge_status,
    key_problems,
    marker_prefix,
    marker_tag,
    parse_marker_prefix,
    parse_marker_tag,
    read_answer,
    request_body,
    sanitised,
    unverified_permissions,
)
from paceline.core.jobs.job import JobLimits, parse_request
from paceline.core.jobs.measurement import Measurement

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
MARKER = Marker("site1", "j7", 3, 2)
RESULTS = (
    "Executing this measurement request will increase your current (101455) number of results by 2640.0 totalling "
    "104095.0 which is higher than your maximum daily results limit 100000. Please stop some of your currently running "
    "measurements and try again."
)
PAGE = b"<!DOCTYPE html><html><style>b{}</style><body><h1>RIPE Atlas</h1> is down\nfor <b>maintenance</b></body></html>"


def measurement(*kinds: str, **fields: Any) -> Measurement:
    definitions = [{"type": kind, "af": 4, "target": "192.0.2.1", "description": "d"} for kind in kinds or ("ping",)]
    probes = [{"requested": 1, "type": "area", "value": "WW"}]
    document = {"definitions": definitions, "probes": probes, "is_oneoff": True, **fields}
    return parse_request(json.dumps(document).encode(), JobLimits(), now_ms=NOW_MS)


def envelope(*details: str, status: int = 400, pointer: str | None = None) -> bytes:
    source = {"pointer": pointer} if pointer else {}
    error = {
        "status": status,
        "code": 102,
        "title": "Bad Request",
        "detail": "There were problems with your request",
        "errors": [{"source": source, "detail": detail} for detail in details],
    }
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "You are not permitted to run more than 100 concurrent measurements.",
            Refused("account", "", "concurrent", limit=100),
        ),
        (RESULTS, Refused("account", "", "results", limit=100_000, current=101_455)),
        (
            "This will increase your current (999990) spending by 60.0, over your maximum daily credits limit 1000000.",
            Refused("account", "", "credits", limit=1_000_000, current=999_990),
        ),
        ("You do not have enough; insufficient credits.", Refused("account", "", "balance")),
        (
            "We do not allow more than 25 concurrent measurements to the same target: 8.8.8.8.",
            Refused("target", "", limit=25, target="8.8.8.8"),
        ),
        (
            "We do not allow more than 25 concurrent measurements to the same target: example.org",
            Refused("target", "", limit=25, target="example.org"),
        ),
        ("Your selected ASN is not covered by our network.", Refused("request", "")),
        ("target: This target cannot be resolved", Refused("request", "")),
        ("Text contains disallowed characters", Refused("request", "")),
        ("The provided API key does not exist", Refused("key", "")),
        ("A text that nobody has seen before.", Refused("request", "")),
    ],
)
def test_every_known_refusal_is_recognized_by_its_words(text: str, expected: Refused) -> None:
    for body in (envelope(text), json.dumps({"status": 400, "detail": text}).encode()):
        assert read_answer(measurement(), status=400, body=body) == expected._replace(reason=text)


def test_a_refusal_says_which_field_ripe_points_at() -> None:
    answer = read_answer(
        measurement(), status=400, body=envelope("This field is required.", pointer="/definitions/0/af")
    )
    assert answer == Refused("request", "/definitions/0/af: This field is required.")


@pytest.mark.parametrize(
    ("status", "kind", "text", "scope"),
    [
        (401, "ping", "Authentication credentials were not provided.", "key"),
        (403, "ping", "You do not have permission to perform this action.", "key"),
        (403, "http", "You do not have permission to perform this action.", "type"),
        (403, "ping", "You are not permitted to create ping measurements.", "type"),
        (403, "http", "The provided API key does not exist", "key"),
        (401, "http", "Invalid key", "key"),
        (400, "ping", "Whatever", "request"),
        (404, "ping", "Not found.", "global"),
    ],
)
def test_only_a_refusal_that_mentions_the_key_has_the_scope_key(
    status: int, kind: str, text: str, scope: Scope
) -> None:
    answer = read_answer(measurement(kind), status=status, body=envelope(text, status=status))
    assert isinstance(answer, Refused)
    assert answer.scope == scope
    assert text in answer.reason


def test_status_429_pauses_everybody_for_the_time_of_retry_after() -> None:
    answer = read_answer(measurement(), status=429, body=b"", retry_after="7")
    assert answer == Refused("global", "RIPE asks for a pause (429): an empty body", retry_after_ms=7_000)
    vague = read_answer(measurement(), status=429, retry_after="soon")
    assert isinstance(vague, Refused)
    assert vague.retry_after_ms is None


@pytest.mark.parametrize("status", [400, 401, 403, 302, 404])
def test_html_page_instead_of_an_answer_is_a_refusal_for_everybody(status: int) -> None:
    answer = read_answer(measurement(), status=status, body=PAGE)
    assert isinstance(answer, Refused)
    assert answer.scope == "global"
    assert "RIPE Atlas is down for maintenance" in answer.reason


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_promise_9_a_server_error_may_have_created_something(status: int) -> None:
    assert isinstance(read_answer(measurement(), status=status, body=PAGE), Lost)
    assert isinstance(read_answer(measurement(), status=status, body=envelope("x")), Lost)
    assert read_answer(measurement(), status=None, fault="timed out") == Lost("timed out")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'{"measurements": []}', b'{"measurements": [1]}', b'{"measurements": ["a", 2]}', PAGE),
        *(b'{"measurements": [1, 1]}', b'{"measurements": [0, 1]}', b'{"measurements": [1, 2, 3]}'),
    ],
)
def test_promise_9_a_success_that_cannot_be_read_is_lost_and_not_failed(body: bytes) -> None:
    assert isinstance(read_answer(measurement("ping", "ntp"), status=201, body=body), Lost)


def test_ids_come_in_the_order_of_the_definitions_and_warnings_are_kept() -> None:
    body = json.dumps({"measurements": [1002, 1001], "warnings": [{"detail": ["ignored"]}]}).encode()
    answer = read_answer(measurement("ping", "ntp"), status=201, body=body)
    assert isinstance(answer, Created)
    assert answer.ids == (1002, 1001)
    assert "ignored" in answer.warnings


@given(
    st.none() | st.integers(100, 599),
    st.binary(max_size=80) | st.sampled_from([PAGE, b'{"error": 7}', b'{"error": {}}']),
)
def test_every_answer_of_ripe_is_given_a_meaning(status: int | None, body: bytes) -> None:
    answer = read_answer(measurement(), status=status, body=body)
    assert isinstance(answer, Created | Refused | Lost)
    if isinstance(answer, Refused):
        assert answer.scope == "global"
        assert len(answer.reason) <= 500


def judge(status: int, *, delivered: int = 0, scheduled: int | None = None, late: bool = False) -> object:
    deadline = NOW_MS if late else NOW_MS + 1
    return judge_status(status, delivered=delivered, scheduled=scheduled, now_ms=NOW_MS, deadline_ms=deadline)


def test_promise_11_only_the_status_stopped_is_success() -> None:
    assert [judge(status) for status in (0, 1, 2, 6)] == [Ongoing()] * 4
    assert judge(4) == Succeeded()
    for status, word in ((5, "credits ran out"), (7, "never ran"), (8, "denied")):
        verdict = judge(status)
        assert isinstance(verdict, Failed)
        assert word in verdict.reason
        assert not verdict.unknown_status
    assert judge(6, delivered=3, late=True) == Failed("no suitable probes")


@pytest.mark.parametrize("status", [-1, 3, 9, 10, 77])
def test_promise_11_unknown_status_of_ripe_fails_and_is_reported(status: int) -> None:
    verdict = judge(status)
    assert isinstance(verdict, Failed)
    assert verdict.unknown_status


def test_measurement_ends_with_its_last_result_status_or_deadline_whichever_is_first() -> None:
    assert judge(2, delivered=9, scheduled=10) == Ongoing()
    assert judge(2, delivered=10, scheduled=10) == Succeeded(frees_slot=False)
    assert judge(2, delivered=0, scheduled=0) == Ongoing()
    assert judge(2, delivered=9, scheduled=10, late=True) == Succeeded(frees_slot=False)
    assert judge(2, late=True) == Failed("no result by the deadline", frees_slot=False)


def test_promise_11_a_measurement_succeeds_only_if_all_its_definitions_did() -> None:
    assert judge_measurement([Succeeded(), Ongoing()]) == Ongoing()
    assert judge_measurement([Failed("x"), Ongoing()]) == Ongoing()
    assert judge_measurement([Succeeded(), Succeeded(frees_slot=False)]) == Succeeded(frees_slot=False)
    assert judge_measurement([Succeeded(), Failed("x"), Failed("x"), Failed("y")]) == Failed("x; y")


def test_a_deadline_lies_an_hour_after_all_that_is_planned() -> None:
    hour_ms = 3_600_000
    assert deadline_ms(measurement(), sent_ms=NOW_MS) == NOW_MS + hour_ms
    later = measurement(start_time=NOW_S + 500)
    assert deadline_ms(later, sent_ms=NOW_MS) == NOW_MS + 500_000 + hour_ms
    long = measurement(is_oneoff=False, stop_time=NOW_S + 9_000)
    assert deadline_ms(long, sent_ms=NOW_MS) == NOW_MS + 9_000_000 + hour_ms


names = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=8)
markers = st.builds(Marker, names, names, st.integers(0, 999_999), st.integers(1, 9_999))


@given(markers, st.text(max_size=20))
def test_a_marker_comes_back_from_tag_and_description(marker: Marker, rest: str) -> None:
    assert parse_marker_tag(marker_tag(marker)) == Marker(marker.site, marker.job, marker.index)
    assert parse_marker_prefix(marker_prefix(marker) + rest) == marker
    assert sanitised(marker_prefix(marker)) == marker_prefix(marker)


@given(st.text(max_size=30) | st.from_regex(r"paceline-[a-z0-9]+-[a-z0-9]+-\d+"))
def test_text_that_is_no_marker_is_not_parsed_as_one(text: str) -> None:
    found = parse_marker_tag(text)
    assert found is None or marker_tag(found) == text


def test_marker_with_a_leading_zero_is_not_parsed() -> None:
    assert parse_marker_tag("paceline-site1-j7-03") is None
    assert parse_marker_prefix("[paceline:site1:j7:03:1]") is None


def test_client_id_is_stable_unique_and_cannot_be_guessed_without_the_secret() -> None:
    one = client_id("alice", b"secret")
    assert one == client_id("alice", b"secret")
    assert len({one, client_id("bob", b"secret"), client_id("alice", b"other")}) == 3
    assert len(one) == 64
    assert set(one) <= set("0123456789abcdef")


def test_sent_measurement_carries_its_marker_and_an_anonymous_client_id() -> None:
    document = {
        "definitions": [
            {
                "type": "ping",
                "af": 4,
                "target": "a.example",
                "description": "<b>it's ❤\x07 mine</b>",
                "tags": ["t"],
                "x": 1,
            }
        ],
        "probes": [{"requested": 1, "type": "area", "value": "WW", "y": 2}],
        "is_oneoff": True,
        "start_time": NOW_S + 60,
        "z": 3,
    }
    one = parse_request(json.dumps(document).encode(), JobLimits(), now_ms=NOW_MS)
    body = json.loads(request_body(one, MARKER, client="c" * 64, now_ms=NOW_MS))
    assert body == {
        "definitions": [
            {
                "type": "ping",
                "af": 4,
                "target": "a.example",
                "description": "[paceline:site1:j7:3:2] b it s mine /b",
                "tags": ["t", "paceline-site1", "paceline-site1-j7-3"],
                "aggregator_client_id": "c" * 64,
                "x": 1,
            }
        ],
        "probes": [{"requested": 1, "type": "area", "value": "WW", "y": 2}],
        "is_oneoff": True,
        "start_time": NOW_S + 60,
        "z": 3,
    }
    assert "start_time" not in json.loads(request_body(one, MARKER, client="c" * 64, now_ms=NOW_MS + 60_000))


def test_check_of_a_key_names_the_missing_permission() -> None:
    good = {"/credits/": 200, "/measurements/my/": 200, "/keys/": 200}
    grants = frozenset({"measurements.create_measurement", "measurements.stop_measurement"})
    assert key_problems(good, grants) == []
    assert key_problems(good | {"/keys/": 403}, None) == []
    assert key_problems(dict.fromkeys(good, 401), None) == ["RIPE does not know this key, or it has expired"]
    assert key_problems(good | {"/measurements/my/": 403}, None) == [
        "it may not list your measurements (RIPE answers 403)"
    ]
    assert key_problems(good | {"/credits/": 503}, grants) == ["RIPE answered 503 to /credits/; try again"]
    (missing,) = key_problems(good, frozenset({"measurements.stop_measurement"}))
    assert "measurements.create_measurement" in missing


def test_check_of_a_key_names_the_action_that_ripe_forbids() -> None:
    reads = {"/credits/": 200, "/measurements/my/": 200, "/keys/": 403}
    good = {"measurements.create_measurement": 400, "measurements.stop_measurement": 404}
    assert key_problems(reads, None, good) == []
    forbidden = good | {"measurements.stop_measurement": 403}
    assert key_problems(reads, None, forbidden) == ["it may not stop a measurement (RIPE answers 403)"]


def test_permission_that_nothing_has_shown_is_named() -> None:
    word = "download results of non-public measurements"
    assert unverified_permissions(frozenset({"measurements.get_non_public_results"}), {}) == []
    assert unverified_permissions(frozenset(), {}) == [f"{word} (RIPE does not list this permission of it)"]
    tried = {"measurements.create_measurement": 400, "measurements.stop_measurement": 500}
    assert unverified_permissions(None, tried) == ["stop a measurement", word]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"detail": ["one", 2, "two"]}, "one; two"),
        ({"title": "Bad Request"}, "Bad Request"),
        ({"detail": "whole", "errors": ["text", {"detail": ""}, {"source": 3}]}, "whole"),
        ({"errors": ["text", {"source": "x", "detail": "first"}, {"title": "second"}]}, "first; second"),
    ],
)
def test_refusal_in_an_unusual_shape_keeps_its_words(error: dict[str, Any], words: str) -> None:
    assert read_answer(measurement(), status=400, body=json.dumps({"error": error}).encode()) == Refused(
        "request", words
    )

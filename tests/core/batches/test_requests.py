"""The request of a claimed run: its endpoint and body, with placeholders filled in for this attempt."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from paceline.core.batches.batch import parse_record
from paceline.core.batches.records.options import options_text
from paceline.core.batches.records.request import RecordRequest, render_request, values_of
from paceline.core.batches.values import ClaimedCall

CLAIMED = ClaimedCall(1, 2, 3, 1, "daily", "r 1", "2026-11-15~1", 1_763_193_600_000, 0, False, "/a", None)


def claimed(endpoint: str, body: Any = None, **more: Any) -> ClaimedCall:
    document = {"id": "r1", "provider": "shop", "endpoint": endpoint, "body": body, **more}
    spec = parse_record(json.dumps(document).encode())
    return replace(CLAIMED, endpoint=spec.endpoint, body=spec.body, options=options_text(spec.options))


def test_values_of_a_rerun_have_the_date_of_the_day_and_the_id_of_the_rerun() -> None:
    values = values_of(CLAIMED)
    assert (values.date, values.run) == ("2026-11-15", "daily/r%201@2026-11-15~1")
    assert (values.due, values.record, values.attempt) == ("2025-11-15T08:00:00.000Z", "r 1", "2")


def test_request_without_placeholders_is_sent_as_it_is_stored() -> None:
    assert render_request(claimed("/a", {"b": 1})) == RecordRequest("/a", '{"b": 1}')
    assert render_request(claimed("/a", {"b": 1}, priority=5)) == RecordRequest("/a", '{"b": 1}')
    assert render_request(replace(CLAIMED, endpoint="/{date}")) == RecordRequest("/{date}", None)


def test_request_with_placeholders_is_filled_in_as_each_place_escapes() -> None:
    request = render_request(claimed("/a?record={record}&try={attempt}", {"day": "{date}"}))
    assert request.endpoint == "/a?record=r%201&try=2"
    assert request.body is not None
    assert json.loads(request.body) == {"day": "2026-11-15"}
    assert render_request(claimed("/{date}")) == RecordRequest("/2026-11-15", None)

"""Request of a claimed run: the record's endpoint and body with their placeholders filled in."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.batches.records.options import parse_options
from paceline.core.batches.records.placeholders import Values, render_body, render_endpoint
from paceline.core.batches.reruns import split_round
from paceline.core.batches.values import ClaimedCall
from paceline.core.ids import call_run_id
from paceline.core.instants import to_text


class RecordRequest(NamedTuple):
    """Endpoint and body, ready to be sent. ``body`` is JSON text; None: no body."""

    endpoint: str
    body: str | None


def values_of(claimed: ClaimedCall) -> Values:
    """Return the values of the placeholders for this attempt of the run."""
    return attempt_values(claimed.batch, claimed.record, claimed.date, due_ms=claimed.due_ms, attempt=claimed.attempt)


def attempt_values(batch: str, record: str, date: str, *, due_ms: int, attempt: int) -> Values:
    """Return the values of the placeholders for one attempt of a run."""
    run = call_run_id(batch, record, date)
    return Values(split_round(date)[0], to_text(due_ms), run, record, str(attempt))


def render_request(claimed: ClaimedCall) -> RecordRequest:
    """Return the request of a claimed run, the same for Paceline's own call and for a worker."""
    request = RecordRequest(claimed.endpoint, claimed.body)
    if claimed.options is None:  # most records have none, and then nothing has to be computed
        return request
    return fill_in(request, claimed.options, values_of(claimed))


def fill_in(request: RecordRequest, options: str | None, values: Values) -> RecordRequest:
    """Return the request with the placeholders of its record filled in.

    ``options``: the record's, as they are stored.
    """
    if not parse_options(options).templated:
        return request
    body = render_body(request.body, values) if request.body is not None else None
    return RecordRequest(render_endpoint(request.endpoint, values), body)

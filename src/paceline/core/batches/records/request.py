"""What is asked of a provider for a claimed run: the record's endpoint and body with their placeholders filled in."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.batches.records.options import parse_options
from paceline.core.batches.records.placeholders import Values, render_body, render_endpoint
from paceline.core.batches.reruns import split_round
from paceline.core.batches.values import ClaimedCall
from paceline.core.ids import call_run_id
from paceline.core.instants import to_text


class Request(NamedTuple):
    """Ready to be sent. ``body`` is JSON text, None for no body."""

    endpoint: str
    body: str | None


def values_of(claimed: ClaimedCall) -> Values:
    """What the placeholders stand for in this attempt of the run."""
    run = call_run_id(claimed.batch, claimed.record, claimed.date)
    return Values(split_round(claimed.date)[0], to_text(claimed.due_ms), run, claimed.record, str(claimed.attempt))


def render_request(claimed: ClaimedCall) -> Request:
    """The request of a claimed run, whoever makes it: Paceline itself or a worker that claimed it."""
    if not parse_options(claimed.options).templated:
        return Request(claimed.endpoint, claimed.body)
    values = values_of(claimed)
    body = render_body(claimed.body, values) if claimed.body is not None else None
    return Request(render_endpoint(claimed.endpoint, values), body)

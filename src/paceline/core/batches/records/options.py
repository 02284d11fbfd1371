"""Options of a record beyond its provider, endpoint and body; most records have none, and then nothing is stored."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from paceline.core.batches.provider import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, Method, Policy, header_problems, with_hidden
from paceline.core.batches.records.expect import ExpectSpec, expect_problems
from paceline.core.durations import parse_duration_ms
from paceline.core.ids import id_problem
from paceline.core.monitors.checks import HIDDEN
from paceline.core.parsing import duration_problems
from paceline.errors import FieldProblem


class RecordOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of a record that replace those of its provider.

    ``templated``: endpoint and body have braces that are filled in before each call. Records that were stored before
    there were placeholders are not templates, whatever their texts hold: they are sent as they are.
    """

    templated: bool = False
    method: Method | None = None
    headers: dict[str, str] = {}
    """Headers of the record; their values are sealed once they are stored."""
    timeout: str | None = None
    expect: ExpectSpec | None = None
    priority: int = 0
    after: str | None = None
    """A record of the same batch whose run of the day must be done first."""


PRIORITY_MAX = 1_000_000
NO_OPTIONS = RecordOptions()
_OPTIONS = msgspec.json.Decoder(RecordOptions)
_encode = msgspec.json.Encoder(order="sorted").encode


def options_text(options: RecordOptions) -> str | None:
    """Return the options as they are stored; None if there are none."""
    return None if options is NO_OPTIONS or options == NO_OPTIONS else _encode(options).decode()


def parse_options(text: str | None) -> RecordOptions:
    """Return the options of a stored text, the inverse of ``options_text``."""
    return NO_OPTIONS if text is None else _parsed(text)


@lru_cache(maxsize=4_096)
def _parsed(text: str) -> RecordOptions:
    return _OPTIONS.decode(text)


def options_document(options: RecordOptions) -> dict[str, Any]:
    """Return the options as they are shown: those that are given, with headers' values hidden."""
    document: dict[str, Any] = msgspec.to_builtins(options)
    document.pop("templated", None)
    return document | ({"headers": dict.fromkeys(options.headers, HIDDEN)} if options.headers else {})


def options_problems(options: RecordOptions) -> list[FieldProblem]:
    problems = header_problems(options.headers)
    if options.timeout is not None:
        problems += duration_problems("/timeout", options.timeout, ms_min=TIMEOUT_MS_MIN, ms_max=TIMEOUT_MS_MAX)
    if options.expect is not None:
        problems += expect_problems(options.expect)
    if abs(options.priority) > PRIORITY_MAX:
        problems.append(FieldProblem("/priority", f"from -{PRIORITY_MAX} to {PRIORITY_MAX}"))
    if options.after is not None and (problem := id_problem(options.after, "/after")):
        problems.append(problem)
    return problems


def keep_hidden_options(options: RecordOptions, stored: RecordOptions) -> RecordOptions:
    """Return the options with the stored value of each header that was given as it is shown (hidden)."""
    return msgspec.structs.replace(options, headers=with_hidden(options.headers, stored.headers))


def call_timeout_ms(options: str | None, policy: Policy) -> int:
    """Return how long a call may take, as its record or else its provider says.

    A provider without a time-out has no calls: the worker that claims its runs says how long the lease lasts.
    """
    if options is None or not policy.timeout_ms:
        return policy.timeout_ms
    timeout = parse_options(options).timeout
    return policy.timeout_ms if timeout is None else parse_duration_ms(timeout) or policy.timeout_ms

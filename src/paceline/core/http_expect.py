"""Judges an HTTP answer by what its check expects: the first expectation that is not met, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from paceline.core.monitors.checks import HttpCheck, HttpExpect

QUOTED_CHARS_MAX = 80
STATUSES_NAMED_MAX = 10


class HttpAnswer(NamedTuple):
    """An answer as it is judged. ``headers`` and ``holds`` are asked only if something is expected of them."""

    code: int
    headers: Callable[[], Mapping[str, str]]
    """Returns the headers, their names in lower case."""
    holds: Callable[[str], bool]
    """Returns whether the body that was read contains a text."""
    read_max: int | None = None
    """The body was cut after so many bytes; None: it was read to its end."""


def http_mismatch(check: HttpCheck, answer: HttpAnswer) -> str:
    """Return the first expectation that is not met; empty if all are."""
    code = answer.code
    if (reason := _status_mismatch(check.expect, code)) and 300 <= code < 400 and not check.follow_redirects:
        return f"{reason}; redirects are followed only with follow_redirects"
    return reason or _headers_mismatch(check.expect, answer) or _body_mismatch(check.expect, answer)


def _status_mismatch(expect: HttpExpect, code: int) -> str:
    if expect.status is None:
        return "" if 200 <= code < 300 else f"status {code}, expected 2xx"
    if code in expect.status:
        return ""
    return f"status {code}, expected {' or '.join(str(status) for status in expect.status[:STATUSES_NAMED_MAX])}"


def _headers_mismatch(expect: HttpExpect, answer: HttpAnswer) -> str:
    if not expect.headers:
        return ""
    received = answer.headers()
    for name, wanted in expect.headers.items():
        if (found := received.get(name.lower())) is None:
            return f"the header {name} is missing"
        if wanted not in found:
            return f"the header {name} is {_quote(found)}, expected to contain {_quote(wanted)}"
    return ""


def _body_mismatch(expect: HttpExpect, answer: HttpAnswer) -> str:
    if (wanted := expect.body_contains) is not None and not answer.holds(wanted):
        if answer.read_max is not None:
            return (
                f"the first {answer.read_max} bytes of the body do not contain {_quote(wanted)};"
                " the rest was not read (max_bytes)"
            )
        return f"the body does not contain {_quote(wanted)}"
    if (unwanted := expect.body_lacks) is not None and answer.holds(unwanted):
        return f"the body contains {_quote(unwanted)}"
    return ""


def _quote(text: str) -> str:
    return repr(text if len(text) <= QUOTED_CHARS_MAX else f"{text[:QUOTED_CHARS_MAX]}…")

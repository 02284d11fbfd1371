"""Judgement of an HTTP answer by what its check expects: the first expectation that is not met, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from paceline.core.durations import parse_duration_ms
from paceline.core.http.expectations import HeaderExpect, HttpExpect, JsonExpect
from paceline.core.http.json_pointer import MISSING, is_number, look_up, same
from paceline.core.http.patterns import finds
from paceline.core.http.status import names_status
from paceline.core.monitors.checks import HttpCheck

QUOTED_CHARS_MAX = 80
STATUSES_NAMED_MAX = 10
_BOM = b"\xef\xbb\xbf"


class Body(NamedTuple):
    """The part of the body that was kept, in UTF-8."""

    text: bytes
    kept_max: int | None = None
    """Number of bytes after which the body was cut; None: it is whole."""


class HttpAnswer(NamedTuple):
    """An answer to be judged. ``headers``, ``holds`` and ``body`` are called only if they are needed."""

    code: int
    headers: Callable[[], Mapping[str, str]]
    """Function that returns the headers with their names in lower case."""
    holds: Callable[[str], bool]
    """Function that returns whether the body that was read contains a text."""
    read_max: int | None = None
    """Number of bytes after which the body was cut; None: it was read to its end."""
    body: Callable[[], Body] = lambda: Body(b"")
    latency_ms: float = 0.0
    days_left: int | None = None
    """Days until its certificate expires; None: unknown."""


def http_mismatch(check: HttpCheck, answer: HttpAnswer) -> str:
    """Return the first expectation that is not met; empty if all are."""
    code, expect = answer.code, check.expect
    if (reason := _status_mismatch(expect, code)) and 300 <= code < 400 and not check.follow_redirects:
        return f"{reason}; redirects are followed only with follow_redirects"
    return (
        reason
        or _header_mismatch(expect, answer)
        or _body_mismatch(expect, answer)
        or (_kept_mismatch(expect, answer.body()) if expect.needs_body else "")
        or days_mismatch(expect.days_left, answer.days_left)
        or _latency_mismatch(expect, answer.latency_ms)
    )


def days_mismatch(wanted: int | None, days_left: int | None) -> str:
    """Return why a certificate does not last as long as wanted; empty if it does."""
    if wanted is None:
        return ""
    if days_left is None:
        return "the server showed no certificate"
    if days_left >= wanted:
        return ""
    days = "1 day" if days_left == 1 else f"{days_left} days"
    return f"the certificate expires in {days}, fewer than the {wanted} asked for"


def _status_mismatch(expect: HttpExpect, code: int) -> str:
    if expect.status is None:
        return "" if 200 <= code < 300 else f"status {code}, expected 2xx"
    if names_status(expect.status, code):
        return ""
    return f"status {code}, expected {' or '.join(str(status) for status in expect.status[:STATUSES_NAMED_MAX])}"


def _header_mismatch(expect: HttpExpect, answer: HttpAnswer) -> str:
    if not expect.header:
        return ""
    received = answer.headers()
    for name, wanted in expect.header.items():
        if (found := received.get(name.lower())) is None:
            return f"the header {_cut(name)} is missing"
        if words := _value_mismatch(wanted, found):
            return f"the header {_cut(name)} is {_quote(found)}, expected {words}"
    return ""


def _value_mismatch(wanted: str | HeaderExpect, found: str) -> str:
    """Return what is expected of a header's value, in words; empty if the value meets it."""
    if isinstance(wanted, str):
        return "" if found == wanted.strip() else _quote(wanted)
    if wanted.contains is not None and wanted.contains not in found:
        return f"to contain {_quote(wanted.contains)}"
    if wanted.matches is not None and not finds(wanted.matches, found.encode("utf-8", "replace")):
        return f"to match {_quote(wanted.matches)}"
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


def _kept_mismatch(expect: HttpExpect, body: Body) -> str:
    if (pattern := expect.body_matches) is not None and not finds(pattern, body.text):
        if body.kept_max is not None:
            return (
                f"the first {body.kept_max} bytes of the body do not match {_quote(pattern)}; the rest is not looked at"
            )
        return f"the body does not match {_quote(pattern)}"
    if not expect.json:
        return ""
    if body.kept_max is not None:
        return f"the body is longer than {body.kept_max} bytes, which is the most that is read as JSON"
    try:
        document = msgspec.json.decode(body.text.removeprefix(_BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "the body is not JSON" if body.text.strip() else "the body is empty, expected JSON"
    mismatches = (_json_mismatch(one, look_up(document, one.pointer)) for one in expect.json)
    return next((reason for reason in mismatches if reason), "")


def _json_mismatch(expect: JsonExpect, found: Any) -> str:
    place = f"the JSON at {_quote(expect.pointer)}"
    if found is MISSING:
        return f"{place} is missing"
    if expect.is_ is not msgspec.UNSET and not same(expect.is_, found):
        return f"{place} is {_show(found)}, expected {_show(expect.is_)}"
    if expect.matches is not None and not (isinstance(found, str) and finds(expect.matches, _utf8(found))):
        return f"{place} is {_show(found)}, expected text that matches {_quote(expect.matches)}"
    if expect.at_least is not None and not (is_number(found) and found >= expect.at_least):
        return f"{place} is {_show(found)}, expected at least {_show(expect.at_least)}"
    if expect.at_most is not None and not (is_number(found) and found <= expect.at_most):
        return f"{place} is {_show(found)}, expected at most {_show(expect.at_most)}"
    return ""


def _latency_mismatch(expect: HttpExpect, latency_ms: float) -> str:
    if expect.latency_max is None:
        return ""
    longest_ms = parse_duration_ms(expect.latency_max)
    assert longest_ms is not None
    if latency_ms <= longest_ms:
        return ""
    return f"the answer took {latency_ms:.0f}ms, longer than the {expect.latency_max} allowed"


def _show(value: Any) -> str:
    """Return a JSON value for a sentence. Objects and lists are only counted: they may be nested deeply."""
    match value:
        case dict():
            return f"an object with {len(value)} names"
        case list():
            return f"a list of {len(value)}"
        case _:
            return _cut(msgspec.json.encode(value).decode())


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _quote(text: str) -> str:
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS_MAX else f"{text[:QUOTED_CHARS_MAX]}…"

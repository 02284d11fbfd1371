r"""Placeholders in a record's endpoint, headers and body: judged when it is put, filled in before each call.

``{date}``, ``{due}``, ``{run}``, ``{record}`` and ``{attempt}`` stand for what the call is about; ``{{`` and ``}}`` are
braces. Each place has its own escape, so no value can break out of it:

- endpoint   percent-encoded
- header     characters that a header cannot carry are percent-encoded
- body       a body is JSON, and its own braces are never placeholders: only string values are templates, names of
             members are not. What is filled in is escaped as JSON, so the body keeps its structure. A brace that is
             written as an escape (``\u007b``) is that brace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import msgspec

PLACEHOLDERS_MAX = 100
"""Maximum number in one endpoint, header or body, so that a call cannot grow without bound."""
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Matches a string of a JSON text; the second group matches if the string is the name of a member.
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?')
_UNSAFE = re.compile(r"[^ -~]")


class Values(NamedTuple):
    """Values that a call fills in. ``attempt`` counts from 1."""

    date: str
    due: str
    run: str
    record: str
    attempt: str


KNOWN = ", ".join(f"{{{name}}}" for name in Values._fields)


def has_braces(text: str) -> bool:
    return "{" in text or "}" in text


def body_has_braces(body: str) -> bool:
    """Return whether a JSON text has braces in its strings."""
    if body.find("{", 1) < 0 and body.find("}") in (-1, len(body) - 1):
        return False  # the usual case, decided fast: no other braces than those around one object
    return has_braces("".join([text for text, _ in _STRING.findall(body)]))


def text_problem(text: str) -> str | None:
    """Return why an endpoint or a header's value is not a valid template, or None."""
    return _problem([text])


def body_problem(body: str) -> str | None:
    """Return why a JSON text is not a valid template, or None."""
    return _problem([text for text, is_name in _STRING.findall(body) if not is_name])


def render_endpoint(text: str, values: Values) -> str:
    return _rendered(text, values, lambda value: quote(value, safe=""))


def render_header(text: str, values: Values) -> str:
    return _rendered(text, values, lambda value: _UNSAFE.sub(lambda found: quote(found[0], safe=""), value))


def render_body(body: str, values: Values) -> str:
    """Return a JSON text with its string values filled in, and all else as it was."""

    def render(found: re.Match[str]) -> str:
        return found[0] if found[2] else f'"{_rendered(found[1], values, _json_escaped)}"'

    return _STRING.sub(render, body)


def escape(text: str) -> str:
    """Return the template whose rendering is this text."""
    return text.replace("{", "{{").replace("}", "}}")


def escape_body(body: str) -> str:
    """Return the template whose rendering is this JSON text."""
    return _STRING.sub(lambda found: found[0] if found[2] else f'"{escape(found[1])}"', body)


def _json_escaped(value: str) -> str:
    return msgspec.json.encode(value).decode()[1:-1]


def _rendered(text: str, values: Values, escaped: Callable[[str], str]) -> str:
    def fill(found: re.Match[str]) -> str:
        return escaped(getattr(values, found[1])) if found[1] is not None else found[0][0]

    return _TOKEN.sub(fill, text) if has_braces(text) else text


def _problem(texts: list[str]) -> str | None:
    found = [match for text in texts if has_braces(text) for match in _TOKEN.finditer(text)]
    for match in found:
        if match[1] is not None and match[1] not in Values._fields:
            return f"unknown placeholder {match[0][:100]}; known are {KNOWN}; a brace is written {{{{ or }}}}"
        if len(match[0]) == 1:
            return f"a single {match[0]}; write {match[0] * 2} for a brace, or one of {KNOWN}"
    if sum(match[1] is not None for match in found) > PLACEHOLDERS_MAX:
        return f"at most {PLACEHOLDERS_MAX} placeholders"
    return None

"""Decoding of JSON to values. Errors name the field and say what to do."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, TypeVar

import msgspec

from paceline.core.durations import DURATION_RULE, format_duration, parse_duration_ms
from paceline.errors import FieldProblem, InvalidInput, MalformedBody

TEXT_CHARS_MAX = 4_096
LEVELS_MAX = 32
NAME_CHARS_MAX = 256
TOO_DEEP = "The body is nested too deeply."
T = TypeVar("T")
_BREAKING = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories: control characters, line and paragraph separators."""
_PATH = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], body: bytes, pointer: str = "") -> T:
    """Decode JSON to a value. InvalidInput names a wrong field, or a field that is given twice."""
    value = decode_part(decoder, body, pointer)
    if repeated := repeated_name(body):
        raise InvalidInput.of(FieldProblem(pointer + repeated, "this field is given twice; keep one of them"))
    return value


def decode_part(decoder: msgspec.json.Decoder[T], body: bytes, pointer: str = "") -> T:
    """Decode like ``decode``, for a part of a body that was searched for repeated names as a whole."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInput.of(field_problem(error, pointer)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise MalformedBody(TOO_DEEP) from None


def field_problem(error: msgspec.ValidationError, pointer: str = "") -> FieldProblem:
    match = _PATH.fullmatch(str(error))
    assert match is not None
    detail, path = match[1], match[2] or ""
    if (unknown := re.search(r"unknown field `(.*)`", detail, re.DOTALL)) is not None:
        name = escape_pointer(unknown[1][:NAME_CHARS_MAX])
        return FieldProblem(f"{pointer}{_to_pointer(path)}/{name}", "unknown field; remove it")
    if (missing := re.search(r"missing required field `(.*)`", detail)) is not None:
        return FieldProblem(f"{pointer}{_to_pointer(path)}/{missing[1]}", "this field is required")
    return FieldProblem(pointer + _to_pointer(path), detail[:1].lower() + detail[1:])


def repeated_name(body: bytes) -> str | None:
    """Return the JSON pointer of the first name that an object of this valid JSON has twice; None if there is none."""
    if _each_name_once(body):
        return None
    text = bytes(body).decode("utf-8", "replace")  # for a part of a body, its decoder judges broken bytes
    try:
        _LOOK.decode(text)
    except _Repeated:
        return _find_repeated_of(text)
    except RecursionError:  # from Python 3.14 on each decoder has a limit of its own: the rest of the stack
        raise MalformedBody(TOO_DEEP) from None
    return None


def line_problem(text: str, pointer: str, *, chars_max: int) -> FieldProblem | None:
    """Return the problem if the text is not a single line that lists and logs can show; else None."""
    if any(unicodedata.category(char) in _BREAKING for char in text):
        return FieldProblem(pointer, "control characters and line breaks are not allowed")
    return text_problem(text, pointer, chars_max=chars_max)


def text_problem(text: str, pointer: str, *, chars_max: int = TEXT_CHARS_MAX) -> FieldProblem | None:
    if len(text) > chars_max:
        return FieldProblem(pointer, f"at most {chars_max} characters")
    if "\x00" in text:
        return FieldProblem(pointer, "a NUL character is not allowed")
    return None


def document_problem(document: dict[str, Any]) -> str | None:
    """Return why a checker's own document cannot be stored, or None. Goes level by level: recursion could overflow."""
    level: list[Any] = [document]
    for _ in range(LEVELS_MAX):
        below: list[Any] = []
        for value in level:
            match value:
                case str() if "\x00" in value:
                    return "a NUL character is not allowed"
                case dict():
                    below += [*value.keys(), *value.values()]
                case list():
                    below += value
        if not below:
            return None
        level = below
    return f"at most {LEVELS_MAX} levels of nesting"


def duration_problems(pointer: str, text: str, *, ms_min: int, ms_max: int) -> list[FieldProblem]:
    ms = parse_duration_ms(text)
    if ms is None:
        return [FieldProblem(pointer, f"write {DURATION_RULE}")]
    if not ms_min <= ms <= ms_max:
        return [FieldProblem(pointer, f"must be from {format_duration(ms_min)} to {format_duration(ms_max)}")]
    return []


def _to_pointer(path: str) -> str:
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")


def _each_name_once(body: bytes) -> bool:
    """Fast path of ``repeated_name``: return True only if no name is given twice, False if a closer look is needed.

    Every member has a colon, and of members with the same name one is left. So if as many members are left as the text
    has colons, none was given twice; colons inside strings only make the two numbers differ.
    """
    try:
        ahead: list[Any] = [msgspec.json.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    members = 0
    while ahead:
        value = ahead.pop()
        if type(value) is dict:
            members += len(value)
            value = value.values()
        elif type(value) is not list:
            continue
        for below in value:
            if type(below) is dict or type(below) is list:
                ahead.append(below)  # noqa: PERF401  # a comprehension costs twice as much for small objects
    return members == bytes(body).count(b":")


class _Repeated(Exception):
    """Raised when an object has a name twice."""


class _Members(list[tuple[str, Any]]):
    """Members of an object, with every repetition."""


def _look(members: list[tuple[str, Any]]) -> None:
    if len(dict(members)) != len(members):
        raise _Repeated


def _find_repeated_of(text: str) -> str | None:
    try:
        return _find_repeated(_TREE.decode(text))
    except RecursionError:
        raise MalformedBody(TOO_DEEP) from None


def _find_repeated(value: Any, pointer: str = "") -> str | None:
    parts: list[tuple[str, Any]] = []
    if isinstance(value, _Members):
        seen: set[str] = set()
        for name, _ in value:
            if name in seen:
                return f"{pointer}/{escape_pointer(name[:NAME_CHARS_MAX])}"
            seen.add(name)
        parts = [(escape_pointer(name[:NAME_CHARS_MAX]), part) for name, part in value]
    elif isinstance(value, list):
        parts = [(str(index), part) for index, part in enumerate(value)]
    found = (_find_repeated(part, f"{pointer}/{name}") for name, part in parts)
    return next((one for one in found if one is not None), None)


# Numbers are not needed, and a long one would be refused, so they stay texts.
_LOOK = json.JSONDecoder(object_pairs_hook=_look, parse_int=str, parse_float=str)
_TREE = json.JSONDecoder(object_pairs_hook=_Members, parse_int=str, parse_float=str)


def escape_pointer(name: str) -> str:
    """Return a name as one part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")

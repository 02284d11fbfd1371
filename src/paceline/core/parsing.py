"""JSON to values: what is wrong becomes an error that names the field and says what to do."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from paceline.core.durations import DURATION_RULE, format_duration, parse_duration_ms
from paceline.errors import FieldProblem, InvalidInput, MalformedBody

TEXT_CHARS_MAX = 4_096
LEVELS_MAX = 32
NAME_CHARS_MAX = 256
T = TypeVar("T")
_PATH = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], body: bytes, pointer: str = "") -> T:
    """JSON to a value; what is wrong becomes an error that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInput.of(field_problem(error, pointer)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise MalformedBody("The body is nested too deeply.") from None


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


def text_problem(text: str, pointer: str, *, chars_max: int = TEXT_CHARS_MAX) -> FieldProblem | None:
    if len(text) > chars_max:
        return FieldProblem(pointer, f"at most {chars_max} characters")
    if "\x00" in text:
        return FieldProblem(pointer, "a NUL character is not allowed")
    return None


def document_problem(document: dict[str, Any]) -> str | None:
    """Why a checker's own document cannot be kept, level by level: a walk that recursed could be made to overflow."""
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


def escape_pointer(name: str) -> str:
    """One part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")

"""What an answer's status means for a run: done, failed, or to be tried again."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from paceline.core.schema import shown
from paceline.errors import FieldProblem

Meaning = Literal["done", "failed", "retry"]
CODES_MAX = 50
CODE_MIN, CODE_MAX = 200, 599
CODE_RULE = f'a status from {CODE_MIN} to {CODE_MAX}, or a class from "2xx" to "5xx"'
TOO_MANY = 429
_CLASS = re.compile(r"^[2-5]xx$")

_SHOWN = [{"type": "integer", "minimum": CODE_MIN, "maximum": CODE_MAX}, {"type": "string", "pattern": _CLASS.pattern}]
Code = Annotated[int | str, shown(oneOf=_SHOWN)]
Codes = Annotated[tuple[Code, ...], shown(maxItems=CODES_MAX)]


class ExpectSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Statuses and classes of statuses, by what they mean. Those that no list names mean what they always do."""

    done: Codes = ()
    failed: Codes = ()
    retry: Codes = ()


def meaning_of(code: int, *expected: ExpectSpec | None) -> Meaning:
    """What a status means. Of several that are expected the first one that names it counts: a record's, a provider's.

    In each of them the status itself comes before its class.
    """
    for expect in expected:
        if expect is not None and (found := _named(expect, code)) is not None:
            return found
    if CODE_MIN <= code < 300:
        return "done"
    return "retry" if code >= 500 or code == TOO_MANY else "failed"


def expect_problems(expect: ExpectSpec, pointer: str = "/expect") -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    seen: dict[int | str, str] = {}
    for name, codes in _lists(expect):
        if len(codes) > CODES_MAX:
            problems.append(FieldProblem(f"{pointer}/{name}", f"at most {CODES_MAX} of them"))
        for index, code in enumerate(codes[:CODES_MAX]):
            if not _is_code(code):
                problems.append(FieldProblem(f"{pointer}/{name}/{index}", CODE_RULE))
            elif seen.setdefault(code, name) != name:
                detail = f"{code} is in {seen[code]!r}, too; a status means one thing"
                problems.append(FieldProblem(f"{pointer}/{name}/{index}", detail))
    return problems


def _named(expect: ExpectSpec, code: int) -> Meaning | None:
    for wanted in (code, f"{code // 100}xx"):
        for meaning, codes in _lists(expect):
            if wanted in codes:
                return meaning
    return None


def _lists(expect: ExpectSpec) -> tuple[tuple[Meaning, tuple[int | str, ...]], ...]:
    return ("done", expect.done), ("failed", expect.failed), ("retry", expect.retry)


def _is_code(code: int | str) -> bool:
    if isinstance(code, str):
        return _CLASS.fullmatch(code) is not None
    return CODE_MIN <= code <= CODE_MAX

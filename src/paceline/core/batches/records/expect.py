"""Meaning of an answer's status for a run: done, failed, or retry."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from paceline.core.http.status import is_status, status_rule, status_schema
from paceline.core.schema import shown
from paceline.errors import FieldProblem

Meaning = Literal["done", "failed", "retry"]
CODES_MAX = 50
CODE_MIN = 200
CODE_RULE = status_rule(CODE_MIN)
TOO_MANY = 429

Code = Annotated[int | str, shown(oneOf=status_schema(CODE_MIN))]
Codes = Annotated[tuple[Code, ...], shown(maxItems=CODES_MAX)]


class ExpectSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Status codes, and classes such as "4xx", listed by the outcome that they mean.

    For codes in no list, 2xx is done, 429 and 5xx are retried, and all others are failed.
    """

    done: Codes = ()
    failed: Codes = ()
    retry: Codes = ()


def meaning_of(code: int, *expected: ExpectSpec | None) -> Meaning:
    """Return the meaning of a status.

    The first of ``expected`` that names the status counts: a record's, then a provider's. In each of them the status
    itself comes before its class.
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
            if not is_status(code, code_min=CODE_MIN):
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

"""Expectations that a check may have of its answer, and problems of invalid ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from paceline.core.http.json_pointer import POINTER_CHARS_MAX, pointer_problem
from paceline.core.http.patterns import PATTERN_CHARS_MAX, pattern_problem
from paceline.core.http.status import is_status, status_rule, status_schema
from paceline.core.parsing import TEXT_CHARS_MAX, document_problem, duration_problems, escape_pointer, text_problem
from paceline.core.schema import Duration, shown
from paceline.errors import FieldProblem

HEADERS_MAX = 32
STATUSES_MAX = 50
STATUS_MIN = 100
JSON_MAX = 32
ANSWERS_MAX = 100
VALUE_BYTES_MAX = 4_096
DAYS_MAX = 3_650
LATENCY_MS_MAX = 120_000
KEPT_BYTES_MAX = 65_536
"""Maximum number of bytes of a body that are kept for patterns and JSON pointers, within the check's ``max_bytes``."""

Pattern = Annotated[str, shown("A regular expression in RE2 syntax.", maxLength=PATTERN_CHARS_MAX)]
Status = Annotated[int | str, shown(oneOf=status_schema(STATUS_MIN))]
Days = Annotated[int, shown(minimum=0, maximum=DAYS_MAX)]
DAYS_LEFT = "Minimum number of days until the certificate expires."


class HeaderExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Text that a header's value must contain, or a pattern that it must match. Exactly one of the two is given."""

    contains: str | None = None
    matches: Pattern | None = None


class JsonExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions on the value at one place in a JSON answer. At least one is given, and all given ones must hold."""

    pointer: Annotated[str, shown("A JSON pointer (RFC 6901).", maxLength=POINTER_CHARS_MAX, pattern="^(/.*)?$")]
    is_: Annotated[Any, shown("The exact value, of any JSON type.")] = msgspec.field(name="is", default=msgspec.UNSET)
    matches: Pattern | None = None
    at_least: int | float | None = None
    at_most: int | float | None = None


HeaderValue = Annotated[str | HeaderExpect, shown(f"The exact value, of at most {TEXT_CHARS_MAX} characters.")]


class HttpExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions that a good answer meets. Without ``status``, any 2xx is good."""

    status: Annotated[list[Status], shown(maxItems=STATUSES_MAX, minItems=1)] | None = None
    body_contains: str | None = None
    body_lacks: str | None = None
    body_matches: Pattern | None = None
    json: Annotated[list[JsonExpect], shown(maxItems=JSON_MAX)] = []
    header: Annotated[
        dict[str, HeaderValue],
        shown("By header name: the exact value, or what it must contain or match.", maxProperties=HEADERS_MAX),
    ] = {}
    headers: Annotated[
        dict[str, str], shown("Older form of `header` with `contains`; never returned.", maxProperties=HEADERS_MAX)
    ] = {}
    latency_max: Annotated[Duration, shown("Time limit of a good answer; a slower one is a failure.")] | None = None
    days_left: Annotated[Days, shown(f"{DAYS_LEFT} For https only.")] | None = None

    @property
    def needs_body(self) -> bool:
        """True if the body must be kept to be judged."""
        return self.body_matches is not None or bool(self.json)


ANY_2XX = HttpExpect()


class DnsExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Expected answers. ``contains``: all of these, and maybe more. ``equals``: exactly these, in any order."""

    contains: Annotated[list[str], shown(maxItems=ANSWERS_MAX)] = []
    equals: Annotated[list[str], shown(maxItems=ANSWERS_MAX)] = []


class TlsExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Conditions on a certificate. ``days_left`` replaces the check's ``min_days`` if it is given."""

    days_left: Annotated[Days, shown(DAYS_LEFT)] | None = None


def renamed(expect: HttpExpect) -> HttpExpect:
    """Return the expectation with ``headers``, the older form, merged into ``header``."""
    older = {name: HeaderExpect(contains=text) for name, text in expect.headers.items()}
    return msgspec.structs.replace(expect, headers={}, header={**older, **expect.header})


def http_problems(expect: HttpExpect, *, url: str) -> list[FieldProblem]:
    problems = _status_problems(expect.status)
    for name in ("body_contains", "body_lacks"):
        text = getattr(expect, name)
        if text is not None and (problem := text_problem(text, f"/check/expect/{name}")):
            problems.append(problem)
    problems += _pattern_problems(expect.body_matches, "/check/expect/body_matches")
    if len(expect.json) > JSON_MAX:
        problems.append(FieldProblem("/check/expect/json", f"at most {JSON_MAX} of them"))
    for index, one in enumerate(expect.json[:JSON_MAX]):
        problems += _json_problems(one, f"/check/expect/json/{index}")
    problems += _header_problems(expect)
    if expect.latency_max is not None:
        pointer = "/check/expect/latency_max"
        problems += duration_problems(pointer, expect.latency_max, ms_min=1, ms_max=LATENCY_MS_MAX)
    if expect.days_left is not None and not url.lower().startswith("https://"):
        problems.append(FieldProblem("/check/expect/days_left", "only an https:// address has a certificate"))
    return problems + days_problems(expect.days_left, "/check/expect/days_left")


def dns_problems(expect: DnsExpect) -> list[FieldProblem]:
    problems = []
    for name, texts in (("contains", expect.contains), ("equals", expect.equals)):
        if len(texts) > ANSWERS_MAX:
            problems.append(FieldProblem(f"/check/expect/{name}", f"at most {ANSWERS_MAX} of them"))
        for index, text in enumerate(texts[:ANSWERS_MAX]):
            if problem := text_problem(text, f"/check/expect/{name}/{index}"):
                problems.append(problem)
    return problems


def days_problems(days: int | None, pointer: str) -> list[FieldProblem]:
    if days is None or 0 <= days <= DAYS_MAX:
        return []
    return [FieldProblem(pointer, f"must be from 0 to {DAYS_MAX}")]


def _status_problems(status: list[int | str] | None) -> list[FieldProblem]:
    pointer = "/check/expect/status"
    if status is None:
        return []
    if not 1 <= len(status) <= STATUSES_MAX:
        return [FieldProblem(pointer, f"from 1 to {STATUSES_MAX} of them; leave it out for any 2xx")]
    wrong = (index for index, code in enumerate(status) if not is_status(code, code_min=STATUS_MIN))
    return [FieldProblem(f"{pointer}/{index}", status_rule(STATUS_MIN)) for index in wrong]


def _header_problems(expect: HttpExpect) -> list[FieldProblem]:
    problems = []
    if len(expect.header) > HEADERS_MAX:
        problems.append(FieldProblem("/check/expect/header", f"at most {HEADERS_MAX} headers"))
    for name, wanted in expect.header.items():
        pointer = f"/check/expect/header/{escape_pointer(name)}"
        if isinstance(wanted, HeaderExpect):
            if (wanted.contains is None) == (wanted.matches is None):
                problems.append(FieldProblem(pointer, 'give one of "contains" and "matches"'))
            problems += _pattern_problems(wanted.matches, f"{pointer}/matches")
        text = (wanted.contains or "") if isinstance(wanted, HeaderExpect) else wanted
        if problem := text_problem(name + text, pointer):
            problems.append(problem)
    return problems


def _json_problems(expect: JsonExpect, pointer: str) -> list[FieldProblem]:
    problems = []
    if detail := pointer_problem(expect.pointer):
        problems.append(FieldProblem(f"{pointer}/pointer", detail))
    wanted: Iterable[Any] = (expect.matches, expect.at_least, expect.at_most)
    if expect.is_ is msgspec.UNSET and all(one is None for one in wanted):
        problems.append(FieldProblem(pointer, 'say what it must be: "is", "matches", "at_least" or "at_most"'))
    if expect.is_ is not msgspec.UNSET:
        if len(msgspec.json.encode(expect.is_)) > VALUE_BYTES_MAX:
            problems.append(FieldProblem(f"{pointer}/is", f"at most {VALUE_BYTES_MAX} bytes of JSON"))
        elif detail := document_problem({"is": expect.is_}):
            problems.append(FieldProblem(f"{pointer}/is", detail))
    return problems + _pattern_problems(expect.matches, f"{pointer}/matches")


def _pattern_problems(pattern: str | None, pointer: str) -> list[FieldProblem]:
    detail = None if pattern is None else pattern_problem(pattern)
    return [FieldProblem(pointer, detail)] if detail else []

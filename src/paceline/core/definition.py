"""What a user declares: a monitor. Parsed once, here, from JSON to values; past this point the types are trusted."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeVar

import msgspec

from paceline.core.cron import cron_problem, timezone_problem
from paceline.core.durations import DURATION_RULE, format_duration, parse_duration_ms
from paceline.core.schedule import SLOT_MS, Cadence, Missed, Wish
from paceline.core.targets import header_problem, host_problem, url_problem
from paceline.errors import FieldProblem, InvalidInput, MalformedBody

TEXT_CHARS_MAX = 4_096
CHECK_BYTES_MAX = 65_536
LEVELS_MAX = 32
NAME_CHARS_MAX = 256
TAGS_MAX = 32
TAG_CHARS_MAX = 64
HEADERS_MAX = 32
EVERY_MS_MAX = 366 * 86_400_000
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 120_000
BYTES_CAP_MAX = 16 * 1024 * 1024

DnsType = Literal["A", "AAAA", "CNAME", "MX", "NS", "TXT", "SOA", "SRV", "CAA", "PTR"]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HttpExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a good answer looks like. No status named: any 2xx."""

    status: list[int] | None = None
    body_contains: str | None = None
    body_lacks: str | None = None
    headers: dict[str, str] = {}


class HttpCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="http"
):
    url: str
    method: Method = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    expect: HttpExpect = HttpExpect()
    timeout: str = "10s"
    verify_tls: bool = True
    follow_redirects: int = 0
    max_bytes: int = 1_048_576


class TcpCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="tcp"
):
    host: str
    port: int
    timeout: str = "10s"


class DnsExpect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Each of these values must be among the answers."""

    contains: list[str] = []


class DnsCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="dns"
):
    name: str
    type: DnsType = "A"
    server: str | None = None
    port: int = 53
    expect: DnsExpect = DnsExpect()
    timeout: str = "10s"


class TlsCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="tls"
):
    host: str
    port: int = 443
    server_name: str | None = None
    min_days: int = 14
    timeout: str = "10s"


class OutgoingCheck(msgspec.Struct, frozen=True):
    """Work for a checker of the user's own: whatever stands beside ``kind`` is handed over as it is."""

    document: dict[str, Any]


Check = HttpCheck | TcpCheck | DnsCheck | TlsCheck | OutgoingCheck
PolledCheck = HttpCheck | TcpCheck | DnsCheck | TlsCheck
CHECK_KINDS: dict[str, type[PolledCheck]] = {"http": HttpCheck, "tcp": TcpCheck, "dns": DnsCheck, "tls": TlsCheck}


class MonitorSpec(msgspec.Struct, frozen=True):
    """A monitor as its user declared it, valid in every field."""

    check: Check
    every: str | None = None
    cron: str | None = None
    timezone: str = "UTC"
    initial_delay: str = "0s"
    jitter: str = "0s"
    missed: Missed = "skip"
    paused: bool = False
    tags: tuple[str, ...] = ()


class Monitor(msgspec.Struct, frozen=True):
    """A definition in the store: one row of ``Items``."""

    owner: str
    id: str
    generation: int
    revision: int
    spec: MonitorSpec
    created_ms: int
    updated_ms: int


class SpecLimits(msgspec.Struct, frozen=True):
    every_ms_min: int = 1_000


class _SpecDocument(msgspec.Struct, forbid_unknown_fields=True):
    check: msgspec.Raw
    every: str | None = None
    cron: str | None = None
    timezone: str = "UTC"
    initial_delay: str = "0s"
    jitter: str = "0s"
    missed: Missed = "skip"
    paused: bool = False
    tags: list[str] = []


class _Kind(msgspec.Struct):
    kind: str


_SPEC = msgspec.json.Decoder(_SpecDocument)
_KIND = msgspec.json.Decoder(_Kind)
_CHECKS = {kind: msgspec.json.Decoder(type_) for kind, type_ in CHECK_KINDS.items()}
_OBJECT = msgspec.json.Decoder(dict[str, Any])
T = TypeVar("T")
_PATH = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def parse_spec(body: bytes, limits: SpecLimits, *, pointer: str = "") -> MonitorSpec:
    """A valid spec, or InvalidInput that names every wrong field."""
    spec = _to_spec(decode(_SPEC, body, pointer), pointer)
    problems = [*_check_problems(spec.check), *_spec_problems(spec, limits)]
    if problems:
        raise InvalidInput.of(*(FieldProblem(pointer + p.pointer, p.detail) for p in problems))
    return spec


def spec_document(spec: MonitorSpec) -> dict[str, Any]:
    """The JSON document of a spec, with every default spelled out; parsing it gives the spec back."""
    return _document(spec, check_document(spec.check))


def check_document(check: Check) -> dict[str, Any]:
    """The check as its user wrote it, less what equals the defaults."""
    if isinstance(check, OutgoingCheck):
        return check.document
    document: dict[str, Any] = msgspec.to_builtins(check)
    return document


def parse_stored_spec(text: str | bytes) -> MonitorSpec:
    """A spec that was valid when it was stored; limits may have changed since and do not apply."""
    body = text.encode() if isinstance(text, str) else text
    return _to_spec(_SPEC.decode(body), "")


def encode_spec(spec: MonitorSpec) -> bytes:
    check = spec.check
    return msgspec.json.encode(_document(spec, check.document if isinstance(check, OutgoingCheck) else check))


def check_kind(check: Check) -> str:
    return "outgoing" if isinstance(check, OutgoingCheck) else str(check.__struct_config__.tag)


def repeatable(check: Check) -> bool:
    """Whether doing it once more can do no harm: a check that a crash cut short may then be repeated."""
    return not isinstance(check, HttpCheck) or check.method in SAFE_METHODS


def duration_ms(text: str) -> int:
    """For a duration that was validated."""
    ms = parse_duration_ms(text)
    assert ms is not None
    return ms


def wish_of(spec: MonitorSpec, *, created_ms: int, owner_disabled: bool) -> Wish:
    cadence = Cadence(
        every_ms=duration_ms(spec.every) if spec.every is not None else 0,
        cron=" ".join(spec.cron.split()) if spec.cron is not None else "",
        timezone=spec.timezone if spec.cron is not None else "UTC",
        jitter_ms=duration_ms(spec.jitter),
        missed=spec.missed,
    )
    return Wish(
        cadence=cadence,
        initial_delay_ms=duration_ms(spec.initial_delay),
        resting=spec.paused or owner_disabled,
        outgoing=isinstance(spec.check, OutgoingCheck),
        created_ms=created_ms,
    )


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
        name = _escape(unknown[1][:NAME_CHARS_MAX])
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


def _document(spec: MonitorSpec, check: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"check": check}
    if spec.every is not None:
        document["every"] = spec.every
    if spec.cron is not None:
        document["cron"] = spec.cron
        document["timezone"] = spec.timezone
    document["initial_delay"] = spec.initial_delay
    document["jitter"] = spec.jitter
    document["missed"] = spec.missed
    document["paused"] = spec.paused
    document["tags"] = list(spec.tags)
    return document


def _to_spec(document: _SpecDocument, pointer: str) -> MonitorSpec:
    return MonitorSpec(
        check=_parse_check(bytes(document.check), f"{pointer}/check"),
        every=document.every,
        cron=document.cron,
        timezone=document.timezone,
        initial_delay=document.initial_delay,
        jitter=document.jitter,
        missed=document.missed,
        paused=document.paused,
        tags=tuple(document.tags),
    )


def _to_pointer(path: str) -> str:
    return path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")


def _escape(name: str) -> str:
    """One part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _parse_check(body: bytes, pointer: str) -> Check:
    if len(body) > CHECK_BYTES_MAX:
        raise InvalidInput.of(FieldProblem(pointer, f"at most {CHECK_BYTES_MAX} bytes of JSON"))
    kind = decode(_KIND, body, pointer).kind
    if kind == "outgoing":
        return OutgoingCheck(document=decode(_OBJECT, body, pointer))
    if kind not in _CHECKS:
        known = ", ".join([*_CHECKS, "outgoing"])
        raise InvalidInput.of(FieldProblem(f"{pointer}/kind", f"one of {known}"))
    check: PolledCheck = decode(_CHECKS[kind], body, pointer)
    return check


def _spec_problems(spec: MonitorSpec, limits: SpecLimits) -> list[FieldProblem]:
    problems = _cadence_problems(spec, limits)
    for name, text in (("initial_delay", spec.initial_delay), ("jitter", spec.jitter)):
        problems += _duration_problems(f"/{name}", text, ms_min=0, ms_max=EVERY_MS_MAX)
    if len(spec.tags) > TAGS_MAX:
        problems.append(FieldProblem("/tags", f"at most {TAGS_MAX} tags"))
    for index, tag in enumerate(spec.tags[:TAGS_MAX]):
        if problem := text_problem(tag, f"/tags/{index}", chars_max=TAG_CHARS_MAX):
            problems.append(problem)
    return problems


def _cadence_problems(spec: MonitorSpec, limits: SpecLimits) -> list[FieldProblem]:
    if (spec.every is None) == (spec.cron is None):
        return [FieldProblem("/every", 'give exactly one of "every" and "cron"')]
    if spec.every is not None:
        problems = _duration_problems("/every", spec.every, ms_min=limits.every_ms_min, ms_max=EVERY_MS_MAX)
        if not problems and duration_ms(spec.every) % SLOT_MS:
            problems.append(FieldProblem("/every", f"must be a multiple of {SLOT_MS}ms"))
        if spec.timezone != "UTC":
            problems.append(FieldProblem("/timezone", 'goes with "cron" only; remove it'))
        return problems
    assert spec.cron is not None
    problems = []
    if detail := cron_problem(spec.cron):
        problems.append(FieldProblem("/cron", detail))
    if detail := timezone_problem(spec.timezone):
        problems.append(FieldProblem("/timezone", detail))
    return problems


def _duration_problems(pointer: str, text: str, *, ms_min: int, ms_max: int) -> list[FieldProblem]:
    ms = parse_duration_ms(text)
    if ms is None:
        return [FieldProblem(pointer, f"write {DURATION_RULE}")]
    if not ms_min <= ms <= ms_max:
        return [FieldProblem(pointer, f"must be from {format_duration(ms_min)} to {format_duration(ms_max)}")]
    return []


def _check_problems(check: Check) -> list[FieldProblem]:
    match check:
        case HttpCheck():
            problems = _http_problems(check)
        case TcpCheck():
            problems = _endpoint_problems(check.host, check.port)
        case TlsCheck():
            problems = _endpoint_problems(check.host, check.port)
            if check.server_name is not None and (detail := host_problem(check.server_name)):
                problems.append(FieldProblem("/check/server_name", detail))
            if not 0 <= check.min_days <= 3_650:
                problems.append(FieldProblem("/check/min_days", "must be from 0 to 3650"))
        case DnsCheck():
            problems = _dns_problems(check)
        case OutgoingCheck():
            detail = document_problem(check.document)
            return [FieldProblem("/check", detail)] if detail else []
    problems += _duration_problems("/check/timeout", check.timeout, ms_min=TIMEOUT_MS_MIN, ms_max=TIMEOUT_MS_MAX)
    return problems


def _http_problems(check: HttpCheck) -> list[FieldProblem]:
    problems = []
    if detail := url_problem(check.url):
        problems.append(FieldProblem("/check/url", detail))
    if len(check.headers) > HEADERS_MAX:
        problems.append(FieldProblem("/check/headers", f"at most {HEADERS_MAX} headers"))
    for name, value in check.headers.items():
        if detail := header_problem(name, value):
            problems.append(FieldProblem(f"/check/headers/{_escape(name)}", detail))
    if check.body is not None and check.method in SAFE_METHODS:
        problems.append(FieldProblem("/check/body", f"a {check.method} request carries no body"))
    elif check.body is not None and (problem := text_problem(check.body, "/check/body", chars_max=CHECK_BYTES_MAX)):
        problems.append(problem)
    if not 0 <= check.follow_redirects <= 10:
        problems.append(FieldProblem("/check/follow_redirects", "must be from 0 to 10"))
    if not 1 <= check.max_bytes <= BYTES_CAP_MAX:
        problems.append(FieldProblem("/check/max_bytes", f"must be from 1 to {BYTES_CAP_MAX}"))
    return problems + _expect_problems(check.expect)


def _expect_problems(expect: HttpExpect) -> list[FieldProblem]:
    problems = []
    if expect.status is not None and (not expect.status or not all(100 <= code <= 599 for code in expect.status)):
        problems.append(FieldProblem("/check/expect/status", "a list of HTTP status codes from 100 to 599"))
    for name in ("body_contains", "body_lacks"):
        text = getattr(expect, name)
        if text is not None and (problem := text_problem(text, f"/check/expect/{name}")):
            problems.append(problem)
    if len(expect.headers) > HEADERS_MAX:
        problems.append(FieldProblem("/check/expect/headers", f"at most {HEADERS_MAX} headers"))
    for name, value in expect.headers.items():
        if problem := text_problem(name + value, f"/check/expect/headers/{_escape(name)}"):
            problems.append(problem)
    return problems


def _endpoint_problems(host: str, port: int) -> list[FieldProblem]:
    problems = []
    if detail := host_problem(host):
        problems.append(FieldProblem("/check/host", detail))
    if not 1 <= port <= 65_535:
        problems.append(FieldProblem("/check/port", "must be from 1 to 65535"))
    return problems


def _dns_problems(check: DnsCheck) -> list[FieldProblem]:
    problems = []
    if detail := host_problem(check.name):
        problems.append(FieldProblem("/check/name", detail))
    if check.server is not None and (detail := host_problem(check.server)):
        problems.append(FieldProblem("/check/server", detail))
    if not 1 <= check.port <= 65_535:
        problems.append(FieldProblem("/check/port", "must be from 1 to 65535"))
    for index, value in enumerate(check.expect.contains):
        if problem := text_problem(value, f"/check/expect/contains/{index}"):
            problems.append(problem)
    return problems


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

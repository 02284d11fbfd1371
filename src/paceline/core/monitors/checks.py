"""Kinds of checks, and the fields of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, assert_never

import msgspec

from paceline.core.http import expectations
from paceline.core.http.auth import AUTHORIZATION, BasicAuth, BearerAuth, auth_problems, with_values
from paceline.core.ids import id_problem
from paceline.core.parsing import decode, document_problem, duration_problems, escape_pointer, text_problem
from paceline.core.schema import Duration, Host, Port, shown
from paceline.core.targets import URL_CHARS_MAX, header_problem, host_problem, url_problem
from paceline.errors import FieldProblem, InvalidInput

CHECK_BYTES_MAX = 65_536
DEFAULT_QUEUE = "default"
HIDDEN = "***"
"""Text shown in place of a secret value; given back in an edit, it keeps the stored value."""
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 120_000
BYTES_CAP_MAX = 16 * 1024 * 1024
ANSWER_BYTES_MAX = 131_072
"""Maximum number of bytes that are kept of one answer.

They are its head, and the start of its body for patterns and JSON, or else one piece of it and the end of the piece
before.
"""

DnsType = Literal["A", "AAAA", "CNAME", "MX", "NS", "TXT", "SOA", "SRV", "CAA", "PTR"]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
Timeout = Annotated[Duration, shown("Time limit of the whole check, from 100ms to 2m.")]


class HttpCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="http"
):
    url: Annotated[str, shown(maxLength=URL_CHARS_MAX, pattern="^https?://")]
    method: Method = "GET"
    headers: Annotated[
        dict[str, str], shown("Values are sealed, and shown as `***`.", maxProperties=expectations.HEADERS_MAX)
    ] = {}
    body: str | None = None
    auth: BasicAuth | BearerAuth | None = None
    expect: expectations.HttpExpect = expectations.ANY_2XX
    timeout: Timeout = "10s"
    verify_tls: bool = True
    follow_redirects: Annotated[int, shown(minimum=0, maximum=10)] = 0
    max_bytes: Annotated[int, shown(minimum=1, maximum=BYTES_CAP_MAX)] = 1_048_576
    sealed: bool = False
    """True for a stored check: the values of the headers and of ``auth``, and the body, are sealed.

    Never given by users.
    """


class TcpCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="tcp"
):
    host: Host
    port: Port
    timeout: Timeout = "10s"


class DnsCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="dns"
):
    name: Host
    type: DnsType = "A"
    server: str | None = None
    port: Port = 53
    expect: expectations.DnsExpect = expectations.DnsExpect()
    timeout: Timeout = "10s"


class TlsCheck(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="tls"
):
    host: Host
    port: Port = 443
    server_name: str | None = None
    min_days: expectations.Days = 14
    expect: expectations.TlsExpect = expectations.TlsExpect()
    timeout: Timeout = "10s"

    @property
    def days_wanted(self) -> int:
        """Return how many days its certificate must last."""
        return self.min_days if self.expect.days_left is None else self.expect.days_left


class OutgoingCheck(msgspec.Struct, frozen=True):
    """Work for a user's own checker: everything beside ``kind`` is handed over as it is."""

    document: dict[str, Any]

    @property
    def queue(self) -> str:
        """Return the queue that its runs wait in.

        Checks that were stored before queues had names may hold anything in this field.
        """
        name = self.document.get("queue", DEFAULT_QUEUE)
        return DEFAULT_QUEUE if queue_problem(name) else name


Check = HttpCheck | TcpCheck | DnsCheck | TlsCheck | OutgoingCheck
PolledCheck = HttpCheck | TcpCheck | DnsCheck | TlsCheck
CHECK_KINDS: dict[str, type[PolledCheck]] = {"http": HttpCheck, "tcp": TcpCheck, "dns": DnsCheck, "tls": TlsCheck}


class _Kind(msgspec.Struct):
    kind: str


_KIND = msgspec.json.Decoder(_Kind)
_CHECKS = {kind: msgspec.json.Decoder(type_) for kind, type_ in CHECK_KINDS.items()}
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def parse_check(body: bytes, pointer: str, *, bytes_max: int | None = CHECK_BYTES_MAX) -> Check:
    """Return the check. ``bytes_max`` None: it was stored, and is longer because it is sealed."""
    if bytes_max is not None and len(body) > bytes_max:
        raise InvalidInput.of(FieldProblem(pointer, f"at most {bytes_max} bytes of JSON"))
    kind = decode(_KIND, body, pointer).kind
    if kind == "outgoing":
        return OutgoingCheck(document=decode(_OBJECT, body, pointer))
    if kind not in _CHECKS:
        known = ", ".join([*_CHECKS, "outgoing"])
        raise InvalidInput.of(FieldProblem(f"{pointer}/kind", f"one of {known}"))
    check: PolledCheck = decode(_CHECKS[kind], body, pointer)
    if isinstance(check, HttpCheck) and check.expect.headers:
        return msgspec.structs.replace(check, expect=expectations.renamed(check.expect))
    return check


def check_document(check: Check) -> dict[str, Any]:
    """Return the check as its user wrote it, without fields that equal the defaults. Sealed values are masked."""
    if isinstance(check, OutgoingCheck):
        return check.document
    if isinstance(check, HttpCheck) and check.sealed:
        check = with_secrets(check, lambda _: HIDDEN, sealed=False)
    document: dict[str, Any] = msgspec.to_builtins(check)
    return document


def with_secrets(check: HttpCheck, change: Callable[[str], str], *, sealed: bool) -> HttpCheck:
    """Return the check with each of its secret values changed: those of its headers and of ``auth``, and its body."""
    return msgspec.structs.replace(
        check,
        headers={name: change(value) for name, value in check.headers.items()},
        auth=None if check.auth is None else with_values(check.auth, lambda _, value: change(value)),
        body=None if check.body is None else change(check.body),
        sealed=sealed,
    )


def queue_problem(name: Any) -> FieldProblem | None:
    """Return why this cannot be the name of a queue, or None."""
    return id_problem(name if isinstance(name, str) else "", "/check/queue")


def repeatable(check: Check) -> bool:
    """Return whether repeating the check can do no harm: then it may be repeated after a crash cut it short."""
    return not isinstance(check, HttpCheck) or check.method in SAFE_METHODS


def check_problems(check: Check) -> list[FieldProblem]:
    match check:
        case HttpCheck():
            problems = _http_problems(check)
        case TcpCheck():
            problems = _endpoint_problems(check.host, check.port)
        case TlsCheck():
            problems = _endpoint_problems(check.host, check.port)
            if check.server_name is not None and (detail := host_problem(check.server_name)):
                problems.append(FieldProblem("/check/server_name", detail))
            problems += expectations.days_problems(check.min_days, "/check/min_days")
            problems += expectations.days_problems(check.expect.days_left, "/check/expect/days_left")
        case DnsCheck():
            problems = _dns_problems(check)
        case OutgoingCheck():
            if detail := document_problem(check.document):
                return [FieldProblem("/check", detail)]
            problem = queue_problem(check.document.get("queue", DEFAULT_QUEUE))
            return [problem] if problem else []
        case _:
            assert_never(check)
    problems += duration_problems("/check/timeout", check.timeout, ms_min=TIMEOUT_MS_MIN, ms_max=TIMEOUT_MS_MAX)
    return problems


def _http_problems(check: HttpCheck) -> list[FieldProblem]:
    problems = []
    if check.sealed:
        problems.append(FieldProblem("/check/sealed", "there is no such field; remove it"))
    if detail := url_problem(check.url):
        problems.append(FieldProblem("/check/url", detail))
    if len(check.headers) > expectations.HEADERS_MAX:
        problems.append(FieldProblem("/check/headers", f"at most {expectations.HEADERS_MAX} headers"))
    for name, value in check.headers.items():
        if detail := header_problem(name, value):
            problems.append(FieldProblem(f"/check/headers/{escape_pointer(name)}", detail))
    if check.auth is not None:
        problems += auth_problems(check.auth, "/check/auth")
        if any(name.lower() == AUTHORIZATION.lower() for name in check.headers):
            problems.append(FieldProblem("/check/auth", f'give either "auth" or the header {AUTHORIZATION}'))
    if check.body is not None and check.method in SAFE_METHODS:
        problems.append(FieldProblem("/check/body", f"a {check.method} request carries no body"))
    elif check.body is not None and (problem := text_problem(check.body, "/check/body", chars_max=CHECK_BYTES_MAX)):
        problems.append(problem)
    if not 0 <= check.follow_redirects <= 10:
        problems.append(FieldProblem("/check/follow_redirects", "must be from 0 to 10"))
    if not 1 <= check.max_bytes <= BYTES_CAP_MAX:
        problems.append(FieldProblem("/check/max_bytes", f"must be from 1 to {BYTES_CAP_MAX}"))
    return problems + expectations.http_problems(check.expect, url=check.url)


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
    return problems + expectations.dns_problems(check.expect)

"""A provider as its operator declared it, and the policy that follows: order, concurrency, rate, retry, breaker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from paceline.core.batches.records import placeholders
from paceline.core.batches.records.expect import ExpectSpec, expect_problems
from paceline.core.durations import parse_duration_ms
from paceline.core.ids import stable_fraction
from paceline.core.monitors.checks import HIDDEN
from paceline.core.parsing import decode, duration_problems
from paceline.core.schema import Duration, sentence, shown
from paceline.core.targets import URL_CHARS_MAX, header_problem, url_problem
from paceline.errors import FieldProblem, InvalidInput

IN_FLIGHT_MAX = 1_000
ATTEMPTS_MAX = 100
FAILURES_MAX = 1_000_000
HEADERS_MAX = 32
RATE_RULE = 'a number of calls and a time, for example "5/1s" or "100/1m"'
RATE_CALLS_MAX = 1_000_000
DAY_MS = 86_400_000
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 600_000
BURST_US = 100_000
"""Longest time over which unused tokens add up: calls stay evenly spaced, and rates above ten a second are reached."""
_RATE = re.compile(r"(\d{1,7})/(\d{1,12}(?:ms|s|m|h|d))", re.ASCII)

WhenUnknown = Literal["retry", "hold", "look_up"]
Order = Literal["spread", "imported", "priority"]
"""Rule that gives a provider's times to its records: see ``core.batches.order``."""
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
ProviderKind = Literal["http", "outgoing"]
"""Party that carries out a provider's runs: Paceline calls the provider, or a user's workers claim the runs."""
SAFE_METHODS = frozenset({"GET", "PUT", "DELETE"})
"""Methods whose repetition has the same effect as a single request."""


class RetrySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_attempts: Annotated[int, shown(minimum=1, maximum=ATTEMPTS_MAX)] = 5
    base: Duration = "1s"
    cap: Duration = "5m"


class BreakerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    failures: Annotated[int, shown(minimum=1, maximum=FAILURES_MAX)] = 10
    open_for: Duration = "1m"


class ProviderSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider: the service that records of batches call, and the limits and retries of these calls.

    ``kind`` "http": Paceline makes the calls; "outgoing": your own workers do. ``method`` null: POST for a record with
    a body, GET for one without. ``rate`` null: no limit.
    """

    base_url: Annotated[
        str, shown("Base of all calls; for kind `http` only.", maxLength=URL_CHARS_MAX, pattern="^(https?://[^?#]*)?$")
    ] = ""
    kind: ProviderKind = "http"
    headers: Annotated[
        dict[str, str],
        shown("Values may contain placeholders. They are sealed, and shown as `***`.", maxProperties=HEADERS_MAX),
    ] = {}
    method: Method | None = None
    """Method of the calls. None: POST for a record with a body, GET for one without."""
    max_in_flight: Annotated[int, shown(minimum=1, maximum=IN_FLIGHT_MAX)] = 1
    rate: Annotated[str | None, shown(sentence(RATE_RULE), pattern="^[0-9]{1,7}/[0-9]{1,12}(ms|s|m|h|d)$")] = None
    timeout: Annotated[Duration, shown("Time limit of one call, from 100ms to 10m.")] = "30s"
    expect: Annotated[ExpectSpec | None, shown("Status codes with another meaning than usual.")] = None
    retry: RetrySpec = RetrySpec()
    breaker: BreakerSpec = BreakerSpec()
    unknown: WhenUnknown = "retry"
    """Reaction when a call that is not safe to repeat may have arrived.

    Send it again with the same ``Idempotency-Key``, make a dead letter for a person to look at, or ask the provider
    first.
    """
    look_up: str | None = None
    """Path that answers 2xx if the run named in it has arrived and 404 if not, for example "/calls/{run}"."""
    verify_tls: bool = True
    order: Annotated[Order, shown("How the provider's times are assigned to its records.")] = "spread"
    paused: bool = False


class ProviderDefinition(msgspec.Struct, frozen=True):
    """A provider in the store. ``number`` stands for the provider in the keys of its runs."""

    id: str
    number: int
    revision: int
    spec: ProviderSpec
    created_ms: int
    updated_ms: int


class Policy(msgspec.Struct, frozen=True):
    """Limits of a provider in numbers, for claims and settlements."""

    max_in_flight: int
    rate_gap_us: int
    """Microseconds between two calls; 0: no limit."""
    timeout_ms: int
    """Time-out of one call. 0 for a provider of kind ``outgoing``: its workers say how long their leases last."""
    attempts_max: int
    retry_base_ms: int
    retry_cap_ms: int
    breaker_failures: int
    breaker_open_ms: int
    unknown: WhenUnknown
    paused: bool
    kind: ProviderKind = "http"
    expect: ExpectSpec | None = None


class KnownPolicy(NamedTuple):
    """A provider's policy at one of its revisions. ``phase`` in [0, 1) depends on the provider's name alone."""

    revision: int
    policy: Policy
    phase: float


CALL_FIELDS = ("base_url", "headers", "method", "look_up", "expect")
"""Fields that a provider of kind ``outgoing`` cannot have."""
POLICIES_MAX = 65_536
"""Maximum number of providers whose policies a process remembers."""
_PROVIDER = msgspec.json.Decoder(ProviderSpec)


def parse_provider(body: bytes, *, pointer: str = "") -> ProviderSpec:
    """Return a valid spec, or raise InvalidInput that names every wrong field."""
    spec = decode(_PROVIDER, body, pointer)
    if problems := provider_problems(spec):
        raise InvalidInput.of(*(FieldProblem(pointer + p.pointer, p.detail) for p in problems))
    return spec


def parse_stored_provider(text: str | bytes) -> ProviderSpec:
    return _PROVIDER.decode(text)


def provider_document(spec: ProviderSpec) -> dict[str, Any]:
    """Return the provider as it is shown: with every default, and with its headers' values hidden."""
    document: dict[str, Any] = msgspec.to_builtins(spec)
    document["headers"] = dict.fromkeys(spec.headers, HIDDEN)
    return document


def keep_hidden(spec: ProviderSpec, stored: ProviderSpec | None) -> ProviderSpec:
    """Return the spec with the stored value of each header that was given as it is shown (hidden)."""
    return msgspec.structs.replace(spec, headers=with_hidden(spec.headers, stored.headers if stored else {}))


def with_hidden(headers: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the known value of each one that was given as it is shown (hidden)."""
    if missing := [name for name, value in headers.items() if value == HIDDEN and name not in known]:
        raise InvalidInput.of(*(FieldProblem(f"/headers/{name}", "give the header's value") for name in missing))
    return {name: known[name] if value == HIDDEN else value for name, value in headers.items()}


def policy_of(spec: ProviderSpec) -> Policy:
    return Policy(
        max_in_flight=spec.max_in_flight,
        rate_gap_us=rate_gap_us(spec.rate) if spec.rate is not None else 0,
        timeout_ms=_ms(spec.timeout) if spec.kind == "http" else 0,
        attempts_max=spec.retry.max_attempts,
        retry_base_ms=_ms(spec.retry.base),
        retry_cap_ms=_ms(spec.retry.cap),
        breaker_failures=spec.breaker.failures,
        breaker_open_ms=_ms(spec.breaker.open_for),
        unknown=spec.unknown,
        paused=spec.paused,
        kind=spec.kind,
        expect=spec.expect,
    )


def known_policy(name: str, revision: int, spec_text: str | bytes) -> KnownPolicy:
    return KnownPolicy(revision, policy_of(parse_stored_provider(spec_text)), stable_fraction(name))


@lru_cache(maxsize=1_024)
def rate_gap_us(rate: str) -> int:
    """Return the microseconds between two calls, for a rate that was validated."""
    match = _RATE.fullmatch(rate)
    assert match is not None
    return -(-_ms(match[2]) * 1_000 // int(match[1]))


def method_of(spec: ProviderSpec, *, has_body: bool) -> Method:
    return spec.method or ("POST" if has_body else "GET")


def provider_problems(spec: ProviderSpec) -> list[FieldProblem]:
    problems = _http_problems(spec) if spec.kind == "http" else _outgoing_problems(spec)
    problems += _number_problems(spec)
    problems += duration_problems("/timeout", spec.timeout, ms_min=TIMEOUT_MS_MIN, ms_max=TIMEOUT_MS_MAX)
    problems += duration_problems("/retry/base", spec.retry.base, ms_min=1, ms_max=DAY_MS)
    problems += duration_problems("/retry/cap", spec.retry.cap, ms_min=1, ms_max=DAY_MS)
    problems += duration_problems("/breaker/open_for", spec.breaker.open_for, ms_min=1, ms_max=DAY_MS)
    if spec.rate is not None and (detail := _rate_problem(spec.rate)):
        problems.append(FieldProblem("/rate", detail))
    return problems + (expect_problems(spec.expect) if spec.expect is not None else [])


def _http_problems(spec: ProviderSpec) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if detail := url_problem(spec.base_url):
        problems.append(FieldProblem("/base_url", detail))
    elif "?" in spec.base_url or "#" in spec.base_url:
        problems.append(FieldProblem("/base_url", 'a query belongs in each record\'s "endpoint"'))
    return problems + header_problems(spec.headers) + _look_up_problems(spec)


def _outgoing_problems(spec: ProviderSpec) -> list[FieldProblem]:
    """Return a problem for each field that only a call needs, because nothing is called."""
    given = [name for name in CALL_FIELDS if getattr(spec, name)]
    problems = [FieldProblem(f"/{name}", 'is for kind "http": a worker of your own is not called') for name in given]
    if spec.unknown == "look_up":
        problems.append(FieldProblem("/unknown", 'nobody can be asked: choose "retry" or "hold"'))
    return problems


def _number_problems(spec: ProviderSpec) -> list[FieldProblem]:
    bounds = (
        ("/max_in_flight", spec.max_in_flight, IN_FLIGHT_MAX),
        ("/retry/max_attempts", spec.retry.max_attempts, ATTEMPTS_MAX),
        ("/breaker/failures", spec.breaker.failures, FAILURES_MAX),
    )
    return [
        FieldProblem(pointer, f"must be from 1 to {most}") for pointer, value, most in bounds if not 1 <= value <= most
    ]


def header_problems(headers: dict[str, str]) -> list[FieldProblem]:
    if len(headers) > HEADERS_MAX:
        return [FieldProblem("/headers", f"at most {HEADERS_MAX} headers")]
    problems = []
    for name, value in headers.items():
        detail = header_problem(name, value) or placeholders.text_problem(value)
        if name.lower() == "idempotency-key":
            detail = "Idempotency-Key is set by Paceline and cannot be given"
        if detail:
            problems.append(FieldProblem(f"/headers/{name[:128]}", detail))
    return problems


def _rate_problem(rate: str) -> str | None:
    match = _RATE.fullmatch(rate)
    if match is None:
        return f"write {RATE_RULE}"
    if not 1 <= int(match[1]) <= RATE_CALLS_MAX or not 1 <= _ms(match[2]) <= DAY_MS:
        return f"from 1 to {RATE_CALLS_MAX} calls in at most a day"
    return None


def _look_up_problems(spec: ProviderSpec) -> list[FieldProblem]:
    if spec.look_up is None:
        return (
            [FieldProblem("/look_up", 'say where to ask, or choose "retry" or "hold"')]
            if (spec.unknown == "look_up")
            else []
        )
    if not spec.look_up.startswith("/") or "{run}" not in spec.look_up:
        return [FieldProblem("/look_up", 'a path with {run} in it, for example "/calls/{run}"')]
    detail = url_problem(spec.base_url.rstrip("/") + spec.look_up.replace("{run}", "run"))
    return [FieldProblem("/look_up", detail)] if detail else []


def _ms(text: str) -> int:
    ms = parse_duration_ms(text)
    assert ms is not None
    return ms

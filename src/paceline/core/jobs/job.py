"""Parsing of a job of RIPE Atlas measurements: every wrong field is named, and nothing doubtful gets in."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from paceline.core.instants import to_ms
from paceline.core.jobs.measurement import (
    INTERVALS_S,
    KINDS,
    AnyDefinition,
    Dns,
    Instant,
    Measurement,
    Ping,
    Probes,
    Text,
    Traceroute,
    is_oneoff,
    kind_of,
    span_s,
)
from paceline.core.parsing import decode, document_problem, field_problem
from paceline.core.schema import shown
from paceline.core.targets import URL_CHARS_MAX, host_problem, url_problem
from paceline.errors import FieldProblem, InvalidInput

PROBES_MAX = 1_000
RESULTS_PER_S_MAX = 50
DURATION_S_MAX = 366 * 86_400
PROBLEMS_MAX = 50
AREAS = frozenset({"WW", "West", "North-Central", "South-Central", "North-East", "South-East"})
T = TypeVar("T")


class MeasurementBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request to RIPE. Each definition becomes a measurement there, and all of them use the same probes."""

    definitions: Annotated[tuple[AnyDefinition, ...], Meta(min_length=1)]
    probes: Annotated[tuple[Probes, ...], Meta(min_length=1)]
    is_oneoff: bool | None = None
    start_time: Annotated[Instant, shown("Seconds since 1970, or ISO 8601.")] = None
    stop_time: Annotated[Instant, shown("Seconds since 1970, or ISO 8601. Required for a periodic measurement.")] = None
    bill_to: Annotated[str | None, shown("Not allowed: each account pays for its own measurements.")] = None


class _LooseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request like ``MeasurementBody``, whose parts are still to be judged one by one."""

    definitions: Annotated[list[Any], Meta(min_length=1)]
    probes: Annotated[list[Any], Meta(min_length=1)]
    is_oneoff: bool | None = None
    start_time: Instant = None
    stop_time: Instant = None
    bill_to: str | None = None


class Job(msgspec.Struct, frozen=True):
    measurements: tuple[Measurement, ...]
    title: str = ""
    webhook: str | None = None


class JobLimits(msgspec.Struct, frozen=True):
    bytes_max: int = 16 * 1024 * 1024
    measurements_max: int = 10_000
    definitions_max: int = 100
    sources_max: int = 1_000


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
    """A job: measurements to make at RIPE Atlas, in the fields of RIPE's own API."""

    measurements: Annotated[list[MeasurementBody], Meta(min_length=1)]
    title: Text = ""
    webhook: Annotated[
        str | None, shown("URL that gets a signed call when the job has finished.", maxLength=URL_CHARS_MAX)
    ] = None


class _LooseJob(msgspec.Struct, forbid_unknown_fields=True):
    measurements: Annotated[list[Any], Meta(min_length=1)]
    title: Text = ""
    webhook: str | None = None


_JOB = msgspec.json.Decoder(JobBody)
_LOOSE_JOB = msgspec.json.Decoder(_LooseJob)
_ANY = msgspec.json.Decoder(Any)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_SIZED = (Ping, Traceroute)
_KNOWN = {kind: frozenset(type_.__struct_fields__) | {"type"} for kind, type_ in KINDS.items()}


def parse_job(body: bytes, limits: JobLimits, *, now_ms: int) -> Job:
    """Return a valid job, or raise InvalidInput that names every wrong field, up to a bound."""
    _check_bytes(body, limits)
    try:
        document: JobBody | _LooseJob = decode(_JOB, body)
    except InvalidInput:
        document = decode(_LOOSE_JOB, body)  # slower, part by part, so that all problems are named at once
    problems = _job_problems(document, limits)
    if problems:
        raise InvalidInput.of(*problems)
    _check_characters(body)
    measurements = []
    for index, request in enumerate(document.measurements):
        pointer = f"/measurements/{index}"
        found = request if isinstance(request, MeasurementBody) else _judge_parts(request, pointer, problems)
        if found is not None and (measurement := _finish(found, {}, pointer, limits, now_ms, problems)) is not None:
            measurements.append(measurement)
        if len(problems) >= PROBLEMS_MAX:
            break
    if problems:
        raise InvalidInput.of(*problems[:PROBLEMS_MAX])
    return Job(tuple(measurements), document.title, document.webhook)


def parse_request(body: bytes, limits: JobLimits, *, now_ms: int) -> Measurement:
    """Return the measurement of a request as RIPE's own clients write it.

    Fields that Paceline does not know are kept in ``extra`` and passed on to RIPE.
    """
    _check_bytes(body, limits)
    _check_characters(body)
    problems: list[FieldProblem] = []
    extra: dict[str, dict[str, Any]] = {}
    document = _without_unknown(decode(_ANY, body), extra)
    found = _judge_parts(document, "", problems, strict=False)
    problems += [FieldProblem(p, detail) for p, rest in extra.items() if (detail := document_problem(rest))]
    measurement = None if found is None else _finish(found, extra, "", limits, now_ms, problems)
    if problems or measurement is None:
        raise InvalidInput.of(*problems[:PROBLEMS_MAX])
    return measurement


def job_digest(job: Job) -> str:
    """Return a hash of what the job asks for.

    It ignores the order of a definition's fields, which clients do not keep.
    """
    return sha256(_ENCODER.encode(job)).hexdigest()


def _check_bytes(body: bytes, limits: JobLimits) -> None:
    if len(body) > limits.bytes_max:
        raise InvalidInput.of(FieldProblem("", f"at most {limits.bytes_max} bytes of JSON"))


def _check_characters(body: bytes) -> None:
    """Raise InvalidInput if the JSON contains a NUL.

    In JSON a NUL can only be written as an escape, so bodies without that escape pass after one search.
    """
    if b"\\u0000" in body and (detail := document_problem({"": _ANY.decode(body)})):
        raise InvalidInput.of(FieldProblem("", detail))


def _job_problems(document: JobBody | _LooseJob, limits: JobLimits) -> list[FieldProblem]:
    problems = []
    if len(document.measurements) > limits.measurements_max:
        problems.append(FieldProblem("/measurements", f"at most {limits.measurements_max} measurements in a job"))
    if document.webhook is not None and (detail := url_problem(document.webhook)):
        problems.append(FieldProblem("/webhook", detail))
    return problems


def _judge_parts(
    document: Any, pointer: str, problems: list[FieldProblem], *, strict: bool = True
) -> MeasurementBody | None:
    """Judge each part by itself, so that one wrong part does not hide the others. Return None if any is wrong."""
    before = len(problems)
    loose = _convert(document, _LooseRequest, pointer, problems, strict=strict)
    if loose is None:
        return None
    definitions = []
    for index, part in enumerate(loose.definitions):
        place = f"{pointer}/definitions/{index}"
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, dict) and (not isinstance(kind, str) or kind not in KINDS):
            problems.append(FieldProblem(f"{place}/type", _kind_problem(kind)))
        elif (definition := _convert(part, KINDS.get(str(kind), Ping), place, problems, strict=strict)) is not None:
            definitions.append(definition)
    sources = []
    for index, part in enumerate(loose.probes):
        source = _convert(part, Probes, f"{pointer}/probes/{index}", problems, strict=strict)
        sources += [source] if source is not None else []
    if len(problems) > before:
        return None
    times = (loose.start_time, loose.stop_time)
    return MeasurementBody(tuple(definitions), tuple(sources), loose.is_oneoff, *times, loose.bill_to)


def _convert(part: Any, type_: type[T], pointer: str, problems: list[FieldProblem], *, strict: bool) -> T | None:
    try:
        return msgspec.convert(part, type_, strict=strict)
    except msgspec.ValidationError as error:
        problem = field_problem(error, pointer)
        if problem.detail.startswith("invalid enum value"):
            problem = FieldProblem(problem.pointer, f"one of {_choices(type_, problem.pointer.rpartition('/')[2])}")
        problems.append(problem)
        return None


def _choices(type_: type[Any], field: str) -> str:
    """Return the values of a field that has a closed list of them."""
    hint = get_type_hints(type_)[field]
    literals = [one for one in (hint, *get_args(hint)) if get_origin(one) is Literal]
    return ", ".join(str(value) for literal in literals for value in get_args(literal))


def _kind_problem(kind: Any) -> str:
    if kind is None:
        return "this field is required"
    if kind == "wifi":
        return "wifi measurements are restricted research at RIPE and are not offered here"
    return f"one of {', '.join(KINDS)}"


def _without_unknown(document: Any, extra: dict[str, dict[str, Any]]) -> Any:
    """Return the document without fields that no type here has; those go to ``extra``."""
    document = _split(document, frozenset(MeasurementBody.__struct_fields__), "", extra)
    if not isinstance(document, dict):
        return document
    for name in ("definitions", "probes"):
        parts = document.get(name)
        if isinstance(parts, list):
            known = frozenset(Probes.__struct_fields__)
            document[name] = [
                _split(part, known if name == "probes" else _known_fields(part), f"/{name}/{index}", extra)
                for index, part in enumerate(parts)
            ]
    return document


def _known_fields(part: Any) -> frozenset[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    return _KNOWN.get(str(kind), frozenset({"type"}))


def _split(part: Any, known: frozenset[str], pointer: str, extra: dict[str, dict[str, Any]]) -> Any:
    if not isinstance(part, dict):
        return part
    if rest := {name: value for name, value in part.items() if name not in known and value is not None}:
        extra[pointer] = rest
    return {name: value for name, value in part.items() if name in known}


def _finish(
    request: MeasurementBody,
    extra: dict[str, dict[str, Any]],
    pointer: str,
    limits: JobLimits,
    now_ms: int,
    problems: list[FieldProblem],
) -> Measurement | None:
    """Return the measurement in its canonical form; None, and more problems, if the values do not make sense."""
    found: list[FieldProblem] = []
    if len(request.definitions) > limits.definitions_max:
        found.append(FieldProblem("/definitions", f"at most {limits.definitions_max} definitions"))
    if request.bill_to is not None:
        found.append(FieldProblem("/bill_to", "the accounts of this installation pay, within your credits; remove it"))
    start = _seconds(request.start_time, "/start_time", found)
    stop = _seconds(request.stop_time, "/stop_time", found)
    probes = _judge_probes(request.probes, limits, found)
    given = Measurement(request.definitions, request.probes, request.is_oneoff, start, stop, extra)
    definitions, changed = [], False
    for index, one in enumerate(request.definitions[: limits.definitions_max]):
        wrong: list[FieldProblem] = []
        definition = _canonical(given, one, wrong)
        _judge_definition(given, definition, probes, now_ms, wrong)
        definitions.append(definition)
        changed = changed or definition is not one
        if wrong:
            found += [FieldProblem(f"/definitions/{index}{p.pointer}", p.detail) for p in wrong]
    if found:
        problems += [FieldProblem(pointer + p.pointer, p.detail) for p in found]
        return None
    return msgspec.structs.replace(given, definitions=tuple(definitions)) if changed else given


def _seconds(value: int | str | None, pointer: str, found: list[FieldProblem]) -> int | None:
    if not isinstance(value, str):
        return value
    if (seconds := _iso_seconds(value)) is None:
        found.append(FieldProblem(pointer, 'seconds since 1970, or ISO 8601 such as "2026-11-15T08:00:00Z"'))
    return seconds


def _iso_seconds(text: str) -> int | None:
    """Return the seconds of an ISO text. A text without a zone is in UTC, as RIPE reads it."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC)) // 1000


def _canonical(measurement: Measurement, definition: AnyDefinition, found: list[FieldProblem]) -> AnyDefinition:
    changes: dict[str, Any] = {}
    if isinstance(definition.start_time, str):
        changes["start_time"] = _seconds(definition.start_time, "/start_time", found)
    if isinstance(definition.stop_time, str):
        changes["stop_time"] = _seconds(definition.stop_time, "/stop_time", found)
    if isinstance(definition, _SIZED) and definition.packet_size is not None:
        if definition.size not in (None, definition.packet_size):
            found.append(FieldProblem("/packet_size", 'another word for "size"; give one of the two'))
        changes |= {"size": definition.packet_size, "packet_size": None}
    if definition.interval is None and not is_oneoff(measurement, definition):
        changes["interval"] = INTERVALS_S[kind_of(definition)]
    return msgspec.structs.replace(definition, **changes) if changes else definition


def _judge_definition(
    measurement: Measurement, definition: AnyDefinition, probes: int, now_ms: int, found: list[FieldProblem]
) -> None:
    if detail := _aim_problem(definition.target, definition.af):
        found.append(FieldProblem("/target", detail))
    if isinstance(definition, Dns) and definition.target is None and not definition.use_probe_resolver:
        found.append(FieldProblem("/target", 'give a target, or set "use_probe_resolver"'))
    if definition.group_id is not None:
        detail = "a group belongs to one account, and Paceline chooses the account; remove it"
        found.append(FieldProblem("/group_id", detail))
    if definition.spread is not None and probes > RESULTS_PER_S_MAX * definition.spread:
        detail = f"too short: RIPE takes at most {RESULTS_PER_S_MAX} results a second of a measurement"
        found.append(FieldProblem("/spread", detail))
    if problem := _timing_problem(measurement, definition, now_ms // 1000):
        found.append(problem)


@lru_cache(maxsize=16_384)
def _aim_problem(target: str | None, af: int) -> str | None:
    """Return why the target cannot be measured, or None. Memoised: a job often aims many measurements at one target."""
    if target is None:
        return None
    try:
        version = ip_address(target).version
    except ValueError:
        return host_problem(target)
    return None if version == af else f"an IPv{version} address does not go with af {af}"


def _timing_problem(measurement: Measurement, definition: AnyDefinition, now_s: int) -> FieldProblem | None:
    own = definition.is_oneoff
    if own is not None and measurement.is_oneoff is not None and own != measurement.is_oneoff:
        return FieldProblem("/is_oneoff", "contradicts the measurement's own is_oneoff")
    start, stop = span_s(measurement, definition)
    first = now_s if start is None else max(start, now_s)
    if first - now_s > DURATION_S_MAX:
        return FieldProblem("/start_time", "at most 366 days ahead")
    if stop is not None and stop <= first:
        return FieldProblem("/stop_time", "must be after the start, and in the future")
    if is_oneoff(measurement, definition):
        return FieldProblem("/interval", "a one-off has no interval; remove it") if definition.interval else None
    if stop is None:
        detail = "a periodic measurement needs an end: without one its price has no maximum that could be reserved"
        return FieldProblem("/stop_time", detail)
    if stop - first > DURATION_S_MAX:
        return FieldProblem("/stop_time", "at most 366 days after the start")
    return None


def _judge_probes(sources: tuple[Probes, ...], limits: JobLimits, found: list[FieldProblem]) -> int:
    """Return how many probes are asked for in all."""
    if len(sources) > limits.sources_max:
        found.append(FieldProblem("/probes", f"at most {limits.sources_max} probe sources"))
        return 0
    total = 0
    for index, source in enumerate(sources):
        total += source.requested
        if source.requested < 1:
            found.append(FieldProblem(f"/probes/{index}/requested", _requested_problem(source.requested)))
        if detail := _source_problem(source.type, source.value):
            found.append(FieldProblem(f"/probes/{index}/value", detail))
    if total > PROBES_MAX:
        found.append(FieldProblem("/probes", f"at most {PROBES_MAX} probes in a measurement; this asks for {total}"))
    return total


def _requested_problem(requested: int) -> str:
    if requested == -1:
        return "say how many: -1 (all that match) has no price that could be reserved"
    return "must be at least 1"


@lru_cache(maxsize=16_384)
def _source_problem(kind: str, value: int | str) -> str | None:
    """Return why a source of probes is wrong, or None. Memoised: most sources of a job are the same few."""
    text = str(value)
    match kind:
        case "area":
            return None if text in AREAS else f"one of {', '.join(sorted(AREAS))}"
        case "country":
            return None if _is_country(text) else 'an ISO code of two letters, such as "NL"'
        case "countries":
            return None if all(map(_is_country, text.split(","))) else 'ISO codes such as "NL,DE"'
        case "asn":
            return None if _is_number(text, number_max=2**32 - 1) else "the number of an autonomous system"
        case "msm":
            return None if _is_number(text, number_max=2**53) else "the number of a measurement"
        case "probes":
            numbers = text.split(",")
            good = len(numbers) <= PROBES_MAX and all(_is_number(n.strip(), number_max=2**53) for n in numbers)
            return None if good else f'up to {PROBES_MAX} numbers of probes, such as "1,2,3"'
        case "prefix":
            return None if isinstance(value, str) and _is_network(value) else 'a network such as "192.0.2.0/24"'
        case _:
            return None if len(text) <= 64 else "at most 64 characters"


def _is_country(text: str) -> bool:
    return len(text) == 2 and text.isascii() and text.isalpha()


def _is_number(text: str, *, number_max: int) -> bool:
    return len(text) <= 16 and text.isascii() and text.isdigit() and 1 <= int(text) <= number_max


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text

"""A batch and its records as they were declared, and the window of one of its days."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from paceline.core.alerts.alert import CHANNELS_MAX
from paceline.core.batches.provider import Method
from paceline.core.batches.records import placeholders
from paceline.core.batches.records.expect import ExpectSpec
from paceline.core.batches.records.options import NO_OPTIONS, RecordOptions, options_document, options_problems
from paceline.core.durations import parse_duration_ms
from paceline.core.ids import ID_PATTERN, id_problem
from paceline.core.instants import to_datetime, to_ms
from paceline.core.monitors.cron import timezone_problem
from paceline.core.monitors.schedule import Missed
from paceline.core.parsing import decode, duration_problems, text_problem
from paceline.core.schema import Duration, shown
from paceline.errors import FieldProblem, InvalidInput, MalformedBody

DAY_MS = 86_400_000
WINDOW_MS_MIN = 1_000
ENDPOINT_CHARS_MAX = 2_048
BODY_BYTES_MAX = 65_536
DATES_FROM = date(2000, 1, 1)
DATES_TO = date(2059, 12, 31)
DATE_RULE = f'a date from {DATES_FROM} to {DATES_TO}, written as "2026-11-15"'
_START = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ENDPOINT = re.compile(r"[!-\[\]-~]*")  # ASCII without blanks, and without the backslash
# Matches nearly every record: one match instead of several checks, for imports of a million records.
_PLAIN = re.compile(rf"{ID_PATTERN}\n{ID_PATTERN}\n(?!//)[!-9;-\[\]-z|~]{{0,{ENDPOINT_CHARS_MAX}}}")


class BatchSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch: when its day begins and ends, and how its records are spread over that window."""

    start: Annotated[
        str, shown("Time of day at which the window begins.", pattern="^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$")
    ] = "00:00"
    window: Annotated[Duration, shown("Length of the daily window, from 1s; `24h`: the whole local day.")] = "24h"
    """Length of a day's window; "24h" is the whole local day, which has 23 or 25 hours where clocks change."""
    timezone: Annotated[str, shown("Time zone of `start`, as an IANA name.")] = "UTC"
    jitter: Annotated[Duration, shown("Largest delay of a record; each record has a fixed delay up to it.")] = "0s"
    missed: Annotated[Missed, shown("What happens to runs whose time was missed.")] = "once"
    paused: bool = False
    channels: Annotated[
        tuple[str, ...],
        shown("Admins' channels that get its alerts; empty: their default channels.", maxItems=CHANNELS_MAX),
    ] = ()


class Deletion(msgspec.Struct, frozen=True):
    """Deletion in progress: when it began, and how many of the batch's runs and records are deleted so far."""

    since_ms: int
    runs: int
    records: int


class Batch(msgspec.Struct, frozen=True):
    """A batch in the store. ``number`` stands for the batch in the keys of its days and records."""

    id: str
    number: int
    revision: int
    spec: BatchSpec
    created_ms: int
    updated_ms: int
    deleting: Deletion | None = None


class RecordSpec(msgspec.Struct, frozen=True, gc=False):
    """A record as it was declared. ``body`` is JSON text; None: no body."""

    id: str
    provider: str
    endpoint: str = ""
    body: str | None = None
    active: bool = True
    options: RecordOptions = NO_OPTIONS


class _RecordDocument(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    provider: str
    endpoint: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")
    active: bool = True
    method: Method | None = None
    headers: dict[str, str] = {}
    timeout: str | None = None
    expect: ExpectSpec | None = None
    priority: int = 0
    after: str | None = None

    @property
    def options(self) -> RecordOptions:
        given = (self.method, self.headers, self.timeout, self.expect, self.priority, self.after)
        if not any(given) and self.expect is None and self.after is None:
            return NO_OPTIONS
        return RecordOptions(False, *given)


class Window(msgspec.Struct, frozen=True):
    start_ms: int
    end_ms: int


DayState = Literal["planning", "planned"]


class Day(msgspec.Struct, frozen=True):
    """One day of a batch. ``cursor``: (provider's number, record's number) of the last planned run, None at first."""

    number: int
    batch: str
    date: str
    start_ms: int
    end_ms: int
    """Start and end of the window that was planned, which begins late if planning did."""
    state: DayState
    cursor: tuple[int, int] | None
    enqueued: int
    skipped: int


_BATCH = msgspec.json.Decoder(BatchSpec)
_RECORD = msgspec.json.Decoder(_RecordDocument)


def parse_batch(body: bytes, *, pointer: str = "") -> BatchSpec:
    """Return a valid spec, or raise InvalidInput that names every wrong field."""
    spec = decode(_BATCH, body, pointer)
    if problems := _batch_problems(spec):
        raise InvalidInput.of(*(FieldProblem(pointer + p.pointer, p.detail) for p in problems))
    return spec


def parse_stored_batch(text: str | bytes) -> BatchSpec:
    return _BATCH.decode(text)


def batch_document(spec: BatchSpec) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(spec)
    return document


def parse_record(body: bytes | msgspec.Raw, *, pointer: str = "") -> RecordSpec:
    """Return a valid record, or raise InvalidInput that names every wrong field."""
    document = decode(_RECORD, body, pointer)
    try:
        text = str(document.body, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from None
    content = None if text == "null" else text
    spec = make_record(
        document.id, document.provider, document.endpoint, content, active=document.active, options=document.options
    )
    plain = spec.options is NO_OPTIONS and len(text) <= BODY_BYTES_MAX
    if plain and _PLAIN.fullmatch(f"{spec.id}\n{spec.provider}\n{spec.endpoint}"):
        return spec
    if problems := record_problems(spec):
        raise InvalidInput.of(*(FieldProblem(pointer + p.pointer, p.detail) for p in problems))
    return spec


def make_record(
    record_id: str,
    provider: str,
    endpoint: str,
    body: str | None,
    *,
    active: bool,
    options: RecordOptions = NO_OPTIONS,
) -> RecordSpec:
    """Return a record as it was just declared, not validated yet. If its texts have braces, it is a template."""
    if placeholders.has_braces(endpoint) or (body is not None and placeholders.body_has_braces(body)):
        options = msgspec.structs.replace(options, templated=True)
    return RecordSpec(record_id, provider, endpoint, body, active, options)


def record_document(spec: RecordSpec) -> dict[str, Any]:
    """Return the record as it is shown.

    Putting the document again gives the same record: braces are escaped if the stored texts are no templates.
    """
    endpoint, body = spec.endpoint, spec.body
    if not spec.options.templated:
        endpoint, body = placeholders.escape(endpoint), placeholders.escape_body(body) if body is not None else None
    raw = msgspec.Raw(body.encode()) if body is not None else None
    document = {"id": spec.id, "provider": spec.provider, "endpoint": endpoint, "body": raw, "active": spec.active}
    return document if spec.options is NO_OPTIONS else document | options_document(spec.options)


def record_problems(spec: RecordSpec) -> list[FieldProblem]:
    problems = [p for p in (id_problem(spec.id, "/id"), id_problem(spec.provider, "/provider")) if p]
    if detail := _endpoint_problem(spec.endpoint):
        problems.append(FieldProblem("/endpoint", detail))
    if spec.body is not None:
        problem = text_problem(spec.body, "/body", chars_max=BODY_BYTES_MAX)
        if problem is None and (detail := placeholders.body_problem(spec.body)):
            problem = FieldProblem("/body", detail)
        problems += [problem] if problem else []
    return problems + options_problems(spec.options)


def _endpoint_problem(endpoint: str) -> str | None:
    if len(endpoint) > ENDPOINT_CHARS_MAX:
        return f"at most {ENDPOINT_CHARS_MAX} characters"
    if not _ENDPOINT.fullmatch(endpoint):
        return "spaces, control and non-ASCII characters must be percent-encoded"
    if "://" in endpoint.split("?", maxsplit=1)[0] or endpoint.startswith("//"):
        return "a path below the provider's base_url, not a URL of its own"
    return placeholders.text_problem(endpoint)


def call_url(base_url: str, endpoint: str) -> str:
    """Join base URL and endpoint with exactly one slash; a query may follow the base URL directly."""
    base = base_url.rstrip("/")
    if not endpoint:
        return base_url
    return base + endpoint if endpoint[0] in "/?" else f"{base}/{endpoint}"


def parse_date(text: str) -> date | None:
    """Return the date; None if the text is no date, or one that cannot be planned."""
    if not _DATE.fullmatch(text):
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if DATES_FROM <= day <= DATES_TO else None


def window_of(spec: BatchSpec, day: date) -> Window:
    """Return when the day's window begins and ends.

    A start that the clocks skip moves forward by as much as they do.
    """
    start_ms = _wall_ms(day, spec)
    length_ms = _ms(spec.window)
    if length_ms == DAY_MS:
        return Window(start_ms, _wall_ms(day + timedelta(days=1), spec))
    return Window(start_ms, start_ms + length_ms)


def day_at(spec: BatchSpec, now_ms: int) -> date:
    """Return the date whose window began last."""
    day = to_datetime(now_ms).astimezone(ZoneInfo(spec.timezone)).date()
    return day if window_of(spec, day).start_ms <= now_ms else day - timedelta(days=1)


def _wall_ms(day: date, spec: BatchSpec) -> int:
    match = _START.fullmatch(spec.start)
    assert match is not None
    wall = time(int(match[1]), int(match[2]), int(match[3] or 0))
    return to_ms(datetime.combine(day, wall, tzinfo=ZoneInfo(spec.timezone)))


def _batch_problems(spec: BatchSpec) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if not _START.fullmatch(spec.start):
        problems.append(FieldProblem("/start", 'a time of day from "00:00" to "23:59"'))
    problems += duration_problems("/window", spec.window, ms_min=WINDOW_MS_MIN, ms_max=DAY_MS)
    problems += duration_problems("/jitter", spec.jitter, ms_min=0, ms_max=DAY_MS)
    if not problems and _ms(spec.jitter) > _ms(spec.window):
        problems.append(FieldProblem("/jitter", "must not be longer than the window"))
    if detail := timezone_problem(spec.timezone):
        problems.append(FieldProblem("/timezone", detail))
    if len(spec.channels) > CHANNELS_MAX:
        problems.append(FieldProblem("/channels", f"at most {CHANNELS_MAX} channels"))
    named = (id_problem(name, f"/channels/{index}") for index, name in enumerate(spec.channels[:CHANNELS_MAX]))
    return [*problems, *(problem for problem in named if problem is not None)]


def _ms(text: str) -> int:
    ms = parse_duration_ms(text)
    assert ms is not None
    return ms

"""Measurements as RIPE's own clients know them: ids, statuses, the measurement object, and translated results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, assert_never

import msgspec

from paceline.core.instants import to_datetime, to_ms
from paceline.core.jobs.atlas import RUNNING
from paceline.core.jobs.cost import DAY_S, credits_per_result
from paceline.core.jobs.job import Job, JobLimits
from paceline.core.jobs.measurement import Measurement, MeasurementState, is_oneoff, kind_of, requested_probes, span_s
from paceline.errors import FieldProblem, InvalidInput

INDEX_BITS = 14
DEFINITION_BITS = 7
ID_MAX = 2**53 - 1
"""Largest older id: larger numbers do not survive in every client's JSON."""
SHORT_ID_MAX = 2**31 - 1
"""Largest newer id: clients keep ids in 32 bits with a sign."""
RIPE_ALONE_MAX = 2**21
"""Lower bound of Paceline's ids. RIPE's built-in measurements lie below it."""
OLDER_BELOW = 100
"""Bound of the last seven bits of an older id: a measurement has no more definitions. Newer ids use the rest."""
_EACH = (1 << DEFINITION_BITS) - OLDER_BELOW
_SKIPPED = RIPE_ALONE_MAX // (1 << DEFINITION_BITS) * _EACH
NUMBERS_MAX = (SHORT_ID_MAX + 1) // (1 << DEFINITION_BITS) * _EACH - _SKIPPED
"""Number of definitions that have distinct ids below 2^31: 469 million."""
API = "/api/v2"
SPECIFIED, STOPPED, NO_PROBES, FAILED, CANCELED = 0, 4, 6, 7, 9
STATUS_NAMES = {
    SPECIFIED: "Specified",
    1: "Scheduled",
    2: "Ongoing",
    STOPPED: "Stopped",
    5: "Forced to stop",
    NO_PROBES: "No suitable probes",
    FAILED: "Failed",
    8: "Archived",
    CANCELED: "Canceled",
}
_FAILURES = frozenset({5, NO_PROBES, FAILED, 8})

assert JobLimits().definitions_max <= OLDER_BELOW


class Shown(NamedTuple):
    """One definition of a stored measurement: RIPE counts each definition as a measurement."""

    handle: int
    definition: int
    measurement: Measurement
    state: MeasurementState
    atlas_status: int | None
    """Newest status from RIPE; None before there is one."""
    answered_ms: int | None
    """Time at which RIPE took it."""
    ended_ms: int | None
    number: int | None = None
    """Number of the measurement's first definition. None: stored before definitions were numbered."""
    running: bool = False
    """True if it has ended here because all results are there, while RIPE still counts it as running."""
    scheduled: int | None = None
    """Number of probes that RIPE has assigned; None before it has."""

    @property
    def id(self) -> int:
        return id_of(self.handle, self.definition, number=self.number)

    @property
    def group_id(self) -> int | None:
        """Return the id of the group of definitions of one request; None for a single definition."""
        return id_of(self.handle, 0, number=self.number) if len(self.measurement.definitions) > 1 else None

    @property
    def status(self) -> int:
        if self.running and self.state == "done" and self.atlas_status in RUNNING:
            return self.atlas_status or SPECIFIED
        return status_of(self.state, self.atlas_status, sent=self.answered_ms is not None)

    @property
    def rank(self) -> int:
        """Return the rank by order of submission, independent of the id's form."""
        return older_id(self.handle, self.definition)


def stride_of(job: Job) -> int:
    """Return how many numbers each measurement of a job has, so that an index leads to a number without adding up."""
    return max(len(one.definitions) for one in job.measurements)


def place_in_block(number: int, job: int, numbered: int, stride: int, measurements: int) -> tuple[int, int] | None:
    """Return handle and definition of a number in a job's block; None if it lies outside the block."""
    index, definition = divmod(number - numbered, stride)
    return (job << INDEX_BITS | index, definition) if 0 <= index < measurements else None


def id_of(handle: int, definition: int, *, number: int | None) -> int:
    """Return the id, from the number of the measurement's first definition; without a number it is an older id."""
    return older_id(handle, definition) if number is None else id_of_number(number + definition)


def id_of_number(number: int) -> int:
    """Return the id of a number.

    It rises with the number, stays below 2^31, and is never an older id: its last seven bits are 100 or more.
    """
    assert 0 <= number < NUMBERS_MAX, "more definitions than ids below 2^31"
    high, low = divmod(number + _SKIPPED, _EACH)
    return high << DEFINITION_BITS | (OLDER_BELOW + low)


def number_of_id(id_: int) -> int | None:
    """Return the number of an id; None: it is an older id, or none of Paceline's."""
    high, low = id_ >> DEFINITION_BITS, id_ & ((1 << DEFINITION_BITS) - 1)
    number = high * _EACH + (low - OLDER_BELOW) - _SKIPPED
    return number if low >= OLDER_BELOW and 0 <= number < NUMBERS_MAX else None


def older_id(handle: int, definition: int) -> int:
    """Return job number << 21 | index << 7 | definition, as the handle is job number << 14 | index."""
    assert 0 <= definition < OLDER_BELOW
    return handle << DEFINITION_BITS | definition


def split_older_id(id_: int) -> tuple[int, int]:
    """Return handle and definition. Only the store knows whether they exist."""
    return id_ >> DEFINITION_BITS, id_ & ((1 << DEFINITION_BITS) - 1)


def status_of(state: MeasurementState, atlas_status: int | None, *, sent: bool) -> int:
    """Return RIPE's status for a state: "Specified" before RIPE has it, and after its end the result here."""
    match state:
        case "queued" | "parked" | "sending" | "unknown":
            return SPECIFIED
        case "ongoing":
            return SPECIFIED if atlas_status is None else atlas_status
        case "done":
            return STOPPED
        case "failed":
            return atlas_status if atlas_status in _FAILURES else FAILED
        case "cancelled":
            return STOPPED if sent else CANCELED
        case _:
            assert_never(state)


def states_for(statuses: frozenset[int] | None) -> tuple[MeasurementState, ...]:
    """Return the states that can have one of the statuses; empty: all of them. A first filter only."""
    if statuses is None:
        return ()
    states: list[MeasurementState] = ["ongoing"]
    if SPECIFIED in statuses:
        states += ["queued", "parked", "sending", "unknown"]
    if STOPPED in statuses:
        states.append("done")
    if statuses & {STOPPED, CANCELED}:
        states.append("cancelled")
    if statuses & _FAILURES:
        states.append("failed")
    return tuple(states)


def document_of(shown: Shown, *, created_ms: int | None, base_url: str) -> dict[str, Any]:
    """Return the measurement object. Fields that only RIPE knows (resolved addresses) are null."""
    measurement = shown.measurement
    definition = measurement.definitions[shown.definition]
    oneoff = is_oneoff(measurement, definition)
    probes = requested_probes(measurement)
    start, stop = span_s(measurement, definition)
    url = f"{base_url}{API}/measurements"
    since_ms = shown.ended_ms or shown.answered_ms
    own: dict[str, Any] = msgspec.to_builtins(definition)
    return (
        measurement.extra.get(f"/definitions/{shown.definition}", {})
        | own
        | {
            "id": shown.id,
            "type": kind_of(definition),
            "target": definition.target,
            "target_ip": None,
            "target_asn": None,
            "target_prefix": None,
            "resolved_ips": None,
            "tags": list(definition.tags or ()),
            "is_oneoff": oneoff,
            "is_public": definition.is_public is not False,
            "interval": definition.interval,
            "spread": definition.spread,
            "resolve_on_probe": bool(definition.resolve_on_probe),
            "status": {
                "id": shown.status,
                "name": STATUS_NAMES.get(shown.status, "Unknown"),
                "when": None if since_ms is None else _stamp(since_ms),
            },
            "creation_time": _seconds(created_ms),
            "start_time": _seconds(shown.answered_ms or created_ms) if start is None else start,
            "stop_time": _seconds(shown.ended_ms) if shown.ended_ms is not None else stop,
            "probes_requested": probes,
            "probes_scheduled": shown.scheduled or 0,
            "participant_count": shown.scheduled,
            "is_all_scheduled": shown.scheduled is not None and shown.scheduled >= probes,
            "credits_per_result": credits_per_result(measurement, definition),
            "estimated_results_per_day": probes if oneoff else probes * -(-DAY_S // (definition.interval or DAY_S)),
            "group": f"{url}/groups/{shown.group_id}/" if shown.group_id else None,
            "group_id": shown.group_id,
            "result": f"{url}/{shown.id}/results/",
        }
    )


def with_probes(document: dict[str, Any], probes: Sequence[int], *, base_url: str) -> dict[str, Any]:
    """Return the document with the field ``probes``, which RIPE adds on request."""
    return document | {"probes": [{"id": one, "url": f"{base_url}{API}/probes/{one}/"} for one in probes]}


class ResultFilter(NamedTuple):
    """Filter of results by time, both ends included, and by probe. ``probes`` None: all."""

    start_s: int | None = None
    stop_s: int | None = None
    probes: frozenset[int] | None = None


def parse_result_filter(query: Mapping[str, str], *, now_ms: int) -> ResultFilter:
    start, stop = (_instant_s(query, name) for name in ("start", "stop"))
    if days := number_in(query, "lookback_days", default=0, most=16_384):
        start = max(start or 0, now_ms // 1_000 - days * DAY_S)
    text = query.get("probe_ids", "")
    probes = frozenset(parse_number(part, "probe_ids") for part in text.split(",")) if text else None
    return ResultFilter(start, stop, probes)


class _Result(msgspec.Struct):
    prb_id: int = 0
    timestamp: int = 0


_RESULT = msgspec.json.Decoder(_Result)
_ANY = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


def result_translator(shown: Shown, wanted: ResultFilter) -> Callable[[bytes], tuple[int, bytes] | None]:
    """Return a function from a line of RIPE's to the probe and the same result under Paceline's id.

    It returns None for a result that was not asked for.
    """

    def translate(line: bytes) -> tuple[int, bytes] | None:
        key = _RESULT.decode(line)
        if wanted.probes is not None and key.prb_id not in wanted.probes:
            return None
        if wanted.start_s is not None and key.timestamp < wanted.start_s:
            return None
        if wanted.stop_s is not None and key.timestamp > wanted.stop_s:
            return None
        result = _ANY.decode(line)
        result["msm_id"] = shown.id
        if "group_id" in result:
            result["group_id"] = shown.group_id or shown.id
        return key.prb_id, _encode(result)

    return translate


def number_in(query: Mapping[str, str], name: str, *, default: int, most: int) -> int:
    if name not in query:
        return default
    number = parse_number(query[name], name)
    if number > most:
        raise wrong_parameter(name, f"Ensure this value is less than or equal to {most}.")
    return number


def parse_number(text: str, name: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 16):
        raise wrong_parameter(name, "A valid integer is required.")
    return int(stripped)


def wrong_parameter(name: str, detail: str) -> InvalidInput:
    return InvalidInput.of(FieldProblem(f"/query/{name}", detail))


def _instant_s(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return parse_number(text, name)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong_parameter(name, "Seconds since 1970, or ISO 8601 such as 2026-11-15T08:00:00Z.") from None
    return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC)) // 1_000


def _seconds(ms: int | None) -> int | None:
    return None if ms is None else ms // 1_000


def _stamp(ms: int) -> str:
    return to_datetime(ms // 1_000 * 1_000).strftime("%Y-%m-%dT%H:%M:%S")

"""Parsed answers of RIPE Atlas to reads: only the fields that are used; fields that RIPE may leave out are optional."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from paceline.core.jobs.atlas import marker_tag, parse_marker_prefix, site_tag
from paceline.core.jobs.atlas_replies import ListedMeasurement

Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""RIPE writes some whole numbers as "2640.0"."""
Figure = Annotated[float, Meta(ge=0, le=1e15)]
Count = Annotated[int, Meta(ge=0)]


class StatusDocument(msgspec.Struct):
    id: int


class MeasurementDocument(msgspec.Struct):
    id: Annotated[int, Meta(ge=1)]
    status: StatusDocument
    description: str | None = None
    tags: list[Any] | None = None
    stop_time: Number | None = None
    probes_scheduled: Number | None = None
    credits_per_result: Number | None = None
    estimated_results_per_day: Number | None = None


class MeasurementsDocument(msgspec.Struct):
    count: Count
    results: list[MeasurementDocument]
    next: str | None = None
    warnings: Any = None


class CreditsDocument(msgspec.Struct):
    current_balance: Number
    past_day_credits_spent: Figure
    past_day_measurement_results: Figure
    max_daily_credits: Number | None = None


class GrantDocument(msgspec.Struct):
    permission: str
    target: Any = None


class KeyDocument(msgspec.Struct):
    uuid: str
    grants: list[GrantDocument] = []


class KeysDocument(msgspec.Struct):
    results: list[KeyDocument]


class ProbesDocument(msgspec.Struct):
    """Probes as RIPE describes them, passed on unchanged."""

    results: list[dict[str, Any]]


class ParticipantDocument(msgspec.Struct):
    id: int


class ParticipantsDocument(msgspec.Struct):
    """The probes of a measurement; RIPE sends null, or leaves the field out, while there are none."""

    probes: list[ParticipantDocument] | None = None


PAGE = msgspec.json.Decoder(MeasurementsDocument)
CREDITS = msgspec.json.Decoder(CreditsDocument)
KEYS = msgspec.json.Decoder(KeysDocument)
PROBES = msgspec.json.Decoder(ProbesDocument)
PARTICIPANTS = msgspec.json.Decoder(ParticipantsDocument)


def listed_of(row: MeasurementDocument) -> ListedMeasurement:
    return ListedMeasurement(
        id=row.id,
        status=row.status.id,
        description=row.description or "",
        tags=_tags(row),
        stop_s=_whole(row.stop_time),
        scheduled=_whole(row.probes_scheduled),
        credits_per_result=_whole(row.credits_per_result),
        results_per_day=_whole(row.estimated_results_per_day),
    )


def carries(row: MeasurementDocument, tag: str) -> bool:
    """Return True if the row has this mark as a tag or in its description.

    Needed because RIPE lists everything if it ignores a filter.
    """
    if tag in _tags(row):
        return True
    marker = parse_marker_prefix(row.description or "")
    return marker is not None and tag in (marker_tag(marker), site_tag(marker.site))


def filter_problem(page: MeasurementsDocument, parameter: str) -> str:
    """Return an error if RIPE ignored a filter, which it only mentions among its warnings; empty if it did not."""
    warnings = page.warnings if isinstance(page.warnings, list) else []
    for one in warnings:
        source = one.get("source") if isinstance(one, dict) else None
        if isinstance(source, dict) and source.get("parameter") == parameter:
            return f"RIPE ignored the filter {parameter}"
    return ""


def grants_of(keys: KeysDocument, secret: str) -> frozenset[str] | None:
    """Return the permissions that this key has without a target; None if the key is not in the list."""
    for one in keys.results:
        if one.uuid.lower() == secret.lower():
            return frozenset(grant.permission for grant in one.grants if grant.target is None)
    return None


def _tags(row: MeasurementDocument) -> tuple[str, ...]:
    return tuple(tag for tag in row.tags or () if isinstance(tag, str))


def _whole(number: Number | None) -> int | None:
    return None if number is None else int(number)

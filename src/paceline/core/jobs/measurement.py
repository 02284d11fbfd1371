"""A job of RIPE Atlas measurements as its user declared it: parsed once, here; past this point the types are trusted.

queued ──► sending ──► ongoing ──► done | failed        terminal: recorded once, never changed
  ▲  │        │
  │  │        ├──► unknown ──► ongoing | queued         the reply was lost: looked up before anything is sent again
  │  │        └──► parked | failed                      refused for now, or for good
  │  └──► cancelled                                     possible in every state that is not terminal
  └─ parked                                             its target is full or no account has room; it has its next try
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MeasurementState = Literal["queued", "parked", "sending", "unknown", "ongoing", "done", "failed", "cancelled"]
INTERVALS_S = {"ping": 240, "traceroute": 900, "dns": 240, "sslcert": 900, "ntp": 1_800, "http": 1_800}
"""Intervals for periodic definitions that name none: the price must not depend on a default of RIPE's."""

Text = Annotated[str, Meta(max_length=1_024)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Tag = Annotated[str, Meta(min_length=1, max_length=64)]
Tags = Annotated[tuple[Tag, ...], Meta(max_length=32)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Packets = Annotated[int, Meta(ge=1, le=16)]
Bytes = Annotated[int, Meta(ge=0, le=2_048)]
Hop = Annotated[int, Meta(ge=1, le=255)]
Timeout = Annotated[int, Meta(ge=1, le=60_000)]
Days = Annotated[int, Meta(ge=0, le=366)]
Instant = Annotated[int, Meta(ge=0, le=4_102_444_800)] | Annotated[str, Meta(max_length=40)] | None


class Definition(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """Fields that every type has. None means "not given", which clients also write as null."""

    description: Text
    af: Literal[4, 6]
    interval: Annotated[int, Meta(ge=60, le=31_622_400)] | None = None
    spread: Annotated[int, Meta(ge=1, le=400)] | None = None
    is_oneoff: bool | None = None
    start_time: Instant = None
    stop_time: Instant = None
    is_public: bool | None = None
    resolve_on_probe: bool | None = None
    skip_dns_check: bool | None = None
    tags: Tags | None = None
    group_id: int | None = None
    auto_topup: bool | None = None
    auto_topup_prb_days_off: Days | None = None
    auto_topup_prb_similarity: Annotated[float, Meta(ge=0, le=1)] | None = None
    target_update_hours: Annotated[int, Meta(ge=0, le=8_784)] | None = None
    aggregator_client_id: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class Ping(Definition, frozen=True, kw_only=True, tag="ping"):
    target: Name
    packets: Packets | None = None
    size: Annotated[int, Meta(ge=1, le=2_048)] | None = None
    packet_size: Annotated[int, Meta(ge=1, le=2_048)] | None = None
    packet_interval: Annotated[int, Meta(ge=2, le=300_000)] | None = None
    include_probe_id: bool | None = None


class Traceroute(Definition, frozen=True, kw_only=True, tag="traceroute"):
    target: Name
    protocol: Literal["ICMP", "UDP", "TCP"]
    packets: Packets | None = None
    size: Bytes | None = None
    packet_size: Bytes | None = None
    paris: Annotated[int, Meta(ge=0, le=64)] | None = None
    first_hop: Hop | None = None
    max_hops: Hop | None = None
    port: Port | None = None
    response_timeout: Timeout | None = None
    duplicate_timeout: Timeout | None = None
    dont_fragment: bool | None = None
    destination_option_size: Bytes | None = None
    hop_by_hop_option_size: Bytes | None = None


class Dns(Definition, frozen=True, kw_only=True, tag="dns"):
    query_class: Literal["IN", "CHAOS"]
    query_type: Annotated[str, Meta(pattern="^[A-Z0-9-]{1,16}$")]
    query_argument: Name
    target: Name | None = None
    use_probe_resolver: bool | None = None
    protocol: Literal["UDP", "TCP"] | None = None
    port: Port | None = None
    tls: bool | None = None
    set_rd_bit: bool | None = None
    set_do_bit: bool | None = None
    set_cd_bit: bool | None = None
    set_nsid_bit: bool | None = None
    udp_payload_size: Annotated[int, Meta(ge=512, le=4_096)] | None = None
    retry: Annotated[int, Meta(ge=0, le=10)] | None = None
    timeout: Timeout | None = None
    include_qbuf: bool | None = None
    include_abuf: bool | None = None
    prepend_probe_id: bool | None = None
    use_macros: bool | None = None
    default_client_subnet: bool | None = None
    cookies: bool | None = None


class Sslcert(Definition, frozen=True, kw_only=True, tag="sslcert"):
    target: Name
    port: Port | None = None
    hostname: Name | None = None


class Ntp(Definition, frozen=True, kw_only=True, tag="ntp"):
    target: Name
    packets: Packets | None = None
    timeout: Timeout | None = None


class Http(Definition, frozen=True, kw_only=True, tag="http"):
    target: Name
    method: Literal["HEAD", "GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] | None = None
    path: Text | None = None
    query_string: Text | None = None
    port: Port | None = None
    header_bytes: Bytes | None = None
    version: Literal["1.0", "1.1"] | None = None
    user_agent: Text | None = None
    extended_timing: bool | None = None
    more_extended_timing: bool | None = None
    max_bytes_read: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None


AnyDefinition = Ping | Traceroute | Dns | Sslcert | Ntp | Http
KINDS: dict[str, type[AnyDefinition]] = {
    "ping": Ping,
    "traceroute": Traceroute,
    "dns": Dns,
    "sslcert": Sslcert,
    "ntp": Ntp,
    "http": Http,
}


class ProbeTags(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    include: Tags | None = None
    exclude: Tags | None = None


class Probes(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A group of probes that take part in a measurement: how many, and how they are chosen."""

    requested: int
    type: Literal["area", "country", "asn", "prefix", "probes", "msm", "region", "countries"]
    value: int | Annotated[str, Meta(min_length=1, max_length=8_192)]
    tags: ProbeTags | None = None


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A measurement with every field valid.

    Times are whole seconds since 1970, ``packet_size`` is stored as ``size``, and intervals are written out.
    """

    definitions: tuple[AnyDefinition, ...]
    probes: tuple[Probes, ...]
    is_oneoff: bool | None = None
    start_time: int | None = None
    stop_time: int | None = None
    extra: dict[str, dict[str, Any]] = {}
    """Fields that Paceline does not know and passes on, by the pointer of the object that they belong to."""


_STORED = msgspec.json.Decoder(Measurement)
_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode_measurement(measurement: Measurement) -> bytes:
    """Return the canonical form: equal fields give equal bytes, whatever their order was, and there are no nulls."""
    return _ENCODER.encode(measurement)


def parse_stored_measurement(text: str | bytes) -> Measurement:
    """Return a measurement that was valid when it was stored; limits may have changed since and do not apply."""
    return _STORED.decode(text)


def kind_of(definition: AnyDefinition) -> str:
    return str(definition.__struct_config__.tag)


def kinds_of(measurement: Measurement) -> frozenset[str]:
    """Return the types of its definitions."""
    return frozenset(kind_of(one) for one in measurement.definitions)


def is_oneoff(measurement: Measurement, definition: AnyDefinition) -> bool:
    own = definition.is_oneoff
    return bool(measurement.is_oneoff if own is None else own)


def span_s(measurement: Measurement, definition: AnyDefinition) -> tuple[int | None, int | None]:
    """Return start and stop of a definition: its own, else the request's."""
    start = measurement.start_time if definition.start_time is None else definition.start_time
    stop = measurement.stop_time if definition.stop_time is None else definition.stop_time
    assert not isinstance(start, str)
    assert not isinstance(stop, str)
    return start, stop


def requested_probes(measurement: Measurement) -> int:
    return sum(source.requested for source in measurement.probes)


def targets_of(measurement: Measurement) -> frozenset[str]:
    """Return the targets, in the form in which RIPE's cap per target is counted."""
    return frozenset(d.target.lower().rstrip(".") for d in measurement.definitions if d.target is not None)


def stops_ms(measurement: Measurement) -> int | None:
    """Return the first stop time of its definitions, after which it can no longer be sent; None: there is none."""
    stops = [span_s(measurement, definition)[1] for definition in measurement.definitions]
    return min((stop * 1000 for stop in stops if stop is not None), default=None)


def is_overdue(measurement: Measurement, *, now_ms: int) -> bool:
    """Return whether a definition's stop time has passed, so that the measurement can no longer be sent."""
    stop_ms = stops_ms(measurement)
    return stop_ms is not None and stop_ms <= now_ms

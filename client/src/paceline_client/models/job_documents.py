"""Jobs as documents to submit. Fields of a measurement are those of RIPE Atlas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict


class _Definition(TypedDict):
    description: str
    af: Literal[4, 6]
    interval: NotRequired[int | None]
    spread: NotRequired[int | None]
    is_oneoff: NotRequired[bool | None]
    start_time: NotRequired[int | str | None]
    stop_time: NotRequired[int | str | None]
    is_public: NotRequired[bool | None]
    resolve_on_probe: NotRequired[bool | None]
    skip_dns_check: NotRequired[bool | None]
    tags: NotRequired[Sequence[str] | None]
    group_id: NotRequired[int | None]
    auto_topup: NotRequired[bool | None]
    auto_topup_prb_days_off: NotRequired[int | None]
    auto_topup_prb_similarity: NotRequired[float | None]
    target_update_hours: NotRequired[int | None]
    aggregator_client_id: NotRequired[str | None]


class Ping(_Definition):
    """A ping."""

    type: Literal["ping"]
    target: str
    packets: NotRequired[int | None]
    size: NotRequired[int | None]
    packet_size: NotRequired[int | None]
    packet_interval: NotRequired[int | None]
    include_probe_id: NotRequired[bool | None]


class Traceroute(_Definition):
    """A traceroute."""

    type: Literal["traceroute"]
    target: str
    protocol: Literal["ICMP", "TCP", "UDP"]
    packets: NotRequired[int | None]
    size: NotRequired[int | None]
    packet_size: NotRequired[int | None]
    paris: NotRequired[int | None]
    first_hop: NotRequired[int | None]
    max_hops: NotRequired[int | None]
    port: NotRequired[int | None]
    response_timeout: NotRequired[int | None]
    duplicate_timeout: NotRequired[int | None]
    dont_fragment: NotRequired[bool | None]
    destination_option_size: NotRequired[int | None]
    hop_by_hop_option_size: NotRequired[int | None]


class Dns(_Definition):
    """A DNS query."""

    type: Literal["dns"]
    query_class: Literal["CHAOS", "IN"]
    query_type: str
    query_argument: str
    target: NotRequired[str | None]
    use_probe_resolver: NotRequired[bool | None]
    protocol: NotRequired[Literal["TCP", "UDP"] | None]
    port: NotRequired[int | None]
    tls: NotRequired[bool | None]
    set_rd_bit: NotRequired[bool | None]
    set_do_bit: NotRequired[bool | None]
    set_cd_bit: NotRequired[bool | None]
    set_nsid_bit: NotRequired[bool | None]
    udp_payload_size: NotRequired[int | None]
    retry: NotRequired[int | None]
    timeout: NotRequired[int | None]
    include_qbuf: NotRequired[bool | None]
    include_abuf: NotRequired[bool | None]
    prepend_probe_id: NotRequired[bool | None]
    use_macros: NotRequired[bool | None]
    default_client_subnet: NotRequired[bool | None]
    cookies: NotRequired[bool | None]


class Sslcert(_Definition):
    """A TLS certificate."""

    type: Literal["sslcert"]
    target: str
    port: NotRequired[int | None]
    hostname: NotRequired[str | None]


class Ntp(_Definition):
    """An NTP query."""

    type: Literal["ntp"]
    target: str
    packets: NotRequired[int | None]
    timeout: NotRequired[int | None]


class Http(_Definition):
    """An HTTP request, to an anchor."""

    type: Literal["http"]
    target: str
    method: NotRequired[Literal["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"] | None]
    path: NotRequired[str | None]
    query_string: NotRequired[str | None]
    port: NotRequired[int | None]
    header_bytes: NotRequired[int | None]
    version: NotRequired[Literal["1.0", "1.1"] | None]
    user_agent: NotRequired[str | None]
    extended_timing: NotRequired[bool | None]
    more_extended_timing: NotRequired[bool | None]
    max_bytes_read: NotRequired[int | None]


Definition: TypeAlias = Ping | Traceroute | Dns | Sslcert | Ntp | Http


class ProbeTags(TypedDict, total=False):
    """Probes with all tags of ``include`` and none of ``exclude``."""

    include: Sequence[str] | None
    exclude: Sequence[str] | None


class Probes(TypedDict):
    """A group of probes that take part in a measurement: how many, and how they are chosen."""

    requested: int
    type: Literal["area", "asn", "countries", "country", "msm", "prefix", "probes", "region"]
    value: int | str
    tags: NotRequired[ProbeTags | None]


class MeasurementDocument(TypedDict):
    """One request to RIPE. Each definition becomes a measurement there, and all of them use the same probes."""

    definitions: Sequence[Definition]
    probes: Sequence[Probes]
    is_oneoff: NotRequired[bool | None]
    start_time: NotRequired[int | str | None]
    stop_time: NotRequired[int | str | None]
    bill_to: NotRequired[str | None]


class JobDocument(TypedDict):
    """A job to submit. ``webhook``: URL that gets a signed call when the job has finished."""

    measurements: Sequence[MeasurementDocument]
    title: NotRequired[str]
    webhook: NotRequired[str | None]

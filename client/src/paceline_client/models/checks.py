"""Checks of monitors, as documents: what is put is what is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict

from paceline_client.durations import DurationLike


class HttpExpect(TypedDict, total=False):
    """What a good answer is."""

    status: Sequence[int] | None
    body_contains: str | None
    body_lacks: str | None
    headers: Mapping[str, str]


class HttpCheck(TypedDict):
    """A request to a web address. Values of ``headers``, and ``body``, are shown as ``***``; put back, they stay."""

    kind: Literal["http"]
    url: str
    method: NotRequired[Literal["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]]
    headers: NotRequired[Mapping[str, str]]
    body: NotRequired[str | None]
    expect: NotRequired[HttpExpect]
    timeout: NotRequired[DurationLike]
    verify_tls: NotRequired[bool]
    follow_redirects: NotRequired[int]
    max_bytes: NotRequired[int]


class TcpCheck(TypedDict):
    """A connection to a port."""

    kind: Literal["tcp"]
    host: str
    port: int
    timeout: NotRequired[DurationLike]


class DnsExpect(TypedDict, total=False):
    """What the answer must contain."""

    contains: Sequence[str]


class DnsCheck(TypedDict):
    """A question to a name server."""

    kind: Literal["dns"]
    name: str
    type: NotRequired[Literal["A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"]]
    server: NotRequired[str | None]
    port: NotRequired[int]
    expect: NotRequired[DnsExpect]
    timeout: NotRequired[DurationLike]


class TlsCheck(TypedDict):
    """A certificate and the days that are left of it."""

    kind: Literal["tls"]
    host: str
    port: NotRequired[int]
    server_name: NotRequired[str | None]
    min_days: NotRequired[int]
    timeout: NotRequired[DurationLike]


class OutgoingCheck(TypedDict):
    """Work for a checker of your own. Whatever else stands in it is handed over as it is."""

    kind: Literal["outgoing"]


CheckDocument: TypeAlias = HttpCheck | TcpCheck | DnsCheck | TlsCheck | OutgoingCheck
CheckLike: TypeAlias = CheckDocument | Mapping[str, Any]
"""What is taken for a check: also a document that no type knows, such as an outgoing one with fields of your own."""

if TYPE_CHECKING:
    Check: TypeAlias = CheckDocument
else:
    # Read as it is: msgspec reads no union of documents, and a kind of a newer service must not break a read.
    Check = dict[str, Any]

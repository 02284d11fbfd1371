"""Checks of monitors, as documents: the same when they are put and when they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict

from paceline_client.durations import DurationLike


class HeaderExpect(TypedDict, total=False):
    """Text that a header's value must contain, or a pattern that it must match. Exactly one of the two is given."""

    contains: str | None
    matches: str | None


JsonExpect = TypedDict(
    "JsonExpect",
    {
        "pointer": str,
        "is": NotRequired[Any],
        "matches": NotRequired[str | None],
        "at_least": NotRequired[float | None],
        "at_most": NotRequired[float | None],
    },
)
"""Conditions on the value at one place in a JSON answer. At least one is given, and all given ones must hold."""


class HttpExpect(TypedDict, total=False):
    """Conditions that a good answer meets. Without ``status``, any 2xx is good.

    ``headers`` is the older form of ``header`` with ``contains``.
    """

    status: Sequence[int | str] | None
    body_contains: str | None
    body_lacks: str | None
    body_matches: str | None
    json: Sequence[JsonExpect]
    header: Mapping[str, str | HeaderExpect]
    headers: Mapping[str, str]
    latency_max: DurationLike | None
    days_left: int | None


class BasicAuth(TypedDict):
    """User name and password."""

    kind: Literal["basic"]
    username: str
    password: str


class BearerAuth(TypedDict):
    """A token."""

    kind: Literal["bearer"]
    token: str


class HttpCheck(TypedDict):
    """A request to a web address. Secrets are shown as ``***``; put back like that, they are kept.

    The values of ``headers`` and ``auth``, and ``body``, are secret.
    """

    kind: Literal["http"]
    url: str
    method: NotRequired[Literal["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]]
    headers: NotRequired[Mapping[str, str]]
    body: NotRequired[str | None]
    auth: NotRequired[BasicAuth | BearerAuth | None]
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
    """Expected answers. ``contains``: all of these, and maybe more. ``equals``: exactly these, in any order."""

    contains: Sequence[str]
    equals: Sequence[str]


class DnsCheck(TypedDict):
    """A query to a name server."""

    kind: Literal["dns"]
    name: str
    type: NotRequired[Literal["A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"]]
    server: NotRequired[str | None]
    port: NotRequired[int]
    expect: NotRequired[DnsExpect]
    timeout: NotRequired[DurationLike]


class TlsExpect(TypedDict, total=False):
    """Conditions on a certificate. ``days_left`` replaces the check's ``min_days`` if it is given."""

    days_left: int | None


class TlsCheck(TypedDict):
    """A certificate, and how many days it is still valid."""

    kind: Literal["tls"]
    host: str
    port: NotRequired[int]
    server_name: NotRequired[str | None]
    min_days: NotRequired[int]
    expect: NotRequired[TlsExpect]
    timeout: NotRequired[DurationLike]


class OutgoingCheck(TypedDict):
    """Work for your own checker. Further fields are passed on as they are."""

    kind: Literal["outgoing"]


CheckDocument: TypeAlias = HttpCheck | TcpCheck | DnsCheck | TlsCheck | OutgoingCheck
CheckLike: TypeAlias = CheckDocument | Mapping[str, Any]
"""Every form of a check, including a document of an unknown type, such as an outgoing one with your own fields."""

if TYPE_CHECKING:
    Check: TypeAlias = CheckDocument
else:
    # Read as it is: msgspec reads no union of documents, and a check kind of a newer service must not break it.
    Check = dict[str, Any]

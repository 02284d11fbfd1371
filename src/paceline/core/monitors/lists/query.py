"""Lists of monitors: the query, which monitors match, in which order they come, and where a page begins."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple, assert_never, get_args

import msgspec

from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.monitors.definition import TAG_CHARS_MAX, Monitor
from paceline.core.monitors.health import Health
from paceline.errors import FieldProblem, InvalidInput

Sort = Literal["id", "health", "next_due"]
Kind = Literal["http", "tcp", "dns", "tls", "outgoing"]
HEALTH_ORDER: tuple[tuple[Health, ...], ...] = (("failing",), ("late",), ("new", "ok", "paused"))
"""Order of a list sorted by health: monitors that need attention come first. The last group is one index."""
TEXT_CHARS_MAX = 100


class MonitorQuery(msgspec.Struct, frozen=True):
    """Query for a list of monitors. All given conditions must hold; None: no condition. ``owner`` None: everybody's."""

    owner: str | None = None
    tag: str | None = None
    health: Health | None = None
    kind: Kind | None = None
    q: str | None = None
    """Part of the id or of the address, in upper or lower case."""
    sort: Sort = "id"

    @property
    def scope(self) -> str:
        """Return the name of the list, for its cursors: a different one for each query."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=12).hexdigest()


class Mark(NamedTuple):
    """The last monitor of a page: the next page begins after it.

    ``phase``: by health, its group in HEALTH_ORDER; by due time, 1 for monitors that have none. ``due_ms`` and
    ``generation`` order monitors that have a due time, ``owner`` and ``id`` all others.
    """

    phase: int = 0
    due_ms: int = 0
    generation: int = 0
    owner: str = ""
    id: str = ""


START = Mark()
_MARK = msgspec.json.Decoder(Mark)


def write_mark(mark: Mark) -> str:
    return msgspec.json.encode(mark).decode()


def read_mark(text: str) -> Mark:
    """Return a mark that was written; raise InvalidInput for anything else."""
    try:
        mark = _MARK.decode(text) if text else START
    except msgspec.DecodeError:
        mark = Mark(phase=-1)
    if not 0 <= mark.phase < len(HEALTH_ORDER) or not (0 <= mark.due_ms < 1 << 60 and 0 <= mark.generation < 1 << 60):
        raise InvalidInput.of(FieldProblem("/query/cursor", "not a cursor of this list; begin again without one"))
    return mark


def parse_query(
    *,
    owner: str | None,
    tag: str | None = None,
    health: str | None = None,
    kind: str | None = None,
    q: str | None = None,
    sort: str | None = None,
) -> MonitorQuery:
    """Return a query from texts, or raise InvalidInput that names every wrong one. An empty text counts as none."""
    problems = [
        FieldProblem(f"/query/{name}", f"one of {', '.join(words)}")
        for name, value, words in (
            ("health", health, get_args(Health)),
            ("kind", kind, get_args(Kind)),
            ("sort", sort, get_args(Sort)),
        )
        if value and value not in words
    ]
    for name, text, chars_max in (("tag", tag, TAG_CHARS_MAX), ("q", q, TEXT_CHARS_MAX)):
        if text and len(text) > chars_max:
            problems.append(FieldProblem(f"/query/{name}", f"at most {chars_max} characters"))
    if problems:
        raise InvalidInput.of(*problems)
    given = {"tag": tag, "health": health, "kind": kind, "q": q, "sort": sort}
    return msgspec.convert({"owner": owner} | {name: text for name, text in given.items() if text}, MonitorQuery)


def matches(query: MonitorQuery, monitor: Monitor) -> bool:
    """Return whether the definition matches the query; health is not looked at."""
    spec = monitor.spec
    return (
        query.owner in (None, monitor.owner)
        and (query.tag is None or query.tag in spec.tags)
        and (query.kind is None or kind_of(spec.check) == query.kind)
        and (query.q is None or query.q.casefold() in search_text(monitor).casefold())
    )


def kind_of(check: Check) -> Kind:
    match check:
        case HttpCheck():
            return "http"
        case TcpCheck():
            return "tcp"
        case DnsCheck():
            return "dns"
        case TlsCheck():
            return "tls"
        case OutgoingCheck():
            return "outgoing"
        case never:
            assert_never(never)


def search_text(monitor: Monitor) -> str:
    """Return the text in which ``q`` is looked for: the id, and on a second line the address."""
    return f"{monitor.id}\n{address_of(monitor.spec.check)}"


def address_of(check: Check) -> str:
    """Return the URL, the host and port, or the name that a check is aimed at; empty for outgoing ones."""
    match check:
        case HttpCheck(url=url):
            return url
        case TcpCheck(host=host, port=port) | TlsCheck(host=host, port=port):
            return f"{host}:{port}"
        case DnsCheck(name=name):
            return name
        case OutgoingCheck():
            return ""
        case never:
            assert_never(never)


def trigrams(text: str) -> list[str]:
    """Return every three neighbouring characters of the text, each once, for a search in an index of texts."""
    folded = text.casefold()
    return list(dict.fromkeys(folded[start : start + 3] for start in range(len(folded) - 2)))


class Facet(NamedTuple):
    """One property that a store may keep an index of."""

    name: Literal["tag", "kind", "health"]
    value: str


FAILING = Facet("health", "failing")
"""Facet of monitors whose health record says that they fail; they may be paused or late as well."""


def facets_of(monitor: Monitor) -> list[Facet]:
    spec = monitor.spec
    return [Facet("kind", kind_of(spec.check)), *(Facet("tag", tag) for tag in dict.fromkeys(spec.tags))]


def wanted_facets(query: MonitorQuery) -> list[Facet]:
    """Return the facets of a query, the one that few monitors are likely to have first."""
    wanted = [Facet("tag", query.tag)] if query.tag is not None else []
    return [*wanted, Facet("kind", query.kind)] if query.kind is not None else wanted

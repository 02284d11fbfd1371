"""Lists as RIPE's clients ask for them: filters, order, fields and pages, parsed from a query string."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paceline.core.jobs.compatible.measurements import ID_MAX, STATUS_NAMES, number_in, parse_number, wrong_parameter

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 500
PAGED_MAX = 20_000
IDS_MAX = 1_000
PROBES = "probes"
PROBES_PAGE_MAX = 100
"""Page size limit if the probes of each measurement are asked for: that takes a request to RIPE for each."""
IGNORED = "Filtering by this field is not implemented, this parameter has been ignored."

Document = dict[str, Any]
Test = Callable[[Document], bool]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "": lambda value, other: bool(value == other),
    "lt": lambda value, other: bool(value < other),
    "lte": lambda value, other: bool(value <= other),
    "gt": lambda value, other: bool(value > other),
    "gte": lambda value, other: bool(value >= other),
}
_TEXTS: dict[str, Callable[[str, str], bool]] = {
    "": lambda value, text: value == text,
    "contains": lambda value, part: part.lower() in value.lower(),
    "startswith": lambda value, part: value.lower().startswith(part.lower()),
    "endswith": lambda value, part: value.lower().endswith(part.lower()),
}
_NUMBER_FIELDS = frozenset({"id", "af", "interval", "start_time", "stop_time", "group_id"})
_TEXT_FIELDS = frozenset({"description", "target", "type", "protocol"})
_FLAG_FIELDS = frozenset({"is_oneoff", "is_public"})
_SORTS: dict[str, Callable[[Document], Any]] = {
    "id": lambda document: document["id"],
    "start_time": lambda document: document["start_time"],
    "stop_time": lambda document: document["stop_time"],
    "is_oneoff": lambda document: document["is_oneoff"],
    "interval": lambda document: document["interval"],
    "type": lambda document: document["type"],
    "af": lambda document: document["af"],
    "status.id": lambda document: document["status"]["id"],
    "status.name": lambda document: document["status"]["name"],
}
_NOT_FILTERS = frozenset({"key", "continue", "fields", "optional_fields", "format", "format[datetime]"}) | frozenset(
    {"sort", "page", "page_size", "id", "id__in"}
)


class WantedFields(NamedTuple):
    """Fields of a measurement that are wanted. ``names`` empty: those that RIPE shows by default."""

    names: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def with_probes(self) -> bool:
        return PROBES in self.names or (not self.names and PROBES in self.optional)

    def cut(self, document: Document) -> Document:
        return {name: document[name] for name in self.names if name in document} if self.names else document


def parse_fields(query: Mapping[str, str]) -> WantedFields:
    names, optional = (
        tuple(part.strip() for part in query.get(name, "").split(",") if part.strip())
        for name in ("fields", "optional_fields")
    )
    return WantedFields((*names, *optional) if names else (), optional)


class ListRequest(NamedTuple):
    """Parsed request for a list. ``statuses`` None: any. ``ids`` None: no restriction to certain ids."""

    tests: tuple[Test, ...]
    ids: tuple[int, ...] | None
    statuses: frozenset[int] | None
    sort: str
    fields: WantedFields
    page: int
    size: int
    ignored: tuple[str, ...]
    timed: bool
    """True if a filter uses the start time."""

    @property
    def needs_creation(self) -> bool:
        """Return whether submission times are needed; a measurement that is not sent yet starts then."""
        return self.timed or self.sort.endswith("start_time")

    @property
    def is_plain(self) -> bool:
        """Return whether everything is wanted, newest first: the count is then known without looking at each."""
        return not self.tests and self.ids is None and self.sort == "-id"

    @property
    def begin(self) -> int:
        return (self.page - 1) * self.size

    def fits(self, document: Document) -> bool:
        return all(test(document) for test in self.tests)

    def order(self, document: Document, rank: int) -> tuple[bool, Any, int]:
        """Return a sort key: documents without the value come last. The order by id is the order of submission."""
        field = self.sort.removeprefix("-")
        value = rank if field == "id" else _SORTS[field](document)
        return value is None, value, rank


def parse_wanted(query: Mapping[str, str], *, only_type: str = "") -> ListRequest:
    """Return the parsed request, or raise InvalidInput for an invalid value.

    Unknown parameters are ignored, and named in ``ignored``.
    """
    tests: list[Test] = [lambda document: document["type"] == only_type] if only_type else []
    ignored: list[str] = []
    statuses: frozenset[int] | None = None
    for name, value in query.items():
        if name in _NOT_FILTERS:
            continue
        if name in ("status", "status__in"):
            asked = frozenset(_status(part, name) for part in value.split(","))
            statuses = asked if statuses is None else statuses & asked
        elif (test := _test(name, value)) is not None:
            tests.append(test)
        else:
            ignored.append(name[:64])
    if statuses is not None:
        tests.append(_status_test(statuses))
    sort = query.get("sort", "-id")
    if sort.removeprefix("-") not in _SORTS:
        raise wrong_parameter("sort", f"One of {', '.join(sorted(_SORTS))}, with - before it for the other way.")
    size = number_in(query, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
    page = number_in(query, "page", default=1, most=ID_MAX)
    if page < 1 or page * size > PAGED_MAX:
        raise wrong_parameter("page", f"From 1, and no further than {PAGED_MAX} results.")
    timed = any(name.startswith("start_time") for name in query)
    fields = parse_fields(query)
    if fields.with_probes and size > PROBES_PAGE_MAX:
        raise wrong_parameter("page_size", f"With probes at most {PROBES_PAGE_MAX} at a time.")
    return ListRequest(tuple(tests), _ids(query), statuses, sort, fields, page, size, tuple(ignored), timed)


def _ids(query: Mapping[str, str]) -> tuple[int, ...] | None:
    name = "id__in" if "id__in" in query else "id"
    if name not in query:
        return None
    ids = tuple(dict.fromkeys(parse_number(part, name) for part in query[name].split(",") if part.strip()))
    if len(ids) > IDS_MAX:
        raise wrong_parameter(name, f"At most {IDS_MAX} ids at a time.")
    return ids


def _test(name: str, value: str) -> Test | None:
    field, _, how = name.partition("__")
    if field in _NUMBER_FIELDS and how in _COMPARISONS:
        number, compare = parse_number(value, name), _COMPARISONS[how]
        return lambda document: document[field] is not None and compare(document[field], number)
    if field in _TEXT_FIELDS and how in _TEXTS:
        match = _TEXTS[how]
        return lambda document: match(document.get(field) or "", value)
    if name in _FLAG_FIELDS:
        flag = value.lower() in ("true", "1")
        return lambda document: document[name] is flag
    if name == "tags":
        tags = frozenset(part.strip() for part in value.split(","))
        return lambda document: tags.issubset(document["tags"])
    if name == "search":
        part = value.lower()
        return lambda document: part in f"{document['description']} {document['target'] or ''}".lower()
    return None


def _status_test(statuses: frozenset[int]) -> Test:
    return lambda document: document["status"]["id"] in statuses


_BY_NAME = {name.lower(): number for number, name in STATUS_NAMES.items()}


def _status(text: str, name: str) -> int:
    """Return the status for an id or a name, in any case."""
    stripped = text.strip().lower()
    if stripped in _BY_NAME:
        return _BY_NAME[stripped]
    if stripped.isascii() and stripped.isdigit() and len(stripped) <= 3:
        return int(stripped)
    raise wrong_parameter(name, f'"{stripped[:64]}" is not a valid choice.')

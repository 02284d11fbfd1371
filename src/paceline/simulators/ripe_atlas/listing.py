"""Lists of measurements: filters, order, fields and pages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from paceline.simulators.ripe_atlas.measurements import STATUS_NAMES, SimulatedMeasurement, address_of
from paceline.simulators.ripe_atlas.messages import AtlasRequest, ErrorAnswer, ErrorLine

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 500
PAGED_MAX = 20_000
NOT_IMPLEMENTED = "Filtering by this field is not implemented, this parameter has been ignored."

Test = Callable[[SimulatedMeasurement, int], bool]
Getter = Callable[[SimulatedMeasurement], Any]
Parse = Callable[[str], Any]

_NUMBER_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "": operator.eq,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
_TEXT_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "": operator.eq,
    "contains": lambda value, part: part in value,
    "startswith": lambda value, part: value.startswith(part),
    "endswith": lambda value, part: value.endswith(part),
}
_NUMBERS: dict[str, Getter] = {
    "id": lambda m: m.id,
    "start_time": lambda m: m.start_ms // 1_000,
    "stop_time": lambda m: None if m.finish_ms is None else m.finish_ms // 1_000,
    "interval": lambda m: None if m.is_oneoff else m.interval_s,
    "af": lambda m: m.definition["af"],
    "group_id": lambda m: m.group_id,
}
_TEXTS: dict[str, Getter] = {
    "description": lambda m: m.description,
    "target": lambda m: m.target,
    "target_ip": address_of,
    "type": lambda m: m.type,
    "protocol": lambda m: str(m.definition.get("protocol", "")),
}
_FLAGS: dict[str, Getter] = {"is_oneoff": lambda m: m.is_oneoff, "is_public": lambda m: m.is_public}
_SORTS: dict[str, Getter] = {name: _NUMBERS[name] for name in ("id", "start_time", "stop_time")}
_NOT_FILTERS = {"key", "fields", "optional_fields", "sort", "page", "page_size", "after", "format"}


class FoundMeasurements(NamedTuple):
    """The measurements that match the query, in order, and the parameters that were ignored."""

    found: list[SimulatedMeasurement]
    warnings: list[str]


class AskedPage(NamedTuple):
    number: int
    size: int
    after: int | None


def listed(measurements: Iterable[SimulatedMeasurement], request: AtlasRequest, *, at_ms: int) -> FoundMeasurements:
    tests: list[Test] = []
    ignored: list[str] = []
    for name, value in request.query.items():
        if name in _NOT_FILTERS:
            continue
        test = _test(name, value)
        if test is None:
            ignored.append(name)
        else:
            tests.append(test)
    found = [one for one in measurements if all(test(one, at_ms) for test in tests)]
    return FoundMeasurements(_sorted(found, request.query.get("sort", "-id")), ignored)


def wanted_ids(request: AtlasRequest) -> list[int] | None:
    """Return the ids if the query asks for certain ids, so that only these are read; else None."""
    text = request.query.get("id__in", request.query.get("id"))
    return None if text is None else [_number("id__in", part) for part in text.split(",") if part.strip()]


def page_of(request: AtlasRequest) -> AskedPage:
    size = _number("page_size", request.query.get("page_size", str(PAGE_SIZE_DEFAULT)))
    number = _number("page", request.query.get("page", "1"))
    after = _number("after", request.query["after"]) if "after" in request.query else None
    if size > PAGE_SIZE_MAX:
        raise _wrong("page_size", f"Ensure this value is less than or equal to {PAGE_SIZE_MAX}.")
    if number < 1:
        raise _wrong("page", "Invalid page.")
    if after is None and number * size > PAGED_MAX:
        raise _wrong("page", f"Results beyond {PAGED_MAX} are reached with the parameter after.")
    return AskedPage(number, size, after)


def paged(
    those: FoundMeasurements,
    request: AtlasRequest,
    page: AskedPage,
    show: Callable[[SimulatedMeasurement], dict[str, Any]],
) -> dict[str, Any]:
    """Return RIPE's envelope with one page of the list."""
    found = those.found
    if page.after is not None:
        place = next((index for index, one in enumerate(found) if one.id == page.after), len(found) - 1)
        begin = place + 1
    else:
        begin = (page.number - 1) * page.size
    shown = found[begin : begin + page.size]
    more = begin + page.size < len(found) and page.size > 0
    document: dict[str, Any] = {
        "count": len(found),
        "next": _neighbour(request, page, page.number + 1, after=shown[-1].id) if more and shown else None,
        "previous": _neighbour(request, page, page.number - 1, after=None)
        if page.after is None and page.number > 1
        else None,
        "results": [cut(show(one), request) for one in shown],
    }
    if those.warnings:
        document["warnings"] = [{"source": {"parameter": name}, "detail": [NOT_IMPLEMENTED]} for name in those.warnings]
    return document


def _neighbour(request: AtlasRequest, page: AskedPage, number: int, *, after: int | None) -> str:
    """Return the link to another page. A key that came in the query is left out of it."""
    query = {name: value for name, value in request.query.items() if name not in ("page", "after", "key")}
    if after is not None and (page.after is not None or number * page.size > PAGED_MAX):
        return request.url(request.path, **query, after=after)
    return request.url(request.path, **query, page=number)


def cut(document: dict[str, Any], request: AtlasRequest) -> dict[str, Any]:
    names = request.query.get("fields")
    if not names:
        return document
    return {name: document[name] for name in names.split(",") if name in document}


def _test(name: str, value: str) -> Test | None:
    field, _, how = name.partition("__")
    if field in _NUMBERS:
        return _number_test(name, _NUMBERS[field], how, value)
    if field in _TEXTS and how in _TEXT_OPERATORS:
        get, compare = _TEXTS[field], _TEXT_OPERATORS[how]
        return lambda m, _at: compare(get(m), value)
    if name in _FLAGS:
        flag, wanted = _FLAGS[name], value.lower() in ("true", "1")
        return lambda m, _at: flag(m) is wanted
    if field == "status" and how in ("", "in"):
        statuses = {_status(name, part) for part in value.split(",")}
        return lambda m, at: m.status_at(at).id in statuses
    if name == "tags":
        tags = {part.strip() for part in value.split(",")}
        return lambda m, _at: tags.issubset(m.tags)
    if name == "search":
        return lambda m, _at: value.lower() in f"{m.description} {m.target}".lower()
    return None


def _number_test(name: str, get: Getter, how: str, value: str) -> Test | None:
    if how == "in":
        wanted = {_number(name, part) for part in value.split(",") if part.strip()}
        return lambda m, _at: get(m) in wanted
    compare = _NUMBER_OPERATORS.get(how)
    if compare is None:
        return None
    number = _number(name, value)

    def test(measurement: SimulatedMeasurement, _at_ms: int) -> bool:
        own = get(measurement)
        return own is not None and compare(own, number)

    return test


def _sorted(found: Sequence[SimulatedMeasurement], sort: str) -> list[SimulatedMeasurement]:
    get = _SORTS.get(sort.removeprefix("-"))
    if get is None:
        raise _wrong("sort", f'"{sort}" is not a valid choice.')
    none_last = float("inf")
    return sorted(found, key=lambda m: (none_last if get(m) is None else get(m), m.id), reverse=sort.startswith("-"))


def _status(name: str, text: str) -> int:
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and len(stripped) <= 3:
        return int(stripped)
    by_name = {name.lower(): number for number, name in STATUS_NAMES.items()}
    if stripped.lower() not in by_name:
        raise _wrong(name, f'"{stripped}" is not a valid choice.')
    return by_name[stripped.lower()]


def _number(name: str, text: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 15):
        raise _wrong(name, "A valid integer is required.")
    return int(stripped)


def _wrong(name: str, detail: str) -> ErrorAnswer:
    return ErrorAnswer(400, problems=[ErrorLine(name, detail, "parameter")])

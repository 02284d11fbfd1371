"""Pages of lists: ``?limit=``, and an opaque ``?cursor=`` that is valid for one list only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl

from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cursors import position_of
from paceline.shells.lists import ListPage, first_of
from paceline.steps.walk import HasId

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
QUERY_BYTES_MAX = 8_192
_TRUTH = {"true": True, "false": False}
T = TypeVar("T")
V = TypeVar("V", bound=HasId)


class PageQuery(NamedTuple):
    limit: int = LIMIT_DEFAULT
    cursor: str = ""
    given: Mapping[str, str] = {}
    """All query parameters that were given."""


def query(query_string: bytes, *known: str) -> Mapping[str, str]:
    """Returns the query parameters of the request. Raises InvalidInput for one that the route does not know."""
    return _parse(query_string, known=known) if query_string else {}


def page_query(query_string: bytes, *known: str, limit_max: int = LIMIT_MAX) -> PageQuery:
    """Returns which page is asked for.

    ``known``: further parameters of the list. ``limit_max``: the operator's setting.
    """
    limit = min(LIMIT_DEFAULT, limit_max)
    if not query_string:
        return PageQuery(limit)
    given = _parse(query_string, known=("limit", "cursor", *known))
    if "limit" in given:
        limit = _limit(given["limit"], limit_max=limit_max)
    return PageQuery(limit, given.get("cursor", ""), given)


def truth(asked: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Returns the value of a query parameter that is true or false."""
    if name not in asked:
        return default
    if asked[name] not in _TRUTH:
        raise InvalidInput.of(FieldProblem(f"/query/{name}", "true or false"))
    return _TRUTH[asked[name]]


def page_by_id(views: Iterable[V], asked: PageQuery, scope: str) -> ListPage[V]:
    """Returns a page of views in order of id. There are few views, so all of them were read."""
    after = position_of(asked.cursor, scope, "")
    later = [view for view in views if view.id > after]
    return first_of(later, asked, scope, at=lambda view: view.id, view=lambda view: view)


def _parse(query_string: bytes, *, known: tuple[str, ...]) -> dict[str, str]:
    if len(query_string) > QUERY_BYTES_MAX:
        raise InvalidInput.of(FieldProblem("/query", f"at most {QUERY_BYTES_MAX} bytes"))
    given: dict[str, str] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            allowed = f"use {' and '.join(known)}" if known else "this route takes none"
            raise InvalidInput.of(FieldProblem(f"/query/{name[:100]}", f"unknown query parameter; {allowed}"))
        if name in given:
            raise InvalidInput.of(FieldProblem(f"/query/{name}", "given more than once"))
        given[name] = value
    return given


def _limit(text: str, *, limit_max: int) -> int:
    limit = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    if not 1 <= limit <= limit_max:
        raise InvalidInput.of(FieldProblem("/query/limit", f"a whole number from 1 to {limit_max}"))
    return limit

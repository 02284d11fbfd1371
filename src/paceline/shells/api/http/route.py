"""Routes, declared as decorators of their handlers: path, access, parameters, body and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from paceline import errors
from paceline.core.scopes import ScopeKind
from paceline.errors import PacelineError
from paceline.shells.api.http.answers import ApiAnswer, Stream
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.problems import UnsupportedMediaType
from paceline.shells.lists import ListPage

Access = Literal["open", "user", "admin"]
Handler = Callable[[ApiCall], Awaitable[ApiAnswer | Stream]]

SMALL_BYTES_MAX = 1_048_576
"""Largest body by default: more than any single document can need."""
READ_HEADERS = ("If-None-Match",)
EDIT_HEADERS = ("If-Match",)
PUT_HEADERS = ("If-Match", "If-None-Match")
NO_CONTENT = {204: None}
Problems = tuple[type[PacelineError], ...]


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Routes that the documentation shows under one name, in the order in which they are declared.

    Its methods are decorators of handlers. ``more`` are further fields of ``Route``. ``answer`` is the body of the only
    answer that is no problem, or a mapping of status to body if there are several such answers.
    """

    name: str
    access: Access = "user"
    scopes: tuple[ScopeKind, ...] = ()
    """Access and scopes of routes that declare none of their own."""
    routes: list[Route] = field(default_factory=list)

    def get(self, path: str, answer: Any, *, headers: tuple[str, ...] = (), **more: Any) -> Route:
        """Declares a route that reads. If it reads ``If-None-Match``, it answers 304 to a client that is up to date."""
        answers = {200: answer, 304: None} if "If-None-Match" in headers else {200: answer}
        return self._route("GET", path, answers, headers=headers, **more)

    def get_page(self, path: str, view: Any, **more: Any) -> Route:
        """Declares a route that reads a list, page by page."""
        return self.get(path, ListPage[view], paged=True, **more)

    def put(self, path: str, view: Any, *, problems: Problems = (), **more: Any) -> Route:
        """Declares a route that creates something (201) or replaces it (200), if the request's conditions hold."""
        answers, problems = {200: view, 201: view}, (errors.RevisionMismatch, *problems)
        return self._route("PUT", path, answers, headers=PUT_HEADERS, problems=problems, **more)

    def put_many(self, path: str, answer: Any, **more: Any) -> Route:
        return self._route("PUT", path, answer, **more)

    def post(self, path: str, answer: Any, **more: Any) -> Route:
        return self._route("POST", path, answer, **more)

    def patch(self, path: str, answer: Any, **more: Any) -> Route:
        return self._route("PATCH", path, answer, **more)

    def delete(self, path: str, answer: Any = NO_CONTENT, **more: Any) -> Route:
        return self._route("DELETE", path, answer, **more)

    def _route(self, method: str, path: str, answer: Any, **more: Any) -> Route:
        answers = answer if isinstance(answer, dict) else {200: answer}
        return Route(self, method, path, answers, **{"access": self.access, "scopes": self.scopes, **more})


async def _undeclared(_: ApiCall) -> ApiAnswer:
    raise NotImplementedError("this route decorates no handler")


@dataclass(frozen=True, slots=True)
class Route:
    """A route, and the decorator of its handler: it adds the route to its group.

    The docstring's first line is the summary.
    """

    group: RouteGroup
    method: str
    path: str
    answers: Mapping[int, Any]
    """Status to the type of the body, or to several; None: no body; a str: its media type, or several with a comma.
    Among several types, a str is the media type of another form of the same answer."""
    access: Access = "user"
    body: type | None = None
    """Type of the body, which is decoded before the handler is called."""
    document: str | None = None
    """Name of a schema. The handler gets the body as bytes and decodes it itself; used instead of ``body``."""
    body_needed: bool = True
    body_bytes_max: int = SMALL_BYTES_MAX
    """Most bytes of the body; the setting of the same name limits it too."""
    streamed: bool = False
    """True if the handler reads the body itself: one JSON document, or any number of lines with one JSON value each."""
    paged: bool = False
    query: tuple[str, ...] = ()
    """Query parameters of the route, beyond those of every list."""
    waits: bool = False
    """True if slow answers are normal, as for a long poll; they are not logged."""
    headers: tuple[str, ...] = ()
    """Request headers that the handler reads."""
    problems: Problems = ()
    """Problems of this route, beyond those that follow from access, body and pages."""
    hot: bool = False
    """True if the route is matched before the others."""
    page: bool = False
    """True for a page of the dashboard: a cookie says who is signed in, and problems are shown as pages."""
    scopes: tuple[ScopeKind, ...] = ()
    """Scopes of tokens that may use the route, besides ``read``, which covers every GET."""
    handler: Handler = _undeclared
    summary: str = ""

    def __call__(self, handler: Handler) -> Handler:
        summary = (handler.__doc__ or "").partition("\n")[0]
        self.group.routes.append(replace(self, handler=handler, summary=summary))
        return handler

    @property
    def covered_by(self) -> tuple[ScopeKind, ...]:
        return ("read", *self.scopes) if self.method == "GET" else self.scopes

    @property
    def has_body(self) -> bool:
        return self.body is not None or self.document is not None

    @property
    def all_problems(self) -> Problems:
        """Every problem that the route may answer with, except 405 and 500, which all routes may."""
        problems: list[type[PacelineError]] = [errors.InvalidInput]
        if self.access != "open":
            problems += [errors.Unauthenticated, errors.Throttled, errors.StoreUnavailable, errors.StoreDamaged]
            problems.append(errors.OutOfScope)
        if self.access == "admin":
            problems.append(errors.Forbidden)
        if self.has_body:
            problems += [errors.MalformedBody, errors.BodyTooSlow, errors.BodyTooLarge, UnsupportedMediaType]
        if "{" in self.path:
            problems.append(errors.NotFound)
        return tuple(dict.fromkeys([*problems, *self.problems]))

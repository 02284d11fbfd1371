"""Handles requests under /api/v2: finds the route, calls its handler, and gives errors RIPE's format."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope

from paceline.errors import InvalidInput, NotFound, PacelineError
from paceline.shells.api.http.answers import ApiAnswer, Stream
from paceline.shells.api.http.app import AsgiHandler, Matched
from paceline.shells.api.http.context import ApiContext
from paceline.shells.api.http.problems import MethodNotAllowed
from paceline.shells.ripe_api.call import CompatibleCall
from paceline.shells.ripe_api.envelope import error_answer
from paceline.shells.ripe_api.keys import find_user
from paceline.shells.ripe_api.known_probes import KnownProbes
from paceline.shells.ripe_api.routes import ROUTES, CompatibleRoute

PARAMETERS_MAX = 100


class Target(NamedTuple):
    """The route of a request, the id or type in its path, and the methods allowed at this path."""

    route: CompatibleRoute | None
    part: str
    allowed: list[str]


class RipeApi(AsgiHandler[Target]):
    """All of /api/v2 as one ASGI application, on the context of the REST API."""

    def __init__(self, api: ApiContext) -> None:
        super().__init__(api, "paceline.ripe_api")
        self._probes = KnownProbes()

    def match(self, scope: Scope) -> Matched[Target]:
        target = _target(scope)
        if (route := target.route) is None:
            return Matched("unmatched", "other", waits=False, target=target)
        return Matched(route.name, scope["method"], route.waits, target)

    async def handle(self, scope: Scope, receive: Receive, target: Target) -> ApiAnswer | Stream:
        if target.route is None:
            return _unknown(scope, target.allowed)
        return await target.route.handler(await self._call(scope, receive, target.part))

    def problem(self, error: PacelineError, scope: Scope) -> ApiAnswer:
        del scope
        return error_answer(error)

    async def _call(self, scope: Scope, receive: Receive, part: str) -> CompatibleCall:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        query = _query(scope["query_string"])
        client = scope["client"]
        page = scope["path"] if scope["method"] in ("GET", "HEAD") else None
        address = client[0] if client else ""
        user = await self._api.read(find_user, self._api, headers, query, page=page, address=address)
        return CompatibleCall(
            api=self._api.of_user(user.id if user else ""),
            user=user,
            method=scope["method"],
            path=scope["path"],
            part=part,
            scheme=scope["scheme"],
            headers=headers,
            query=query,
            receive=receive,
            probes=self._probes,
        )


def _target(scope: Scope) -> Target:
    """Returns what the request is for. The last slash of its path is optional."""
    path: str = scope["path"].removesuffix("/")
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    allowed: list[str] = []
    for route in ROUTES:
        if (match := route.pattern.fullmatch(path)) is None:
            continue
        if route.method == method:
            return Target(route, match[1] if match.groups() else "", allowed)
        allowed.append(route.method)
    return Target(None, "", allowed)


def _unknown(scope: Scope, allowed: list[str]) -> ApiAnswer:
    if allowed:
        error = MethodNotAllowed(f'Method "{scope["method"][:32]}" not allowed.')
        return error_answer(error, (b"allow", ", ".join(sorted(set(allowed))).encode()))
    return error_answer(
        NotFound("Not found. docs/guides/ripe-clients.md lists the parts of RIPE's API that Paceline has.")
    )


def _query(text: bytes) -> dict[str, Any]:
    """Returns the query parameters. If a name is repeated, its last value counts."""
    try:
        return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX))
    except ValueError:
        raise InvalidInput(f"At most {PARAMETERS_MAX} parameters.") from None

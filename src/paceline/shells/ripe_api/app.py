"""Handles requests under /api/v2: turns the handler's result or error into an answer in RIPE's format."""

from __future__ import annotations

import time
import traceback
from typing import Any
from urllib.parse import parse_qsl

import structlog
from starlette.types import Receive, Scope, Send

from paceline.errors import InvalidInput, MalformedBody, NotFound, PacelineError
from paceline.shells.api.http.answers import ApiAnswer, Stream, send_answer, send_stream
from paceline.shells.api.http.bodies import ClientGone
from paceline.shells.api.http.context import ApiContext
from paceline.shells.api.http.problems import MethodNotAllowed, internal
from paceline.shells.ripe_api.call import CompatibleCall
from paceline.shells.ripe_api.envelope import error_answer
from paceline.shells.ripe_api.keys import find_user
from paceline.shells.ripe_api.known_probes import KnownProbes
from paceline.shells.ripe_api.routes import ROUTES, CompatibleRoute

GONE = 499
"""Status in the metrics for a client that did not wait for its answer."""
SLOW_S = 1.0
PARAMETERS_MAX = 100


class RipeApi:
    """All of /api/v2 as one ASGI application, on the context of the REST API."""

    def __init__(self, api: ApiContext) -> None:
        self._api = api
        self._probes = KnownProbes()
        self._debug = api.system.settings.log_level == "debug"
        self._log = structlog.get_logger("paceline.ripe_api").bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
            return
        started_s = time.perf_counter()
        route, part, allowed = _match(scope)
        answer = await self._answer(scope, receive, route, part, allowed)
        if isinstance(answer, Stream):
            await send_stream(answer, receive, send, head_only=scope["method"] == "HEAD")
        elif answer is not None:
            await send_answer(answer, send)
        self._record(scope, route, GONE if answer is None else answer.status, time.perf_counter() - started_s)

    async def _answer(
        self, scope: Scope, receive: Receive, route: CompatibleRoute | None, part: str, allowed: list[str]
    ) -> ApiAnswer | Stream | None:
        """Returns the handler's answer, or its error as an answer; None if the client has gone."""
        if route is None:
            return _unknown(scope, allowed)
        try:
            return await route.handler(await self._call(scope, receive, part))
        except ClientGone:
            return None
        except PacelineError as error:
            return error_answer(error)
        except RecursionError:
            return error_answer(MalformedBody("The body is nested too deeply."))
        except Exception:  # noqa: BLE001  the caller is told nothing; the log has all but the request
            self._log.error("request_failed", route=route.name, method=scope["method"], error=traceback.format_exc())
            return error_answer(internal())

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

    def _record(self, scope: Scope, route: CompatibleRoute | None, status: int, seconds: float) -> None:
        """Counts and logs the request, never with its path or query: a key may be in it."""
        method = scope["method"] if route else "other"
        name = route.name if route else "unmatched"
        self._api.hooks.metrics.count_request(route=name, method=method, status=status, seconds=seconds)
        notable = status >= 500 or (seconds > SLOW_S and not (route and route.waits))
        if notable or self._debug:
            write = self._log.info if notable else self._log.debug
            write("request", route=name, method=method, status=status, ms=round(seconds * 1_000, 1))


def _match(scope: Scope) -> tuple[CompatibleRoute | None, str, list[str]]:
    """Returns the route, the id or type in its path, and the methods allowed at this path.

    The last slash is optional.
    """
    path: str = scope["path"].removesuffix("/")
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    allowed: list[str] = []
    for route in ROUTES:
        if (match := route.pattern.fullmatch(path)) is None:
            continue
        if route.method == method:
            return route, match[1] if match.groups() else "", allowed
        allowed.append(route.method)
    return None, "", allowed


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

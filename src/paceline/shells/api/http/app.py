"""The ASGI application: finds the route of a request, checks what the route declares, and calls its handler."""

from __future__ import annotations

import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog
from starlette import routing
from starlette.types import Receive, Scope, Send

from paceline.core.parsing import decode
from paceline.core.users import TokenUser
from paceline.errors import BodyTooSlow, MalformedBody, NotFound, PacelineError
from paceline.shells.api.http import answers, auth, pages
from paceline.shells.api.http.bodies import ClientGone, read_body
from paceline.shells.api.http.context import ApiCall, ApiContext, ApiHooks
from paceline.shells.api.http.problems import MethodNotAllowed, internal
from paceline.shells.api.http.route import Route
from paceline.shells.api.openapi.documentation import documentation_routes
from paceline.shells.api.outgoing import check_run_owner
from paceline.shells.api.routes import ROUTES
from paceline.wiring import System

SLOW_S = 1.0
"""Answers that took longer are logged."""
GONE = 499
"""Status in the metrics for a client that did not wait for its answer."""
T = TypeVar("T")
_NOBODY = TokenUser(id="", role="user", daily_credits=0, disabled=True, created_ms=0)
_CONVERTED = {"{run}": "{run:path}"}


def build_app(system: System, hooks: ApiHooks) -> routing.Router:
    """Builds the whole API on this system. Its threads end with the server's lifespan."""
    api = ApiContext.of(system, hooks)
    by_path: dict[str, list[Route]] = {}
    from paceline.shells.dashboard.pages import PageEndpoint, dashboard_routes  # noqa: PLC0415  it imports this module

    for route in (*ROUTES, *documentation_routes(ROUTES), *dashboard_routes()):
        by_path.setdefault(route.path, []).append(route)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        api.close()

    from paceline.shells.ripe_api import RipeApi  # noqa: PLC0415  it imports this package

    def endpoint(routes: Sequence[Route]) -> Endpoint:
        return PageEndpoint(api, routes) if any(route.page for route in routes) else Endpoint(api, routes)

    paths = [routing.Route(_starlette_path(path), endpoint(routes)) for path, routes in by_path.items()]
    return routing.Router(
        routes=[*paths, routing.Route("/api/v2/{rest:path}", RipeApi(api))],
        default=Endpoint(api, []),
        redirect_slashes=False,
        lifespan=lifespan,
    )


class Matched(NamedTuple, Generic[T]):
    """What a request is for. ``name`` and ``method`` are its labels in metrics and logs: never its path or query."""

    name: str
    method: str
    waits: bool
    """True if slow answers are normal; they are not logged."""
    target: T


class AsgiHandler(Generic[T]):
    """Answers requests. A subclass says what a request is for, answers it, and gives errors their form."""

    def __init__(self, api: ApiContext, log_name: str) -> None:
        self._api = api
        self._debug = api.system.settings.log_level == "debug"
        self._log = structlog.get_logger(log_name).bind()

    def match(self, scope: Scope) -> Matched[T]:
        raise NotImplementedError

    async def handle(self, scope: Scope, receive: Receive, target: T) -> answers.ApiAnswer | answers.Stream:
        raise NotImplementedError

    def problem(self, error: PacelineError, scope: Scope) -> answers.ApiAnswer:
        """Returns the error as an answer."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
            return
        started_s = time.perf_counter()
        matched = self.match(scope)
        answer = await self._answer(scope, receive, matched)
        if isinstance(answer, answers.Stream):
            await answers.send_stream(answer, receive, send, head_only=scope["method"] == "HEAD")
        elif answer is not None:
            await answers.send_answer(answer, send)
        self._record(matched, GONE if answer is None else answer.status, time.perf_counter() - started_s)

    async def _answer(
        self, scope: Scope, receive: Receive, matched: Matched[T]
    ) -> answers.ApiAnswer | answers.Stream | None:
        """Returns the answer, or the error as an answer; None if the client has gone."""
        try:
            return await self.handle(scope, receive, matched.target)
        except ClientGone:
            return None
        except PacelineError as error:
            return self.problem(error, scope)
        except RecursionError:
            return self.problem(MalformedBody("The body is nested too deeply."), scope)
        except Exception:  # noqa: BLE001  the caller learns nothing; the log has all but the request
            self._log.error("request_failed", route=matched.name, method=scope["method"], error=traceback.format_exc())
            return self.problem(internal(), scope)

    def _record(self, matched: Matched[T], status: int, seconds: float) -> None:
        route, method = matched.name, matched.method
        self._api.hooks.metrics.count_request(route=route, method=method, status=status, seconds=seconds)
        notable = status >= 500 or (seconds > SLOW_S and not matched.waits)
        if notable or self._debug:
            write = self._log.info if notable else self._log.debug
            write("request", route=route, method=method, status=status, ms=round(seconds * 1_000, 1))


class Endpoint(AsgiHandler[Route | None]):
    """All methods of one path. An endpoint without methods answers 404."""

    def __init__(self, api: ApiContext, routes: Sequence[Route]) -> None:
        super().__init__(api, "paceline.api")
        self._path = routes[0].path if routes else "unmatched"
        self._routes = {route.method: route for route in routes}
        if "GET" in self._routes:
            self._routes["HEAD"] = self._routes["GET"]
        self._allow = ", ".join(sorted(self._routes)).encode()
        self._decoders: dict[type, msgspec.json.Decoder[Any]] = {
            route.body: msgspec.json.Decoder(route.body) for route in routes if route.body is not None
        }
        self._bytes_max = api.system.settings.body_bytes_max
        self._waits = any(route.waits for route in routes)

    def match(self, scope: Scope) -> Matched[Route | None]:
        route = self._routes.get(scope["method"])
        return Matched(self._path, scope["method"] if route else "other", self._waits, route)

    def problem(self, error: PacelineError, scope: Scope) -> answers.ApiAnswer:
        """Returns the error as an answer. Pages of the dashboard override this and return a page."""
        del scope
        allow = ((b"allow", self._allow),) if isinstance(error, MethodNotAllowed) else ()
        return answers.problem_answer(error, *allow, close=isinstance(error, BodyTooSlow))

    async def handle(self, scope: Scope, receive: Receive, route: Route | None) -> answers.ApiAnswer | answers.Stream:
        if route is None:
            raise self._unknown(scope)
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        params: Mapping[str, str] = scope["path_params"]
        by_cookie = route.page or auth.from_own_page(headers)
        user = _NOBODY if route.access == "open" else await self._identify(scope, headers, by_cookie=by_cookie)
        admit(user, route, params)
        query_string: bytes = scope["query_string"]
        if query_string and not route.paged:
            pages.query(query_string, *route.query)
        body = await self._body(route, receive, headers) if route.has_body and not route.streamed else None
        api, scheme = self._api.of_user(user.id), scope.get("scheme", "http")
        call = ApiCall(api, user, params, headers, query_string, body, receive, scheme)
        return await answers.compressed(await route.handler(call), headers)

    async def _identify(self, scope: Scope, headers: Mapping[bytes, bytes], *, by_cookie: bool) -> TokenUser:
        api, client = self._api, scope["client"]
        address = client[0] if client else ""

        def look() -> TokenUser:
            return auth.identify(
                api.store,
                headers,
                secret_key=api.system.secret_key,
                tokens=api.tokens,
                wrong_tokens=api.wrong_tokens,
                address=address,
                now_ms=api.now_ms(),
                by_cookie=by_cookie,
            )

        return await api.read(look)

    async def _body(self, route: Route, receive: Receive, headers: Mapping[bytes, bytes]) -> Any:
        bytes_max = min(self._bytes_max, route.body_bytes_max)
        body = await read_body(receive, headers, bytes_max=bytes_max, timeout_s=self._api.body_timeout_s)
        if route.body is None:
            return body
        if not body and not route.body_needed:
            body = b"{}"
        return decode(self._decoders[route.body], body)

    def _unknown(self, scope: Scope) -> PacelineError:
        if not self._routes:
            return NotFound("There is nothing at this path. GET /docs lists all paths.")
        method, allowed = scope["method"][:32], self._allow.decode()
        return MethodNotAllowed(f"{method} is not supported on this path. Use one of: {allowed}.")


def admit(user: TokenUser, route: Route, params: Mapping[str, str]) -> None:
    """Raises if the user may not use the route: because of the token's scope, the role, or another owner."""
    auth.check_scope(user, route.covered_by)
    if route.access == "admin":
        auth.require_admin(user)
    elif route.access == "user":
        _check_owner(user, params)


def _check_owner(user: TokenUser, params: Mapping[str, str]) -> None:
    """Raises NotFound for another user's things, before anything else is read.

    If the token has a scope, the route checks the run itself: a worker's token is for runs of batches, which have no
    owner.
    """
    if "user" in params:
        auth.owner_of(user, params["user"])
    elif "run" in params and not user.scope and (viewer := auth.viewer_of(user)) is not None:
        check_run_owner(params["run"], viewer)


def _starlette_path(path: str) -> str:
    for plain, converted in _CONVERTED.items():
        path = path.replace(plain, converted)
    return path

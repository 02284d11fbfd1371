"""The dashboard's page, script and style: the same bytes for everybody. What it shows comes over the API, by token."""

from __future__ import annotations

from importlib import resources

from paceline.shells.api.http.answers import Answer, text_answer
from paceline.shells.api.http.context import Call
from paceline.shells.api.http.route import Group, Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline: text that somebody else wrote cannot become a script."""
_FILES = (
    ("/", "page.html", "text/html; charset=utf-8"),
    ("/dashboard/board.js", "board.js", "text/javascript; charset=utf-8"),
    ("/dashboard/board.css", "board.css", "text/css; charset=utf-8"),
)


def dashboard_routes() -> tuple[Route, ...]:
    return tuple(_route(*file) for file in _FILES)


def _route(path: str, name: str, content_type: str) -> Route:
    body = (resources.files("paceline.shells.dashboard") / name).read_bytes()
    answer = text_answer(200, body, content_type, policy=POLICY)

    async def show(call: Call) -> Answer:
        del call
        return answer

    return Route(Group("Dashboard"), "GET", path, {200: content_type}, access="open", handler=show, summary=name)

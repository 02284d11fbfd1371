"""Renders templates to answers: the frame around every page, its entity tag, and the words for states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from paceline import __version__
from paceline.core.users import TokenUser
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, text_answer
from paceline.shells.api.http.auth import OWN_PAGE
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.route import Access, Route, RouteGroup
from paceline.shells.dashboard import files, pictures, words
from paceline.shells.dashboard.menu import MENU, menu_marks

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)
"""Nothing from other sites and nothing inline, so that text from users cannot become a script."""
HTML = "text/html; charset=utf-8"


class Chip(NamedTuple):
    """How a state is shown: the class of its colour, its shape, and its word."""

    tone: str
    icon: str
    word: str


CHIPS: Mapping[str, Chip] = {
    "ok": Chip("ok", "ok", "OK"),
    "failing": Chip("bad", "bad", "Failing"),
    "late": Chip("warn", "late", "Late"),
    "paused": Chip("", "pause", "Paused"),
    "new": Chip("", "new", "New"),
    "good": Chip("ok", "ok", "Good"),
    "failed": Chip("bad", "bad", "Failed"),
    "dead": Chip("", "closed", "Ended unrun"),
    "unknown": Chip("warn", "late", "Unknown"),
    "waiting": Chip("", "wait", "Waiting"),
    "later": Chip("", "wait", "Later"),
    "parked": Chip("warn", "wait", "Parked"),
    "held": Chip("", "pause", "Held"),
    "retry": Chip("warn", "wait", "Tries again"),
    "out": Chip("go", "run", "Running"),
    "aside": Chip("", "pause", "Stands aside"),
    "skipped": Chip("", "closed", "Skipped"),
    "open": Chip("ok", "ok", "Open"),
    "closed": Chip("bad", "closed", "Closed"),
    "ready": Chip("ok", "ok", "Ready"),
    "full": Chip("warn", "late", "Full"),
    "disabled": Chip("", "pause", "Disabled"),
    "no_key": Chip("bad", "bad", "No key"),
    "quarantined": Chip("bad", "bad", "Quarantined"),
    "queued": Chip("", "wait", "Queued"),
    "sending": Chip("go", "run", "Sending"),
    "ongoing": Chip("go", "run", "Ongoing"),
    "running": Chip("go", "run", "Running"),
    "cancelling": Chip("warn", "late", "Cancelling"),
    "cancelled": Chip("", "closed", "Cancelled"),
    "done": Chip("ok", "ok", "Done"),
    "success": Chip("ok", "ok", "Success"),
    "not_all": Chip("bad", "bad", "Not all well"),
    "planning": Chip("go", "run", "Planning"),
    "planned": Chip("ok", "ok", "Planned"),
    "admin": Chip("go", "n-user", "Admin"),
    "user": Chip("", "n-user", "User"),
}


class PageGroup(RouteGroup):
    """Routes of pages."""

    def page(
        self, path: str, *query: str, access: Access = "user", answers: Mapping[int, str | None] | None = None
    ) -> Route:
        """Declares a page: a cookie says who is signed in, and problems are shown as pages."""
        return Route(self, "GET", path, answers or {200: "text/html"}, access=access, page=True, query=query)


class PagePlace(NamedTuple):
    """Place of a page: its entry of the menu, its title, and the crumbs before it as (word, address)."""

    nav: str
    title: str
    crumbs: tuple[tuple[str, str], ...] = ()


@cache
def environment() -> Environment:
    """Returns the templates. They are read at the first page, so that the command line never loads them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=PackageLoader("paceline.shells.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "words": words,
        "pictures": pictures,
        "chips": CHIPS,
        "version": __version__,
        "static": files.address,
    }
    made.filters |= {
        "number": words.number,
        "percent": words.percent,
        "ms": words.milliseconds,
        "seconds": words.seconds,
        "json": _json,
        "q": lambda text: quote(str(text), safe=""),
    }
    return made


def _json(value: Any, indent: int | None = None) -> str:
    """Returns JSON as plain text, which the template escapes: Jinja's own ``tojson`` does not escape quotes."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def is_part(headers: Mapping[bytes, bytes]) -> bool:
    """True if the script asks for the parts of the page that may have changed."""
    return OWN_PAGE in headers


def html(template: str, values: Mapping[str, Any], *, code: int = 200) -> ApiAnswer:
    body = environment().get_template(template).render(values)
    return text_answer(code, body.encode(), HTML, policy=POLICY)


def frame(user: TokenUser, marks: Mapping[str, str], *, now_ms: int, part: bool) -> dict[str, Any]:
    """Returns the values for the frame around every page."""
    return {
        "me": user,
        "admin": user.role == "admin",
        "writes": not user.scope,
        "menu": [entry for entry in MENU if user.role == "admin" or not entry.admins],
        "marks": marks,
        "now": datetime.fromtimestamp(now_ms / 1_000, UTC),
        "part": part,
    }


async def page(call: ApiCall, template: str, place: PagePlace, **values: Any) -> ApiAnswer:
    """Returns the page, or the part that the script asks for; 304 if the script already has that part."""
    part = is_part(call.headers)
    around = frame(call.user, await menu_marks(call), now_ms=call.api.now_ms(), part=part)
    answer = html(template, {"place": place, **around, **values})
    if not part:
        return answer
    tag = b'W/"%s"' % blake2b(answer.body, digest_size=12).hexdigest().encode()
    if call.headers.get(b"if-none-match") == tag:
        return empty_answer(304, (b"etag", tag))
    return answer._replace(headers=(*answer.headers, (b"etag", tag)))


def address(path: str, **query: Any) -> str:
    """Returns a link with the query parameters that are not empty."""
    asked = urlencode({name: value for name, value in query.items() if value not in ("", None)})
    return f"{path}?{asked}" if asked else path

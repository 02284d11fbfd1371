"""Files that every page loads: style, script and icon. Their addresses contain a hash, so browsers may cache them."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib import resources

from paceline.errors import NotFound
from paceline.shells.api.http.answers import ApiAnswer, empty_answer, text_answer
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.route import Route, RouteGroup

FILES = RouteGroup("Dashboard")
_TYPES = {
    "paceline.css": "text/css; charset=utf-8",
    "paceline.js": "text/javascript; charset=utf-8",
    "changes.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}
_KEPT = (b"cache-control", b"public, max-age=31536000, immutable")


def address(name: str) -> str:
    """Returns the file's address.

    A new version of any file changes all addresses, because the files load each other.
    """
    return f"/ui/static/{_hash()}/{name}"


@Route(FILES, "GET", "/ui/static/{hash}/{name}", {200: "text/css"}, access="open", headers=("If-None-Match",))
async def show_file(call: ApiCall) -> ApiAnswer:
    """Shows the style, script and icon of the pages."""
    name = call.params["name"]
    if name not in _TYPES:
        raise NotFound(f"The dashboard has no file {name[:100]!r}.")
    tag = f'"{_hash()}"'.encode()
    if call.headers.get(b"if-none-match") == tag:
        return empty_answer(304, (b"etag", tag))
    answer = text_answer(200, _read(name), _TYPES[name])
    lasting = [header for header in answer.headers if header[0] != b"cache-control"]
    return answer._replace(headers=(*lasting, _KEPT, (b"etag", tag)))


@cache
def _hash() -> str:
    return blake2b(b"".join(map(_read, _TYPES)), digest_size=6).hexdigest()


@cache
def _read(name: str) -> bytes:
    return (resources.files("paceline.shells.dashboard") / "static" / name).read_bytes()

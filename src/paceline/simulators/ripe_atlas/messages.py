"""Requests, answers, and RIPE's envelope for errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from paceline.simulators.http import Cut

JSON = (("Content-Type", "application/json"),)
HTML = (("Content-Type", "text/html; charset=utf-8"),)
TEXT = (("Content-Type", "text/plain; charset=utf-8"),)
NO_SUCH_KEY = 104
BAD_REQUEST = 102


class AtlasRequest(NamedTuple):
    """A request; ``headers`` by lower-case name, ``query`` with the last value of each name."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str] = {}
    body: bytes = b""
    base_url: str = "https://atlas.ripe.net"

    @classmethod
    def of(
        cls, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b"", base_url: str = ""
    ) -> AtlasRequest:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        lowered = {name.lower(): value for name, value in headers.items()}
        return cls(method, parts.path, query, lowered, body, base_url or "https://atlas.ripe.net")

    def url(self, path: str, **query: object) -> str:
        text = "&".join(f"{name}={quote(str(value), safe=',')}" for name, value in query.items())
        return f"{self.base_url}{path}{'?' if text else ''}{text}"

    def document(self) -> Any:
        """Return the body as JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ErrorAnswer(400, problems=[ErrorLine("", f"JSON parse error - {error}")]) from None


class AtlasAnswer(NamedTuple):
    """An answer. ``cut`` closes the connection: ``all`` before any byte, ``half`` in the middle of the body."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = JSON
    delay_ms: int = 0
    cut: Cut = ""

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.body)


class ErrorLine(NamedTuple):
    """One line of an error; ``where`` is a JSON pointer, or a query parameter if ``kind`` says so."""

    where: str
    detail: str
    kind: Literal["pointer", "parameter"] = "pointer"


class ErrorAnswer(Exception):
    """An error answer of RIPE. ``reason`` names it for the audit."""

    def __init__(
        self,
        status: int,
        detail: str = "",
        *,
        problems: Sequence[ErrorLine] = (),
        code: int = BAD_REQUEST,
        reason: str = "invalid",
    ) -> None:
        super().__init__(detail or (problems[0].detail if problems else ""))
        self.status = status
        self.detail = detail or "There was a problem with your request"
        self.problems = tuple(problems)
        self.code = code
        self.reason = reason

    def answer(self) -> AtlasAnswer:
        error: dict[str, Any] = {
            "detail": self.detail,
            "status": self.status,
            "title": HTTPStatus(self.status).phrase,
            "code": self.code,
        }
        if self.problems:
            error["errors"] = [{"source": {one.kind: one.where}, "detail": one.detail} for one in self.problems]
        return json_answer({"error": error}, self.status)


def json_answer(document: Any, status: int = 200) -> AtlasAnswer:
    return AtlasAnswer(status, msgspec.json.encode(document))


def not_found() -> ErrorAnswer:
    return ErrorAnswer(404, "Not found.", reason="not_found")

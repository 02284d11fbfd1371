"""Errors in RIPE's format."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from paceline import errors
from paceline.shells.api.http.answers import ApiAnswer, Header, json_answer
from paceline.shells.api.http.problems import retry_after_s

BAD_REQUEST = 102
NO_SUCH_KEY = 104
DETAIL = "There was a problem with your request"
PARAMETER = "/query/"


class Conflict(errors.PacelineError):
    code = "conflict"
    title = "Conflict with the current state"
    status = 409


def error_answer(error: errors.PacelineError, *headers: Header) -> ApiAnswer:
    """Returns the error as an answer. Invalid requests get 400, as RIPE does it."""
    status = (
        400 if isinstance(error, errors.InvalidInput | errors.MalformedBody | errors.OverDailyCredits) else error.status
    )
    problems = error.errors
    if isinstance(error, errors.OverDailyCredits):
        problems = (errors.FieldProblem("", error.detail),)
    document: dict[str, Any] = {
        "status": status,
        "code": NO_SUCH_KEY if isinstance(error, errors.Unauthenticated) else BAD_REQUEST,
        "title": HTTPStatus(status).phrase,
        "detail": DETAIL if problems else error.detail,
    }
    if problems:
        document["errors"] = [{"source": _source(one.pointer), "detail": one.detail} for one in problems]
    extra = list(headers)
    if (seconds := retry_after_s(error)) is not None:
        extra.append((b"retry-after", b"%d" % seconds))
    if isinstance(error, errors.Unauthenticated):
        extra.append((b"www-authenticate", b'Key realm="paceline"'))
    return json_answer(status, {"error": document}, *extra)


def _source(pointer: str) -> dict[str, str]:
    if pointer.startswith(PARAMETER):
        return {"parameter": pointer.removeprefix(PARAMETER)}
    return {"pointer": pointer}

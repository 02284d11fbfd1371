"""Makes the OpenAPI 3.1 document from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from paceline import __version__
from paceline.core.batches.batch import BatchSpec
from paceline.core.batches.provider import ProviderSpec
from paceline.core.jobs.job import JobBody
from paceline.core.jobs.values import AccountSpec
from paceline.core.monitors.definition import TAG_CHARS_MAX
from paceline.core.monitors.health import Health
from paceline.core.monitors.lists.query import TEXT_CHARS_MAX, Kind, Sort
from paceline.errors import PacelineError
from paceline.shells.api.documents import MonitorPatchBody, RecordsBody
from paceline.shells.api.http.pages import LIMIT_DEFAULT, LIMIT_MAX
from paceline.shells.api.http.problems import Internal, Problem
from paceline.shells.api.http.route import Route
from paceline.shells.api.openapi.examples import BODIES, RECORD_LINES, TEXTS, example_of, problem_example
from paceline.shells.api.openapi.schemas import ID, Schema, name_of, ref, schemas_of
from paceline.shells.cursors import CURSOR_CHARS_MAX
from paceline.steps.batches.export import Format
from paceline.steps.monitors.run_now import TIMES_DEFAULT, TIMES_MAX

_PLACES = re.compile(r"{(\w+)}")
_PATH_TEXTS = {
    "user": "The user's id, or `me`.",
    "id": "The monitor's id.",
    "channel": "The channel's id.",
    "silence_id": "The silence's id, as the list of silences shows it.",
    "provider": "The provider's id.",
    "batch": "The batch's id.",
    "record": "The record's id.",
    "date": "The day's date, such as `2026-11-15`.",
    "run": "The run's id, percent-encoded: `user/monitor#generation@counter` or `batch/record@date`.",
    "token_id": "The token's id, as the list of tokens shows it.",
    "job": "The job's id.",
    "account": "The account's id, a name that you choose.",
    "key_id": "The key's id, as its account shows it.",
}
_HEADER_TEXTS = {
    "If-Match": "An ETag: the write is done only if the resource still has it. `*`: only if it exists.",
    "Idempotency-Key": "Chosen by you, 1 to 255 printable characters: with the same key a job is submitted once.",
    "If-None-Match": "PUT with `*`: only if it does not exist. GET with an ETag: 304 if nothing has changed.",
}

_DOCUMENTS = (ProviderSpec, BatchSpec, AccountSpec, JobBody, MonitorPatchBody, RecordsBody)
"""Types of bodies that handlers get as bytes, because core parses them."""
_QUERIES: dict[str, tuple[str, Schema]] = {
    "state": ("Only runs in this state.", ref("CallState")),
    "provider": ("Only those of this provider.", ID),
    "batch": ("Only those of this batch.", ID),
    "active": ("Only active records, or only inactive ones.", {"enum": ["true", "false"]}),
    "date": ("Only those of this date; with `batch`.", {"type": "string", "format": "date"}),
    "dry_run": ("`true`: reports what would happen, and changes nothing.", {"type": "boolean", "default": False}),
    "count": (
        "How many times to return.",
        {"type": "integer", "minimum": 1, "maximum": TIMES_MAX, "default": TIMES_DEFAULT},
    ),
    "tag": ("Only monitors with this tag.", {"type": "string", "maxLength": TAG_CHARS_MAX}),
    "health": ("Only monitors with this health.", {"type": "string", "enum": list(get_args(Health))}),
    "kind": ("Only monitors with this kind of check.", {"type": "string", "enum": list(get_args(Kind))}),
    "q": ("Part of the id or the address; case does not matter.", {"type": "string", "maxLength": TEXT_CHARS_MAX}),
    "sort": ("The order of the list.", {"type": "string", "enum": list(get_args(Sort)), "default": "id"}),
    "user": ("The user: `me`, or for admins anybody.", ID),
    "figures": ("`true`: adds figures, such as uptime and latency.", {"type": "boolean", "default": False}),
    "hours": ("How many hours to show; 24 by default.", {"type": "integer", "minimum": 1, "maximum": 48}),
    "measurements": ("`false`: leaves the measurements out.", {"type": "boolean", "default": True}),
    "merged": ("One line for each target, with all its results.", {"type": "string", "const": "target"}),
    "check": (
        "`false`: adds the key without asking RIPE.",
        {"type": "boolean", "default": True},
    ),
    "format": (
        "One JSON document per line, or CSV.",
        {"type": "string", "enum": list(get_args(Format)), "default": "ndjson"},
    ),
}
_QUERIES_OF: dict[str, dict[str, tuple[str, Schema]]] = {
    "show_uptime": {
        "format": (
            "One JSON document, or the days as CSV.",
            {"type": "string", "enum": ["json", "csv"], "default": "json"},
        )
    }
}
"""Parameters, by operation, that mean something else there than in other operations."""
_LINES = "application/x-ndjson"
_TAGGED = ("MonitorView", "ProviderView", "BatchView", "AccountView", "ChannelView")


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    table = list(routes)
    schemas, found = schemas_of(_types(table))
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paceline",
            "version": __version__,
            "summary": "A durable scheduler for calling other people's APIs within their limits.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": group} for group in dict.fromkeys(route.group.name for route in table)],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
            "examples": _examples(table, schemas, found),
        },
    }


def _types(table: list[Route]) -> list[Any]:
    """Returns every type that a route takes or answers with."""
    answers = [kind for route in table for answer in route.answers.values() for kind in _kinds(answer)]
    return [Problem, *_DOCUMENTS, *answers, *(route.body for route in table if route.body is not None)]


def _kinds(answer: Any) -> tuple[Any, ...]:
    """Returns the types that an answer may have; none for a text and for no body."""
    kinds = answer if isinstance(answer, tuple) else (answer,)
    return tuple(kind for kind in kinds if kind is not None and not isinstance(kind, str))


def _media_types(answer: Any) -> list[str]:
    """Returns the media types of the texts that an answer may be."""
    texts = [one for one in (answer if isinstance(answer, tuple) else (answer,)) if isinstance(one, str)]
    return [media for text in texts for media in text.split(", ")]


def _examples(table: list[Route], schemas: dict[str, Schema], found: dict[Any, Schema]) -> dict[str, Any]:
    """Returns the examples of answers by the name of their schema, and those of problems by their code."""
    answers = {
        name_of(found[kind]): {"value": example_of(found[kind], schemas)}
        for route in table
        for answer in route.answers.values()
        for kind in _kinds(answer)
    }
    errors: list[type[PacelineError]] = [error for route in table for error in route.all_problems]
    errors.append(Internal)
    problems = {error.code: {"value": problem_example(error)} for error in errors}
    return dict(sorted({**answers, **problems}.items()))


def _operation(route: Route, schemas: dict[str, Schema], found: dict[Any, Schema]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.group.name],
    }
    if route.access == "open":
        operation["security"] = []
    else:
        who = "Admins only." if route.access == "admin" else "Users reach only what they own; admins reach everything."
        operation["description"] = who
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.has_body:
        operation["requestBody"] = {"required": route.body_needed, "content": _body(route, schemas)}
    operation["responses"] = {**_answers(route, found), **_problems(route)}
    return operation


def _body(route: Route, schemas: dict[str, Schema]) -> Schema:
    name = route.body.__name__ if route.body is not None else str(route.document)
    written = BODIES.get(name) or {"standard": example_of(ref(name), schemas)}
    examples = {title: {"value": example} for title, example in written.items()}
    content: Schema = {"application/json": {"schema": ref(name), "examples": examples}}
    if route.streamed:
        lines = {"type": "string", "description": "One item per line, any number of lines."}
        content[_LINES] = {"schema": lines, "example": RECORD_LINES}
    return content


def _parameters(route: Route) -> list[Schema]:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "description": _PATH_TEXTS[name], "schema": _path_schema(name)}
        for name in _PLACES.findall(route.path)
    ]
    if route.paged:
        limit = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}
        cursor = {"type": "string", "maxLength": CURSOR_CHARS_MAX}
        parameters += [
            {"name": "limit", "in": "query", "description": "Items on a page.", "schema": limit},
            {"name": "cursor", "in": "query", "description": "`next_cursor` of the page before.", "schema": cursor},
        ]
    queries = _QUERIES | _QUERIES_OF.get(route.handler.__name__, {})
    parameters += [
        {"name": name, "in": "query", "description": queries[name][0], "schema": queries[name][1]}
        for name in route.query
    ]
    parameters += [
        {"name": name, "in": "header", "description": _HEADER_TEXTS[name], "schema": {"type": "string"}}
        for name in route.headers
    ]
    return parameters


def _path_schema(name: str) -> Schema:
    if name == "date":
        return {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(~[1-9][0-9]?)?$"}
    if name in ("run", "token_id", "job", "key_id", "silence_id"):
        return {"type": "string", "minLength": 1, "maxLength": 600 if name == "run" else 64}
    return ID


def _answers(route: Route, found: dict[Any, Schema]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in route.answers.items():
        response: dict[str, Any] = {"description": route.summary}
        content: dict[str, Any] = {}
        if parts := [found[one] for one in _kinds(kind)]:
            schema = parts[0] if len(parts) == 1 else {"anyOf": parts}
            examples = {name_of(part): _example(name_of(part)) for part in parts}
            content["application/json"] = {"schema": schema, "examples": examples}
        for media in _media_types(kind):
            content[media] = {"schema": {"type": "string"}, **TEXTS.get(media, {})}
        if content:
            response["content"] = content
        if headers := _answer_headers(route, status):
            response["headers"] = headers
        responses[str(status)] = response
    return responses


def _problems(route: Route) -> dict[str, Any]:
    by_status: dict[int, list[type[PacelineError]]] = {}
    all_problems: list[type[PacelineError]] = [*route.all_problems, Internal]
    for problem in all_problems:
        by_status.setdefault(problem.status, []).append(problem)
    return {
        str(status): {
            "description": " ".join(f"`{problem.code}`: {problem.title}." for problem in problems),
            "content": {
                "application/problem+json": {
                    "schema": ref("Problem"),
                    "examples": {problem.code: _example(problem.code) for problem in problems},
                }
            },
        }
        for status, problems in sorted(by_status.items())
    }


def _example(name: str) -> Schema:
    return {"$ref": f"#/components/examples/{name}"}


def _answer_headers(route: Route, status: int) -> dict[str, Any]:
    text = {"schema": {"type": "string"}}
    headers: dict[str, Any] = {}
    if any(getattr(kind, "__name__", "") in _TAGGED for kind in _kinds(route.answers.get(status))):
        headers["ETag"] = {"description": "Identifies the definition and its revision.", **text}
    elif status == 304:
        headers["ETag"] = {"description": "The ETag of the request.", **text}
    elif status == 200 and 304 in route.answers:
        headers["ETag"] = {"description": "A hash of the answer.", **text}
    if status == 201 or (status == 202 and route.method == "POST"):
        headers["Location"] = {"description": "The address of the new resource.", **text}
    return headers

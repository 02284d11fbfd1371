"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from paceline import __version__
from paceline.core.checks import CHECK_KINDS
from paceline.errors import PacelineError
from paceline.shells.api.pages import CURSOR_CHARS_MAX, LIMIT_DEFAULT, LIMIT_MAX
from paceline.shells.api.problems import Internal, Problem
from paceline.shells.api.routes import Route
from paceline.shells.api.schemas import Schema, id_schema, monitor_schemas, narrowed, ref

_PLACES = re.compile(r"{(\w+)}")
_REF = "#/components/schemas/{name}"
_PATH_TEXTS = {
    "user": "The user's id, or `me`.",
    "id": "The monitor's id.",
    "run": "The run's id, percent-encoded: `user/monitor#generation@counter`.",
    "token_id": "The token's id, as the list of tokens shows it.",
}
_HEADER_TEXTS = {
    "If-Match": "An ETag: the write counts only if the monitor is still as that ETag says. `*`: only if it exists.",
    "If-None-Match": "PUT with `*`: only if it does not exist. GET with an ETag: 304 if nothing has changed.",
}


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    table = list(routes)
    schemas, found = _schemas(table)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paceline",
            "version": __version__,
            "summary": "Runs work against services you do not own: evenly, in order, once, within budget.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": group} for group in dict.fromkeys(route.group for route in table)],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _schemas(table: list[Route]) -> tuple[dict[str, Schema], dict[Any, Schema]]:
    """The components, and the schema of each type that a route names."""
    types: dict[Any, None] = dict.fromkeys([Problem, *CHECK_KINDS.values()])
    for route in table:
        types |= dict.fromkeys(
            kind for kind in route.answers.values() if kind is not None and not isinstance(kind, str)
        )
        if route.body is not None:
            types[route.body] = None
    listed, components = msgspec.json.schema_components(list(types), ref_template=_REF)
    schemas = narrowed({name.rstrip("_"): schema for name, schema in components.items()}) | monitor_schemas()
    for name, schema in schemas.items():
        schema["title"] = name
        if "description" in schema:
            schema["description"] = schema["description"].replace("``", "`")
    found = dict(zip(types, ({"$ref": schema["$ref"].rstrip("_")} for schema in listed), strict=True))
    return dict(sorted(schemas.items())), found


def _operation(route: Route, found: dict[Any, Schema]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.group],
    }
    if route.access == "open":
        operation["security"] = []
    else:
        who = "Admins only." if route.access == "admin" else "Users see their own; admins everybody's."
        operation["description"] = who
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.has_body:
        schema = found[route.body] if route.body is not None else ref(str(route.document))
        operation["requestBody"] = {"required": route.body_needed, "content": {"application/json": {"schema": schema}}}
    operation["responses"] = _responses(route, found)
    return operation


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
    parameters += [
        {"name": name, "in": "header", "description": _HEADER_TEXTS[name], "schema": {"type": "string"}}
        for name in route.headers
    ]
    return parameters


def _path_schema(name: str) -> Schema:
    if name in ("user", "id"):
        return id_schema()
    return {"type": "string", "minLength": 1, "maxLength": 600 if name == "run" else 64}


def _responses(route: Route, found: dict[Any, Schema]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in route.answers.items():
        response: dict[str, Any] = {"description": route.summary}
        if isinstance(kind, str):
            response["content"] = {kind: {"schema": {"type": "string"}}}
        elif kind is not None:
            response["content"] = {"application/json": {"schema": found[kind]}}
        if headers := _answer_headers(route, status):
            response["headers"] = headers
        responses[str(status)] = response
    by_status: dict[int, list[type[PacelineError]]] = {}
    all_problems: list[type[PacelineError]] = [*route.all_problems, Internal]
    for problem in all_problems:
        by_status.setdefault(problem.status, []).append(problem)
    for status, problems in sorted(by_status.items()):
        responses[str(status)] = {
            "description": " ".join(f"`{problem.code}`: {problem.title}." for problem in problems),
            "content": {"application/problem+json": {"schema": ref("Problem")}},
        }
    return responses


def _answer_headers(route: Route, status: int) -> dict[str, Any]:
    text = {"schema": {"type": "string"}}
    headers: dict[str, Any] = {}
    if "MonitorView" in str(route.answers.get(status)) and "Page" not in str(route.answers.get(status)):
        headers["ETag"] = {"description": "Names this generation and revision.", **text}
    if status == 201:
        headers["Location"] = {"description": "Where it can be read.", **text}
    return headers

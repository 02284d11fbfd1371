"""The client beside ``/openapi.json``, in both directions: operations, parameters, bodies, answers, fields, words."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, get_args, is_typeddict

import pytest

from paceline.shells.api.openapi.document import openapi_document
from paceline.shells.api.routes import ROUTES
from paceline_client import AsyncClient, Client
from paceline_client.calls import Resource
from tests.client.support.shapes import (
    Comparison,
    Method,
    Schema,
    answer_type,
    fields,
    hints,
    is_list,
    merged,
    methods,
    options,
)

DOCUMENT = openapi_document(ROUTES)
OPERATIONS: dict[tuple[str, str], Schema] = {
    (method.upper(), path): operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}


@pytest.fixture(params=[Client, AsyncClient])
def client(request: pytest.FixtureRequest) -> Resource[Any]:
    made: Resource[Any] = request.param("http://127.0.0.1:9", "a token")
    return made


def by_route(client: Resource[Any]) -> dict[tuple[str, str], list[Method]]:
    found: dict[tuple[str, str], list[Method]] = defaultdict(list)
    for method in methods(client):
        found[method.call.method, method.call.path].append(method)
    return found


def test_every_operation_of_the_service_has_a_method_and_every_method_an_operation(client: Resource[Any]) -> None:
    ours, theirs = set(by_route(client)), set(OPERATIONS)
    assert sorted(theirs - ours) == [], "the client lacks these operations"
    assert sorted(ours - theirs) == [], "the service does not have these operations"


def test_both_clients_have_the_same_methods() -> None:
    names = [{method.name for method in methods(made("http://127.0.0.1:9", "t"))} for made in (Client, AsyncClient)]
    assert names[0] == names[1]


def test_parameters_of_every_operation_are_those_of_its_methods() -> None:
    comparison = Comparison(DOCUMENT)
    for route, found in by_route(Client("http://127.0.0.1:9", "t")).items():
        parameters = OPERATIONS[route].get("parameters", [])
        for place in ("path", "query", "header"):
            theirs = {one["name"] for one in parameters if one["in"] == place}
            if all(one.paged for one in found):
                theirs -= {"If-None-Match"}  # iterating over a list drops its pages
            comparison.compare_names(theirs, set().union(*(told(one, place) for one in found)), f"{route} {place}")
    assert not comparison.wrong, "\n".join(comparison.wrong)


def told(method: Method, place: str) -> set[str]:
    call = method.call
    if place == "path":
        return set(call.places)
    if place == "header":
        return {name for name, value in call.headers.items() if value is not None}
    return {name for name, value in call.query.items() if value is not None} | (
        {"limit", "cursor"} if method.paged else set()
    )


def test_every_body_and_answer_has_the_fields_and_words_of_its_schema_and_no_others() -> None:
    comparison = Comparison(DOCUMENT)
    for route, found in by_route(Client("http://127.0.0.1:9", "t")).items():
        where = " ".join(route)
        for schema in bodies(OPERATIONS[route]):
            compare_body(comparison, schema, found, where)
        compare_answers(comparison, OPERATIONS[route], found, where)
    assert not comparison.wrong, "\n".join(comparison.wrong)
    pages = {name for name in DOCUMENT["components"]["schemas"] if name.startswith("Page_")}
    assert sorted(set(DOCUMENT["components"]["schemas"]) - comparison.seen - pages) == [], (
        "schemas that nothing mirrors"
    )


def bodies(operation: Schema) -> Iterator[Schema]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        yield content["application/json"]["schema"]


def compare_body(comparison: Comparison, schema: Schema, found: list[Method], where: str) -> None:
    """The names of all that the methods send together; and what is below, by the types of their arguments."""
    properties = merged(comparison.branches(schema))["properties"]
    sent = set().union(*(one.call.body for one in found if one.call.body is not None))
    comparison.compare_names(set(properties), sent, f"{where}, body")
    for method in found:
        for name, hint in argument_types(method).items():
            if properties.get(name):
                comparison.compare(properties[name], hint, f"{where}, body.{name}", answer=False)


def argument_types(method: Method) -> dict[str, Any]:
    """Types of the body's fields: of keyword arguments, of a whole document, of items."""
    types: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(method.describe).parameters.items())[1:]:
        hint = hints(method.describe)[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            types |= fields(get_args(hint)[0])
        elif is_typeddict(hint):
            types |= fields(hint)
        elif any(is_list(one) and is_typeddict(get_args(one)[0]) for one in options(hint)):
            types["items"] = next(one for one in options(hint) if is_list(one))
        elif name not in method.call.places and method.call.method != "DELETE":
            types[name] = hint
    return types


def compare_answers(comparison: Comparison, operation: Schema, found: list[Method], where: str) -> None:
    """Each alternative of the answer is read by a method, and each method reads one alternative."""
    schemas = list(answers(comparison, operation))
    types = {answer_type(one.call) for one in found}
    if is_text_too(operation):
        types -= {str}
    unread = list(schemas)
    for type_ in types if schemas else ():
        nearest = min(schemas, key=lambda schema: differences(schema, type_))
        comparison.compare(nearest, type_, f"{where}, answer", answer=True)
        unread = [schema for schema in unread if schema != nearest]
    comparison.wrong += [f"{where}: no method reads {schema}" for schema in unread]


def is_text_too(operation: Schema) -> bool:
    """True if a good answer may be JSON or a text."""
    return any(
        {"application/json", "text/csv"} <= one.get("content", {}).keys() for one in operation["responses"].values()
    )


def answers(comparison: Comparison, operation: Schema) -> Iterator[Schema]:
    """The alternatives of a good answer; of a page, its items."""
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if status < "400" and "application/json" in content:
            schema = content["application/json"]["schema"]
            for one in schema.get("anyOf", schema.get("oneOf", [schema])):
                properties = comparison.resolve(one).get("properties", {})
                yield properties["items"]["items"] if {"items", "next_cursor"} <= properties.keys() else one


def differences(schema: Schema, type_: Any) -> int:
    trial = Comparison(DOCUMENT)
    trial.compare(schema, type_, "", answer=True)
    return sum(map(len, trial.wrong))


def test_models_with_an_etag_are_those_whose_answers_carry_one() -> None:
    for route, found in by_route(Client("http://127.0.0.1:9", "t")).items():
        responses = [one for status, one in OPERATIONS[route]["responses"].items() if status.startswith("2")]
        tagged = any("ETag" in one.get("headers", {}) for one in responses)
        for method in found:
            fields_ = getattr(answer_type(method.call), "__struct_fields__", ())
            assert method.paged or ("etag" in fields_) == tagged, (route, method.name)

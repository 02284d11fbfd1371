"""The OpenAPI document as a generator of clients reads it: names, types, formats, and examples that work."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import jsonschema_rs
import pytest

from paceline.core.schema import DURATION_PATTERN
from paceline.shells.api.openapi.document import openapi_document
from paceline.shells.api.routes import ROUTES
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, serving

DOCUMENT = openapi_document(ROUTES)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
VERBS = {"add", "cancel", "claim", "discard", "edit", "export", "extend", "list", "patch", "pause", "plan", "put"}
VERBS |= {"redrive", "remove", "report", "rerun", "resume", "revoke", "run", "show", "stream", "submit"}
VERBS |= {"end", "explain", "send", "silence"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
TIME_NAMES = re.compile(r"(\w+_)?(at|until|due|since|start|end)")


class Example(NamedTuple):
    place: str
    schema: dict[str, Any]
    value: Any


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(method, path, one) for path, ones in DOCUMENT["paths"].items() for method, one in ones.items()]


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Body and answers: where, the media type, and what stands there."""
    holders = {"body": operation.get("requestBody", {})} | operation["responses"]
    for place, holder in holders.items():
        for media, content in holder.get("content", {}).items():
            yield place, media, content


def values(content: dict[str, Any]) -> list[Any]:
    if "example" in content:
        return [content["example"]]
    return [resolve(example)["value"] for example in content.get("examples", {}).values()]


def resolve(part: dict[str, Any]) -> dict[str, Any]:
    found: Any = part
    while "$ref" in found:
        found = DOCUMENT
        for word in part["$ref"].removeprefix("#/").split("/"):
            found = found[word]
        part = found
    return dict(found)


def examples() -> list[Example]:
    """Each example once, at the first place where it stands."""
    found: dict[str, Example] = {}
    for _, _, operation in operations():
        for place, media, content in contents(operation):
            for value in values(content):
                example = Example(f"{operation['operationId']} {place} {media}", content["schema"], value)
                found.setdefault(repr(example[1:]), example)
    return list(found.values())


EXAMPLES = examples()


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        yield from part.get("discriminator", {}).get("mapping", {}).values()
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def leaves(schema: dict[str, Any], value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each plain value with the schema that it must fit, and the name of its field."""
    schema = resolve(schema)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        schema = next(one for one in choices if validator(one).is_valid(value))
        yield from leaves(schema, value, name)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(schema.get("properties", {}).get(key, {}), part, key)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(schema.get("items", {}), part, name)
    else:
        yield name, schema, value


def validator(schema: dict[str, Any]) -> Any:
    return jsonschema_rs.validator_for(
        {**schema, "components": DOCUMENT["components"], "$schema": "https://json-schema.org/draft/2020-12/schema"},
        validate_formats=True,
    )


def test_every_reference_leads_somewhere_and_every_component_is_referred_to() -> None:
    wanted, known = set(references(DOCUMENT["paths"])), set[str]()
    while new := wanted - known:
        known |= new
        for reference in new:
            wanted |= set(references(resolve({"$ref": reference})))
    there = {
        f"#/components/{kind}/{name}"
        for kind, ones in DOCUMENT["components"].items()
        if kind != "securitySchemes"
        for name in ones
    }
    assert known == there


def test_no_two_schemas_say_the_same() -> None:
    texts = ("title", "description")
    said = Counter(repr({key: part for key, part in one.items() if key not in texts}) for one in SCHEMAS.values())
    assert [text for text, count in said.items() if count > 1] == []


def test_operation_ids_are_unique_and_have_a_verb_and_an_object() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    assert [name for name in names if name.split("_")[0] not in VERBS or "_" not in name] == []


def test_monitor_schema_is_one_of_two_objects_and_its_check_is_discriminated_by_kind() -> None:
    variants = {name: SCHEMAS[name] for name in ("IntervalMonitor", "CronMonitor")}
    assert [resolve(one)["title"] for one in SCHEMAS["MonitorBody"]["oneOf"]] == list(variants)
    assert set(variants["IntervalMonitor"]["required"]) == {"check", "every"}
    assert set(variants["CronMonitor"]["required"]) == {"check", "cron"}
    assert all(one["additionalProperties"] is False for one in variants.values())
    for holder in (*variants.values(), SCHEMAS["MonitorView"]):
        assert holder["properties"]["check"]["$ref"].endswith("/Check")
    mapping = SCHEMAS["Check"]["discriminator"]["mapping"]
    for kind, reference in mapping.items():
        schema = resolve({"$ref": reference})
        assert schema["properties"]["kind"] == {"type": "string", "const": kind}
        assert "kind" in schema["required"]


def test_every_body_and_every_answer_has_an_example() -> None:
    bare = [
        (operation["operationId"], place, media)
        for _, _, operation in operations()
        for place, media, content in contents(operation)
        if not values(content)
    ]
    assert bare == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.place)
def test_an_example_fits_its_schema(example: Example) -> None:
    errors = [error.message for error in validator(example.schema).iter_errors(example.value)]
    assert errors == []


def test_wrong_example_does_not_fit_its_schema() -> None:
    wrong = {"check": {"kind": "http", "url": "https://example.org/"}, "every": "60s", "cron": "0 6 * * *"}
    assert not validator(SCHEMAS["MonitorBody"]).is_valid(wrong)
    assert not validator(SCHEMAS["ExtendAnswer"]).is_valid({"lease_until": "soon"})


def test_times_dates_and_durations_have_their_format_or_pattern() -> None:
    found = [leaf for example in EXAMPLES for leaf in leaves(example.schema, example.value)]
    texts = [(name, schema, value) for name, schema, value in found if isinstance(value, str) and schema]
    times = [(name, schema) for name, schema, value in texts if TIME.fullmatch(value)]
    assert len(times) > 50
    assert {name for name, schema in times if schema.get("format") != "date-time"} == set()
    assert {name for name, schema, value in texts if DAY.fullmatch(value) and schema.get("format") != "date"} == set()
    durations = [(name, schema) for name, schema, value in texts if re.fullmatch(DURATION_PATTERN, value)]
    assert {name for name, schema in durations if schema.get("pattern") != DURATION_PATTERN} == set()


def test_fields_that_are_named_as_times_are_times() -> None:
    wrong = []
    for title, schema in SCHEMAS.items():
        for name, field in schema.get("properties", {}).items():
            kinds = [one for one in field.get("anyOf", [field]) if one.get("type") == "string"]
            if TIME_NAMES.fullmatch(name) and kinds and "pattern" not in kinds[0]:
                wrong += [f"{title}.{name}"] if kinds[0].get("format") != "date-time" else []
    assert set(wrong) == {"BatchView.start"}  # a time of day


# -- the server takes them


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("examples")) as world:
        root = world.add("root", "admin")
        world.add("alice")
        root("PUT", "/v1/providers/shop", {"base_url": "https://shop.example"})
        root("PUT", "/v1/providers/depot", {"kind": "outgoing"})
        root("PUT", "/v1/batches/daily", {})
        root("PUT", "/v1/accounts/lab", {})
        root("PUT", "/v1/users/alice/monitors/there", HTTP)
        yield world


def fired(world: World, name: str) -> str:
    """A waiting run of an outgoing monitor of alice."""
    alice = world.client(world.tokens["alice"])
    assert alice("PUT", f"/v1/users/me/monitors/{name}", OUTGOING).status == 201
    while not (runs := alice("GET", f"/v1/users/me/monitors/{name}/runs").json["items"]):
        world.fire()
    return str(runs[0]["run"])


def leased(world: World, name: str) -> dict[str, str]:
    run = fired(world, name)
    item = world.client(world.tokens["alice"])("POST", f"/v1/runs/{quote(run, safe='')}/claim").json
    return {"run": item["run"], "lease": item["lease"]}


def aim(world: World, operation_id: str, body: dict[str, Any], number: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Where the example is sent, and the example with the names that only this server knows."""
    names = {"user": "alice", "id": f"example-{number}", "provider": "shop", "batch": "daily", "account": "lab"}
    names["channel"] = "ops"
    match operation_id:
        case "edit_monitor" | "silence_monitor":
            names["id"] = "there"
        case "claim_runs":
            fired(world, f"claimed-{number}")  # else the claim waits
        case "claim_run":
            names["run"] = fired(world, f"claimed-one-{number}")
        case "report_outcome" | "extend_lease":
            lease = leased(world, f"{operation_id}-{number}")
            names, body = names | {"run": lease["run"]}, body | {"lease": lease["lease"]}
        case "report_outcomes":
            body = {"items": [item | leased(world, f"many-{number}") for item in body["items"]]}
        case "rerun_day":
            names["date"] = "2026-11-15"
            root = world.client(world.tokens["root"])
            record = {"id": "order-1", "provider": "shop", "endpoint": "/orders/1"}
            root("PUT", "/v1/batches/daily/records", {"items": [record]})
            assert root("POST", "/v1/batches/daily/plan", {"date": names["date"]}).status == 200
        case "edit_key":
            root = world.client(world.tokens["root"])
            key = root("POST", "/v1/accounts/lab/keys?check=false", {"key": "another-key-of-the-lab"})
            names["key_id"] = key.json["id"]
    return names, body


SENT = [
    pytest.param(
        method, path, operation["operationId"], number, example["value"], id=f"{operation['operationId']}-{title}"
    )
    for method, path, operation in operations()
    for number, (title, example) in enumerate(
        operation.get("requestBody", {"content": {"application/json": {"examples": {}}}})["content"][
            "application/json"
        ]["examples"].items()
    )
]


@pytest.mark.parametrize(("method", "path", "operation_id", "number", "body"), SENT)
def test_the_server_takes_an_example_of_a_body(
    served: World, method: str, path: str, operation_id: str, number: int, body: dict[str, Any]
) -> None:
    names, sent = aim(served, operation_id, body, number)
    outgoing = operation_id in ("claim_runs", "claim_run", "report_outcome", "report_outcomes", "extend_lease")
    worker = "provider" in sent
    client = Client(served.port, served.tokens["alice" if outgoing and not worker else "root"])
    where = re.sub(r"{(\w+)}", lambda match: quote(names[match[1]], safe=""), path)
    query = "?check=false" if operation_id == "add_key" else ""
    reply = client(method.upper(), where + query, sent)
    assert reply.status in (200, 201, 202), reply.body
    for item in reply.json.get("items", []):
        assert item.get("disposition") not in ("refused", "stale"), item


def test_every_answer_that_may_be_304_says_so_and_has_its_etag() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            named = "If-None-Match" in {one["name"] for one in operation.get("parameters", [])} and method == "get"
            assert named == ("304" in operation["responses"]), path
            if named:
                assert all("ETag" in operation["responses"][status]["headers"] for status in ("200", "304")), path


def test_every_handler_that_tags_its_answer_is_said_to_answer_304() -> None:
    tagging = [route for route in ROUTES if "tagged_answer(" in inspect.getsource(route.handler)]
    assert len(tagging) >= 5
    assert [route.path for route in tagging if 304 not in route.answers] == []

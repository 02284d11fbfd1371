"""Requests made from the OpenAPI document by the hundred: no 5xx, and every answer as the document says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from paceline.simulators.ripe_atlas import AtlasSimulator
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, serving
from tests.shells.api.support.day import PROVIDER, TOMORROW
from tests.shells.api.support.job_stage import submitted

EXAMPLES = settings().max_examples // 10
"""Of each operation, and there are more than sixty: 10 in each build, and far more in the profile for more."""
THERE = {"id": "web", "provider": "shop", "batch": "daily", "record": "home", "date": TOMORROW, "account": "lab"}
FRAMING = ("content-length", "transfer-encoding")
"""A request with a wrong one is not HTTP at all, and is answered before the API sees it."""
AnyCase = Case[Any]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        AtlasSimulator() as atlas,
        serving(tmp_path_factory.mktemp("fuzz"), wrong_tokens_max=1_000_000, atlas_url=atlas.base_url) as world,
    ):
        world.add("root", "admin")
        alice = world.add("alice")
        alice("PUT", "/v1/users/me/monitors/web", HTTP)
        alice("PUT", "/v1/users/me/monitors/own", OUTGOING)
        stage_batch(world.client(world.tokens["root"]))
        stage_jobs(world, alice)
        yield world


def stage_batch(root: Client) -> None:
    root("PUT", "/v1/providers/shop", PROVIDER)
    root("PUT", "/v1/batches/daily", {})
    root("PUT", "/v1/batches/daily/records", {"items": [{"id": "home", "provider": "shop"}]})
    assert root("POST", "/v1/batches/daily/plan", {"date": TOMORROW}).json["enqueued"] == 1


def stage_jobs(world: World, alice: Client) -> None:
    root = world.client(world.tokens["root"])
    root("PUT", "/v1/accounts/lab", {})
    THERE["key_id"] = root("POST", "/v1/accounts/lab/keys?check=false", {"key": "a-key-of-the-lab"}).json["id"]
    THERE["job"] = submitted(alice)


def operations(world: World) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{world.port}/openapi.json")
    return [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]


def aim(case: AnyCase) -> None:
    """Most made-up names lead nowhere; these lead to what is there, and nothing waits for long."""
    path = case.path_parameters
    if path.get("user") and case.operation.label != "DELETE /v1/users/{user}":
        path["user"] = "alice"
    for name, there in THERE.items():
        if path.get(name) and len(str(path[name])) % 2:
            path[name] = there
    for name in [name for name in case.headers or {} if name.lower() in FRAMING]:
        del case.headers[name]
    if isinstance(case.body, dict) and isinstance(case.body.get("wait"), str):
        case.body["wait"] = "1ms"


def walk(world: World, mode: GenerationMode) -> Counter[int]:
    """Every operation with its examples; how often each status was answered."""
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"Bearer {world.tokens['root']}"}
    for operation in operations(world):
        if mode is GenerationMode.NEGATIVE and not (list(operation.iter_parameters()) or operation.body):
            continue  # nothing can be wrong with it

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def call(case: AnyCase) -> None:
            aim(case)
            response = case.call_and_validate(headers=headers, checks=CHECKS, timeout=25)
            statuses[response.status_code] += 1

        call()
    return statuses


@pytest.mark.timeout(180)
def test_requests_that_fit_the_openapi_document_get_a_documented_answer(fuzzed: World) -> None:
    statuses = walk(fuzzed, GenerationMode.POSITIVE)
    assert statuses[200] > 50
    assert {201, 204, 404, 422} <= set(statuses)


@pytest.mark.timeout(180)
def test_requests_that_do_not_fit_the_openapi_document_get_a_documented_refusal(fuzzed: World) -> None:
    statuses = walk(fuzzed, GenerationMode.NEGATIVE)
    assert statuses[422] > 50

"""Health, readiness, metrics, documentation, and what an admin sees."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.shells.api.http.context import LoopHealth
from paceline.shells.api.http.problems import CODES
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World

MONITORS = "/v1/users/me/monitors"


def test_health_route_answers_while_the_process_lives(world: World) -> None:
    assert world.client()("GET", "/healthz").json == {"status": "ok"}


def test_readyz_requires_a_writable_store_and_running_loops(world: World) -> None:
    anyone = world.client()
    assert anyone("GET", "/readyz").json == {
        "status": "ready",
        "loops": [{"name": "tick", "turning": True, "seconds_since_turn": 0.1}],
    }
    world.loops[0] = LoopHealth("tick", turning=False, age_s=42.0)
    stuck = anyone("GET", "/readyz")
    assert (stuck.status, stuck.code) == (503, "not_ready")
    assert "tick (42 s" in stuck.json["detail"]
    assert "retry-after" in stuck.headers


@contextmanager
def full_disk(file_bytes_max: int) -> Iterator[None]:
    """No file of this process can grow beyond the size: what a full disk does, without filling one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_that_cannot_be_written_is_a_503_and_recovers(alice: Client, tmp_path: Path) -> None:
    alice("PUT", f"{MONITORS}/web", HTTP)
    with full_disk((tmp_path / "api.db-wal").stat().st_size):
        refused = alice("PUT", f"{MONITORS}/other", HTTP)
        assert (refused.status, refused.code) == (503, "store_unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        assert alice("GET", "/readyz").code == "store_unavailable"
        assert b"paceline_store_up 0.0" in alice("GET", "/metrics").body
        assert alice("GET", f"{MONITORS}/web").status == 200
        assert alice("GET", "/healthz").status == 200
    assert alice("GET", f"{MONITORS}/other").status == 404
    assert alice("PUT", f"{MONITORS}/other", HTTP).status == 201
    assert alice("GET", "/readyz").status == 200
    assert b"paceline_store_up 1.0" in alice("GET", "/metrics").body


def test_metrics_need_no_token_and_name_no_user(world: World, alice: Client) -> None:
    alice("PUT", f"{MONITORS}/very-private", HTTP)
    alice("GET", f"{MONITORS}/very-private")
    alice("GET", "/no/such/address")
    reply = world.client()("GET", "/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = reply.body.decode()
    assert 'paceline_http_requests_total{method="PUT",route="/v1/users/{user}/monitors/{id}",status="201"} 1.0' in text
    assert 'paceline_http_requests_total{method="other",route="unmatched",status="404"} 1.0' in text
    assert 'paceline_loop_age_seconds{loop="tick"} 0.1' in text
    assert "paceline_store_up 1.0" in text
    assert "alice" not in text
    assert "very-private" not in text


def test_an_admin_sees_status_and_schedulers(admin: Client, alice: Client) -> None:
    alice("PUT", MONITORS, {"items": [{"id": f"m{number}", **OUTGOING} for number in range(3)]})
    status = admin("GET", "/v1/status").json
    assert (status["users"], status["monitors"], status["entries"], status["changes_pending"]) == (2, 3, 3, 0)
    page = admin("GET", "/v1/schedulers?limit=2").json
    rest = admin("GET", f"/v1/schedulers?limit=2&cursor={page['next_cursor']}").json
    rows = [*page["items"], *rest["items"]]
    assert [row["key"] for row in rows] == ["alice/m0", "alice/m1", "alice/m2"]
    assert set(rows[0]) == {"key", "generation", "counter", "next_due", "owner"}
    assert rest["next_cursor"] is None


def test_the_openapi_document_describes_checks_problems_and_security(world: World) -> None:
    document = world.client()("GET", "/openapi.json").json
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    kinds = set(schemas["Check"]["discriminator"]["mapping"])
    assert kinds == {"http", "tcp", "dns", "tls", "outgoing"}
    assert len(schemas["Check"]["oneOf"]) == 5
    assert document["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            assert "500" in responses
            assert ("401" in responses) == path.startswith("/v1/")
            problems = [response for status, response in responses.items() if status >= "400"]
            for problem in problems:
                assert problem["content"]["application/problem+json"]["schema"]["$ref"].endswith("/Problem")
    references = set(
        re.findall(r'"\$ref":"#/components/schemas/(\w+)"', world.client()("GET", "/openapi.json").body.decode())
    )
    assert references <= set(schemas)
    identifiers = [op["operationId"] for ops in document["paths"].values() for op in ops.values()]
    assert len(identifiers) == len(set(identifiers))


def test_documentation_pages_load_nothing_from_elsewhere(world: World) -> None:
    anyone = world.client()
    index, docs = anyone("GET", "/"), anyone("GET", "/docs")
    for page in (index, docs):
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.body.decode()
        assert re.sub(r'<script type="module" src="/[^"]*"></script>', "", text).count("<script") == 0
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
        assert not re.search(r"\son\w+=|\sstyle=", text)
    assert "<script" not in docs.body.decode()
    for path in re.findall(r'(?:href|src)="(/[^"]*)"', index.body.decode()):
        assert anyone("GET", path).status == 200
    text = docs.body.decode()
    anchors = set(re.findall(r'id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= anchors
    assert {f"error-{code}" for code in CODES} <= anchors


def test_the_type_of_a_problem_leads_to_its_explanation(world: World) -> None:
    anyone = world.client()
    page, _, anchor = anyone("GET", "/nothing").json["type"].partition("#")
    assert f'id="{anchor}"'.encode() in anyone("GET", page).body


@pytest.mark.parametrize("path", ["/ui/session", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics"])
def test_pages_without_authentication_refuse_parameters(house: World, path: str) -> None:
    assert house.client()("GET", f"{path}?x=1").code == "invalid_input"

"""Nobody sees or touches another's: a walk over every route of the OpenAPI document with a second user's token."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paceline.core.alerts.alert import Alert
from tests.shells.api.conftest import HTTP, OUTGOING, Client, World, run_path
from tests.shells.api.support.day import PROVIDER, TOMORROW
from tests.shells.api.support.job_stage import job, submitted

BODIES: dict[str, Any] = {
    "put_monitor": {**HTTP, "every": "5s"},
    "put_monitors": {"items": [{"id": "web", **HTTP, "every": "5s"}]},
    "patch_monitor": {"paused": True},
    "put_channel": {"kind": "webhook", "url": "https://mallory.example.org/", "default": True},
    "silence_monitor": {"for": "2h"},
    "silence_tag": {"tag": "web", "for": "2h"},
    "edit_user": {"disabled": True},
    "add_user": {"id": "mallory", "role": "admin"},
    "add_token": {"label": "stolen"},
    "report_outcome": {"status": "ok"},
    "extend_lease": {"by": "1h"},
    "claim": {"user": "alice"},
    "put_provider": {"base_url": "https://example.org/"},
    "put_batch": {"window": "1h"},
    "put_records": {"items": [{"id": "stolen", "provider": "shop"}]},
    "plan_batch": {"date": "2026-11-20"},
    "rerun_day": {"state": "done"},
    "redrive_dead": {"provider": "shop"},
    "discard_dead": {"provider": "shop"},
    "submit_job": job(),
    "put_account": {"concurrent": 0},
    "add_key": {"key": "stolen-key-0000"},
    "edit_key": {"enabled": False},
}
OWN = {("POST", "/v1/outgoing/claim"): {"items": []}, ("GET", "/v1/jobs"): {"items": [], "next_cursor": None}}
"""Routes that name nobody: without a name each user has their own, and bob has nothing."""
NAMED = {("POST", "/v1/jobs"): "?user=alice", ("GET", "/v1/ahead"): "?user=alice"}
"""Routes where somebody else is named in the query."""
BULK = ("POST", "/v1/outgoing/outcomes")
"""Its items name runs, and each has its own answer."""
OPEN = {"/healthz", "/readyz", "/metrics"}


class Stage:
    """Alice has one of everything; bob has nothing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alice = world.add("alice")
        self.bob = world.add("bob")
        self.admin = world.add("root", "admin")
        self.alice("PUT", "/v1/users/me/monitors/web", HTTP)
        self.alice("PUT", "/v1/users/me/monitors/own", OUTGOING)
        self.alice("PUT", "/v1/users/me/channels/ops", {"kind": "webhook", "url": "https://example.org/secret"})
        self.silence = self.alice("POST", "/v1/users/me/monitors/web/silence", {"for": "2h"}).json["id"]
        alert = Alert("al_1", "monitor.failing", world.system.clock.now_ms(), "alice", "web")
        assert world.system.store.add_alerts([alert]) == [True]
        self.admin("PUT", "/v1/providers/shop", PROVIDER)
        self.admin("PUT", "/v1/batches/daily", {})
        self.admin("PUT", "/v1/batches/daily/records", {"items": [{"id": "home", "provider": "shop"}]})
        assert self.admin("POST", "/v1/batches/daily/plan", {"date": TOMORROW}).json["enqueued"] == 1
        self.job = submitted(self.alice)
        self.admin("PUT", "/v1/accounts/lab", {})
        added = self.admin("POST", "/v1/accounts/lab/keys?check=false", {"key": "a-key-of-the-lab-0001"})
        self.key_id = added.json["id"]
        made = 0
        while made < 2:
            made += world.fire()
        (self.item,) = self.alice("POST", "/v1/outgoing/claim", {"lease": "1h"}).json["items"]
        self.token_id = self.alice("GET", "/v1/users/me/tokens").json["items"][0]["id"]
        self.routes = [
            (method.upper(), path, operation)
            for path, operations in world.client()("GET", "/openapi.json").json["paths"].items()
            for method, operation in operations.items()
        ]

    def path(self, template: str) -> str:
        run = run_path(self.item["run"]).removeprefix("/v1/runs/")
        names = {
            "user": "alice",
            "id": "web",
            "run": run,
            "token_id": self.token_id,
            "channel": "ops",
            "silence_id": self.silence,
            "provider": "shop",
            "batch": "daily",
            "record": "home",
            "date": TOMORROW,
            "job": self.job,
            "account": "lab",
            "key_id": self.key_id,
        }
        return re.sub(r"{(\w+)}", lambda place: names[place[1]], template)

    def body(self, operation: dict[str, Any]) -> Any:
        body = BODIES.get(operation["operationId"])
        needs_lease = operation["operationId"] in ("report_outcome", "extend_lease")
        return {"lease": self.item["lease"], **BODIES[operation["operationId"]]} if needs_lease else body

    def all_of_alice(self) -> list[Any]:
        admin = self.admin
        return [
            admin("GET", path).json
            for path in (
                "/v1/users/alice",
                "/v1/users/alice/tokens",
                "/v1/users/alice/monitors",
                "/v1/users/alice/monitors/own/runs",
                "/v1/users/alice/monitors/web/runs",
                run_path(self.item["run"]),
                "/v1/users/alice/channels",
                "/v1/users/alice/silences",
                "/v1/users/alice/alerts",
                "/v1/users",
                "/v1/providers",
                "/v1/batches",
                "/v1/batches/daily/records",
                "/v1/batches/daily/days",
                f"/v1/batches/daily/days/{TOMORROW}",
                "/v1/jobs",
                f"/v1/jobs/{self.job}",
                "/v1/users/alice/budget",
                "/v1/users/alice/webhook-secret",
                "/v1/accounts",
            )
        ]


@pytest.fixture
def stage(world: World) -> Stage:
    return Stage(world)


def test_every_route_hides_the_first_user_from_the_second(stage: Stage) -> None:
    before = stage.all_of_alice()
    walked = 0
    for method, template, operation in stage.routes:
        if template in OPEN or (method, template) == BULK:
            continue
        path = stage.path(template) + NAMED.get((method, template), "")
        with_body = stage.bob(method, path, stage.body(operation))
        without_body = stage.bob(method, path)
        for reply in (with_body, without_body):
            if "Admins only" in operation["description"]:
                assert (reply.status, reply.code) == (403, "forbidden"), (method, template)
            elif (reply is without_body or stage.body(operation) is None) and (method, template) in OWN:
                assert reply.json == OWN[method, template]
            else:
                assert (reply.status, reply.code) == (404, "not_found"), (method, template, reply.body)
        walked += 1
    outcome = {"run": stage.item["run"], "lease": stage.item["lease"], "status": "ok"}
    (refused,) = stage.bob(*BULK, {"items": [outcome]}).json["items"]
    assert (refused["disposition"], refused["error"]["code"]) == ("refused", "not_found")
    assert walked == len(stage.routes) - len(OPEN) - 1
    assert stage.all_of_alice() == before


def test_naming_another_user_in_a_query_is_not_found(stage: Stage) -> None:
    for name in ("alice", "nobody"):
        assert stage.bob("GET", f"/v1/jobs?user={name}").code == "not_found"
        assert stage.bob("POST", f"/v1/jobs?user={name}&dry_run=true", job()).code == "not_found"
    assert stage.bob("GET", "/v1/jobs?user=me").json["items"] == []
    assert (
        stage.bob("GET", f"/v1/jobs/{stage.job}").body.replace(stage.job.encode(), b"x")
        == stage.bob("GET", "/v1/jobs/x").body
    )


def test_every_route_except_the_open_ones_requires_a_token(stage: Stage) -> None:
    before = stage.all_of_alice()
    for method, template, operation in stage.routes:
        reply = stage.world.client()(method, stage.path(template), stage.body(operation))
        assert reply.status == (200 if template in OPEN else 401), (method, template)
    assert stage.all_of_alice() == before


def test_another_user_looks_like_a_missing_user(stage: Stage) -> None:
    for method, template, operation in stage.routes:
        if "{user}" not in template or "Admins only" in operation["description"]:
            continue
        there = stage.bob(method, stage.path(template), stage.body(operation))
        missing = stage.bob(method, stage.path(template).replace("alice", "nobody"), stage.body(operation))
        assert there.body.replace(b"alice", b"nobody") == missing.body, (method, template)


def test_ids_that_join_to_the_same_text_stay_apart(world: World) -> None:
    first, second = world.add("1-a"), world.add("1")
    assert first("PUT", "/v1/users/me/monitors/b", HTTP).status == 201
    assert second("PUT", "/v1/users/me/monitors/a-b", {**HTTP, "every": "30s"}).status == 201
    assert second("DELETE", "/v1/users/me/monitors/a-b").status == 204
    assert first("GET", "/v1/users/me/monitors/b").json["every"] == "60s"


def test_admin_may_read_and_change_things_of_every_user(stage: Stage) -> None:
    admin: Client = stage.admin
    assert admin("GET", "/v1/users/alice/monitors/web").json["user"] == "alice"
    assert admin("PUT", "/v1/users/alice/monitors/new", HTTP).headers["location"] == "/v1/users/alice/monitors/new"
    assert admin("DELETE", "/v1/users/alice/monitors/new").status == 204
    assert admin("PUT", "/v1/users/nobody/monitors/new", HTTP).code == "not_found"
    assert admin("GET", "/v1/users/nobody/monitors").code == "not_found"

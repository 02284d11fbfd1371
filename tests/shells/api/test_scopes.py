"""Tokens with a scope: a walk over every route of the OpenAPI document, and what each scope may do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.shells.api.conftest import OUTGOING, Client, World, run_path
from tests.shells.api.test_tenancy import OPEN, Stage
from tests.shells.api.test_workers import CLAIM, OUTCOMES, fill_shop, report, take

HANDS_OUT = {
    ("POST", "/v1/outgoing/claim"),
    ("POST", "/v1/outgoing/outcomes"),
    ("POST", "/v1/runs/{run}/claim"),
    ("POST", "/v1/runs/{run}/outcome"),
    ("POST", "/v1/runs/{run}/extend"),
}
"""All that a checker or a worker needs."""


def scoped(giver: Client, scope: str, *, user: str = "me", **more: Any) -> Client:
    made = giver("POST", f"/v1/users/{user}/tokens", {"scope": scope, **more})
    assert made.status == 201, made.body
    assert made.json["scope"] == scope
    return Client(giver.port, made.json["token"])


@pytest.fixture
def stage(world: World) -> Stage:
    return Stage(world)


@pytest.mark.parametrize("owner", ["root", "alice"])
def test_read_token_reads_everything_of_its_owner_and_changes_nothing(stage: Stage, owner: str) -> None:
    giver = stage.admin if owner == "root" else stage.alice
    client = scoped(giver, "read")
    before = stage.all_of_alice()
    walked = 0
    for method, template, operation in stage.routes:
        if template in OPEN:
            continue
        path, body = stage.path(template), stage.body(operation)
        reply = client(method, path, body if method != "GET" else None)
        if method == "GET":
            assert reply.status == giver(method, path).status, (method, template)
        else:
            assert (reply.status, reply.code) == (403, "out_of_scope"), (method, template)
        walked += 1
    assert walked == len(stage.routes) - len(OPEN)
    assert stage.all_of_alice() == before


@pytest.mark.parametrize("owner", ["root", "alice"])
@pytest.mark.parametrize("scope", ["checker", "worker:shop"])
def test_token_of_a_checker_or_a_worker_reaches_the_outgoing_queue_alone(stage: Stage, scope: str, owner: str) -> None:
    client = scoped(stage.admin, scope, user=owner)
    walked = set()
    before = stage.all_of_alice()
    for method, template, operation in stage.routes:
        if template in OPEN or (method, template) in HANDS_OUT:
            continue
        for body in (stage.body(operation), None):
            reply = client(method, stage.path(template), body if method != "GET" else None)
            assert (reply.status, reply.code) == (403, "out_of_scope"), (method, template, reply.body)
        walked.add((method, template))
    assert len(walked) == len(stage.routes) - len(OPEN) - len(HANDS_OUT)
    assert stage.all_of_alice() == before


def test_checker_token_works_on_its_owner_s_runs_and_an_admin_s_on_everybody_s(
    world: World, admin: Client, alice: Client, bob: Client
) -> None:
    for user, name in ((alice, "a"), (bob, "b")):
        assert user("PUT", f"/v1/users/me/monitors/{name}", OUTGOING).status == 201
    fired = 0
    while fired < 2:
        fired += world.fire()
    checker, everybody = scoped(alice, "checker"), scoped(admin, "checker")
    (item,) = checker("POST", CLAIM, {}).json["items"]
    assert item["user"] == "alice"
    assert checker("POST", f"{run_path(item['run'])}/extend", {"lease": item["lease"], "by": "1h"}).status == 200
    assert report(checker, item).json["state"] == "ok"
    (other,) = everybody("POST", CLAIM, {}).json["items"]
    assert other["user"] == "bob"
    assert report(checker, other).code == "not_found"
    assert report(everybody, other).status == 200


def test_checker_token_does_not_touch_batches(world: World, admin: Client) -> None:
    (run,) = fill_shop(world, admin, 1)
    checker = scoped(admin, "checker")
    assert checker("POST", CLAIM, {"provider": "shop"}).code == "out_of_scope"
    assert checker("POST", f"{run_path(run)}/claim", {}).code == "out_of_scope"
    (item,) = take(admin)
    assert report(checker, item).code == "out_of_scope"
    assert checker("POST", f"{run_path(run)}/extend", {"lease": item["lease"], "by": "1h"}).code == "out_of_scope"
    (refused,) = checker("POST", OUTCOMES, {"items": [{"run": run, "lease": item["lease"], "status": "ok"}]}).json[
        "items"
    ]
    assert (refused["disposition"], refused["error"]["code"]) == ("refused", "out_of_scope")
    assert report(admin, item).status == 200


@pytest.mark.parametrize("owner", ["root", "alice"])
def test_worker_token_works_on_runs_of_its_provider_alone(
    world: World, admin: Client, alice: Client, owner: str
) -> None:
    runs = fill_shop(world, admin, 3, max_in_flight=3)
    worker, stranger = scoped(admin, "worker:shop", user=owner), scoped(admin, "worker:depot", user=owner)
    assert admin("PUT", "/v1/providers/depot", {"kind": "outgoing"}).status == 201
    assert admin("PUT", f"/v1/users/{owner}/monitors/own", OUTGOING).status == 201
    while not world.fire():
        pass
    for body in ({}, {"provider": "depot"}, {"queue": "browser"}):
        assert worker("POST", CLAIM, body).code == "out_of_scope"
    (check,) = (admin if owner == "root" else alice)("POST", CLAIM, {}).json["items"]
    assert report(worker, check).code == "out_of_scope"
    assert worker("POST", f"{run_path(check['run'])}/claim", {}).code == "out_of_scope"
    assert stranger("POST", f"{run_path(runs[0])}/claim", {}).code == "out_of_scope"
    first = worker("POST", f"{run_path(runs[0])}/claim", {"lease": "60s"}).json
    second, third = take(worker)
    assert [item["run"] for item in (first, second, third)] == runs
    assert report(stranger, first).code == "out_of_scope"
    longer = {"lease": first["lease"], "by": "1h"}
    assert stranger("POST", f"{run_path(runs[0])}/extend", longer).code == "out_of_scope"
    assert worker("POST", f"{run_path(runs[0])}/extend", longer).status == 200
    assert report(worker, first).json["state"] == "done"
    outcomes = {"items": [{"run": one["run"], "lease": one["lease"], "status": "ok"} for one in (second, third)]}
    strange = stranger("POST", OUTCOMES, outcomes).json["items"]
    assert {one["error"]["code"] for one in strange} == {"out_of_scope"}
    done = worker("POST", OUTCOMES, outcomes).json["items"]
    assert [one["disposition"] for one in done] == ["settled", "settled"]


def test_worker_tokens_are_made_by_admins_and_no_token_by_a_scoped_token(admin: Client, alice: Client) -> None:
    refused = alice("POST", "/v1/users/me/tokens", {"scope": "worker:shop"})
    assert (refused.status, refused.code) == (403, "forbidden")
    reader = scoped(alice, "read")
    assert reader("POST", "/v1/users/me/tokens", {}).code == "out_of_scope"
    for scope in ("write", "worker:", "worker:a b", "Read"):
        wrong = admin("POST", "/v1/users/me/tokens", {"scope": scope})
        assert (wrong.status, wrong.pointers) == (422, ["/scope"])


def test_token_that_has_expired_is_refused_also_while_it_waits(world: World, admin: Client) -> None:
    ends_s = world.system.clock.now_ms() / 1_000 + 2
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ends_s)) + f".{int(ends_s % 1 * 1_000):03d}Z"
    client = scoped(admin, "checker", expires=text)
    assert client("POST", CLAIM, {"wait": "0s"}).status == 200
    (listed,) = [one for one in admin("GET", "/v1/users/me/tokens").json["items"] if one["scope"] == "checker"]
    assert listed["expires"] == text
    waited = client("POST", CLAIM, {"wait": "5s"})
    assert (waited.status, waited.code) == (401, "unauthenticated")
    assert client("POST", CLAIM, {}).code == "unauthenticated"
    for wrong in ("2020-01-01T00:00:00Z", "tomorrow", "2030-13-01T00:00:00Z", "2030-01-01T00:00:00+01:00"):
        refused = admin("POST", "/v1/users/me/tokens", {"expires": wrong})
        assert (refused.status, refused.pointers) == (422, ["/expires"]), wrong


def test_ripe_clients_may_read_with_a_read_token_and_create_nothing(admin: Client) -> None:
    reader, checker = ({"Authorization": f"Key {scoped(admin, scope).token}"} for scope in ("read", "checker"))
    nobody = Client(admin.port)
    assert nobody("GET", "/api/v2/measurements/my/", headers=reader).status == 200
    assert nobody("POST", "/api/v2/measurements/", {}, headers=reader).status == 403
    assert nobody("GET", "/api/v2/measurements/my/", headers=checker).status == 403

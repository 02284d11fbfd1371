"""The outgoing queue: claim, long poll, outcome, extend, fencing."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.shells.api.conftest import OUTGOING, Client, Reply, World, run_path, serving

CLAIM = "/v1/outgoing/claim"
MONITORS = "/v1/users/me/monitors"


def put_and_fire(world: World, client: Client, *names: str) -> None:
    for name in names:
        assert client("PUT", f"{MONITORS}/{quote(name)}", OUTGOING).status == 201
    fire(world, len(names))


def fire(world: World, runs: int) -> None:
    """Fires until this many runs were made: a monitor's first firing may be due a moment after its put."""
    made = 0
    while made < runs:
        made += world.fire()


def claim_one(client: Client, **body: Any) -> dict[str, Any]:
    (item,) = client("POST", CLAIM, body).json["items"]
    assert isinstance(item, dict)
    return item


def test_claim_returns_the_documented_fields(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice, max=10, lease="60s", wait="0s")
    assert {"run", "lease", "check", "due", "attempt"} <= set(item)
    assert item["check"] == OUTGOING["check"]
    assert (item["user"], item["monitor"], item["attempt"]) == ("alice", "own", 1)
    assert item["due"].endswith("Z")
    assert alice("POST", CLAIM).json == {"items": []}
    run = alice("GET", run_path(item["run"])).json
    assert (run["state"], run["until"]) == ("out", item["lease_until"])
    assert b'paceline_start_lateness_seconds_count{kind="outgoing"} 1.0' in alice("GET", "/metrics").body


def test_an_outcome_settles_the_run_once(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice)
    outcome = {"lease": item["lease"], "status": "ok", "detail": {"latency_ms": 3, "answer": [1, None]}}
    settled = alice("POST", f"{run_path(item['run'])}/outcome", outcome)
    assert settled.status == 200
    assert settled.json == alice("GET", run_path(item["run"])).json
    assert (settled.json["state"], settled.json["outcome"], settled.json["latency_ms"]) == ("ok", "ok", 3.0)
    assert settled.json["detail"] == outcome["detail"]
    again = alice("POST", f"{run_path(item['run'])}/outcome", {**outcome, "status": "failed"})
    assert (again.status, again.code) == (409, "stale_lease")
    assert alice("GET", run_path(item["run"])).json["state"] == "ok"
    assert b'paceline_runs_total{kind="outgoing",outcome="ok"} 1.0' in alice("GET", "/metrics").body


def test_a_retry_comes_back_with_the_next_attempt_and_another_lease(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice)
    reply = alice("POST", f"{run_path(item['run'])}/outcome", {"lease": item["lease"], "status": "retry"})
    assert (reply.status, reply.json["state"]) == (200, "retry")
    again = claim_one(alice, wait="5s")
    assert (again["run"], again["attempt"]) == (item["run"], 2)
    assert again["lease"] != item["lease"]
    stale = alice("POST", f"{run_path(item['run'])}/outcome", {"lease": item["lease"], "status": "ok"})
    assert stale.code == "stale_lease"


def test_a_checker_that_wakes_after_its_lease_is_fenced(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "own")
    frozen = claim_one(alice, lease="1s")
    awake = claim_one(alice, wait="5s")
    assert (awake["run"], awake["attempt"]) == (frozen["run"], 2)
    for path, body in (("outcome", {"status": "ok"}), ("extend", {"by": "60s"})):
        late = alice("POST", f"{run_path(frozen['run'])}/{path}", {"lease": frozen["lease"], **body})
        assert (late.status, late.code) == (409, "stale_lease")
    done = alice("POST", f"{run_path(awake['run'])}/outcome", {"lease": awake["lease"], "status": "failed"})
    assert done.json["state"] == "failed"


def test_extend_moves_the_end_of_the_lease(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice, lease="2s")
    extended = alice("POST", f"{run_path(item['run'])}/extend", {"lease": item["lease"], "by": "10m"})
    assert extended.status == 200
    assert extended.json["lease_until"] > item["lease_until"]
    assert alice("GET", run_path(item["run"])).json["until"] == extended.json["lease_until"]


@pytest.mark.parametrize("name", ["plain", "a@b:c", "x+y=z~1"])
def test_a_run_is_found_however_its_id_is_escaped(world: World, alice: Client, name: str) -> None:
    put_and_fire(world, alice, name)
    item = claim_one(alice)
    run = item["run"]
    head, tail = run.split("#")
    for path in (quote(run, safe=""), quote(run, safe="/"), f"{head}%23{tail}"):
        assert alice("GET", f"/v1/runs/{path}").json["run"] == run
    done = alice("POST", f"/v1/runs/{head}%23{tail}/outcome", {"lease": item["lease"], "status": "ok"})
    assert done.json["run"] == run


@pytest.mark.parametrize("run", ["x", "alice/own", "alice/own#1", "alice/own#1@x", "alice/own%231%4099", "%00", "a//b"])
def test_text_that_is_no_run_id_is_not_found(chief: Client, run: str) -> None:
    assert chief("GET", f"/v1/runs/{run}").code == "not_found"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"max": 0}, "/max"),
        ({"max": 1_001}, "/max"),
        ({"max": 10**30}, "/max"),
        ({"lease": "0s"}, "/lease"),
        ({"lease": "13h"}, "/lease"),
        ({"lease": "5s\n"}, "/lease"),
        ({"lease": 60}, "/lease"),
        ({"wait": "21s"}, "/wait"),
        ({"wait": "-1s"}, "/wait"),
        ({"owner": "bob"}, "/owner"),
    ],
)
def test_a_wrong_claim_is_refused_by_field(guest: Client, body: object, pointer: str) -> None:
    reply = guest("POST", CLAIM, body)
    assert (reply.status, reply.code, reply.pointers) == (422, "invalid_input", [pointer])


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"lease": ""}, 404),
        ({"lease": "zz.1"}, 404),
        ({"lease": "1.1"}, 404),
        ({"lease": "fffffffffffffff.99999999999999999999"}, 404),
        ({"lease": "x" * 41}, 422),
        ({"lease": None}, 422),
        ({"status": "done"}, 422),
        ({"detail": []}, 422),
        ({"detail": {"x": "y" * 20_000}}, 422),
        ({"detail": {"reason": "\u0000"}}, 422),
        ({"counter": 5}, 422),
    ],
)
def test_a_wrong_outcome_changes_nothing(world: World, alice: Client, change: dict[str, Any], status: int) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice)
    path = run_path(item["run"])
    assert alice("POST", f"{path}/outcome", {"lease": item["lease"], "status": "ok", **change}).status == status
    assert alice("GET", path).json["state"] == "out"


@pytest.mark.parametrize("latency", [10**400, -1, True, "fast", None, [1]])
def test_a_latency_that_makes_no_sense_is_kept_but_not_shown(world: World, alice: Client, latency: object) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice)
    outcome = {"lease": item["lease"], "status": "ok", "detail": {"latency_ms": latency}}
    settled = alice("POST", f"{run_path(item['run'])}/outcome", outcome)
    assert (settled.status, settled.json["latency_ms"]) == (200, None)
    assert alice("GET", run_path(item["run"])).json["detail"] == {"latency_ms": latency}


def test_a_lease_with_an_absurd_attempt_is_refused(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice)
    handle = item["lease"].split(".")[0]
    for lease in (f"{handle}.2", f"{handle}.99999999999999999999", f"{handle}.0"):
        reply = alice("POST", f"{run_path(item['run'])}/outcome", {"lease": lease, "status": "ok"})
        assert reply.status in (404, 409)


def test_admin_claims_for_all_users_or_for_one_user(world: World, admin: Client, alice: Client, bob: Client) -> None:
    put_and_fire(world, alice, "a1", "a2")
    put_and_fire(world, bob, "b1")
    only_bob = admin("POST", CLAIM, {"user": "bob"}).json["items"]
    assert [item["monitor"] for item in only_bob] == ["b1"]
    assert {item["user"] for item in admin("POST", CLAIM).json["items"]} == {"alice"}
    assert admin("POST", CLAIM, {"user": "nobody"}).code == "not_found"
    settled = admin("POST", f"{run_path(only_bob[0]['run'])}/outcome", {"lease": only_bob[0]["lease"], "status": "ok"})
    assert settled.status == 200


def test_user_claims_only_their_own_runs(world: World, alice: Client, bob: Client) -> None:
    put_and_fire(world, alice, "a1")
    assert bob("POST", CLAIM).json["items"] == []
    assert bob("POST", CLAIM, {"user": "alice"}).code == "not_found"
    assert bob("POST", CLAIM, {"user": "me"}).json["items"] == []
    item = claim_one(alice)
    outcome = {"lease": item["lease"], "status": "ok"}
    assert bob("POST", f"{run_path(item['run'])}/outcome", outcome).code == "not_found"
    assert bob("POST", f"{run_path(item['run'])}/extend", {"lease": item["lease"], "by": "1h"}).code == "not_found"
    assert bob("GET", run_path(item["run"])).code == "not_found"
    assert alice("GET", run_path(item["run"])).json["until"] == item["lease_until"]


def test_claimers_at_once_never_get_the_same_run(world: World, alice: Client) -> None:
    put_and_fire(world, alice, *(f"m{number}" for number in range(20)))
    got: list[str] = []

    def claim() -> None:
        got.extend(item["run"] for item in alice("POST", CLAIM, {"max": 3}).json["items"])

    threads = [threading.Thread(target=claim) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 20


# -- the long poll


def test_a_long_poll_wakes_when_a_run_is_made(world: World, alice: Client) -> None:
    arrived: list[float] = []

    def poll() -> None:
        assert claim_one(alice, wait="10s")
        arrived.append(time.monotonic())

    thread = threading.Thread(target=poll)
    thread.start()
    time.sleep(1.0)
    put_and_fire(world, alice, "own")
    fired = time.monotonic()
    thread.join()
    assert arrived[0] - fired < 0.2


def test_a_long_poll_sees_runs_that_another_process_makes(world: World, alice: Client) -> None:
    arrived: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: arrived.append(claim_one(alice, wait="10s")))
    thread.start()
    time.sleep(0.3)
    alice("PUT", f"{MONITORS}/own", OUTGOING)
    from paceline.steps.monitors.tick import tick

    while not tick(world.system.store, now_ms=world.system.clock.now_ms(), catch_up=world.system.catch_up).runs:
        time.sleep(0.01)
    started = time.monotonic()
    thread.join()
    assert time.monotonic() - started < 6
    assert arrived


def test_a_long_poll_without_runs_ends_when_its_time_is_over(alice: Client) -> None:
    started = time.monotonic()
    assert alice("POST", CLAIM, {"wait": "700ms"}).json == {"items": []}
    assert 0.6 < time.monotonic() - started < 10


@pytest.mark.parametrize("how", ["revoked", "disabled", "demoted"])
def test_long_poll_with_a_revoked_token_gets_no_run(world: World, admin: Client, how: str) -> None:
    """A run claimed for the revoked token is released and goes to a user with access."""
    alice = world.add("carol", "admin" if how == "demoted" else "user")
    tokens = alice("GET", "/v1/users/me/tokens").json["items"]
    assert alice("PUT", f"{MONITORS}/own", OUTGOING).status == 201
    answers: list[Reply] = []
    thread = threading.Thread(target=lambda: answers.append(alice("POST", CLAIM, {"wait": "15s"})))
    thread.start()
    time.sleep(1.0)
    if how == "revoked":
        assert admin("DELETE", f"/v1/users/carol/tokens/{tokens[0]['id']}").status == 204
    else:
        edit = {"disabled": True} if how == "disabled" else {"role": "user"}
        assert admin("PATCH", "/v1/users/carol", edit).status == 200
    if how == "disabled":  # its runs are held, so that there is none to hand out
        thread.join()
        assert (answers[0].status, answers[0].json.get("code")) == (401, "unauthenticated")
        return
    while not world.fire():
        time.sleep(0.01)
    thread.join()
    assert (answers[0].status, answers[0].json.get("code")) == (401, "unauthenticated")
    assert "items" not in answers[0].json
    (item,) = admin("POST", CLAIM, {"wait": "5s", "user": "carol"}).json["items"]
    assert (item["user"], item["monitor"]) == ("carol", "own")


@pytest.mark.parametrize("edit", [{"role": "user"}, {"disabled": True}, None], ids=str)
def test_last_admin_cannot_demote_disable_or_remove_itself(admin: Client, edit: dict[str, Any] | None) -> None:
    me = f"/v1/users/{admin('GET', '/v1/users/me').json['id']}"
    refused = admin("DELETE", me) if edit is None else admin("PATCH", me, edit)
    assert (refused.status, refused.code) == (409, "last_admin")
    assert admin("GET", "/v1/users").status == 200


def test_client_that_disconnects_from_a_long_poll_claims_nothing(world: World, alice: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.port)
    headers = {"Authorization": f"Bearer {alice.token}", "Content-Type": "application/json"}
    connection.request("POST", CLAIM, json.dumps({"wait": "20s"}), headers)
    time.sleep(0.3)
    connection.close()
    time.sleep(0.3)
    put_and_fire(world, alice, "own")
    time.sleep(0.8)
    assert claim_one(alice)["attempt"] == 1
    assert b'route="/v1/outgoing/claim",status="499"} 1.0' in alice("GET", "/metrics").body


def test_a_drain_ends_every_long_poll_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    answers: list[Any] = []
    with serving(tmp_path_factory.mktemp("drain")) as world:
        alice = world.add("alice")
        threads = [
            threading.Thread(target=lambda: answers.append(alice("POST", CLAIM, {"wait": "20s"}).json))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        started = time.monotonic()
        world.hooks.arrivals.close()
        for thread in threads:
            thread.join()
        assert time.monotonic() - started < 10
    assert answers == [{"items": []}] * 3


OUTCOMES = "/v1/outgoing/outcomes"


def test_outcomes_in_bulk_are_settled_and_each_item_has_its_disposition(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "a", "b", "c", "d")
    one, two, three, four = alice("POST", CLAIM, {"max": 4}).json["items"]
    items: list[Any] = [
        {"run": one["run"], "lease": one["lease"], "status": "ok", "detail": {"latency_ms": 2}},
        {"run": two["run"], "lease": two["lease"], "status": "retry"},
        {"run": one["run"], "lease": one["lease"], "status": "failed"},
        {"run": three["run"], "lease": three["lease"], "status": "fine"},
        {"lease": three["lease"], "status": "ok"},
        "nonsense",
        {"run": four["run"], "lease": four["lease"], "status": "failed", "detail": {"reason": "no"}},
        {"run": "bob/x#1@1", "lease": "1.1", "status": "ok"},
    ]
    answer = alice("POST", OUTCOMES, {"items": items})
    assert answer.status == 200
    results = answer.json["items"]
    found = [(item["disposition"], item.get("state"), item.get("error", {}).get("code")) for item in results]
    assert found == [
        ("settled", "ok", None),
        ("retried", None, None),
        ("stale", None, "stale_lease"),
        ("refused", None, "invalid_input"),
        ("refused", None, "invalid_input"),
        ("refused", None, "invalid_input"),
        ("settled", "failed", None),
        ("refused", None, "not_found"),
    ]
    assert [item["run"] for item in results[:4]] == [one["run"], two["run"], one["run"], three["run"]]
    assert results[3]["error"]["errors"][0]["pointer"] == "/items/3/status"
    assert alice("GET", run_path(one["run"])).json["latency_ms"] == 2.0
    assert alice("GET", run_path(three["run"])).json["state"] == "out"
    assert b'paceline_runs_total{kind="outgoing",outcome="failed"} 1.0' in alice("GET", "/metrics").body


def test_outcome_in_bulk_with_too_large_a_detail_is_refused_by_its_place(world: World, alice: Client) -> None:
    put_and_fire(world, alice, "a", "b")
    one, two = alice("POST", CLAIM, {"max": 2}).json["items"]
    small = {"run": one["run"], "lease": one["lease"], "status": "ok"}
    large = {"run": two["run"], "lease": two["lease"], "status": "ok", "detail": {"text": "x" * 20_000}}
    done, refused = alice("POST", OUTCOMES, {"items": [small, large]}).json["items"]
    assert (done["disposition"], refused["disposition"]) == ("settled", "refused")
    assert refused["error"]["errors"][0]["pointer"] == "/items/1/detail"
    assert refused["error"]["detail"].startswith("/items/1/detail: ")


def test_outcomes_in_bulk_of_another_user_are_refused_and_change_nothing(
    world: World, alice: Client, bob: Client
) -> None:
    put_and_fire(world, alice, "own")
    item = claim_one(alice)
    outcome = {"run": item["run"], "lease": item["lease"], "status": "failed"}
    (refused,) = bob("POST", OUTCOMES, {"items": [outcome]}).json["items"]
    assert (refused["disposition"], refused["error"]["code"]) == ("refused", "not_found")
    assert alice("GET", run_path(item["run"])).json["state"] == "out"
    (settled,) = alice("POST", OUTCOMES, {"items": [outcome]}).json["items"]
    assert settled == {"run": item["run"], "disposition": "settled", "state": "failed"}


def test_more_than_a_thousand_outcomes_are_refused_whole(alice: Client) -> None:
    item = {"run": "alice/x#1@1", "lease": "1.1", "status": "ok"}
    answer = alice("POST", OUTCOMES, {"items": [item] * 1_001})
    assert (answer.status, answer.code, answer.pointers) == (422, "invalid_input", ["/items"])
    assert alice("POST", OUTCOMES, {"items": []}).json == {"items": []}


def test_claim_with_a_queue_takes_only_runs_of_checks_that_name_it(world: World, alice: Client) -> None:
    browser = OUTGOING | {"check": {"kind": "outgoing", "queue": "browser"}}
    assert alice("PUT", f"{MONITORS}/page", browser).status == 201
    assert alice("PUT", f"{MONITORS}/plain", OUTGOING).status == 201
    fire(world, 2)
    (plain,) = alice("POST", CLAIM, {"wait": "1s"}).json["items"]
    assert plain["monitor"] == "plain"
    assert alice("POST", CLAIM, {"queue": "files"}).json == {"items": []}
    (page,) = alice("POST", CLAIM, {"queue": "browser", "wait": "1s"}).json["items"]
    assert (page["monitor"], page["check"]) == ("page", browser["check"])
    assert alice("POST", f"{run_path(page['run'])}/extend", {"lease": page["lease"], "by": "60s"}).status == 200
    settled = alice("POST", f"{run_path(page['run'])}/outcome", {"lease": page["lease"], "status": "ok"})
    assert (settled.status, settled.json["state"]) == (200, "ok")
    wrong = alice("PUT", f"{MONITORS}/page", OUTGOING | {"check": {"kind": "outgoing", "queue": "a b"}})
    assert (wrong.status, wrong.pointers) == (422, ["/check/queue"])


@pytest.mark.parametrize(
    "lease", ["ffffffffffffffff.1", "8000000000000000.1", "7fffffffffffffff.999999999", "1", "x.1"]
)
@pytest.mark.parametrize("run", ["root/page#1@0", "nightly/r1@2026-11-15"])
def test_lease_that_was_never_given_is_not_found(admin: Client, run: str, lease: str) -> None:
    body = {"lease": lease, "status": "ok"}
    assert admin("POST", f"{run_path(run)}/outcome", body).code == "not_found"
    assert admin("POST", f"{run_path(run)}/extend", {"lease": lease, "by": "60s"}).code == "not_found"

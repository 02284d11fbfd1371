"""What can be made to go wrong at the simulator of RIPE Atlas, and how the audit shows what really happened."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from paceline.simulators.ripe_atlas import AtlasRequest, AtlasSimulator, Fault
from tests.shells.cli.support.program import Program
from tests.simulators.support.atlas_client import LOST, MINUTE_MS, Client, definition_of, order, ping


def add(client: Client, **fault: Any) -> None:
    reply = client.ask("POST", "/simulator/faults", fault)
    assert reply.status == 200, reply


def created(client: Client) -> int:
    """How many measurements there really are."""
    return len(client.get("/simulator/audit")["measurements"])


def test_rate_limits_come_with_and_without_a_time_to_wait(client: Client) -> None:
    add(client, kind="rate_limit", method="POST", retry_after_s=7)
    add(client, kind="rate_limit", method="POST")
    first, second = client.create(), client.create()
    assert (first.status, first.headers["Retry-After"]) == (429, "7")
    assert (second.status, "Retry-After" in second.headers) == (429, False)
    assert created(client) == 0
    assert client.create().status == 201


@pytest.mark.parametrize(("kind", "effects"), [("error_before", 0), ("error_after", 1)])
def test_an_error_comes_before_or_after_the_effect(client: Client, kind: str, effects: int) -> None:
    add(client, kind=kind, method="POST", path="/measurements/$")
    assert client.create().status == 500
    assert created(client) == effects


@pytest.mark.parametrize(("kind", "effects"), [("drop_before", 0), ("drop_after", 1), ("half_reply", 1)])
def test_a_reply_is_lost_before_or_after_the_effect(client: Client, kind: str, effects: int) -> None:
    add(client, kind=kind, method="POST")
    with pytest.raises(LOST):
        client.create(ping(tags=["paceline-1"]))
    assert created(client) == effects
    assert client.get("/measurements/my/?tags=paceline-1")["count"] == effects


def test_delayed_reply_comes_after_the_effect(client: Client) -> None:
    add(client, kind="delay", delay_ms=300)
    began = time.monotonic()
    assert client.create().status == 201
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("status", [200, 503])
def test_a_maintenance_page_is_html_whatever_was_asked(client: Client, status: int) -> None:
    add(client, kind="maintenance", status=status, times=2)
    for reply in (client.create(), client.ask("GET", "/credits/")):
        assert (reply.status, reply.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
        assert reply.body.startswith(b"<!DOCTYPE html>")
    assert created(client) == 0


def test_a_reply_can_lack_the_ids_or_be_no_json(client: Client) -> None:
    add(client, kind="no_ids", method="POST")
    add(client, kind="wrong_json", method="POST")
    without = client.create()
    assert (without.status, without.document) == (201, {})
    broken = client.create()
    assert broken.status == 201
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken.body)
    assert created(client) == 2


@pytest.mark.parametrize("status", [401, 403])
def test_refused_key_does_not_affect_another_key_of_the_account(
    simulator: AtlasSimulator, client: Client, status: int
) -> None:
    sister = Client(simulator.base_url, simulator.add_key("alice").uuid)
    add(client, kind="refuse_key", key=client.key, status=status)
    for _ in range(3):
        assert client.ask("GET", "/credits/").status == status
    assert Client(simulator.base_url).ask("GET", f"/credits/?key={client.key}").status == status
    assert sister.ask("GET", "/credits/").status == 200


def test_fault_applies_only_to_its_route_after_its_skips_and_as_often_as_told(client: Client) -> None:
    add(client, kind="error_before", method="GET", path="/credits/", skip=1, times=2)
    seen = [client.ask("GET", "/credits/").status for _ in range(5)]
    assert seen == [200, 500, 500, 200, 200]
    assert client.ask("GET", "/measurements/my/").status == 200
    (shown,) = client.get("/simulator/faults")["faults"]
    assert (shown["met"], shown["struck"]) == (3, 2)
    add(client, kind="error_before", times=None)
    assert client.ask("GET", "/credits/").status == 500
    assert client.ask("DELETE", "/simulator/faults").status == 200
    assert client.ask("GET", "/credits/").status == 200


def test_a_fault_by_chance_strikes_its_share(client: Client) -> None:
    add(client, kind="rate_limit", chance=0.3, times=None)
    struck = sum(client.ask("GET", "/credits/").status == 429 for _ in range(200))
    assert 40 <= struck <= 80


def test_a_wrong_fault_is_refused(client: Client) -> None:
    for wrong in (
        {"kind": "fire"},
        {"kind": "delay", "path": "("},
        {"kind": "delay", "often": 1},
        {"kind": "refuse_key"},
    ):
        assert client.ask("POST", "/simulator/faults", wrong).status == 400
    assert client.get("/simulator/faults")["faults"] == []


def test_the_audit_shows_a_marker_that_was_created_twice(client: Client) -> None:
    add(client, kind="drop_after", method="POST")
    with pytest.raises(LOST):
        client.create(ping(description="[job/7] a"))
    client.create(ping(description="[job/7] a"))
    client.create(ping(description="[job/8] a"), ping(description="[job/8] b"))
    audit = client.get("/simulator/audit")
    assert audit["doubled"] == {"job/7": [1_000_001, 1_000_002]}
    assert [one["markers"] for one in audit["measurements"]] == [["job/7"], ["job/7"], ["job/8"], ["job/8"]]
    assert audit["requests"]["POST /api/v2/measurements cut"] == 1
    by_tag = client.get("/simulator/audit?marker=paceline-(.%2B)")
    assert by_tag["doubled"] == {}


def test_the_audit_has_the_true_spending_of_every_account_and_no_key(simulator: AtlasSimulator, client: Client) -> None:
    other = Client(simulator.base_url, simulator.add_account("bob")[0])
    mine = client.create(definition_of("dns"), requested=30).ids[0]
    theirs = other.create(ping(), requested=40).ids[0]
    simulator.clock.advance(10 * MINUTE_MS)
    reply = client.ask("GET", "/simulator/audit")
    counts = [len(client.get(f"/measurements/{one}/results/")) for one in (mine, theirs)]
    accounts = reply.document["accounts"]
    assert (accounts["alice"]["spent"], accounts["bob"]["spent"]) == (counts[0] * 20, counts[1] * 6)
    assert accounts["bob"]["peaks"] == {"concurrent": 1, "daily_results": 40, "daily_credits": 240}
    assert [one["account"] for one in reply.document["measurements"]] == ["alice", "bob"]
    assert client.key.encode() not in reply.body


def test_accounts_and_keys_can_be_added_from_outside(simulator: AtlasSimulator) -> None:
    anyone = Client(simulator.base_url)
    limits = {"concurrent": 2, "daily_credits": 500}
    assert anyone.ask("POST", "/simulator/accounts", {"name": "carol", "limits": limits}).status == 200
    made = anyone.ask("POST", "/simulator/keys", {"account": "carol", "secret": "canary-secret"}).document
    assert made["key"] == "canary-secret"
    carol = Client(simulator.base_url, "canary-secret")
    assert carol.get("/credits/")["max_daily_credits"] == 500
    assert carol.create(ping(), ping(), ping()).status == 400
    assert anyone.ask("POST", "/simulator/keys", {"account": "nobody"}).status == 400
    assert anyone.ask("POST", "/simulator/keys", {"account": "carol", "grants": ["all"]}).status == 400


def test_simulator_answers_in_process_without_a_network(simulator: AtlasSimulator, client: Client) -> None:
    simulator.add_fault(Fault(kind="drop_after", method="POST"))
    headers = {"Authorization": f"Key {client.key}"}
    body = json.dumps(order()).encode()
    request = AtlasRequest.of("POST", "/api/v2/measurements/", headers=headers, body=body)
    assert simulator.answer(request).cut == "all"
    assert simulator.answer(request).document == {"measurements": [1_000_002]}


def test_command_line_starts_the_simulator_and_prints_url_and_keys(program: Program) -> None:
    with program.running("simulator", "atlas", "--port", "0", "--accounts", "3", "--speed", "0") as running:
        assert list(running.said["keys"]) == ["account-1", "account-2", "account-3"]
        client = Client(running.said["url"], running.said["keys"]["account-2"])
        (made,) = client.create().ids
        client.ask("POST", "/simulator/clock", {"advance": "10m"})
        assert client.status(made) == 4
        taken = program.run("simulator", "atlas", "--port", running.said["url"].rpartition(":")[2])
        assert (taken.code, "--port" in taken.err) == (2, True)
    alone = program.run("simulator", "atlas", "--tls-cert", "cert.pem")
    assert (alone.code, "--tls-key" in alone.err) == (2, True)

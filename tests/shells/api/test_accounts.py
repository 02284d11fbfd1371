"""Accounts and keys over REST: an admin's, in force at once, and no secret ever comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.core.jobs.values import AccountClosed, KeyRefused, NotSent
from paceline.simulators.ripe_atlas import Fault
from tests.shells.api.conftest import Client, World
from tests.shells.api.support.job_stage import COST, PROBES, AtlasWorld, atlas_world, job, submitted

KEY = "0a1b2c3d-0000-4000-8000-0123456789ab"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[AtlasWorld]:
    with atlas_world(tmp_path) as running:
        yield running


def account(stage: AtlasWorld) -> Any:
    return stage.root("GET", "/v1/accounts/lab").json


def test_an_account_is_put_with_the_limits_that_ripe_gives_everybody(world: World, admin: Client) -> None:
    made = admin("PUT", "/v1/accounts/lab", {})
    assert (made.status, made.headers["location"]) == (201, "/v1/accounts/lab")
    assert {name: made.json[name] for name in ("concurrent", "daily_results", "daily_credits", "enabled")} == {
        "concurrent": 100,
        "daily_results": 100_000,
        "daily_credits": 1_000_000,
        "enabled": True,
    }
    assert (made.json["state"], made.json["reason"]) == ("no_key", "it has no key")
    again = admin("PUT", "/v1/accounts/lab", {"concurrent": 5, "enabled": False})
    assert (again.status, again.json["concurrent"], again.json["state"]) == (200, 5, "disabled")
    assert world.job_wakes == [1, 1]


def test_account_put_with_a_stale_etag_is_refused(admin: Client) -> None:
    made = admin("PUT", "/v1/accounts/lab", {}, headers={"If-None-Match": "*"})
    assert made.status == 201
    seen = made.headers["etag"]
    assert admin("GET", "/v1/accounts/lab").headers["etag"] == seen
    unchanged = admin("GET", "/v1/accounts/lab", headers={"If-None-Match": seen})
    assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", seen)
    assert (
        admin("PUT", "/v1/accounts/lab", {"concurrent": 1}, headers={"If-None-Match": "*"}).code == "revision_mismatch"
    )
    first = admin("PUT", "/v1/accounts/lab", {"concurrent": 5}, headers={"If-Match": seen})
    assert (first.status, first.json["concurrent"]) == (200, 5)
    assert first.headers["etag"] != seen
    assert admin("GET", "/v1/accounts/lab", headers={"If-None-Match": seen}).status == 200
    second = admin("PUT", "/v1/accounts/lab", {"daily_credits": 9}, headers={"If-Match": seen})
    assert (second.status, second.code) == (412, "revision_mismatch")
    assert admin("GET", "/v1/accounts/lab").json["concurrent"] == 5
    both = {"concurrent": 5, "daily_credits": 9}
    third = admin("PUT", "/v1/accounts/lab", both, headers={"If-Match": first.headers["etag"]})
    assert (third.status, third.json["daily_credits"]) == (200, 9)
    assert admin("PUT", "/v1/accounts/other", {}, headers={"If-Match": "*"}).code == "revision_mismatch"


def test_wrong_field_of_an_account_is_named(admin: Client) -> None:
    assert admin("PUT", "/v1/accounts/lab", {"concurrent": -1}).pointers == ["/concurrent"]
    assert admin("PUT", "/v1/accounts/lab", {"spent": 1}).pointers == ["/spent"]
    assert admin("PUT", "/v1/accounts/-lab", {}).pointers == ["/id"]
    assert admin("GET", "/v1/accounts/lab").code == "not_found"
    assert admin("POST", "/v1/accounts/lab/keys", {"key": KEY}).code == "not_found"


def test_accounts_are_listed_in_order_page_by_page(admin: Client) -> None:
    for name in ("c", "a", "b"):
        admin("PUT", f"/v1/accounts/{name}", {})
    first = admin("GET", "/v1/accounts?limit=2").json
    assert [one["id"] for one in first["items"]] == ["a", "b"]
    second = admin("GET", f"/v1/accounts?limit=2&cursor={first['next_cursor']}").json
    assert ([one["id"] for one in second["items"]], second["next_cursor"]) == (["c"], None)


def test_a_key_that_can_be_used_is_added_and_shown_by_its_last_four(stage: AtlasWorld) -> None:
    assert account(stage)["state"] == "ready"
    [key] = account(stage)["keys"]
    assert (key["label"], key["last_four"], key["enabled"], key["state"]) == ("first", stage.secret[-4:], True, "ready")
    assert stage.secret not in str(account(stage))
    assert stage.root("GET", f"/v1/accounts/lab/keys/{stage.key}").json == key
    again = stage.root("POST", "/v1/accounts/lab/keys", {"key": stage.secret})
    assert (again.status, again.code) == (409, "already_exists")
    assert stage.secret not in again.json["detail"]
    second = stage.root("POST", "/v1/accounts/lab/keys", {"key": stage.simulator.add_key("lab").uuid})
    assert second.status == 201
    assert second.headers["location"] == f"/v1/accounts/lab/keys/{second.json['id']}"


def test_a_key_that_ripe_does_not_know_is_not_stored(stage: AtlasWorld) -> None:
    reply = stage.root("POST", "/v1/accounts/lab/keys", {"key": KEY})
    assert (reply.status, reply.code, reply.pointers) == (422, "invalid_input", ["/key"])
    assert "RIPE does not know this key" in reply.json["detail"]
    assert KEY.encode() not in reply.body
    assert len(account(stage)["keys"]) == 1


def test_key_without_needed_permissions_is_refused_with_their_names(stage: AtlasWorld) -> None:
    grants = ("measurements.create_measurement", "measurements.stop_measurement")
    poor = stage.simulator.add_key("lab", grants=grants).uuid
    reply = stage.root("POST", "/v1/accounts/lab/keys", {"key": poor})
    assert reply.status == 422
    details = " ".join(error["detail"] for error in reply.json["errors"])
    assert "it may not get information about your credits" in details
    assert "it may not list your measurements" in details
    assert set(reply.pointers) == {"/key"}
    assert poor.encode() not in reply.body
    assert len(account(stage)["keys"]) == 1


def test_key_that_ripe_could_not_check_is_added_only_with_check_false(stage: AtlasWorld) -> None:
    stage.simulator.add_fault(Fault(kind="error_before", times=None, status=503))
    reply = stage.root("POST", "/v1/accounts/lab/keys", {"key": KEY})
    assert (reply.status, reply.code) == (503, "atlas_unavailable")
    assert "check=false" in reply.json["detail"]
    assert int(reply.headers["retry-after"]) > 0
    assert len(account(stage)["keys"]) == 1
    assert stage.root("POST", "/v1/accounts/lab/keys?check=false", {"key": KEY}).status == 201
    assert len(account(stage)["keys"]) == 2
    assert stage.root("POST", "/v1/accounts/lab/keys?check=maybe", {"key": KEY}).pointers == ["/query/check"]


def test_malformed_key_is_refused_before_ripe_is_asked(stage: AtlasWorld) -> None:
    asked = len(stage.simulator.latest)
    assert stage.root("POST", "/v1/accounts/lab/keys", {"key": "with a space"}).pointers == ["/key"]
    assert stage.root("POST", "/v1/accounts/lab/keys", {"key": "short"}).pointers == ["/key"]
    assert stage.root("POST", "/v1/accounts/lab/keys", {"key": KEY, "label": "x" * 101}).pointers == ["/label"]
    assert stage.root("POST", "/v1/accounts/lab/keys", {"label": "x"}).pointers == ["/key"]
    assert stage.root("POST", "/v1/accounts/none/keys", {"key": KEY}).code == "not_found"
    assert len(stage.simulator.latest) == asked


def test_keys_are_disabled_enabled_and_removed_at_once(stage: AtlasWorld) -> None:
    path = f"/v1/accounts/lab/keys/{stage.key}"
    stage.world.job_wakes.clear()
    assert stage.root("PATCH", path, {"enabled": False}).json["state"] == "disabled"
    assert (account(stage)["state"], account(stage)["reason"]) == ("no_key", "all its keys are disabled")
    assert stage.root("PATCH", path, {"enabled": True}).json["state"] == "ready"
    assert account(stage)["state"] == "ready"
    assert stage.root("DELETE", path).status == 204
    assert account(stage)["keys"] == []
    assert stage.root("DELETE", path).code == "not_found"
    assert stage.root("GET", path).code == "not_found"
    assert stage.root("PATCH", path, {"enabled": True}).code == "not_found"
    assert stage.world.job_wakes == [1, 1, 1]


def test_usage_shows_spent_held_foreign_and_limit_of_each_meter(stage: AtlasWorld) -> None:
    submitted(stage.alice, job(2))
    stage.done(stage.send(), spent=48)
    stage.send()
    usage = account(stage)["usage"]
    assert usage["concurrent"] == {
        "spent": 0,
        "held": 1,
        "foreign": 0,
        "limit": 100,
        "left": 99,
        "room_at": None,
    }
    assert (usage["daily_credits"]["spent"], usage["daily_credits"]["held"]) == (48, COST)
    assert (usage["daily_results"]["spent"], usage["daily_results"]["held"]) == (PROBES, PROBES)
    stage.root("PUT", "/v1/accounts/lab", {"concurrent": 1})
    full = account(stage)
    assert (full["state"], full["reason"]) == ("full", "concurrent measurements: 1 of 1 in use")
    assert full["usage"]["concurrent"]["room_at"] is not None


def test_closed_or_quarantined_account_says_why(stage: AtlasWorld) -> None:
    submitted(stage.alice, job(2))
    begun, other = stage.begin(), stage.begin()
    until_ms = stage.now_ms() + 60_000
    blame = AccountClosed(until_ms, "RIPE asks for a pause")
    assert stage.store.answer(begun.handle, begun.attempt, NotSent("later"), effect=blame, now_ms=stage.now_ms())
    closed = account(stage)
    assert (closed["state"], closed["reason"]) == ("closed", "RIPE asks for a pause")
    assert closed["closed_until"] is not None
    refused = KeyRefused("RIPE says: no such key")
    assert stage.store.answer(other.handle, other.attempt, NotSent("later"), effect=refused, now_ms=stage.now_ms())
    aside = account(stage)
    assert aside["state"] == "quarantined"
    assert "RIPE says: no such key" in aside["reason"]
    assert (aside["keys"][0]["state"], aside["keys"][0]["reason"]) == ("quarantined", "RIPE says: no such key")
    enabled = stage.root("PATCH", f"/v1/accounts/lab/keys/{stage.key}", {"enabled": True}).json
    assert (enabled["state"], enabled["reason"]) == ("ready", "")


def test_slow_answer_of_ripe_does_not_block_other_requests(stage: AtlasWorld) -> None:
    stage.simulator.add_fault(Fault(kind="delay", delay_ms=4_000, times=1))

    replies: list[int] = []
    thread = threading.Thread(
        target=lambda: replies.append(stage.root("POST", "/v1/accounts/lab/keys", {"key": KEY}).status)
    )
    thread.start()
    assert stage.alice("GET", "/v1/users/me").status == 200
    assert stage.alice("POST", "/v1/users/me/tokens").status == 201
    assert replies == []
    thread.join()
    assert replies == [422]

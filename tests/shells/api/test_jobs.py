"""Jobs over REST: priced, admitted, shown, cancelled, within the user's day."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.values import MeterFull, NotSent, Unsure
from paceline.steps.jobs.webhook import webhook_secret
from tests.shells.api.conftest import Client, Reply, World, serving
from tests.shells.api.support.job_stage import COST, atlas_world, job, measurement, submitted


def test_a_job_is_accepted_with_its_cost_and_where_to_find_it(world: World, alice: Client) -> None:
    reply = alice("POST", "/v1/jobs", job(2))
    assert reply.status == 202
    document = reply.json
    assert document == {
        "job": document["job"],
        "cost": 2 * COST,
        "credits_left": 1_000 - 2 * COST,
        "measurements": 2,
        "again": False,
    }
    assert reply.headers["location"] == f"/v1/jobs/{document['job']}"
    assert alice("GET", reply.headers["location"]).json["user"] == "alice"
    assert world.job_wakes == [1]


def test_a_dry_run_prices_and_changes_nothing(world: World, alice: Client) -> None:
    quote = alice("POST", "/v1/jobs?dry_run=true", job(20))
    assert quote.status == 200
    assert quote.json.pop("resets_at")
    assert {key: quote.json[key] for key in ("cost", "credits_left", "measurements", "fits")} == {
        "cost": 20 * COST,
        "credits_left": 1_000,
        "measurements": 20,
        "fits": False,
    }
    assert alice("POST", "/v1/jobs?dry_run=true", job()).json["fits"] is True
    assert alice("GET", "/v1/jobs").json["items"] == []
    assert world.job_wakes == []
    assert alice("POST", "/v1/jobs?dry_run=perhaps", job()).pointers == ["/query/dry_run"]


def test_job_over_the_daily_credits_is_refused_whole_with_the_figures(alice: Client) -> None:
    submitted(alice, job(10))
    reply = alice("POST", "/v1/jobs", job(7))
    assert (reply.status, reply.code) == (402, "over_daily_credits")
    assert (reply.json["cost"], reply.json["credits_left"]) == (7 * COST, 1_000 - 10 * COST)
    resets = datetime.fromisoformat(reply.json["resets_at"])
    assert (resets.tzinfo, resets.hour, resets.minute) == (UTC, 0, 0)
    assert 0 < (resets - datetime.now(UTC)).total_seconds() <= 86_400
    assert reply.json["refusal"] == "alice/refused#1"
    why = alice("GET", "/v1/runs/alice%2Frefused%231/why")
    assert (why.status, why.json["state"], why.json["chain"][0]["until"]) == (200, "refused", reply.json["resets_at"])
    assert len(alice("GET", "/v1/jobs").json["items"]) == 1


def test_two_submissions_that_race_for_the_last_credits_have_one_winner(world: World, alice: Client) -> None:
    del world
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(alice("POST", "/v1/jobs", job(10)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply.status for reply in replies) == [202, 402, 402, 402]


def test_job_is_submitted_once_under_one_idempotency_key(alice: Client) -> None:
    key = {"Idempotency-Key": "monday"}
    first = alice("POST", "/v1/jobs", job(), headers=key)
    again = alice("POST", "/v1/jobs", job(), headers=key)
    assert (first.status, again.status) == (202, 202)
    assert again.json == first.json | {"again": True}
    assert again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    assert len(alice("GET", "/v1/jobs").json["items"]) == 1
    other = alice("POST", "/v1/jobs", job(2), headers=key)
    assert (other.status, other.code) == (409, "already_exists")
    wrong = alice("POST", "/v1/jobs", job(), headers={"Idempotency-Key": "x" * 256})
    assert wrong.pointers == ["/header/Idempotency-Key"]


def test_a_wrong_job_names_every_wrong_field(alice: Client) -> None:
    body = job(2)
    body["measurements"] = [measurement(af=5), measurement("not a host"), {"definitions": []}]
    reply = alice("POST", "/v1/jobs", body)
    assert (reply.status, reply.code) == (422, "invalid_input")
    assert "/measurements/0/definitions/0/af" in reply.pointers
    assert "/measurements/1/definitions/0/target" in reply.pointers
    assert any(pointer.startswith("/measurements/2") for pointer in reply.pointers)
    assert alice("POST", "/v1/jobs", raw=b"{").code == "malformed_body"
    assert alice("POST", "/v1/jobs", job(owner="bob")).pointers == ["/owner"]


def test_an_admin_submits_for_another_and_a_user_only_for_themselves(admin: Client, alice: Client, bob: Client) -> None:
    made = admin("POST", "/v1/jobs?user=alice", job()).json["job"]
    assert alice("GET", f"/v1/jobs/{made}").json["user"] == "alice"
    assert alice("GET", "/v1/users/me/budget").json["held"] == COST
    assert bob("POST", "/v1/jobs?user=alice", job()).code == "not_found"
    assert bob("POST", "/v1/jobs?user=bob", job()).status == 202
    assert admin("POST", "/v1/jobs?user=nobody", job()).code == "not_found"


def test_jobs_are_listed_newest_first_page_by_page(admin: Client, alice: Client, bob: Client) -> None:
    made = [submitted(alice) for _ in range(3)]
    other = submitted(bob)
    first = alice("GET", "/v1/jobs?limit=2").json
    assert [one["job"] for one in first["items"]] == made[:0:-1]
    assert first["items"][0]["counts"]["queued"] == 1
    second = alice("GET", f"/v1/jobs?limit=2&cursor={first['next_cursor']}").json
    assert ([one["job"] for one in second["items"]], second["next_cursor"]) == (made[:1], None)
    assert [one["job"] for one in admin("GET", "/v1/jobs").json["items"]] == [other, *reversed(made)]
    assert [one["job"] for one in admin("GET", "/v1/jobs?user=bob").json["items"]] == [other]
    assert alice("GET", "/v1/jobs?user=bob").code == "not_found"
    assert admin("GET", f"/v1/jobs?cursor={first['next_cursor']}").pointers == ["/query/cursor"]


def test_a_job_shows_where_each_of_its_measurements_stands(tmp_path: Path) -> None:
    with atlas_world(tmp_path) as stage:
        made = submitted(stage.alice, job(4))
        stage.done(stage.send(), spent=48)
        ongoing = stage.send()
        unsure = stage.begin()
        look_ms = stage.now_ms() + 60_000
        assert stage.store.answer(unsure.handle, unsure.attempt, Unsure("cut off", look_ms), now_ms=stage.now_ms())
        view = stage.alice("GET", f"/v1/jobs/{made}").json
        assert (view["state"], view["finished"], view["success"]) == ("running", False, False)
        assert view["counts"] == {
            "queued": 1,
            "parked": 0,
            "sending": 0,
            "unknown": 1,
            "ongoing": 1,
            "done": 1,
            "failed": 0,
            "cancelled": 0,
        }
        assert view["cost"] == {"reserved": 4 * COST, "settled": 48, "refunded": 12}
        done, running, unknown, queued = view["measurements"]
        assert (done["index"], done["state"], done["settled"], done["cost"]) == (0, "done", 48, COST)
        assert (running["atlas_id"], running["atlas_ids"]) == (ongoing.atlas[0].atlas_id, [ongoing.atlas[0].atlas_id])
        assert (running["account"], running["types"], running["targets"]) == ("lab", ["ping"], ["192.0.2.1"])
        assert (unknown["reason"], unknown["atlas_id"]) == ("cut off", None)
        assert unknown["next_try"] is not None
        assert (queued["state"], queued["sent_at"]) == ("queued", None)
        short = stage.alice("GET", f"/v1/jobs/{made}?measurements=false").json
        assert short == {key: value for key, value in view.items() if key != "measurements"}
        assert stage.alice("GET", f"/v1/jobs/{made}?measurements=no").pointers == ["/query/measurements"]


def test_a_job_that_waits_says_why_and_until_when(tmp_path: Path) -> None:
    with atlas_world(tmp_path) as stage:
        made = submitted(stage.alice, job(2))
        assert stage.alice("GET", f"/v1/jobs/{made}").json["waiting"]["reason"] == "it waits for its turn"
        stage.root("PUT", "/v1/accounts/lab", {"concurrent": 1})
        stage.send()
        for path in (f"/v1/jobs/{made}", f"/v1/jobs/{made}?measurements=false"):
            told = stage.alice("GET", path).json["waiting"]
            assert (told["reason"].startswith("every account is full: "), told["accounts"]) == (True, None)
            assert told["next_try"] > datetime.now(UTC).isoformat()
            # A one-off counts as running for ten minutes.
            away_s = (datetime.fromisoformat(told["expected_room_at"]) - datetime.now(UTC)).total_seconds()
            assert 500 < away_s <= 600
            [account] = stage.root("GET", path).json["waiting"]["accounts"]
            assert account["account"] == "lab"
            assert "1 of 1 in use" in account["reason"]


def test_parked_measurement_shows_its_own_reason(tmp_path: Path) -> None:
    with atlas_world(tmp_path) as stage:
        made = submitted(stage.alice, job(2))
        begun = stage.begin()
        next_ms = stage.now_ms() + 45_000
        meter: MeterName = "concurrent"
        assert stage.store.answer(
            begun.handle,
            begun.attempt,
            NotSent("RIPE says: too many", next_ms),
            effect=MeterFull(meter, 1, 1),
            now_ms=stage.now_ms(),
        )
        for path in (f"/v1/jobs/{made}", f"/v1/jobs/{made}?measurements=false"):
            told = stage.alice("GET", path).json["waiting"]
            assert told["reason"] == "RIPE says: too many"
            assert datetime.fromisoformat(told["next_try"]).timestamp() == next_ms / 1000
    assert begun.index == 0


def test_a_cancelled_job_is_refunded_and_cannot_be_cancelled_twice_over(world: World, alice: Client) -> None:
    made = submitted(alice, job(3))
    world.job_wakes.clear()
    reply = alice("DELETE", f"/v1/jobs/{made}")
    assert reply.status == 202
    assert reply.json["counts"]["cancelled"] == 3
    assert reply.json["cost"] == {"reserved": 3 * COST, "settled": 0, "refunded": 3 * COST}
    assert alice("GET", "/v1/users/me/budget").json["left"] == 1_000
    assert world.job_wakes == [1]
    again = alice("DELETE", f"/v1/jobs/{made}")
    assert (again.status, again.code) == (409, "job_finished")
    assert "measurement has ended" in again.json["detail"]


def test_cancel_stops_running_measurements(tmp_path: Path) -> None:
    with atlas_world(tmp_path) as stage:
        made = submitted(stage.alice, job(2))
        stage.send()
        assert stage.alice("DELETE", f"/v1/jobs/{made}").json["state"] == "cancelling"
        first, second = stage.alice("GET", f"/v1/jobs/{made}").json["measurements"]
        assert (first["state"], first["stopping"]) == ("ongoing", True)
        assert (second["state"], second["stopping"]) == ("cancelled", False)


def test_a_budget_has_limit_spent_held_left_and_reset(tmp_path: Path) -> None:
    with atlas_world(tmp_path) as stage:
        submitted(stage.alice, job(2))
        stage.done(stage.send(), spent=30)
        budget = stage.alice("GET", "/v1/users/me/budget").json
        assert budget.pop("resets_at").endswith("T00:00:00.000Z")
        left = 1_000 - 30 - COST
        assert budget == {"user": "alice", "limit": 1_000, "spent": 30, "held": COST, "left": left}
        assert stage.root("GET", "/v1/users/alice/budget").json["spent"] == 30
        assert stage.root("GET", "/v1/users/nobody/budget").code == "not_found"
        stage.root("PATCH", "/v1/users/alice", {"daily_credits": 100})
        assert stage.alice("GET", "/v1/users/me/budget").json["left"] == 10


def test_each_user_has_a_different_webhook_secret(world: World, admin: Client, alice: Client, bob: Client) -> None:
    secret = alice("GET", "/v1/users/me/webhook-secret").json["secret"]
    assert secret == webhook_secret(world.system.secret_key, "alice")
    assert admin("GET", "/v1/users/alice/webhook-secret").json["secret"] == secret
    assert bob("GET", "/v1/users/me/webhook-secret").json["secret"] != secret
    assert bob("GET", "/v1/users/alice/webhook-secret").code == "not_found"


def test_a_job_of_ten_thousand_does_not_stop_the_others(tmp_path: Path) -> None:
    with serving(tmp_path, body_bytes_max=16_777_216) as world:
        alice = world.add("alice")
        root = world.add("root", "admin")
        root("PATCH", "/v1/users/alice", {"daily_credits": 10**9})
        large = measurement(*(f"192.0.2.{number}" for number in range(1, 9)))
        body = json.dumps(job(measurements=[large] * 10_000)).encode()
        replies: list[Any] = []
        thread = threading.Thread(target=lambda: replies.append(alice("POST", "/v1/jobs", raw=body)))
        thread.start()
        answered = 0
        while thread.is_alive():
            assert root("GET", "/healthz").status == 200
            answered += thread.is_alive()
        thread.join()
        assert (replies[0].status, replies[0].json["measurements"]) == (202, 10_000)
        assert answered >= 3  # one by one, while it was parsed and written
        shown = alice("GET", f"/v1/jobs/{replies[0].json['job']}").json
        assert len(shown["measurements"]) == 10_000
        over = alice("POST", "/v1/jobs", job(10_001))
        assert over.pointers == ["/measurements"]

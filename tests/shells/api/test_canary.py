"""A secret put into every secret place is found in no log, no error, no metric and no page."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from paceline.simulators.ripe_atlas import Fault
from tests.shells.api.conftest import HTTP, Client, Reply, serving
from tests.shells.api.support.job_stage import atlas_world, job, submitted

CANARY = "canary5ecret"
ME = "/v1/users/me"


def test_a_secret_value_appears_in_no_answer_log_or_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(tmp_path, log_level="debug", wrong_tokens_max=3, body_timeout="300ms") as world:
        admin = world.add("root", "admin")
        made = admin("POST", "/v1/users", {"id": "alice"}).json
        alice = world.client(made["token"])
        second = alice("POST", f"{ME}/tokens", {"label": "x"}).json["token"]
        wrong = Client(world.port, f"pl_aaaaaaaaaaaa_{CANARY}")
        headers = {"Authorization": f"Bearer {CANARY}"}
        replies: list[Reply] = [
            *(wrong("GET", ME) for _ in range(5)),
            wrong("PUT", f"{ME}/monitors/x", {"check": {"kind": "http", "url": "https://e.org", "body": CANARY}}),
            world.client()("GET", f"{ME}?token={CANARY}"),
            alice("GET", f"{ME}/monitors?limit=1", headers={"Cookie": CANARY, "X-Api-Key": CANARY}),
            alice("PUT", f"{ME}/monitors/x", raw=b'{"check": "' + CANARY.encode()),
            alice("POST", f"{ME}/tokens", {"label": 5}),
            world.client()("GET", "/readyz", headers=headers),
            world.client()("GET", "/nothing", headers=headers),
            admin("GET", "/v1/users/alice/tokens"),
            admin("GET", "/v1/users"),
            admin("GET", "/v1/status"),
            admin("GET", "/metrics"),
            alice("GET", "/docs"),
        ]
        for reply in replies:
            assert CANARY.encode() not in reply.body
            assert CANARY not in str(dict(reply.headers))
            for secret in (made["token"], second, alice.token or "", admin.token or ""):
                assert secret.encode() not in reply.body
        lines = world.log.getvalue() + caplog.text
        assert lines.count('"event": "request"') >= len(replies)
        for secret in (CANARY, made["token"], second, str(admin.token), "token="):
            assert secret not in lines
        raw = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".key")
        for secret in (made["token"], second):
            assert secret.encode() not in raw
            assert secret.rpartition("_")[2].encode() not in raw


def test_secret_of_an_account_key_appears_in_no_answer_log_or_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with atlas_world(tmp_path, log_level="debug") as stage:
        poor = stage.simulator.add_key("lab", grants=("measurements.stop_measurement",)).uuid
        unknown, broken = f"{CANARY}-0000-1111-2222", f"{CANARY} with spaces"
        keys = "/v1/accounts/lab/keys"
        made = submitted(stage.alice, job(2))
        stage.send()
        stage.simulator.add_fault(Fault(kind="maintenance", path="/results", times=1))
        replies: list[Reply] = [
            stage.root("POST", keys, {"key": poor}),
            stage.root("POST", keys, {"key": unknown}),
            stage.root("POST", keys, {"key": broken}),
            stage.root("POST", keys, {"key": unknown, "label": 5}),
            stage.root("POST", keys, raw=f'{{"key": "{CANARY}"'.encode()),
            stage.root("POST", f"{keys}?check=false", {"key": unknown}),
            stage.root("POST", f"{keys}?check=false", {"key": unknown}),
            stage.root("POST", keys, {"key": stage.secret}),
            stage.alice("POST", keys, {"key": unknown}),
            stage.root("PATCH", f"{keys}/{stage.key}", {"enabled": True, "key": unknown}),
            stage.root("GET", "/v1/accounts"),
            stage.root("GET", "/v1/accounts/lab"),
            stage.root("GET", f"/v1/jobs/{made}"),
            stage.root("GET", f"/v1/jobs/{made}/results"),
            stage.alice("GET", f"/v1/jobs/{made}/results?merged=target"),
            stage.root("GET", "/metrics"),
        ]
        refused_by_ripe = stage.simulator.latest
        assert any(unknown in str(request.headers) for request, _ in refused_by_ripe), "it did reach RIPE"
        lines = stage.world.log.getvalue() + caplog.text
        raw = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".key")
        for secret in (CANARY, stage.secret, poor):
            for reply in replies:
                assert secret.encode() not in reply.body
                assert secret not in str(dict(reply.headers))
            assert secret not in lines
            assert secret.encode() not in raw


def test_unexpected_exception_is_a_logged_500_without_details(tmp_path: Path) -> None:
    with serving(tmp_path) as world:
        alice = world.add("alice")
        world.system.store.close()
        reply = alice("PUT", f"{ME}/monitors/x", HTTP)
        assert (reply.status, reply.code) == (500, "internal")
        assert b"onnection" not in reply.body
        assert b"Traceback" not in reply.body
        assert "Traceback" in world.log.getvalue()
        assert str(alice.token) not in world.log.getvalue()
        assert alice("GET", "/healthz").status == 200

"""One store with a server on it, for commands that are run on the store and over REST."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from paceline.core.alerts.alert import Alert
from paceline.shells.cli.app import main
from tests.shells.api.conftest import OUTGOING, Client, World
from tests.shells.api.support.day import PROVIDER, TOMORROW, end_all
from tests.shells.api.support.job_stage import job

DEAD_DAY = "2026-11-15"


class Said(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Both:
    """One store with a server on it; commands are run on the store, and over REST with the token of an admin."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.store = world.system.settings.store
        self.url = f"http://127.0.0.1:{world.port}"
        self.patch: pytest.MonkeyPatch
        self.capture: pytest.CaptureFixture[bytes]

    def on_store(self, *words: str) -> Said:
        return self._run({"PACELINE_STORE": self.store}, words)

    def over_rest(self, *words: str) -> Said:
        return self._run({"PACELINE_URL": self.url, "PACELINE_TOKEN": self.world.tokens["root"]}, words)

    def _run(self, env: dict[str, str], words: tuple[str, ...]) -> Said:
        with self.patch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(self.folder / "config"))
            patch.chdir(self.folder)
            for name, value in env.items():
                patch.setenv(name, value)
            self.capture.readouterr()
            code = main([*words])
            return Said(code, *self.capture.readouterr())


def stage_monitors(world: World, alice: Client) -> None:
    monitors = "/v1/users/me/monitors"
    http = {"kind": "http", "url": "https://example.org/", "headers": {"X-Key": "a secret"}}
    alice("PUT", f"{monitors}/web", {"check": http, "every": "1h", "paused": True, "tags": ["a", "b"]})
    alice(
        "PUT",
        f"{monitors}/cert",
        {"check": {"kind": "tls", "host": "example.org"}, "cron": "0 6 * * *", "paused": True},
    )
    alice("PUT", f"{monitors}/own", {**OUTGOING, "every": "1d"})
    for name in ("ops", "spare"):
        alice("PUT", f"/v1/users/me/channels/{name}", {"kind": "webhook", "url": f"https://{name}.example.org/secret"})
    alice("POST", "/v1/users/me/silences", {"tag": "b", "for": "300d"})
    alerts = [Alert(f"al_{n}", "monitor.failing", world.system.clock.now_ms(), "alice", "web") for n in range(3)]
    world.system.store.add_alerts(alerts)
    while not alice("GET", f"{monitors}/own/runs").json["items"]:
        world.fire()


def stage_batches(world: World, root: Client) -> None:
    root("PUT", "/v1/providers/shop", {**PROVIDER, "headers": {"X-Key": "a secret"}})
    root("PUT", "/v1/providers/bank", {**PROVIDER, "rate": "5/1s"})
    for batch, provider, date in (("daily", "shop", TOMORROW), ("past", "bank", DEAD_DAY)):
        root("PUT", f"/v1/batches/{batch}", {"missed": "all"})
        records = [{"id": f"r{number}", "provider": provider, "body": {"n": 1.0}} for number in range(4)]
        root("PUT", f"/v1/batches/{batch}/records", {"items": records})
        assert root("POST", f"/v1/batches/{batch}/plan", {"date": date}).status == 200
    assert end_all(world, "failed", provider="bank", reason="status 400", payload="no") == 4


def stage_jobs(root: Client, alice: Client) -> None:
    root("PUT", "/v1/accounts/lab", {"concurrent": 7})
    root("POST", "/v1/accounts/lab/keys?check=false", {"key": "the-key-of-the-lab", "label": "l"})
    root("PUT", "/v1/accounts/empty", {})
    for _ in range(3):
        assert alice("POST", "/v1/jobs", job()).status == 202

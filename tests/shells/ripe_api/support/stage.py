"""A real ``paceline up`` with certificates of its own, in front of a real simulator that is in a hurry."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from paceline.adapters.certificates import Made
from paceline.adapters.sqlite.store import SqliteStore
from paceline.adapters.vault import SecretVault
from paceline.core.jobs.values import AccountSpec
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorModel
from paceline.steps.access import add_user
from paceline.steps.jobs.accounts import add_key, put_account_spec

SECRET = "a secret key that is long enough"
SECRET_KEY = sha256(SECRET.encode()).digest()
HURRIED = SimulatorModel(
    index_lag_ms=0,
    schedule_after_ms=50,
    start_after_ms=100,
    result_after_ms=100,
    result_before_ms=400,
    one_off_ms=1_500,
    answering_share=1.0,
    scheduled_share=1.0,
)
T = TypeVar("T")


class Stage(NamedTuple):
    """``server`` is what clients are given: host and port."""

    server: str
    authority: Path
    tokens: dict[str, str]
    simulator: AtlasSimulator
    folder: Path

    @property
    def common(self) -> dict[str, str]:
        """For Cousteau."""
        return {"server": self.server, "verify": str(self.authority), "key": self.tokens["ann"]}

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()


@contextmanager
def staged(
    folder: Path, *flags: str, model: SimulatorModel = HURRIED, made: Made | None = None, **settings: str
) -> Iterator[Stage]:
    """``made``: certificates to serve with; else it makes its own."""
    with AtlasSimulator(model) as simulator:
        tokens = prepare(folder, simulator)
        environment = os.environ | {
            "PACELINE_STORE": f"sqlite:///{folder / 'p.db'}",
            "PACELINE_SECRET_KEY": SECRET,
            "PACELINE_ATLAS_URL": simulator.base_url,
            "PACELINE_ATLAS_EVERY": "500ms",
            "PACELINE_SYNCHRONOUS": "normal",
            **settings,
        }
        command = [sys.executable, "-m", "paceline", "up", "--json", "--port", "0", *_tls(made), *flags]
        with (folder / "daemon.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, (folder / "daemon.log").read_text()
            told: dict[str, Any] = json.loads(line)
            assert told["url"].startswith("https://")
            authority = made.authority if made else Path(told["ca"])
            yield Stage(urlsplit(told["url"]).netloc, authority, tokens, simulator, folder)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, (folder / "daemon.log").read_text()
            process.stdout.close()
        assert simulator.defects == []


def _tls(made: Made | None) -> list[str]:
    return ["--tls-cert", str(made.server), "--tls-key", str(made.server)] if made else ["--tls-self-signed"]


def prepare(folder: Path, simulator: AtlasSimulator) -> dict[str, str]:
    """Two users, and an account with a key; the users' tokens."""
    store = SqliteStore(str(folder / "p.db"))
    now_ms = time.time_ns() // 1_000_000
    tokens = {}
    for name, credits_ in (("ann", 100_000), ("bob", 100)):
        _, made = add_user(
            store,
            name,
            role="user",
            daily_credits=credits_,
            token_bytes=secrets.token_bytes(32),
            secret_key=SECRET_KEY,
            now_ms=now_ms,
        )
        tokens[name] = made.secret
    put_account_spec(store, "lab", AccountSpec())
    add_key(store, SecretVault(SECRET_KEY), "lab", simulator.add_account("lab", http_allowed=True)[0], now_ms=now_ms)
    store.close()
    return tokens


def eventually(look: Callable[[], T | None], *, within_s: float = 60.0) -> T:
    """What ``look`` finds, as soon as it finds it."""
    until_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < until_s, "it did not come"
        time.sleep(0.05)
    return found

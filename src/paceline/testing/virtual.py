"""One Paceline in memory on a virtual clock: its API, its engine, and the services outside, which a test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Self

from starlette.types import ASGIApp

from paceline.config import Settings
from paceline.core.durations import DURATION_RULE, parse_duration_ms
from paceline.core.instants import to_datetime, to_ms
from paceline.core.users import Role
from paceline.shells.api.http.app import build_app
from paceline.shells.api.http.context import ApiHooks
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock
from paceline.steps.access import DAILY_CREDITS_DEFAULT, TOKEN_BYTES, add_user
from paceline.testing.engine import VirtualClock, VirtualEngine
from paceline.testing.outside import Answer, Answers, Outside, OutsideRequest
from paceline.testing.transport import ApiTransport
from paceline.wiring import System, open_system
from paceline_client import Client

START = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN = "admin"
URL = "http://paceline.test"
SECRET = "a key that seals only what a test keeps"  # noqa: S105  # nothing of it outlives the process


class VirtualPaceline:
    """The real engine and the real API on a SQLite store in memory. Time stands still until ``advance``.

    Nothing leaves this machine: checks and calls are answered by ``answers``, and RIPE is a simulator on loopback. The
    same ``seed`` gives the same back-offs and tokens.
    """

    def __init__(self, *, start: datetime = START, seed: int = 0, settings: Mapping[str, Any] | None = None) -> None:
        if start.tzinfo is None:
            raise ValueError("start: give an aware datetime, for example datetime(2026, 1, 1, tzinfo=UTC)")
        self._random = Random(seed)  # noqa: S311  # a test wants the same chance each time
        self._clock = VirtualClock(to_ms(start))
        self.atlas = AtlasSimulator(clock=SimulatorClock(source=self._clock.now_ms))
        """The simulator of RIPE Atlas: ``atlas.add_account(NAME)`` returns keys for ``accounts`` of this Paceline."""
        self.atlas.start()
        chosen = {"secret_key": SECRET, "atlas_url": self.atlas.base_url, **(settings or {})}
        self._system = open_system(Settings(store="sqlite:///:memory:", **chosen), clock=self._clock)
        self._outside = Outside(self._clock, lambda _request: Answer())
        self._engine = VirtualEngine(self._system, self._clock, self._outside, chance=self._random)
        self._runner = asyncio.Runner()
        self._app, self._close_app = self._runner.run(_open(self._system))
        self._clients: dict[str, Client] = {}
        self.client = self.client_for(ADMIN, role="admin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._runner.run(self._close_app())
        self._runner.close()
        self._engine.close()
        self._system.store.close()
        self.atlas.stop()

    @property
    def now(self) -> datetime:
        return to_datetime(self._clock.now_ms())

    @property
    def answers(self) -> Answers:
        """The function that answers checks, calls and webhooks; at first it answers 200 after 20 ms."""
        return self._outside.answers

    @answers.setter
    def answers(self, answers: Answers) -> None:
        self._outside.answers = answers

    @property
    def requests(self) -> list[OutsideRequest]:
        """All requests that reached the outside, oldest first."""
        return self._outside.requests

    def advance(self, by: str | timedelta) -> None:
        """Let time pass, for example ``"1d"``. Everything that falls due happens at its own moment, in order."""
        until_ms = self._clock.now_ms() + _ms(by)
        self._engine.tell()
        while True:
            self._engine.work_off()
            next_ms = self._engine.next_ms()
            if next_ms is None or next_ms > until_ms:
                break
            self._clock.move_to(max(next_ms, self._clock.now_ms() + 1))
        self._clock.move_to(until_ms)

    def client_for(self, name: str, *, role: Role = "user", daily_credits: int = DAILY_CREDITS_DEFAULT) -> Client:
        """Return the client of a user. The user is added at the first call, with this role and limit."""
        if name not in self._clients:
            _, token = add_user(
                self._system.store,
                name,
                role=role,
                daily_credits=daily_credits,
                token_bytes=self._random.randbytes(TOKEN_BYTES),
                secret_key=self._system.secret_key,
                now_ms=self._clock.now_ms(),
            )
            transport = ApiTransport(self._app, self._runner)
            self._clients[name] = Client(URL, token.secret, tries=1, transport=transport)
        return self._clients[name]


def _ms(by: str | timedelta) -> int:
    if isinstance(by, timedelta):
        ms: int | None = by // timedelta(milliseconds=1)
    else:
        ms = parse_duration_ms(by)
    if ms is None or ms < 0:
        raise ValueError(f"advance: write {DURATION_RULE}, or give a timedelta that is not negative")
    return ms


async def _open(system: System) -> tuple[ASGIApp, Callable[[], Coroutine[Any, Any, None]]]:
    """Return the API and the function that closes it; both need the same event loop."""
    api = build_app(system, ApiHooks())
    lifespan = api.lifespan_context(api)
    await lifespan.__aenter__()

    async def close() -> None:
        await lifespan.__aexit__(None, None, None)

    return api, close

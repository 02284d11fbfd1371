"""RIPE without a network: the real client's every word, answered by the simulator in this thread, on a bad line."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

from paceline.adapters.providers.atlas_lines import Lines
from paceline.adapters.providers.ripe_atlas import API, RipeAtlas, _Reply
from paceline.simulators.ripe_atlas import AtlasAnswer, AtlasRequest, AtlasSimulator, Fault
from paceline.simulators.ripe_atlas.faults import BEFORE, Kind, answer_after, answer_before

BASE = "https://atlas.ripe.net"
FAULTS: tuple[Kind, ...] = (
    "rate_limit",
    "error_before",
    "error_after",
    "drop_before",
    "drop_after",
    "drop_after",
    "half_reply",
    "maintenance",
    "no_ids",
    "wrong_json",
)
TIMEOUT_MS = 30_000


class Surroundings(Protocol):
    random: Random
    calm: bool
    line_is_bad: float

    def peril(self, moment: str) -> None: ...
    def let_pass(self, ms: int) -> None: ...


class Wire:
    """One for all daemons. The asking daemon may die before the question is sent, or before the answer is read."""

    def __init__(self, world: Surroundings, simulator: AtlasSimulator) -> None:
        self._world = world
        self._simulator = simulator
        self.struck: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def carry(self, request: AtlasRequest) -> tuple[AtlasAnswer | None, bool]:
        """The answer, None if there is none; and whether the question arrived."""
        world = self._world
        shape = f"{request.method} {urlsplit(request.path).path.removeprefix(API)}"
        self.asked[request.method] += 1
        world.peril(f"before {shape}")
        answer, arrived = self._carry(request)
        world.peril(f"after {shape}")
        return answer, arrived

    def _carry(self, request: AtlasRequest) -> tuple[AtlasAnswer | None, bool]:
        world = self._world
        if world.calm:
            return self._simulator.answer(request), True
        world.let_pass(world.random.randint(5, 900))
        # What cannot be repeated safely is where a bad line hurts.
        chance = min(3 * world.line_is_bad, 0.35) if request.method == "POST" else world.line_is_bad
        if world.random.random() >= chance:
            return self._simulator.answer(request), True
        if world.random.random() < 0.08:
            self.struck["no_connection"] += 1
            return None, False
        kind = world.random.choice(FAULTS)
        if kind == "wrong_json" and "/results/" in request.path:
            kind = "half_reply"  # half of some lines may be fewer lines, and nobody could tell
        self.struck[kind] += 1
        fault = Fault(kind=kind, retry_after_s=world.random.choice((None, 1, 45)))
        answer = answer_before(fault) if kind in BEFORE else answer_after(fault, self._simulator.answer(request))
        if answer.cut:
            world.let_pass(world.random.choice((0, TIMEOUT_MS)))
            return None, True
        return answer, True


class WiredAtlas(RipeAtlas):
    """The real client but for its socket."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(BASE)
        self._wire = wire

    def _ask(
        self,
        key: str,
        path: str,
        method: str = "GET",
        *,
        body: bytes | None = None,
        lines: Lines | None = None,
        timeout_ms: int = 0,
        until_s: float | None = None,
    ) -> _Reply:
        del timeout_ms, until_s
        headers = {"authorization": f"Key {key}"} if key else {}
        request = AtlasRequest.of(method, f"{API}{path}", headers=headers, body=body or b"", base_url=BASE)
        answer, arrived = self._wire.carry(request)
        if answer is None:
            return _Reply(None, fault="the line is bad", arrived=arrived)
        if lines is not None and answer.status == 200:
            lines.add(answer.body)
            return _Reply(200)
        retry_after = dict(answer.headers).get("Retry-After", "")
        return _Reply(answer.status, answer.body, retry_after)

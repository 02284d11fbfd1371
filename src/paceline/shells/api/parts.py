"""What every handler has at hand: the system's parts, and the call it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from starlette.types import Receive

from paceline.core.definition import SpecLimits, duration_ms
from paceline.core.dispatch import RetryPolicy
from paceline.ports import PutMonitor, Store, User
from paceline.shells.api.arrivals import Arrivals
from paceline.shells.api.atlas_reads import AtlasReads
from paceline.shells.api.auth import Brake, Recent, owner_of
from paceline.shells.api.readiness import Readiness
from paceline.shells.api.together import Batch, Together
from paceline.shells.api.writes import Writes, each
from paceline.shells.metrics import Metrics
from paceline.steps.check_secrets import seal_put
from paceline.wiring import System, open_atlas

HEAVY_MAX = 2
"""Jobs that are parsed or shown whole at once: large ones must not take every thread from the small requests."""
OWN_WEIGHT = 20
"""A commit of its own takes about as long as so many puts that share one."""
T = TypeVar("T")
Item = TypeVar("Item")
Written = TypeVar("Written")


class LoopHealth(NamedTuple):
    """How one of the daemon's loops is doing."""

    name: str
    turning: bool
    """False: it has ended, or it is stuck."""
    age_s: float
    """Since its last turn."""


@dataclass(frozen=True, slots=True)
class ApiHooks:
    """What the API needs of the process it runs in. Each may be called from any thread."""

    wake: Callable[[], None] = lambda: None
    """Tells the loops that a definition has changed."""
    wake_jobs: Callable[[], None] = lambda: None
    """Tells the loops of jobs that there is something to send or to stop, or that accounts or keys have changed."""
    loops: Callable[[], Sequence[LoopHealth]] = lambda: ()
    arrivals: Arrivals = field(default_factory=Arrivals)
    """Whoever makes outgoing runs calls ``arrivals.notify()``; whoever drains calls ``arrivals.close()``."""
    metrics: Metrics = field(default_factory=Metrics)


@dataclass(frozen=True, slots=True)
class Parts:
    system: System
    hooks: ApiHooks
    together: Together
    readiness: Readiness
    writes: Writes
    recent: Recent
    brake: Brake
    limits: SpecLimits
    policy: RetryPolicy
    body_timeout_s: float
    reads: AtlasReads
    heavy: asyncio.Semaphore
    user: str = ""
    """Whose writes these are: users take turns."""

    @classmethod
    def of(cls, system: System, hooks: ApiHooks) -> Parts:
        settings = system.settings
        own = ((settings.host, settings.port),)
        return cls(
            system=system,
            hooks=hooks,
            together=Together(system.store.within),
            readiness=Readiness(system.store),
            writes=Writes(system, wake=hooks.wake),
            recent=Recent(),
            brake=Brake(per_minute=settings.wrong_tokens_max),
            limits=system.limits,
            policy=system.retry_policy,
            body_timeout_s=duration_ms(settings.body_timeout) / 1_000,
            reads=AtlasReads(lambda: open_atlas(settings, own=own), draining=lambda: hooks.arrivals.closed),
            heavy=asyncio.Semaphore(HEAVY_MAX),
        )

    @property
    def store(self) -> Store:
        return self.system.store

    def now_ms(self) -> int:
        return self.system.clock.now_ms()

    def of_user(self, user: str) -> Parts:
        """The same, for one user's request."""
        return replace(self, user=user)

    def seal(self, put: PutMonitor, *, pointer: str = "") -> PutMonitor:
        """The put as it is stored: what is secret in its check is sealed, or kept."""
        return seal_put(self.store, self.system.vault, put, pointer=pointer)

    async def do(self, batch: Batch[Item, Written], item: Item, *, weight: int = 1) -> Written:
        """One item of a batch step that concurrent requests share. ``weight``: how many single puts it is worth."""
        return await self.together.do(batch, item, user=self.user, weight=weight)

    async def ask(self, look: Callable[[], T]) -> T:
        """Asks the store: a file at once, AWS in a thread, since the event loop must go on while AWS hangs."""
        return await asyncio.to_thread(look) if self.system.remote else look()

    async def write(self, job: Callable[[], T], *, weight: int = OWN_WEIGHT) -> T:
        """A write of its own, in the writing thread: the event loop never waits for the disk."""
        return await self.do(each, job, weight=weight)


class Call(NamedTuple):
    """One request, authenticated and parsed as its route declares."""

    parts: Parts
    user: User
    params: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    query_string: bytes
    body: Any
    receive: Receive

    @property
    def owner(self) -> str:
        """The user named in the path, if the caller may know of them; else NotFound."""
        return owner_of(self.user, self.params["user"])

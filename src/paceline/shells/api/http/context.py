"""Arguments of every handler: the parts of the system, and the request that it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from starlette.types import Receive

from paceline.core.monitors.definition import SpecLimits, duration_ms
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.values import PutMonitor
from paceline.core.users import TokenUser
from paceline.ports import Store
from paceline.shells.api.atlas_reads import AtlasReads
from paceline.shells.api.http.auth import TokenCache, WrongTokenLimit, owner_of
from paceline.shells.api.http.batched_writes import BatchedWrites
from paceline.shells.api.http.claim_signal import ClaimSignal
from paceline.shells.api.http.fair_threads import FairThreads
from paceline.shells.api.http.group_commit import Batch, GroupCommit, each
from paceline.shells.api.http.kept import KeptAnswers
from paceline.shells.api.http.pages import PageQuery, page_query
from paceline.shells.api.http.readiness import Readiness
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.lists import ListPage
from paceline.steps.alerts.channels import KnownChannels
from paceline.steps.monitors.check_secrets import seal_put
from paceline.wiring import System, open_atlas

WORK_THREADS, WORK_EACH_MAX = 6, 4
"""Threads for lists and other long work, and how many of them one user has at most."""
REMOTE_WORK_THREADS, REMOTE_WORK_EACH_MAX = 16, 12
"""The same for a remote store, where short reads take a thread as well. A local file is read on the event loop."""
HEAVY_THREADS, HEAVY_EACH_MAX = 2, 1
"""Threads in which jobs are parsed, or shown whole: large ones must not take every thread."""
TRIAL_THREADS, TRIAL_EACH_MAX = 4, 1
"""Threads that wait for the answers to test messages of channels. A test through apprise starts a process."""
OWN_WEIGHT = 20
"""Weight of a write that shares no commit: it takes about as long as this many puts that share one."""
REMOTE_WRITERS = 8
"""Threads that write to a remote store."""
P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
Written = TypeVar("Written")


class LoopHealth(NamedTuple):
    """State of one of the daemon's loops."""

    name: str
    turning: bool
    """False if the loop has ended or is stuck."""
    age_s: float
    """Seconds since its last turn."""


@dataclass(frozen=True, slots=True)
class ApiHooks:
    """Hooks into the process that serves the API. Each may be called from any thread."""

    wake: Callable[[], None] = lambda: None
    """Tells the loops that a definition has changed."""
    wake_jobs: Callable[[], None] = lambda: None
    """Tells the loops of jobs to look: there is something to send or to stop, or accounts or keys have changed."""
    loops: Callable[[], Sequence[LoopHealth]] = lambda: ()
    arrivals: ClaimSignal = field(default_factory=ClaimSignal)
    """The loop that makes outgoing runs calls ``notify``; a process that drains calls ``close``."""
    metrics: Metrics = field(default_factory=Metrics)


class WorkThreads(NamedTuple):
    """Threads for work that would keep the event loop from other requests. Users take turns for each kind."""

    work: FairThreads
    heavy: FairThreads
    trials: FairThreads

    @classmethod
    def of(cls, *, remote: bool) -> WorkThreads:
        threads, each_max = (REMOTE_WORK_THREADS, REMOTE_WORK_EACH_MAX) if remote else (WORK_THREADS, WORK_EACH_MAX)
        return cls(
            FairThreads("paceline-api-work", threads=threads, each_max=each_max),
            FairThreads("paceline-api-heavy", threads=HEAVY_THREADS, each_max=HEAVY_EACH_MAX),
            FairThreads("paceline-api-trials", threads=TRIAL_THREADS, each_max=TRIAL_EACH_MAX),
        )

    def close(self, *, wait: bool) -> None:
        """Leaves out what waits. ``wait``: returns only when work that has begun has ended, but for trials."""
        self.trials.close(wait=False)
        self.work.close(wait=wait)
        self.heavy.close(wait=wait)


@dataclass(frozen=True, slots=True)
class ApiContext:
    system: System
    hooks: ApiHooks
    commits: GroupCommit
    readiness: Readiness
    writes: BatchedWrites
    tokens: TokenCache
    wrong_tokens: WrongTokenLimit
    limits: SpecLimits
    policy: RetryPolicy
    body_timeout_s: float
    reads: AtlasReads
    threads: WorkThreads
    kept: KeptAnswers
    user: str = ""
    """The user who sent the request: users take turns for writes and for threads."""

    @classmethod
    def of(cls, system: System, hooks: ApiHooks) -> ApiContext:
        settings, remote = system.settings, system.traits.remote
        own = ((settings.host, settings.port),)
        return cls(
            system=system,
            hooks=hooks,
            commits=GroupCommit(system.store.within, threads=REMOTE_WRITERS if remote else 1),
            readiness=Readiness(system.store),
            writes=BatchedWrites(system, wake=hooks.wake),
            tokens=TokenCache(),
            wrong_tokens=WrongTokenLimit(per_minute=settings.wrong_tokens_max),
            limits=system.limits,
            policy=system.retry_policy,
            body_timeout_s=duration_ms(settings.body_timeout) / 1_000,
            reads=AtlasReads(lambda: open_atlas(settings, own=own), draining=lambda: hooks.arrivals.closed),
            threads=WorkThreads.of(remote=remote),
            kept=KeptAnswers(),
        )

    @property
    def store(self) -> Store:
        return self.system.store

    def now_ms(self) -> int:
        return self.system.clock.now_ms()

    def of_user(self, user: str) -> ApiContext:
        """Returns a copy of the context for one user's request."""
        return replace(self, user=user)

    def seal(self, put: PutMonitor, *, pointer: str = "", known: KnownChannels | None = None) -> PutMonitor:
        """Returns the put as it is stored: the secrets of its check are sealed, or taken from the stored check.

        Raises if one of its channels does not exist.
        """
        return seal_put(self.store, self.system.vault, put, pointer=pointer, known=known)

    async def do(self, batch: Batch[Item, Written], item: Item, *, weight: int = 1) -> Written:
        """Does one item of a batch step that concurrent requests share.

        ``weight``: how many single puts it is worth.
        """
        return await self.commits.do(batch, item, user=self.user, weight=weight)

    async def read(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Makes a read that is quick on a local file. A remote store is asked in a thread."""
        if not self.system.traits.remote:
            return look(*args, **kwargs)
        return await self.work(look, *args, **kwargs)

    async def listed(
        self, asked: PageQuery, read: Callable[..., ListPage[T]], *args: Any, **filters: Any
    ) -> ListPage[T]:
        """Returns the page that the query asks for, of a list of ``shells.lists``."""
        return await self.work(read, self.system, *args, asked, **filters)

    async def work(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does, in a thread, work that takes long even on a local file, such as a list."""
        return await self._done_in(self.threads.work, partial(act, *args, **kwargs))

    async def heavy_work(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work that may take a processor for seconds, such as a large job: few at the same time."""
        return await self._done_in(self.threads.heavy, partial(act, *args, **kwargs))

    async def trial(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work that waits for somebody else's service, which may hang: one of each user at a time."""
        return await self._done_in(self.threads.trials, partial(act, *args, **kwargs))

    @property
    def work_threads(self) -> Executor:
        """The threads for long work, in turns of this user."""
        return self.threads.work.of(self.user)

    async def _done_in(self, threads: FairThreads, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads.of(self.user), act)

    async def write(self, job: Callable[[], T], *, weight: int = OWN_WEIGHT) -> T:
        """Does a write that has no batch step, in a writing thread: the event loop never waits for the disk."""
        return await self.do(each, job, weight=weight)

    def close(self) -> None:
        """Waits for writes that are being committed, and for work on a local file."""
        self.commits.close()
        self.readiness.close()
        self.threads.close(wait=not self.system.traits.remote)


class ApiCall(NamedTuple):
    """One request, authenticated and parsed as its route declares."""

    api: ApiContext
    user: TokenUser
    params: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    query_string: bytes
    body: Any
    receive: Receive
    scheme: str = "http"

    @property
    def owner(self) -> str:
        """The user named in the path. Raises NotFound if the caller may not know of them."""
        return owner_of(self.user, self.params["user"])

    def page(self, *known: str) -> PageQuery:
        """Returns which page the request asks for.

        ``known``: query parameters of the route, beyond those of every list.
        """
        return page_query(self.query_string, *known, limit_max=self.api.system.settings.page_max)

"""One process: the API on the event loop, the loops beside it, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import structlog
import uvicorn
import uvloop

from paceline import __version__
from paceline.errors import WrongSetting
from paceline.shells.api import ApiHooks, LoopHealth, build_app, server_config
from paceline.shells.batch_loops import CallSender, Planner
from paceline.shells.loops import Keeper, Loop, Sender, Ticker
from paceline.shells.metrics import Metrics
from paceline.wiring import System, open_caller, open_provider

log = structlog.get_logger("paceline")

GRACE_S = 5
JOIN_S = 15.0
BACKLOG = 2_048


class Engine:
    """The loops of one process."""

    def __init__(
        self, system: System, metrics: Metrics, *, arrived: Callable[[], None], own: tuple[str, int] | None
    ) -> None:
        owned = [own] if own else []
        self._provider = open_provider(system.settings, system.clock, own=owned)
        self._caller = open_caller(system.settings, system.clock, own=owned)
        self._sender = Sender(system, self._provider, metrics)
        self._call_sender = CallSender(system, self._caller, metrics, chance=random.SystemRandom().random)
        self._arrived = arrived
        planner = Planner(system, metrics, planned=self._call_sender.wake, keep_on=self._keep_planning)
        self._ticker = Loop("ticker", Ticker(system, metrics, made=self._made).turn, metrics)
        self._sending = Loop("sender", self._sender.turn, metrics)
        self._planner = Loop("planner", planner.turn, metrics)
        self._calling = Loop("caller", self._call_sender.turn, metrics)
        self._keeper = Loop("keeper", Keeper(system, metrics, loops=lambda: self.loops).turn, metrics)

    @property
    def loops(self) -> list[Loop]:
        return [self._ticker, self._sending, self._planner, self._calling, self._keeper]

    def start(self) -> None:
        for loop in self.loops:
            loop.start()

    def wake(self) -> None:
        """A definition changed: its entry may be due now. The loops of batches look often enough by themselves."""
        self._ticker.wake()

    def drain(self) -> None:
        """No new runs, no new claims; what is in flight settles or is given back."""
        for loop in self.loops:
            loop.stop()
        self._sender.wake()
        self._call_sender.wake()
        for loop in self.loops:
            loop.join(JOIN_S)
        calls = threading.Thread(target=self._call_sender.drain, name="paceline-drain")
        calls.start()
        self._sender.drain()
        calls.join()
        self._provider.close()
        self._caller.close()

    def _keep_planning(self) -> bool:
        """Asked between the pages of a plan, which takes long for a million records."""
        return self._planner.beat()

    def _made(self) -> None:
        self._sender.wake()
        self._arrived()


def run_daemon(system: System, *, serve_api: bool, ready: Callable[[str], None] | None = None) -> int:
    """Blocks until SIGINT or SIGTERM, drains, and returns the exit code. ``ready`` hears where the API listens."""
    metrics = Metrics(version=__version__)
    # What exists now stays; and a batch of thousands of rows must not set off a collection of everything each time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    if not serve_api:
        return _work(system, metrics, ready)
    listener = _listen(system.settings.host, system.settings.port)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(system, metrics, listener, ready))
    finally:
        listener.close()


def _work(system: System, metrics: Metrics, ready: Callable[[str], None] | None) -> int:
    engine = Engine(system, metrics, arrived=lambda: None, own=None)
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    engine.start()
    log.info("working", store=system.settings.store)
    if ready is not None:
        ready("")
    stop.wait()
    log.info("draining")
    engine.drain()
    log.info("stopped")
    return 0


async def _serve(system: System, metrics: Metrics, listener: socket.socket, ready: Callable[[str], None] | None) -> int:
    host, port = listener.getsockname()[:2]
    assert system.secret_key, "made at the first start, before anybody asks for a token"
    engine: Engine | None = None

    def loops() -> list[LoopHealth]:
        return [LoopHealth(loop.name, loop.turning, loop.age_s) for loop in engine.loops] if engine else []

    hooks = ApiHooks(wake=lambda: engine.wake() if engine else None, loops=loops, metrics=metrics)
    engine = Engine(system, metrics, arrived=hooks.arrivals.notify, own=(host, port))
    server = _Server(server_config(build_app(system, hooks), system.settings, timeout_graceful_shutdown=GRACE_S))
    event_loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        event_loop.add_signal_handler(number, _begin_end, server, hooks)
    engine.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.listening(serving)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    log.info("serving", url=url, store=system.settings.store)
    try:
        if ready is not None:
            ready(url)
        await serving
    finally:
        log.info("draining")
        await asyncio.to_thread(engine.drain)
        log.info("stopped")
    return 0


def _begin_end(server: uvicorn.Server, hooks: ApiHooks) -> None:
    """A second signal ends the wait for open requests too."""
    server.force_exit = server.should_exit
    server.should_exit = True
    hooks.arrivals.close()


class _Server(uvicorn.Server):
    """Signals are ours: the loops must drain as well."""

    async def listening(self, serving: asyncio.Task[None]) -> None:
        """Until requests are answered, or the server has failed to start."""
        while not self.started and not serving.done():  # noqa: ASYNC110  uvicorn offers a flag and no event
            await asyncio.sleep(0.005)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    """Bound before anything starts, so that a taken port is one clear line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise WrongSetting(
            f"PACELINE_PORT (or --port): cannot listen on {host}:{port}: {error.strerror or error}. Choose another."
        ) from None
    return listener

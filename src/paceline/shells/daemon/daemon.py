"""One process: the API on the event loop, the loops in threads, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import random
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import structlog
import uvicorn
import uvloop

from paceline import __version__
from paceline.core.monitors.definition import duration_ms
from paceline.errors import StoreUnavailable, WrongSetting
from paceline.shells.api.http.app import build_app
from paceline.shells.api.http.context import ApiHooks, LoopHealth
from paceline.shells.api.http.serving import server_config
from paceline.shells.daemon.alerts import AlertEngine
from paceline.shells.daemon.batches import Calls, Planner
from paceline.shells.daemon.heartbeat import Heartbeat
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.job_engine import JobEngine
from paceline.shells.daemon.keeper import Keeper
from paceline.shells.daemon.loop import JOIN_S, Loop
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.monitors import Checks, Ticker
from paceline.shells.daemon.signals import STOPS, StopSignals, stop_requested
from paceline.shells.daemon.watcher import Watcher
from paceline.steps.upkeep.secret import seal_checks
from paceline.wiring import System, exposed_files, open_caller, open_provider, open_tls

log = structlog.get_logger("paceline")

GRACE_S = 5
CUT_S = 1.0
"""How long a request that was cut short may take to end."""
SETTLE_S = 10.0
"""How long it may take, in a drain, to write results."""
DATE_S = 1.0
"""How often the date header is renewed."""
BACKLOG = 2_048
FILES_MAX = 65_536
FILES_S = 1.0
"""How often to test whether another file can be opened."""
RENEW_S = 43_200.0
"""How often to look at the certificate."""


class DaemonEngine:
    """The loops of one process."""

    def __init__(
        self,
        system: System,
        metrics: Metrics,
        *,
        arrived: Callable[[], None],
        own: tuple[str, int] | None,
        url: str = "",
    ) -> None:
        """``own`` and ``url`` say where this process's own API listens, if it has one."""
        owned = [own] if own else []
        system.store.begin_loops()
        self._provider = open_provider(system.settings, system.clock, own=owned)
        self._caller = open_caller(system.settings, system.clock, own=owned)
        clock, remote = system.clock, system.traits.remote
        self._checks = InFlight(Checks(system, self._provider, metrics), clock=clock, remote=remote)
        calls = Calls(system, self._caller, metrics, chance=random.SystemRandom().random)
        self._calls = InFlight(calls, clock=clock, remote=remote)
        self._drain_s = duration_ms(system.settings.drain_timeout) / 1_000
        self._arrived = arrived
        self._plans = Planner(system, metrics, planned=self._planned, keep_on=self._keep_planning)
        self._ticks = Ticker(system, metrics, made=self._made, keep_on=self._keep_ticking)
        self._ticker = Loop("ticker", self._ticks.turn, metrics)
        self._sending = Loop("sender", self._checks.turn, metrics)
        self._planner = Loop("planner", self._plans.turn, metrics)
        self._calling = Loop("caller", self._calls.turn, metrics)
        keeper = Keeper(system, metrics, loops=lambda: self.loops, beat=self._keep_keeping)
        self._keeper = Loop("keeper", keeper.turn, metrics)
        self._watcher = Loop("watcher", Watcher(system).turn, metrics)
        self._heartbeat = Heartbeat(system, kind="up" if url else "worker", url=url)
        self._beating = Loop("heartbeat", self._heartbeat.turn, metrics)
        self._jobs = JobEngine(system, metrics, own=owned)
        self._alerts = AlertEngine(system, metrics, own=owned)

    @property
    def loops(self) -> list[Loop]:
        return [*self._own_loops, *self._jobs.loops, self._alerts.loop]

    @property
    def _own_loops(self) -> list[Loop]:
        engine = [self._ticker, self._sending, self._planner, self._calling]
        return [*engine, self._keeper, self._watcher, self._beating]

    def start(self) -> None:
        self._heartbeat.begin()
        for loop in self.loops:
            loop.start()

    def wake(self) -> None:
        """Says that a definition changed: its entry may be due now.

        The loops of batches look soon enough by themselves.
        """
        self._ticks.tell()
        self._plans.tell()
        self._ticker.wake()

    def wake_jobs(self) -> None:
        """Says that a job was submitted."""
        self._jobs.wake()

    def drain(self) -> None:
        """Stops making runs, claiming and sending. Work in flight is settled or given back."""
        ending = [loop for loop in self.loops if loop is not self._beating]  # a process that drains still lives
        for loop in ending:
            loop.stop()
        self._checks.wake()
        self._calls.wake()
        # All at once: work in flight must be driven, or it would time out while another loop is waited for.
        jobs = threading.Thread(target=_end, args=(self._jobs.drain,), name="paceline-drain-jobs")
        jobs.start()
        alerts = threading.Thread(target=_end, args=(self._alerts.drain,), name="paceline-drain-alerts")
        alerts.start()
        for loop in self._own_loops:
            if loop in ending:
                loop.join(JOIN_S)
        calls_end = _draining(self._calls, "calls_drained", wait_s=self._drain_s)
        calls = threading.Thread(target=_end, args=(calls_end,), name="paceline-drain")
        calls.start()
        _end(_draining(self._checks, "drained", wait_s=self._drain_s))
        calls.join()
        jobs.join()
        alerts.join()
        self._beating.stop()
        self._beating.join(JOIN_S)
        self._heartbeat.end()
        self._provider.close()
        self._caller.close()

    def hurry(self) -> None:
        """Makes a drain, now or later, not wait for work in flight: it is given back, or left to its lease."""
        self._checks.hurry()
        self._calls.hurry()
        self._jobs.hurry()
        self._alerts.hurry()

    def _keep_ticking(self) -> bool:
        """Called between the passes of a tick, which takes long if many entries are due."""
        return self._ticker.beat()

    def _keep_planning(self) -> bool:
        """Called between the pages of a plan, which takes long for a million records."""
        return self._planner.beat()

    def _keep_keeping(self) -> bool:
        """Called between the pages of entries that are searched after the clock was set back."""
        return self._keeper.beat()

    def _planned(self) -> None:
        self._calls.wake()
        self._arrived()

    def _made(self) -> None:
        self._checks.wake()
        self._arrived()


def run_daemon(system: System, *, serve_api: bool, ready: Callable[[str], None] | None = None) -> int:
    """Runs until SIGINT or SIGTERM, drains, and returns the exit code. ``ready`` is called with the API's URL."""
    assert system.secret_key, "read before anything runs: a wrong one stops the start"
    if sealed := seal_checks(system.store, system.vault):
        log.info("checks_sealed", monitors=sealed)
    for file in exposed_files(system.settings):
        log.warning("readable_by_others", file=str(file), advice=f"chmod 600 {file}")
    metrics = Metrics(version=__version__)
    # Objects that exist now stay for good, and thousands of rows must not start a full collection each time.
    gc.freeze()
    # With 50,000 instead, collections take 3 % of the time of a daemon that makes checks.
    gc.set_threshold(200_000, 20, 50)
    _allow_files()
    if not serve_api:
        return _work(system, metrics, ready)
    tls = system.tls  # raises if the certificate cannot be used
    log.debug("tls", on=tls is not None)
    listener = _listen(system.settings.host, system.settings.port)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(system, metrics, listener, ready))
    finally:
        listener.close()


def _work(system: System, metrics: Metrics, ready: Callable[[str], None] | None) -> int:
    stops = StopSignals()
    if stop_requested():
        return 0
    engine = DaemonEngine(system, metrics, arrived=lambda: None, own=None)
    engine.start()
    log.info("working", store=system.settings.store)
    if ready is not None:
        ready("")
    stops.wait()
    log.info("draining")
    threading.Thread(target=_hurry_on_signal, args=(stops, engine), name="paceline-signals", daemon=True).start()
    engine.drain()
    log.info("stopped")
    return 0


def _hurry_on_signal(stops: StopSignals, engine: DaemonEngine) -> None:
    stops.wait()
    _hurry(engine)


def _hurry(engine: DaemonEngine) -> None:
    log.warning("told_to_stop_again", detail="Work in flight is given back, or left to its lease.")
    engine.hurry()


async def _serve(system: System, metrics: Metrics, listener: socket.socket, ready: Callable[[str], None] | None) -> int:
    host, port = listener.getsockname()[:2]
    engine: DaemonEngine | None = None

    def loops() -> list[LoopHealth]:
        return [LoopHealth(loop.name, loop.turning, loop.age_s) for loop in engine.loops] if engine else []

    hooks = ApiHooks(
        wake=lambda: engine.wake() if engine else None,
        wake_jobs=lambda: engine.wake_jobs() if engine else None,
        loops=loops,
        metrics=metrics,
    )
    url = f"{'https' if system.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    engine = DaemonEngine(system, metrics, arrived=hooks.arrivals.notify, own=(host, port), url=url)
    app = build_app(system, hooks)
    config = server_config(app, system.settings, tls=system.tls, timeout_graceful_shutdown=GRACE_S)
    server = _Server(config)
    event_loop = asyncio.get_running_loop()
    for number in STOPS:
        event_loop.add_signal_handler(number, _begin_end, server, hooks, engine)
    if stop_requested():
        return 0
    engine.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.listening(serving)
    beside = [asyncio.create_task(_renew_certificate(system, config)), asyncio.create_task(_watch_files())]
    event_loop.set_exception_handler(_log_loop_error)
    log.info("serving", url=url, store=system.settings.store)
    try:
        if ready is not None:
            ready(url)
        await serving
    finally:
        for task in beside:
            task.cancel()
        log.info("draining")
        await asyncio.to_thread(engine.drain)
        log.info("stopped")
    return 0


async def _renew_certificate(system: System, config: uvicorn.Config) -> None:
    """Reloads the certificate now and then: our own, renewed in time, or the one that the operator put there."""
    while config.ssl is not None:
        await asyncio.sleep(RENEW_S)
        try:
            tls = await asyncio.to_thread(open_tls, system.settings, system.clock)
            if tls is not None:
                config.ssl.load_cert_chain(tls.cert, tls.key)
        except (WrongSetting, OSError) as error:
            log.warning("certificate_not_renewed", error=str(error))


async def _watch_files() -> None:
    """Logs when no file can be opened: then no connection can be accepted, and libuv closes them silently."""
    failing = False
    while True:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
            failing = False
        except OSError as error:
            if not failing:
                advice = "Raise `ulimit -n`, or lower connections_max and checks_in_flight_max."
                log.error("accepting_fails", error=error.strerror, detail=advice)  # noqa: TRY400  it has its reason
            failing = True
        await asyncio.sleep(FILES_S)


def _log_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors that nothing else reports, such as a listener that cannot accept."""
    error = context.get("exception")
    log.error("event_loop", detail=context.get("message"), error=None if error is None else repr(error))


def _allow_files() -> None:
    """Raises the limit on open files, because each check and each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _begin_end(server: _Server, hooks: ApiHooks, engine: DaemonEngine) -> None:
    """Begins the end. A second signal ends all waits: for open requests, and for work in flight."""
    if server.should_exit and not server.force_exit:
        server.force_exit = True
        _hurry(engine)
    server.end()
    hooks.arrivals.close()


class _Server(uvicorn.Server):
    """Server that leaves signals to the daemon, because the loops must drain as well."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Ends the server at once. Called on the event loop."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Waits for the end, and renews the date header each second.

        uvicorn's own loop looks ten times a second, which is a fifth of what an idle daemon costs.
        """
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._ending.wait()

    async def listening(self, serving: asyncio.Task[None]) -> None:
        """Waits until requests are answered, or the server has failed to start."""
        while not self.started and not serving.done():  # noqa: ASYNC110  uvicorn offers a flag and no event
            await asyncio.sleep(0.005)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shuts down.

        If uvicorn was forced to end, it leaves requests and lifespan as they are; they are ended here.
        """
        await super().shutdown(sockets)
        for task in (left := set(self.server_state.tasks)):
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CUT_S)
        if self.force_exit:
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _draining(loop: InFlight[Any, Any], event: str, *, wait_s: float) -> Callable[[], None]:
    return lambda: log.info(event, **loop.drain(wait_s=wait_s, settle_s=SETTLE_S)._asdict())


def _end(drain: Callable[[], None]) -> None:
    """Drains. A store that cannot be written does not keep the process from ending: leases run out by themselves."""
    try:
        drain()
    except StoreUnavailable as error:
        log.warning("not_settled", detail=error.detail)


def _listen(host: str, port: int) -> socket.socket:
    """Binds the port before anything starts, so that a taken port is one clear message."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        of_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        setting = "PACELINE_HOST (or --host)" if of_host else "PACELINE_PORT (or --port)"
        raise WrongSetting(
            f"{setting}: cannot listen on {host}:{port}: {error.strerror or error}. Choose another."
        ) from None
    return listener

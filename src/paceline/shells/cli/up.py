"""``paceline up``, ``worker`` and ``simulator``: what runs until it is told to stop."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from paceline.errors import WrongSetting
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_json

if TYPE_CHECKING:
    from paceline.config import Settings
    from paceline.shells.demo import Demo
    from paceline.wiring import System

simulator_app = typer.Typer(name="simulator", help="Model providers to try things against.")

HostOption = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where the API listens. [default: 127.0.0.1]")]
PortOption = Annotated[
    int | None, typer.Option(metavar="N", help="The API's port; 0 takes a free one. [default: 8080]")
]


class Logging(NamedTuple):
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(metavar="debug|info|warning|error", help="Least level that is logged. [default: info]"),
    ] = None
    log_format: Annotated[
        Literal["auto", "json", "text"] | None,
        typer.Option(metavar="auto|json|text", help="auto: text on a terminal, JSON elsewhere. [default: auto]"),
    ] = None


def register(app: typer.Typer) -> None:
    command(app, "up")(up)
    command(app, "worker")(worker)


def up(
    call: Call,
    *,
    demo: Annotated[
        bool, typer.Option("--demo", help="Add a user, a model HTTP server and monitors to look at.")
    ] = False,
    host: HostOption = None,
    port: PortOption = None,
    logging: Logging,
) -> int:
    """Start everything in one process: the API and the loops. Ctrl-C or SIGTERM drains and stops it."""
    settings = call.settings(host=host, port=port, **logging._asdict())
    if not demo:
        return _run(call, settings, serve_api=True)
    from paceline.shells.demo import demo_settings, prepare_demo
    from paceline.simulators.http import ModelHttpServer

    with call.system(demo_settings(settings)) as system, ModelHttpServer() as model:

        def ready(url: str) -> None:
            # Not before the port is ours: a start that fails must not re-aim the monitors of the one that runs.
            _welcome(call, system.settings, url, prepare_demo(system, model_url=model.base_url))

        return _daemon(system, serve_api=True, ready=ready)


def worker(call: Call, *, logging: Logging) -> int:
    """Start the loops alone, without the API: more hands on the same store."""
    return _run(call, call.settings(**logging._asdict()), serve_api=False)


@command(simulator_app, "http")
def simulator_http(
    call: Call,
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, metavar="N", help="0 takes a free one.")] = 8090,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed answers the same.")] = 1,
) -> None:
    """Run a model HTTP server on this machine: /ok, /status/N, /slow/MS, /flap, /echo."""
    from paceline.simulators.http import ModelHttpServer

    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before any thread starts: they inherit it, and sigwait needs it
    server = ModelHttpServer(host="127.0.0.1", port=port, seed=seed)
    try:
        server.start()
    except OSError as error:
        raise WrongSetting(f"Port {port} cannot be had ({error.strerror}). Choose another with --port.") from None
    try:
        _say(call, {"url": server.base_url}, f"Model HTTP server: {server.base_url} (Ctrl-C stops it)")
        signal.sigwait(stops)
    finally:
        server.stop()


def _run(call: Call, settings: Settings, *, serve_api: bool) -> int:
    with call.system(settings) as system:
        return _daemon(system, serve_api=serve_api, ready=lambda url: _announce(call, system, url))


def _daemon(system: System, *, serve_api: bool, ready: Callable[[str], None]) -> int:
    from paceline.shells.daemon import run_daemon
    from paceline.shells.logs import configure_logs

    configure_logs(level=system.settings.log_level, log_format=system.settings.log_format)
    return run_daemon(system, serve_api=serve_api, ready=ready)


def _announce(call: Call, system: System, url: str) -> None:
    """A worker has no address."""
    lines = [f"Paceline is up: {url or 'a worker'} (store {system.settings.store}; Ctrl-C stops it)"]
    if not system.store.users(after="", limit=1):
        lines.append(f"There is no user yet. Add one: {_this_program(call)} user add NAME --role admin")
    _say(call, {"url": url or None, "store": system.settings.store}, *lines)


def _welcome(call: Call, settings: Settings, url: str, demo: Demo) -> None:
    program = _this_program(call)
    bearer = f'-H "Authorization: Bearer {demo.token}"'
    document = {"url": url, "store": settings.store, "user": demo.user, "token": demo.token, "model": demo.model_url}
    _say(
        call,
        document,
        f"Paceline is up: {url} (store {settings.store}; Ctrl-C stops it)",
        f"User {demo.user}, token {demo.token} (a new one at each start)",
        f"Model HTTP server: {demo.model_url}",
        "",
        "Try, in another terminal:",
        "  1. watch the monitors fire",
        f"     {program} monitor list --user {demo.user}",
        "  2. put one of your own",
        f"     curl -X PUT {url}/v1/users/me/monitors/mine {bearer} -H 'Content-Type: application/json' \\",
        f"""       -d '{{"check": {{"kind": "http", "url": "{demo.model_url}/ok"}}, "every": "1s"}}'""",
        f"     {program} monitor show mine --user {demo.user}",
        "  3. be a checker yourself: claim a run of the monitor by-hand",
        f"     curl -X POST {url}/v1/outgoing/claim {bearer} -H 'Content-Type: application/json' \\",
        """       -d '{"max": 1, "lease": "60s", "wait": "20s"}'""",
        "  4. watch a batch of 300 records go to two providers, evenly, and what became of those that failed",
        f"     {program} batch show",
        f"     {program} dead list",
        "",
    )


def _say(call: Call, document: dict[str, Any], *lines: str) -> None:
    """Whoever started this may be a program that reads a pipe: what it waits for must not sit in a buffer."""
    if call.as_json:
        print_json(document)
    else:
        print("\n".join(lines))
    sys.stdout.flush()


def _this_program(call: Call) -> str:
    """How the same program on the same store is called from the same directory."""
    started_as = sys.argv[0]
    words = [started_as]
    if Path(started_as).name == "__main__.py":
        words = [sys.executable, "-m", "paceline"]
    elif shutil.which("paceline") == started_as:
        words = ["paceline"]
    if call.config:
        words += ["--config", str(call.config)]
    if call.store:
        words += ["--store", call.store]
    return shlex.join(words)

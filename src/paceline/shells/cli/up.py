"""``paceline up`` and ``paceline worker``: run the daemon until it is stopped."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import flag, option
from paceline.shells.cli.output import emit

if TYPE_CHECKING:
    from paceline.config import Settings
    from paceline.shells.demo import Demo
    from paceline.wiring import System

HostOption = Annotated[str | None, option("ADDRESS", "Address on which the API listens. [default: 127.0.0.1]")]
PortOption = Annotated[int | None, option("N", "The API's port; 0 takes a free one. [default: 8080]")]


class Logging(NamedTuple):
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        option("debug|info|warning|error", "Lowest level to log. [default: info]"),
    ] = None
    log_format: Annotated[
        Literal["auto", "json", "text"] | None,
        option("auto|json|text", "auto: text on a terminal, JSON elsewhere. [default: auto]"),
    ] = None


class Https(NamedTuple):
    tls_cert: Annotated[
        Path | None, option("FILE", "The API's certificate chain, PEM. The API then serves only HTTPS.")
    ] = None
    tls_key: Annotated[Path | None, option("FILE", "The certificate's private key, PEM, without a password.")] = None
    tls_self_signed: Annotated[
        bool | None, flag("--tls-self-signed", "Serve HTTPS with its own certificates; prints where the CA is.")
    ] = None


def up(
    call: CliCall,
    *,
    demo: Annotated[
        bool,
        flag(
            "--demo",
            (
                "Use a separate store with a user, model providers, monitors, a batch and a job to look at. The log"
                " goes to a file beside the store."
            ),
        ),
    ] = False,
    host: HostOption = None,
    port: PortOption = None,
    https: Https,
    logging: Logging,
) -> int:
    """Start everything in one process: the API and the loops. Ctrl-C or SIGTERM drains and stops it."""
    call.need_store()
    settings = call.settings(host=host, port=port, **https._asdict(), **logging._asdict())
    if not demo:
        return _run(call, settings, serve_api=True)
    return _demo(call._replace(store=None), settings)


def _demo(call: CliCall, settings: Settings) -> int:
    from paceline.shells.cli.places import SQLITE, demo_store
    from paceline.shells.demo import demo_atlas, demo_settings, end_demo, prepare_demo
    from paceline.simulators.http import ModelHttpServer
    from paceline.wiring import SystemClock

    settings = settings.model_copy(update={"store": demo_store(settings.store)})
    log = Path(settings.store.removeprefix(SQLITE)).with_suffix(".log")
    started_ms = SystemClock().now_ms()
    with demo_atlas(now_ms=started_ms) as atlas, ModelHttpServer() as model:
        settings = demo_settings(settings, atlas_url=atlas.base_url)
        with call.new_system(settings) as system, ExitStack() as at_the_end:

            def ready(url: str) -> None:
                # Only once the port is taken: a start that fails must not change the monitors of the demo that runs.
                at_the_end.callback(end_demo, system)
                demo = prepare_demo(system, model_url=model.base_url, atlas=atlas, started_ms=started_ms)
                _welcome(call, system, url, demo, log)

            return _daemon(system, serve_api=True, ready=ready, log=log)


def worker(call: CliCall, *, logging: Logging) -> int:
    """Start the loops without the API: one more process that works on the same store."""
    return _run(call, call.settings(**logging._asdict()), serve_api=False)


def _run(call: CliCall, settings: Settings, *, serve_api: bool) -> int:
    with call.new_system(settings) as system:
        return _daemon(system, serve_api=serve_api, ready=lambda url: _announce(call, system, url))


def _daemon(system: System, *, serve_api: bool, ready: Callable[[str], None], log: Path | None = None) -> int:
    """Runs the daemon until it is stopped. Without a file, the log goes to stderr."""
    from paceline.shells.daemon.daemon import run_daemon
    from paceline.shells.logs import configure_log_file, configure_logs, warn_of_plain_http

    level, log_format = system.settings.log_level, system.settings.log_format
    if log is None:
        configure_logs(level=level, log_format=log_format)
    else:
        configure_log_file(log, level=level, log_format=log_format)
    if serve_api:
        warn_of_plain_http(system.settings.host, tls=system.tls is not None)
    return run_daemon(system, serve_api=serve_api, ready=ready)


def _announce(call: CliCall, system: System, url: str) -> None:
    """Prints where the API listens; a worker has no address."""
    lines = [f"Paceline is up: {url or 'a worker'} (store {system.settings.store}; Ctrl-C stops it)"]
    document: dict[str, Any] = {"url": url or None, "store": system.settings.store}
    if url and system.tls and system.tls.authority:
        lines.append(f"Clients trust it with this CA file: {system.tls.authority}")
        document["ca"] = str(system.tls.authority)
    if not system.store.users(after="", limit=1):
        lines.append(f"There is no user yet. Add one: {_this_program(call)} user add NAME --role admin")
    emit(call, document, *lines)


def _welcome(call: CliCall, system: System, url: str, demo: Demo, log: Path) -> None:
    program, settings = _this_program(call), system.settings
    authority = system.tls.authority if system.tls else None
    trusting = f"--cacert {authority} " if authority else ""
    bearer = f'{trusting}-H "Authorization: Bearer {demo.token}"'
    document = {
        "url": url,
        "store": settings.store,
        "user": demo.user,
        "token": demo.token,
        "model": demo.model_url,
        "atlas": demo.atlas_url,
        "job": demo.job,
        "log": str(log),
    } | ({"ca": str(authority)} if authority else {})
    emit(
        call,
        document,
        f"Paceline is up: {url} (store {settings.store}; Ctrl-C stops it)",
        f"In a browser: {url}/#token={demo.token}",
        f"User {demo.user}, token {demo.token} (a new one at each start)",
        f"Log: {log}",
        f"Model HTTP server: {demo.model_url}; RIPE Atlas simulator: {demo.atlas_url}/api/v2/",
        "",
        "Try, in another terminal in this folder. The demo has a store of its own; this is how commands find it:",
        f"     export PACELINE_STORE={shlex.quote(settings.store)}",
        "  1. watch what runs, waits and fails (q quits), and the monitors",
        f"     {program} top",
        f"     {program} monitor list --user {demo.user}",
        "  2. put your own monitor",
        f"     curl -X PUT {url}/v1/users/me/monitors/mine {bearer} -H 'Content-Type: application/json' \\",
        f"""       -d '{{"check": {{"kind": "http", "url": "{demo.model_url}/ok"}}, "every": "1s"}}'""",
        f"     {program} monitor show mine --user {demo.user}",
        "  3. be a checker yourself: claim a run of the monitor by-hand",
        f"     curl -X POST {url}/v1/outgoing/claim {bearer} -H 'Content-Type: application/json' \\",
        """       -d '{"max": 1, "lease": "60s", "wait": "20s"}'""",
        "  4. watch a batch of 300 records go to two providers, evenly, and the calls that failed",
        f"     {program} batch show",
        f"     {program} dead list",
        "  5. see a job of 12 measurements go through two accounts of the RIPE Atlas simulator, and submit your own",
        f"     {program} job show {demo.job}",
        f"     {program} account list",
        """     echo '{"title": "mine", "measurements": [{"is_oneoff": true,""",
        """       "definitions": [{"type": "ping", "af": 4, "target": "192.0.2.7", "description": "my own"}],""",
        """       "probes": [{"requested": 10, "type": "area", "value": "WW"}]}]}' \\""",
        f"       | {program} job submit --user {demo.user} --watch -",
        f"     PACELINE_ATLAS_URL={demo.atlas_url} {program} job results {demo.job}",
        "",
    )


def _this_program(call: CliCall) -> str:
    """Returns the command that starts this program on the same store from the same directory."""
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

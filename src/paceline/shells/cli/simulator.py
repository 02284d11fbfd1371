"""``paceline simulator``: model servers on this machine, which run until they are stopped."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.errors import WrongSetting
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import option
from paceline.shells.cli.output import emit

if TYPE_CHECKING:
    from paceline.simulators.http import ModelHttpServer
    from paceline.simulators.ripe_atlas import AtlasSimulator

app = typer.Typer(name="simulator", help="Model providers to try things against.")
STOPS = {signal.SIGINT, signal.SIGTERM}


@command(app, "http")
def simulator_http(
    call: CliCall,
    *,
    port: Annotated[int, option("N", "Port to listen on; 0 takes a free one.", min=0, max=65_535)] = 8090,
    seed: Annotated[int, option("N", "The same seed gives the same answers.")] = 1,
) -> None:
    """Run a model HTTP server on this machine: /ok, /status/N, /slow/MS, /flap, /echo."""
    call.need_store()
    from paceline.simulators.http import ModelHttpServer

    server = ModelHttpServer(host="127.0.0.1", port=port, seed=seed)
    with _serving(server, port):
        emit(call, {"url": server.base_url}, f"Model HTTP server: {server.base_url} (Ctrl-C stops it)")
        signal.sigwait(STOPS)


@command(app, "atlas")
def simulator_atlas(
    call: CliCall,
    *,
    port: Annotated[int, option("N", "Port to listen on; 0 takes a free one.", min=0, max=65_535)] = 8091,
    seed: Annotated[int, option("N", "The same seed and the same requests give the same answers.")] = 1,
    accounts: Annotated[int, option("N", "How many accounts, each with one key.", min=1, max=100)] = 2,
    speed: Annotated[
        float, option("FACTOR", "How fast its clock runs; 0: only on request.", min=0, max=1_000_000)
    ] = 1.0,
    tls_cert: Annotated[Path | None, option("FILE", "Serve HTTPS with this certificate.")] = None,
    tls_key: Annotated[Path | None, option("FILE", "The private key of --tls-cert.")] = None,
) -> None:
    """Run a model of the RIPE Atlas API on this machine; no RIPE account is needed, and no credit is spent."""
    call.need_store()
    from paceline.simulators.ripe_atlas import AtlasSimulator, Model, SimulatorClock

    simulator = AtlasSimulator(
        Model(seed=seed), port=port, clock=SimulatorClock(speed=speed), tls=_tls_context(tls_cert, tls_key)
    )
    keys = {f"account-{n}": simulator.add_account(f"account-{n}")[0] for n in range(1, accounts + 1)}
    with _serving(simulator, port):
        url = simulator.base_url
        emit(
            call,
            {"url": url, "keys": keys},
            f"RIPE Atlas simulator: {url}/api/v2/ (Ctrl-C stops it)",
            *(f"  {account}: key {key}" for account, key in keys.items()),
            f"What really happened: {url}/simulator/audit",
        )
        signal.sigwait(STOPS)


@contextmanager
def _serving(server: ModelHttpServer | AtlasSimulator, port: int) -> Iterator[None]:
    """Starts the server, with its threads ignoring the signals that end it, and stops it at the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # before any thread starts: they inherit it; sigwait needs it
    try:
        server.start()
    except OSError as error:
        raise WrongSetting(f"Port {port} cannot be used ({error.strerror}). Choose another with --port.") from None
    try:
        yield
    finally:
        server.stop()


def _tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise WrongSetting("--tls-cert and --tls-key go together.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise WrongSetting(f"--tls-cert and --tls-key cannot be used: {error}.") from None
    return context

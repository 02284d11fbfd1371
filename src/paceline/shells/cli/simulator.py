"""``paceline simulator atlas``: a model of RIPE Atlas on this machine."""

from __future__ import annotations

import signal
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.errors import WrongSetting
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_json
from paceline.shells.cli.up import simulator_app as app

if TYPE_CHECKING:
    from paceline.simulators.ripe_atlas import AtlasSimulator

__all__ = ["app"]


@command(app, "atlas")
def simulator_atlas(
    call: Call,
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, metavar="N", help="0 takes a free one.")] = 8091,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed and the same requests give the same.")] = 1,
    accounts: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="How many accounts, of one key each.")] = 2,
    speed: Annotated[
        float, typer.Option(min=0, max=1_000_000, metavar="FACTOR", help="How fast its clock runs; 0: only when told.")
    ] = 1.0,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Speak https with this certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The private key of --tls-cert.")] = None,
) -> None:
    """Run a model of the RIPE Atlas API on this machine; no RIPE account is needed, and no credit is spent."""
    from paceline.simulators.ripe_atlas import AtlasSimulator, Model, SimulatorClock

    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before any thread starts: they inherit it, and sigwait needs it
    simulator = AtlasSimulator(
        Model(seed=seed), port=port, clock=SimulatorClock(speed=speed), tls=_tls_context(tls_cert, tls_key)
    )
    keys = {f"account-{n}": simulator.add_account(f"account-{n}")[0] for n in range(1, accounts + 1)}
    try:
        simulator.start()
    except OSError as error:
        raise WrongSetting(f"Port {port} cannot be had ({error.strerror}). Choose another with --port.") from None
    try:
        _announce(call, simulator, keys)
        signal.sigwait(stops)
    finally:
        simulator.stop()


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


def _announce(call: Call, simulator: AtlasSimulator, keys: dict[str, str]) -> None:
    """At once: a program may be waiting for it at a pipe."""
    url = simulator.base_url
    if call.as_json:
        print_json({"url": url, "keys": keys})
    else:
        print(f"RIPE Atlas simulator: {url}/api/v2/ (Ctrl-C stops it)")
        print("\n".join(f"  {account}: key {key}" for account, key in keys.items()))
        print(f"What really happened: {url}/simulator/audit")
    sys.stdout.flush()

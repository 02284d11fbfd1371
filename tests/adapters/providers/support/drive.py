"""Drives a real provider the way the daemon does, in as few words as a test needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path

from paceline.adapters.providers.checks import CheckProvider
from paceline.core.monitors.checks import PolledCheck
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CheckOrder, Finished

LOOPBACK = ("127.0.0.0/8", "::1/128")


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def open_provider(*allow: str, own: Sequence[tuple[str, int]] = (), ca_file: Path | None = None) -> CheckProvider:
    return CheckProvider(allow=[ip_network(text) for text in allow], clock=RealClock(), own=own, ca_file=ca_file)


def order(check: PolledCheck, handle: int = 1) -> CheckOrder:
    return CheckOrder(handle, 1, owner="ada", monitor="web", generation=1, counter=handle, check=check)


def gather(provider: CheckProvider, count: int, *, within_s: float = 60.0) -> list[Finished]:
    """Waits until ``count`` checks have finished, and a moment longer for any that should not finish."""
    finished: list[Finished] = []
    until_s = time.monotonic() + within_s
    while len(finished) < count:
        assert time.monotonic() < until_s, f"only {len(finished)} of {count} finished within {within_s} s"
        finished += provider.finished(wait_ms=200)
    finished += provider.finished(wait_ms=20)
    return finished


def outcome(provider: CheckProvider, check: PolledCheck) -> Done:
    """Runs one check and returns its outcome."""
    provider.start([order(check)])
    finished = gather(provider, 1)
    assert len(finished) == 1
    assert provider.in_flight == 0
    return finished[0].outcome

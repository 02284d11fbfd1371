"""The provider of checks: HTTP, TCP and TLS through one libcurl loop, DNS beside it, the guard on every socket."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from paceline.adapters.providers import http, tcp, tls
from paceline.adapters.providers.authorities import find_authorities
from paceline.adapters.providers.curl import CurlLoop
from paceline.adapters.providers.dns import DnsLoop
from paceline.adapters.providers.guard import AddressGuard, Network
from paceline.adapters.providers.transfer import Transfer
from paceline.core.monitors.checks import DnsCheck, HttpCheck, TcpCheck, TlsCheck
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CheckOrder, Finished
from paceline.ports import Clock

TOGETHER_MAX = 32
"""Checks that are begun before answers are read. If all were begun at once, the first answer would wait until the last
check is sent, and count as slow; and each check would open a connection, where now a finished one leaves its own."""


class CheckProvider:
    """Fills ``ports.Provider``. ``own`` are the endpoints of the API, which no check may reach."""

    def __init__(
        self,
        *,
        allow: Sequence[Network],
        clock: Clock,
        own: Sequence[tuple[str, int]] = (),
        ca_file: Path | None = None,
    ) -> None:
        self._clock = clock
        self._guard = AddressGuard(allow, own=own)
        self._authorities = find_authorities(ca_file)
        self._curl: CurlLoop[Transfer] = CurlLoop()
        self._dns = DnsLoop(self._guard, self._end_elsewhere)
        self._ended_elsewhere: deque[tuple[CheckOrder, int, Done]] = deque()
        self._finished: list[Finished] = []
        self._in_flight = 0
        self._plain: list[Transfer] = []
        self._others: list[Transfer] = []
        self._closed = False

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def start(self, orders: Sequence[CheckOrder]) -> None:
        assert not self._closed
        self._in_flight += len(orders)
        for first in range(0, len(orders), TOGETHER_MAX):
            self._begin(orders[first : first + TOGETHER_MAX])
            self._gather(0)

    def finished(self, *, wait_ms: int) -> list[Finished]:
        until_s = time.monotonic() + wait_ms / 1_000
        while True:
            left_s = 0.0 if self._finished or self._ended_elsewhere else until_s - time.monotonic()
            self._gather(math.ceil(left_s * 1_000) if left_s > 0 else 0)
            if self._finished or self._curl.woken or time.monotonic() >= until_s:
                self._curl.woken = False
                finished, self._finished = self._finished, []
                self._in_flight -= len(finished)
                return finished

    def wake(self) -> None:
        self._curl.wake()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._dns.close()
        self._curl.close()
        for transfer in (*self._plain, *self._others):
            transfer.curl.close()
        self._plain.clear()
        self._others.clear()
        self._in_flight = 0

    def _gather(self, wait_ms: int) -> None:
        """Run one turn of the libcurl loop and collect the checks that ended in it or on the DNS loop."""
        ended = self._curl.turn(wait_ms)
        now_ms = self._clock.now_ms()
        self._finished += [self._finish(transfer, error, now_ms) for transfer, error in ended]
        while self._ended_elsewhere:
            order, started_ms, done = self._ended_elsewhere.popleft()
            self._finished.append(Finished(order.handle, order.attempt, done, started_ms, now_ms, order.attempts))

    def _begin(self, orders: Sequence[CheckOrder]) -> None:
        started_ms = self._clock.now_ms()
        for order in orders:
            check = order.check
            try:
                # Nearly all checks are HTTP, and matching another kind takes five times longer.
                if not isinstance(check, HttpCheck) and isinstance(check, DnsCheck):
                    self._dns.start(order, check, started_ms=started_ms)
                    continue
                transfer = self._take(check)
                transfer.order = order
                transfer.started_ms = started_ms
                self._curl.add(transfer.curl, transfer)
            except Exception as error:  # noqa: BLE001 - every order ends in exactly one outcome
                self._ended_elsewhere.append((order, started_ms, _not_made(error)))

    def _take(self, check: HttpCheck | TcpCheck | TlsCheck) -> Transfer:
        """Return a handle prepared for the check.

        Handles of plain checks need no reset: only URL and time-out differ.
        """
        if isinstance(check, HttpCheck) and http.is_plain(check):
            transfer = self._plain.pop() if self._plain else self._new_transfer(self._plain)
            http.prepare(transfer, check)
            return transfer
        if self._others:
            transfer = self._others.pop()
            transfer.reset()
        else:
            transfer = self._new_transfer(self._others)
        match check:
            case HttpCheck():
                http.prepare_in_full(transfer, check)
            case TcpCheck():
                tcp.prepare(transfer, check)
            case TlsCheck():
                tls.prepare(transfer, check)
            case never:
                assert_never(never)
        return transfer

    def _new_transfer(self, pool: list[Transfer]) -> Transfer:
        return Transfer(self._guard, self._authorities, pool)

    def _finish(self, transfer: Transfer, error: int, now_ms: int) -> Finished:
        order = transfer.order
        try:
            done = transfer.judge(transfer, order.check, error)
        except Exception as exception:  # noqa: BLE001 - every order ends in exactly one outcome
            done = _not_made(exception)
        transfer.clear()
        transfer.pool.append(transfer)
        return Finished(order.handle, order.attempt, done, transfer.started_ms, now_ms, order.attempts)

    def _end_elsewhere(self, order: CheckOrder, started_ms: int, done: Done) -> None:
        """Store the outcome of a DNS check. Called on the thread of the DNS loop."""
        self._ended_elsewhere.append((order, started_ms, done))
        self._curl.wake()


def _not_made(error: Exception) -> Done:
    """Return the outcome of a check that failed inside Paceline.

    The error's text is left out: it may quote a secret.
    """
    return Done(
        ok=False, reason=f"the check could not be made ({type(error).__name__}); look at its fields and save it again"
    )

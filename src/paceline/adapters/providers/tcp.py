"""TCP checks: whether a connection can be made."""

from __future__ import annotations

from typing import Any

import pycurl

from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.transfer import Transfer, phases_ms
from paceline.core.monitors.checks import TcpCheck
from paceline.core.monitors.outcome import Done


def prepare(transfer: Transfer, check: TcpCheck) -> None:
    """Set the options of the check on a handle that was reset."""
    connect_only(transfer, f"http://{in_url(check.host)}:{check.port}/", timeout=check.timeout)
    transfer.judge = judge


def judge(transfer: Transfer, check: TcpCheck, error: int) -> Done:
    reason = fault_words(transfer, error, timeout=check.timeout) if error else ""
    if reason and reason == transfer.refusal:
        return Done(ok=False, reason=reason)
    total_ms, detail = measure_connection(transfer.curl)
    return Done(ok=not reason, reason=reason, latency_ms=total_ms, detail=detail)


def connect_only(transfer: Transfer, url: str, *, timeout: str) -> None:
    """Set the handle to open a new connection and send nothing on it."""
    transfer.aim(url, timeout)
    set_option = transfer.curl.setopt
    set_option(pycurl.CONNECT_ONLY, 1)
    set_option(pycurl.FRESH_CONNECT, 1)
    set_option(pycurl.FORBID_REUSE, 1)


def measure_connection(curl: pycurl.Curl) -> tuple[float, dict[str, Any]]:
    """Return the total in milliseconds, and the detail of the outcome."""
    phases = phases_ms(curl)
    del phases["first_byte"]
    return phases["total"], {"phases_ms": phases, "address": curl.getinfo(pycurl.PRIMARY_IP)}


def in_url(host: str) -> str:
    """Return the host as a URL has it: an IPv6 address gets brackets."""
    bare = host.removeprefix("[").removesuffix("]")
    return f"[{bare}]" if ":" in bare else bare

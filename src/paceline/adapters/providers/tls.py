"""TLS checks: whether the certificate is trusted, is for the host, and lasts long enough."""

from __future__ import annotations

import ssl
from typing import Any

import pycurl

from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.tcp import connect_only, in_url, measure_connection
from paceline.adapters.providers.transfer import Transfer
from paceline.core.instants import to_text
from paceline.core.monitors.checks import TlsCheck
from paceline.core.monitors.outcome import Done

NAME_CHARS_MAX = 500
DAY_MS = 86_400_000


def prepare(transfer: Transfer, check: TlsCheck) -> None:
    """For a handle that was reset. The address is that of ``host``, the name asked for and compared ``server_name``."""
    name = check.server_name or check.host
    connect_only(transfer, f"https://{in_url(name)}:{check.port}/", timeout=check.timeout)
    transfer.judge = judge
    set_option = transfer.curl.setopt
    set_option(pycurl.OPT_CERTINFO, 1)
    set_option(pycurl.SSL_SESSIONID_CACHE, 0)  # a resumed session would show no certificate
    set_option(pycurl.SSL_ENABLE_ALPN, 0)  # the server may speak anything, not only HTTP
    if check.server_name is not None:
        set_option(pycurl.CONNECT_TO, [f"::{in_url(check.host)}:{check.port}"])


def judge(transfer: Transfer, check: TlsCheck, error: int) -> Done:
    reason = fault_words(transfer, error, timeout=check.timeout) if error else ""
    if reason and reason == transfer.refusal:
        return Done(ok=False, reason=reason)
    total_ms, detail = measure_connection(transfer.curl)
    certificate = _certificate(transfer.curl)
    if certificate:
        # Counted from when the check began: the only instant that came in.
        not_after_ms = ssl.cert_time_to_seconds(certificate["Expire date"]) * 1_000
        days_left = (not_after_ms - transfer.started_ms) // DAY_MS
        detail["days_left"] = days_left
        detail["not_after"] = to_text(not_after_ms)
        detail["issuer"] = certificate.get("Issuer", "")[:NAME_CHARS_MAX]
        detail["subject"] = certificate.get("Subject", "")[:NAME_CHARS_MAX]
        if not reason and days_left < check.min_days:
            reason = f"the certificate expires in {_days(days_left)}, fewer than the {check.min_days} asked for"
    elif not reason:
        reason = "the server showed no certificate"
    return Done(ok=not reason, reason=reason, latency_ms=total_ms, detail=detail)


def _certificate(curl: pycurl.Curl) -> dict[str, str]:
    """The fields of the server's own certificate, by libcurl's names; empty if none was seen."""
    chain: list[list[tuple[bytes, bytes]]] = curl.getinfo_raw(pycurl.INFO_CERTINFO)
    return {_text(name): _text(value) for name, value in chain[0]} if chain else {}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"

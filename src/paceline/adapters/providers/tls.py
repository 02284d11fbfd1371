"""TLS checks: whether the certificate is trusted, is for the host, and lasts long enough."""

from __future__ import annotations

import pycurl

from paceline.adapters.providers.certificates import ask_for_certificate, certificate_facts
from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.tcp import connect_only, in_url, measure_connection
from paceline.adapters.providers.transfer import Transfer
from paceline.core.http.answers import days_mismatch
from paceline.core.monitors.checks import TlsCheck
from paceline.core.monitors.outcome import Done


def prepare(transfer: Transfer, check: TlsCheck) -> None:
    """Set the options of the check on a handle that was reset.

    The connection goes to ``host``; ``server_name`` is the name that is asked for and compared with the certificate.
    """
    name = check.server_name or check.host
    connect_only(transfer, f"https://{in_url(name)}:{check.port}/", timeout=check.timeout)
    transfer.judge = judge
    ask_for_certificate(transfer.curl)
    transfer.curl.setopt(pycurl.SSL_ENABLE_ALPN, 0)  # the server may speak another protocol than HTTP
    if check.server_name is not None:
        transfer.curl.setopt(pycurl.CONNECT_TO, [f"::{in_url(check.host)}:{check.port}"])


def judge(transfer: Transfer, check: TlsCheck, error: int) -> Done:
    reason = fault_words(transfer, error, timeout=check.timeout) if error else ""
    if reason and reason == transfer.refusal:
        return Done(ok=False, reason=reason)
    total_ms, detail = measure_connection(transfer.curl)
    detail |= certificate_facts(transfer)
    reason = reason or days_mismatch(check.days_wanted, detail.get("days_left"))
    return Done(ok=not reason, reason=reason, latency_ms=total_ms, detail=detail)

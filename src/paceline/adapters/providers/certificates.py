"""The server's certificate, as libcurl reports it."""

from __future__ import annotations

import ssl
from typing import Any

import pycurl

from paceline.adapters.providers.transfer import Transfer
from paceline.core.instants import to_text

NAME_CHARS_MAX = 500
DAY_MS = 86_400_000


def ask_for_certificate(curl: pycurl.Curl) -> None:
    """Make libcurl keep the certificate. A reused connection or session would show none, so both are turned off."""
    curl.setopt(pycurl.OPT_CERTINFO, 1)
    curl.setopt(pycurl.SSL_SESSIONID_CACHE, 0)
    curl.setopt(pycurl.FRESH_CONNECT, 1)
    curl.setopt(pycurl.FORBID_REUSE, 1)


def certificate_facts(transfer: Transfer) -> dict[str, Any]:
    """Return the facts about the server's certificate for the outcome's detail; empty if none was seen."""
    chain: list[list[tuple[bytes, bytes]]] = transfer.curl.getinfo_raw(pycurl.INFO_CERTINFO)
    if not chain:
        return {}
    fields = {_text(name): _text(value) for name, value in chain[0]}
    # Counted from the beginning of the check, the only time that this function is given.
    not_after_ms = ssl.cert_time_to_seconds(fields["Expire date"]) * 1_000
    return {
        "days_left": (not_after_ms - transfer.started_ms) // DAY_MS,
        "not_after": to_text(not_after_ms),
        "issuer": fields.get("Issuer", "")[:NAME_CHARS_MAX],
        "subject": fields.get("Subject", "")[:NAME_CHARS_MAX],
    }


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

"""Webhook of a job: when it is tried again, and how its receiver can verify the sender."""

from __future__ import annotations

from paceline.core.backoff import pause_ms

BASE_MS = 2_000
CAP_MS = 21_600_000
TRIES_MAX = 17
"""Number of tries in about a day: pauses double from two seconds to six hours."""
SIGNATURE_HEADER = "Paceline-Signature"


def again_ms(tries: int, *, now_ms: int, timeout_ms: int, chance: float) -> int:
    """Return when the try after the nth may be made; the nth begins now."""
    return now_ms + timeout_ms + pause_ms(tries, base_ms=BASE_MS, cap_ms=CAP_MS, jitter="half", chance=chance)


def signed_bytes(body: bytes, *, at_s: int) -> bytes:
    """Return the bytes that are signed. They include the time, so that an old call cannot be replayed later."""
    return b"%d.%s" % (at_s, body)


def signature_text(digest: str, *, at_s: int) -> str:
    return f"t={at_s},v1={digest}"

"""A job's webhook: when it is tried again, and how its receiver can tell that it is ours."""

from __future__ import annotations

from paceline.core.backoff import pause_ms

BASE_MS = 2_000
CAP_MS = 21_600_000
TRIES_MAX = 17
"""After about a day: doubling from two seconds to six hours."""
SIGNATURE_HEADER = "Paceline-Signature"


def again_ms(tries: int, *, now_ms: int, timeout_ms: int, chance: float) -> int:
    """When the try after the nth may be made; the nth begins now."""
    return now_ms + timeout_ms + pause_ms(tries, base_ms=BASE_MS, cap_ms=CAP_MS, jitter="half", chance=chance)


def signed_bytes(body: bytes, *, at_s: int) -> bytes:
    """What is signed: with its time, so that an old call cannot be played again later."""
    return b"%d.%s" % (at_s, body)


def signature_text(digest: str, *, at_s: int) -> str:
    return f"t={at_s},v1={digest}"

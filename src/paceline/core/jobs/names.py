"""Names and numbers of jobs, measurements, holds and keys. They are computed, so that both engines give the same."""

from __future__ import annotations

INDEX_BITS = 14
INDEX_MASK = (1 << INDEX_BITS) - 1
ATTEMPT_BITS = 14
OWNERS_HOLD = 0
"""Attempt number that stands for the hold on the user's day."""
ATTEMPTS_MAX = 9_999
"""Maximum number of sends of a measurement: a marker has no room for a larger number."""
TIME_DIGITS = 8
"""Digits of the time in a job's name: enough until 2059, when the time needs nine."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBER_DIGITS_MAX = 12


def handle_of(job: int, index: int) -> int:
    """Return the handle of a measurement: its job's number, and its place in the job."""
    return job << INDEX_BITS | index


def hold_of(handle: int, attempt: int) -> int:
    """Return the number of a send's hold at its account; for attempt 0, of a measurement's hold on its user's day."""
    return handle << ATTEMPT_BITS | attempt


def key_id(number: int) -> str:
    return f"k{number}"


def key_number(name: str) -> int:
    """Return the number of a key; -1, which no key has, if this is not the name of a key."""
    digits = name.removeprefix("k")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 and name == f"k{digits}" else -1


def job_name(number: int, *, now_ms: int) -> str:
    """Return the name of a job that is submitted now.

    The number alone would not do: after a backup was restored, RIPE may know jobs that the store does not.
    """
    return f"{_base36(now_ms):0>{TIME_DIGITS}}{_base36(number)}"


def job_numbers(name: str) -> list[int]:
    """Return the numbers that a job of this name can have: the name does not say how many digits its time has."""
    texts = (name[TIME_DIGITS:], name[TIME_DIGITS + 1 :])
    return [int(text, 36) for text in texts if 0 < len(text) <= _NUMBER_DIGITS_MAX and set(text) <= set(_DIGITS)]


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"

"""The loop of a guarded edit: read, change, write only if nobody else wrote in between, and try again if so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from paceline.errors import RevisionMismatch

TRIES_MAX = 8
T = TypeVar("T")


def edit(name: str, attempt: Callable[[], T | None]) -> T:
    """Return the result of the first successful attempt. ``attempt`` returns None if somebody wrote in between.

    An error of the attempt is final: RevisionMismatch too, if the caller named the revision that must be there.
    """
    for _ in range(TRIES_MAX):
        if (done := attempt()) is not None:
            return done
    raise too_busy(name)


def too_busy(name: str) -> RevisionMismatch:
    return RevisionMismatch(f"{name} was modified concurrently too often; retry.")


def unless_changed(write: Callable[[], T]) -> T | None:
    """Return the result of the write; None if it found another revision than it expected."""
    with suppress(RevisionMismatch):
        return write()
    return None

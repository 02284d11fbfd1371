"""What a world raises when a promise does not hold."""

from __future__ import annotations


class Broken(AssertionError):
    """A promise is broken."""


def demand(promise: int, fact: object, says: str) -> None:
    if not fact:
        raise Broken(f"promise {promise}: {says}")

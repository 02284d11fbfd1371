"""Free keys: no two runs of a provider share a millisecond; the later one moves to the next free one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

CHUNK_KEYS = 256
"""Number of used keys that are read at a time."""


class UsedKeys(NamedTuple):
    """Used keys from a certain key on; all used keys before ``beyond`` are known."""

    used: set[int]
    beyond: int


def used_keys(found: Sequence[int]) -> UsedKeys:
    """Return the used keys, from the first ``CHUNK_KEYS`` of them; fewer mean that there are no more."""
    used = set(found)
    return UsedKeys(used, max(used) + 1 if len(found) >= CHUNK_KEYS else (1 << 63) - 1)


class FreeKeys:
    """Finds the next free key, asked with rising keys. ``read`` returns the keys that are used from a key on."""

    def __init__(self, read: Callable[[int], UsedKeys]) -> None:
        self._read = read
        self._from = 0
        self._known = UsedKeys(set(), 0)

    def next_free(self, key: int) -> int:
        while True:
            if not self._from <= key < self._known.beyond:
                self._from, self._known = key, self._read(key)
            while key < self._known.beyond and key in self._known.used:
                key += 1
            if key < self._known.beyond:
                return key

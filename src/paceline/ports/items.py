"""Named items: one interface for everything that needs no engine-specific speed.

An item is a small document under a kind and a key. A feature that stores settings, silences, sessions or the like uses
``steps.collection`` above this protocol and needs no line in either adapter. Runs, entries, meters and everything else
that is read and written many times a second stay in tables of their own.

Items have no revision number. A write states the bytes that it expects to be there, so an item that was deleted and
made again is never taken for the one that was read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

WRITES_MAX = 25
GETS_MAX = 100
VALUE_BYTES_MAX = 32 * 1024
KEY_BYTES_MAX = 512
LAST_KEY = "\U0010ffff"
"""Text that sorts after every key: ``prefix + LAST_KEY`` ends the page read of a prefix."""


class ItemKey(NamedTuple):
    """Name of an item. ``kind`` names the collection; ``key`` is unique in it, and orders it by its UTF-8 bytes."""

    kind: str
    key: str


class Unchecked(Enum):
    """Value of ``believed`` for a write without a condition."""

    ANYTHING = "anything"


ANYTHING: Final = Unchecked.ANYTHING


class ItemWrite(NamedTuple):
    """One write. ``value`` and ``believed`` are the item's bytes after and before it; None is no item.

    Writing the believed value again is how a transaction checks an item without changing it. After ``expires_ms`` the
    store may delete the item at any time, or late: readers that care compare a time in the value.
    """

    at: ItemKey
    value: bytes | None
    believed: bytes | Unchecked | None
    expires_ms: int | None = None


class ItemStore(Protocol):
    """Items of every kind. Each write is one atomic act; reads see everything that was written before them."""

    def get_items(self, keys: Sequence[ItemKey]) -> dict[ItemKey, bytes]:
        """Return the values of those of at most GETS_MAX items that exist. Not a snapshot: only a write is decisive."""

    def items_after(self, kind: str, *, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        """Return keys and values in order of key, strictly between the two keys; an empty one is no bound."""

    def write_items(self, writes: Sequence[ItemWrite]) -> dict[ItemKey, bytes | None]:
        """Write all of at most WRITES_MAX different items, or nothing if one of them is not as believed.

        Return the items that are not as believed, as they are now (None: no item); empty if all was written.
        """

"""Typed collections of named items, for features whose values need no table of their own.

A feature declares its collection once, as a constant, and reads and writes it through a store of either engine::

    SILENCES = Collection("silence", Silence)
    SILENCES.put(store, name, silence)
    SILENCES.edit(store, name, lambda now: replace(now, until_ms=until_ms) if now else None)

A rule that concerns several items reads them with ``find``, decides, and writes all of them with ``write``: either
every item is still as it was read, or nothing is written.

Items stay with their store: an export (``steps.move``) has lines only for what a feature adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from paceline.errors import StoreUnavailable
from paceline.ports import items

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U", bound=msgspec.Struct)

TRIES_MAX = 20
PAGE = 100
PAGES_MAX = 10_000


class FoundItem(NamedTuple, Generic[T]):
    """An item as it was read. ``value`` None: there is none. ``stored`` is the condition of a write of it."""

    key: str
    value: T | None
    stored: bytes | None


class Collection(Generic[T]):
    """All items of one kind, each a struct that is stored as JSON.

    A field may be added later if it has a default: items that lack it are read with it. A field that is unknown, which
    a newer version wrote, is ignored by a read and lost by an edit.
    """

    def __init__(self, kind: str, struct: type[T]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(struct)

    # -- reading

    def get(self, store: items.ItemStore, key: str) -> T | None:
        return self.find(store, key).value

    def find(self, store: items.ItemStore, key: str) -> FoundItem[T]:
        """Return the item with the condition of a write of it."""
        at = items.ItemKey(self._kind, key)
        return self._found(key, store.get_items([at]).get(at))

    def find_many(self, store: items.ItemStore, keys: Sequence[str]) -> list[FoundItem[T]]:
        """Return the items in the order of the keys, at most GETS_MAX of them, in one read."""
        assert len(keys) <= items.GETS_MAX
        return self.among(store.get_items([self.at(key) for key in keys]) if keys else {}, keys)

    def among(self, stored: Mapping[items.ItemKey, bytes], keys: Sequence[str]) -> list[FoundItem[T]]:
        """Return the items of these keys among those that were read."""
        return [self._found(key, stored.get(self.at(key))) for key in keys]

    def at(self, key: str) -> items.ItemKey:
        return items.ItemKey(self._kind, key)

    def page(self, store: items.ItemStore, *, prefix: str = "", after: str = "", limit: int) -> list[FoundItem[T]]:
        """Return the items whose keys begin with the prefix, in order of key, strictly after ``after``."""
        before = prefix + items.LAST_KEY if prefix else ""
        rows = store.items_after(self._kind, after=max(after, prefix), before=before, limit=limit)
        return [self._found(key, stored) for key, stored in rows]

    def walk(self, store: items.ItemStore, *, prefix: str = "") -> Iterator[FoundItem[T]]:
        """Yield every item of the prefix in order of key, reading page by page."""
        after = ""
        for _ in range(PAGES_MAX):
            page = self.page(store, prefix=prefix, after=after, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].key

    # -- writing

    def put(self, store: items.ItemStore, key: str, value: T, *, expires_ms: int | None = None) -> None:
        """Write the item, whatever is there."""
        lost = store.write_items([self._write(key, value, items.ANYTHING, expires_ms)])
        assert not lost

    def add(self, store: items.ItemStore, key: str, value: T, *, expires_ms: int | None = None) -> bool:
        """Write the item if there is none; False if there is one."""
        return not store.write_items([self._write(key, value, None, expires_ms)])

    def delete(self, store: items.ItemStore, key: str) -> None:
        """Delete the item, if there is one."""
        lost = store.write_items([self._write(key, None, items.ANYTHING, None)])
        assert not lost

    def delete_found(self, store: items.ItemStore, found: FoundItem[T]) -> bool:
        """Delete the item if it is still as it was read."""
        return write(store, [self.change(found, None)])

    def edit(self, store: items.ItemStore, key: str, decide: Callable[[T | None], T | None]) -> T | None:
        """Replace the item by what ``decide`` makes of it; None is no item, before and after. Return the item after.

        ``decide`` may be called several times, as often as others write the item meanwhile. It may raise: then nothing
        is written. An item that stays as it is costs no write; one that is written no longer expires.
        """
        found = self.find(store, key)
        for _ in range(TRIES_MAX):
            value = decide(found.value)
            if value == found.value:
                return value
            change = self.change(found, value)
            lost = store.write_items([change])
            if not lost:
                return value
            found = self._found(key, lost[change.at])
        raise StoreUnavailable(f"{self._kind} {key!r} is written to by others all the time: try again in a moment.")

    def change(self, found: FoundItem[T], value: T | None, *, expires_ms: int | None = None) -> items.ItemWrite:
        """Return the write that replaces an item as it was read, for a transaction of several: see ``write``."""
        return self._write(found.key, value, found.stored, expires_ms)

    def _found(self, key: str, stored: bytes | None) -> FoundItem[T]:
        return FoundItem(key, None if stored is None else self._decoder.decode(stored), stored)

    def _write(
        self, key: str, value: T | None, believed: bytes | items.Unchecked | None, expires_ms: int | None
    ) -> items.ItemWrite:
        assert 0 < len(key.encode()) <= items.KEY_BYTES_MAX
        stored = None if value is None else msgspec.json.encode(value)
        assert stored is None or len(stored) <= items.VALUE_BYTES_MAX
        return items.ItemWrite(items.ItemKey(self._kind, key), stored, believed, expires_ms)


def find_both(
    store: items.ItemStore, one: tuple[Collection[T], Sequence[str]], other: tuple[Collection[U], Sequence[str]]
) -> tuple[list[FoundItem[T]], list[FoundItem[U]]]:
    """Return items of two collections, at most GETS_MAX together, in one read."""
    places = [collection.at(key) for collection, keys in (one, other) for key in keys]
    assert len(places) <= items.GETS_MAX
    stored = store.get_items(places) if places else {}
    return one[0].among(stored, one[1]), other[0].among(stored, other[1])


def write(store: items.ItemStore, writes: Sequence[items.ItemWrite]) -> bool:
    """Write items of any collections, all or none. False: one of them is not as it was read."""
    assert 0 < len(writes) <= items.WRITES_MAX
    return not store.write_items(writes)

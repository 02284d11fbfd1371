"""Imports records from a table page by page. Where it stands is kept, so an import that was cut short goes on there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from paceline.core.batches.batch import Batch
from paceline.ports.items import ItemStore
from paceline.ports.record_table import RecordTable
from paceline.steps.collection import Collection

PAGES_MAX = 1_000_000
KEPT_MS = 7 * 86_400_000
"""A place that nobody has come back to for so long is forgotten."""


class ImportPlace(msgspec.Struct, frozen=True):
    """Where an import stands: the cursor of the next page, and how many items came before it."""

    cursor: str
    items: int


PLACES = Collection("record_import", ImportPlace)


def import_table(
    store: ItemStore,
    batch: Batch,
    table: RecordTable,
    name: str,
    put: Callable[[Sequence[bytes], int], None],
    *,
    now_ms: int,
    from_start: bool = False,
) -> int:
    """Puts every item of the table, each page before its place is kept: cut short, one page is put again.

    ``put`` gets the items and the number of those before them. Returns how many came before this call.
    """
    key = f"{batch.number}/{name}"
    place = None if from_start else PLACES.get(store, key)
    cursor, done = (place.cursor, place.items) if place is not None else (None, 0)
    before = done
    for _ in range(PAGES_MAX):
        page = table.page(cursor)
        if page.items:
            put(page.items, done)
        cursor, done = page.cursor, done + len(page.items)
        if cursor is None:
            break
        PLACES.put(store, key, ImportPlace(cursor, done), expires_ms=now_ms + KEPT_MS)
    PLACES.delete(store, key)
    return before

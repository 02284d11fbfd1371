"""Import of records from a table, page by page. Its position is kept, so an interrupted import goes on there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from paceline.core.batches.batch import Batch
from paceline.ports.items import ItemStore
from paceline.ports.record_table import RecordTable
from paceline.steps.collection import Collection

PAGES_MAX = 1_000_000
KEPT_MS = 7 * 86_400_000
"""Time after which the position of an import that nobody has continued is forgotten."""


class ImportPlace(msgspec.Struct, frozen=True):
    """Position of an import: the cursor of the next page, and how many items came before it."""

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
    """Put every item of the table; each page is put before its position is kept, so one page may be put again.

    ``put`` gets the items and the number of those before them. Return how many came before this call.
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

"""Records from a table, page by page: cut short, the import goes on where it stood."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.core.batches.batch import Batch
from paceline.ports import Store
from paceline.ports.record_table import TablePage
from paceline.steps.batches.batches import put_records
from paceline.steps.batches.table_import import import_table
from tests.contract.support.stage import T0_MS


class Pages:
    """A table of so many items, two to a page. ``breaks_at``: the page that cannot be read."""

    def __init__(self, items: int, *, breaks_at: int | None = None) -> None:
        self._items = items
        self._breaks_at = breaks_at
        self.asked: list[str | None] = []

    def page(self, cursor: str | None) -> TablePage:
        self.asked.append(cursor)
        if self._breaks_at == len(self.asked) - 1:
            raise ConnectionError("the network is gone")
        first = int(cursor or 0)
        last = min(first + 2, self._items)
        items = [f'{{"id": "t{number}", "provider": "a"}}'.encode() for number in range(first, last)]
        return TablePage(items, str(last) if last < self._items else None)


class Import:
    def __init__(self, store: Store, batch: Batch) -> None:
        self._store = store
        self._batch = batch
        self.numbers: list[int] = []

    def run(self, table: Pages, *, from_start: bool = False) -> int:
        return import_table(self._store, self._batch, table, "records", self._put, now_ms=T0_MS, from_start=from_start)

    def _put(self, items: Sequence[bytes], before: int) -> None:
        self.numbers += range(before, before + len(items))
        put_records(self._store, self._batch, list(items), now_ms=T0_MS)


def test_import_that_was_cut_short_goes_on_at_its_page(store: Store, batch: Batch) -> None:
    begun = Import(store, batch)
    with pytest.raises(ConnectionError):
        begun.run(Pages(7, breaks_at=2))
    assert begun.numbers == [0, 1, 2, 3]
    again, table = Import(store, batch), Pages(7)
    assert again.run(table) == 4
    assert (table.asked, again.numbers) == (["4", "6"], [4, 5, 6])
    assert [record.id for record in store.find_records(batch, provider=None, active=None, after="t", limit=99)[0]] == [
        f"t{number}" for number in range(7)
    ]
    third, table = Import(store, batch), Pages(7)
    assert third.run(table) == 0  # the last one came to its end
    assert table.asked[0] is None


def test_import_from_the_start_ignores_its_stored_position(store: Store, batch: Batch) -> None:
    with pytest.raises(ConnectionError):
        Import(store, batch).run(Pages(5, breaks_at=1))
    table = Pages(5)
    assert Import(store, batch).run(table, from_start=True) == 0
    assert table.asked == [None, "2", "4"]


def test_import_that_dies_before_storing_its_position_puts_the_page_again(store: Store, batch: Batch) -> None:
    class Dies(Import):
        def _put(self, items: Sequence[bytes], before: int) -> None:
            super()._put(items, before)
            if before == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Dies(store, batch).run(Pages(6))
    again = Import(store, batch)
    assert again.run(Pages(6)) == 2
    assert again.numbers == [2, 3, 4, 5]

"""A table outside Paceline that records are imported from, page by page."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class TablePage(NamedTuple):
    """Items as JSON documents. ``cursor``: where the next page begins; None: this was the last."""

    items: list[bytes]
    cursor: str | None


class RecordTable(Protocol):
    """A table with an order of its own, which stays the same: a page that was read may be asked for again."""

    def page(self, cursor: str | None) -> TablePage:
        """Return the page from the cursor on; None: the first."""

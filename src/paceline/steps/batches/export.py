"""Export of a day's runs as a file, page by page: one JSON document to a line, or CSV that is safe in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from paceline.core.batches.batch import Day
from paceline.ports import BatchStore
from paceline.steps.views.days import CallRunView, day_runs

PAGE_RUNS = 1_000
Format = Literal["ndjson", "csv"]
COLUMNS = tuple(field.name for field in msgspec.structs.fields(CallRunView))
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that a formula may begin with. The last four are the full-width forms of the first four."""
_encode_lines = msgspec.json.Encoder().encode_lines


def export_day(
    store: BatchStore, day: Day, *, form: Format, state: str | None, provider: str | None
) -> Iterator[bytes]:
    """Return the day's runs as bytes, one page in memory at a time.

    The first page is read immediately, so an invalid query is refused immediately.
    """
    make: Callable[[Sequence[CallRunView]], bytes] = _encode_lines if form == "ndjson" else _csv_lines
    first = day_runs(store, day, state=state, provider=provider, after=0, limit=PAGE_RUNS)

    def pages() -> Iterator[bytes]:
        if form == "csv":
            yield _csv([COLUMNS])
        views, following = first
        yield make(views)
        while following is not None:
            views, following = day_runs(store, day, state=state, provider=provider, after=following, limit=PAGE_RUNS)
            yield make(views)

    return pages()


def safe_cell(value: Any) -> Any:
    """Return the value with an apostrophe before a text that a spreadsheet would take for a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _csv_lines(views: Sequence[CallRunView]) -> bytes:
    return _csv([[safe_cell(getattr(view, name)) for name in COLUMNS] for view in views])


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()

"""Columns of tables: what stands in each, how far it may be cut, and which are left out first on a narrow terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Kind = Literal["ident", "word", "words", "address", "when"]
"""``ident`` and ``word`` are never cut; ``words`` are cut at the end, ``address`` in the middle. ``when``: times."""
Cell = str | Callable[[Any], Any]
"""The attribute of a view that stands in a column, or a function of the view."""


class Column(NamedTuple):
    """A column of a list. ``rank`` 0 is always shown; of the others the highest is left out first."""

    cell: Cell
    kind: Kind = "words"
    rank: int = 0


class Heading(NamedTuple):
    """A column of a table whose cells are given row by row."""

    text: str
    kind: Kind = "words"
    rank: int = 0


def ident(cell: Cell, rank: int = 0) -> Column:
    """A column of ids: people copy them, so that none is ever cut or broken."""
    return Column(cell, "ident", rank)


def word(cell: Cell, rank: int = 0) -> Column:
    """A column of states or figures: short, and never cut."""
    return Column(cell, "word", rank)


def words(cell: Cell, rank: int = 0) -> Column:
    """A column of text, cut at the end where it must be."""
    return Column(cell, "words", rank)


def address(cell: Cell, rank: int = 0) -> Column:
    """A column of addresses, cut in the middle: both ends tell them apart."""
    return Column(cell, "address", rank)


def when(cell: Cell, rank: int = 0) -> Column:
    """A column of times: relative to now on a terminal, exact with --utc and in pipes."""
    return Column(cell, "when", rank)


def heading_of(column: str | Heading, position: int) -> Heading:
    """Returns a heading as it is; a bare text is a column that is left out sooner the further right it stands."""
    if isinstance(column, Heading):
        return column
    return Heading(column, "words", position) if position else Heading(column, "ident")

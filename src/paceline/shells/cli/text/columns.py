"""Columns of tables: contents, how far each may be cut, and which are left out first on a narrow terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Kind = Literal["ident", "word", "words", "address", "when"]
"""``ident`` and ``word`` are never cut; ``words`` are cut at the end, ``address`` in the middle.

``when`` is for times.
"""
Cell = str | Callable[[Any], Any]
"""Attribute of a view that a column shows, or a function of the view."""


class Column(NamedTuple):
    """A column of a list. ``rank`` 0 is always shown; of the others the highest is left out first."""

    cell: Cell
    kind: Kind = "words"
    rank: int = 0


class Heading(NamedTuple):
    """The head of a column, and what may be done to its cells."""

    text: str
    kind: Kind = "words"
    rank: int = 0


def ident(cell: Cell, rank: int = 0) -> Column:
    """Returns a column of ids. They are never cut or broken, because people copy them."""
    return Column(cell, "ident", rank)


def word(cell: Cell, rank: int = 0) -> Column:
    """Returns a column of states or figures: short, and never cut."""
    return Column(cell, "word", rank)


def words(cell: Cell, rank: int = 0) -> Column:
    """Returns a column of text, cut at the end if need be."""
    return Column(cell, "words", rank)


def address(cell: Cell, rank: int = 0) -> Column:
    """Returns a column of addresses, cut in the middle, because both ends tell them apart."""
    return Column(cell, "address", rank)


def when(cell: Cell, rank: int = 0) -> Column:
    """Returns a column of times: relative to now on a terminal, exact with --utc and in pipes."""
    return Column(cell, "when", rank)


def column_of(column: Cell | Column, position: int) -> Column:
    """Returns a column as it is; for a bare cell, one that is left out sooner the further right it stands."""
    if isinstance(column, Column):
        return column
    return words(column, position) if position else ident(column)

"""Turns diagrams that are drawn in text into SVG, so that the text stays the only source.

A diagram is a ``text`` block with lines (``─ │ └ ┘ ├ ┴ ┬``) and arrows (``► ▲``). Lines and arrows become strokes, a
word that an arrow leads to or from gets a box, all other words are notes beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

CELL, LINE = 8, 22
PAD = 12
ARMS = {
    "─": ((-1, 0), (1, 0)),
    "│": ((0, -1), (0, 1)),
    "└": ((0, -1), (1, 0)),
    "┘": ((0, -1), (-1, 0)),
    "┌": ((0, 1), (1, 0)),
    "┐": ((0, 1), (-1, 0)),
    "├": ((0, -1), (0, 1), (1, 0)),
    "┤": ((0, -1), (0, 1), (-1, 0)),
    "┬": ((-1, 0), (1, 0), (0, 1)),
    "┴": ((-1, 0), (1, 0), (0, -1)),
    "►": ((-1, 0),),
    "▲": ((0, 1),),
    "▼": ((0, -1),),
}
TIPS = {"►": ((1, 0), (-1, -1), (-1, 1)), "▲": ((0, -1), (-1, 1), (1, 1)), "▼": ((0, 1), (-1, -1), (1, -1))}
"""Corners of an arrow's head, as directions from the middle of its cell."""
WORDS = re.compile(r"[^\s─│└┘┌┐├┤┬┴►▲▼]+(?: [^\s─│└┘┌┐├┤┬┴►▲▼]+)*")


class Words(NamedTuple):
    """Words of one line that stand together, and whether an arrow or a line touches them."""

    row: int
    column: int
    text: str
    touched: bool


def is_diagram(text: str) -> bool:
    """True if the block has arrows; a table or a listing has none."""
    return bool(re.search("[►▲▼]", text)) and bool(re.search("[─│]", text))


def svg(text: str, *, title: str) -> str:
    """Returns the diagram as one SVG element that takes its colours from the page."""
    rows = text.rstrip("\n").split("\n")
    width = max(map(len, rows)) * CELL + 2 * PAD
    height = len(rows) * LINE + 2 * PAD
    parts = [*_boxes(rows), *_lines(rows), *_tips(rows), *_texts(rows)]
    return (
        f'<svg class="diagram" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )


def words_of(rows: list[str]) -> Iterator[Words]:
    for number, row in enumerate(rows):
        for found in WORDS.finditer(row):
            before = (
                row[: found.start()].rstrip()[-1:] if found.start() - len(row[: found.start()].rstrip()) < 2 else ""
            )
            after = row[found.end() :].lstrip()[:1] if _gap(row, found.end()) < 2 else ""
            touched = before == "►" or after in set("─►")
            yield Words(number, found.start(), found[0], touched)


def _gap(row: str, start: int) -> int:
    return len(row[start:]) - len(row[start:].lstrip())


def _middle(row: int, column: int) -> tuple[int, int]:
    return PAD + column * CELL + CELL // 2, PAD + row * LINE + LINE // 2


def _lines(rows: list[str]) -> Iterator[str]:
    path = []
    for number, row in enumerate(rows):
        for column, sign in enumerate(row):
            x, y = _middle(number, column)
            for dx, dy in ARMS.get(sign, ()):
                path.append(f"M{x} {y}l{dx * CELL // 2} {dy * LINE // 2}")
    if path:
        yield f'<path class="line" d="{"".join(path)}"/>'


def _tips(rows: list[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        for column, sign in enumerate(row):
            if sign in TIPS:
                x, y = _middle(number, column)
                corners = " ".join(f"{x + dx * 4},{y + dy * 4}" for dx, dy in TIPS[sign])
                yield f'<polygon class="tip" points="{corners}"/>'


def _boxes(rows: list[str]) -> Iterator[str]:
    for words in words_of(rows):
        if words.touched:
            x, y = PAD + words.column * CELL - 3, PAD + words.row * LINE + 2
            yield f'<rect class="box" x="{x}" y="{y}" width="{len(words.text) * CELL + 6}" height="{LINE - 4}" rx="4"/>'


def _texts(rows: list[str]) -> Iterator[str]:
    for words in words_of(rows):
        x, y = PAD + words.column * CELL, PAD + words.row * LINE + LINE // 2 + 4
        kind = "name" if words.touched else "note"
        length = len(words.text) * CELL
        yield f'<text class="{kind}" x="{x}" y="{y}" textLength="{length}">{escape(words.text)}</text>'

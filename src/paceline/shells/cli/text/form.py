"""The form of text output: fitted to a terminal with times relative to now, or in full for pipes."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from paceline.shells.cli.text import fit
from paceline.shells.cli.text.columns import Heading
from paceline.shells.cli.text.times import long_time, short_time

WIDTH_USUAL, WIDTH_LEAST = 80, 20
NONE = "-"
INDENT = 2
_IDENT = re.compile(r"[A-Za-z0-9._:@+=~/#%,;()'`-]+")
IDENT_FIELDS = frozenset(
    {"monitor", "run", "job", "batch", "provider", "user", "id", "account", "key", "channel", "record", "silence"}
)
"""Fields whose value is an id, which is never broken."""


class Form(NamedTuple):
    """``width`` None: nothing is cut or left out, and times are exact. ``utc``: times are exact on a terminal too."""

    width: int | None
    now_ms: int
    utc: bool = False

    @property
    def relative(self) -> bool:
        return self.width is not None and not self.utc


class Piece(NamedTuple):
    """A cell of a line. ``style`` is its style on a terminal."""

    text: str
    style: str = ""


class Drawn(NamedTuple):
    """A table as lines, and the headings of the columns that were left out of it."""

    lines: list[list[Piece]]
    left_out: list[str]


def form_of(*, utc: bool) -> Form:
    """Returns the form for stdout. Its width is $COLUMNS, else that of the terminal, else there is none."""
    return Form(_width(), time.time_ns() // 1_000_000, utc)


def draw_table(
    form: Form, headings: Sequence[Heading], rows: Iterable[Sequence[Any]], styles: Mapping[str, str]
) -> Drawn:
    texts = [[_cell(form, one, cell) for one, cell in zip(headings, row, strict=True)] for row in rows]
    if form.width is not None and not texts:
        return Drawn([], [])
    layout = fit.lay_out(headings, texts, form.width)
    if not layout.columns:
        return Drawn(list(_stacked(headings, texts, form.width or WIDTH_USUAL, styles)), [])
    lines = [[Piece(headings[n].text, "bold") for n in layout.columns]]
    lines += [
        [Piece(_cut(headings[n], row[n], wide), styles.get(row[n], "")) for n, wide in zip(*layout[:2], strict=True)]
        for row in texts
    ]
    return Drawn([_padded(line, layout.widths) for line in lines], layout.left_out)


def draw_fields(form: Form, pairs: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yields a line for each field, or several if the value does not fit beside its name."""
    shown = [(name, _value(form, value)) for name, value in pairs]
    most = form.width or max((fit.cells(name) for name, _ in shown), default=0)
    beside = max((fit.cells(name) for name, _ in shown if fit.cells(name) <= max(most // 2, 1)), default=0)
    if form.width is None:
        yield from (f"{fit.pad(name, most)}  {value}" for name, value in shown)
        return
    for name, value in shown:
        yield from _field(name, value, beside, form.width)


def draw_paragraph(form: Form, text: str, indent: int) -> Iterator[str]:
    """Yields the lines of a text, indented after the first. In pipes it is one line."""
    whole = printable(text)
    if form.width is None:
        yield whole
        return
    margin = " " * min(indent, form.width // 2)
    lines = fit.fold(whole, form.width - len(margin), whole=_always)
    yield from (f"{margin if number else ''}{line}" for number, line in enumerate(lines))


def shown(value: Any) -> str:
    """Returns a value as text without control characters; a dash if it is empty."""
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return printable(", ".join(str(item) for item in value)) or NONE
    return printable(str(value))


def printable(text: str) -> str:
    """Returns the text without control characters: text of one user must not control the terminal of another."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _always(_word: str) -> bool:
    return True


def _is_ident(word: str) -> bool:
    """True if a word in a sentence looks like an id, and not like an address."""
    return "://" not in word and _IDENT.fullmatch(word) is not None


def _width() -> int | None:
    """Returns the width to fit. $COLUMNS counts in pipes too, because somebody set it on purpose."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns):
        return max(int(columns), WIDTH_LEAST)
    if not sys.stdout.isatty():
        return None
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_USUAL, WIDTH_LEAST)
    except (OSError, ValueError):  # a terminal of unknown width, or no file at all
        return WIDTH_USUAL


def _cell(form: Form, heading: Heading, value: Any) -> str:
    text = shown(value).replace("\n", " ") if form.width is not None else shown(value)
    return short_time(text, form.now_ms) if heading.kind == "when" and form.relative else text


def _value(form: Form, value: Any) -> str:
    text = shown(value)
    return long_time(text, form.now_ms) if form.relative else text


def _cut(heading: Heading, text: str, width: int) -> str:
    return fit.cut_middle(text, width) if heading.kind == "address" else fit.cut(text, width)


def _padded(line: list[Piece], widths: list[int]) -> list[Piece]:
    """Returns the line with its cells padded, except the last one that is not empty."""
    while len(line) > 1 and not line[-1].text.strip():
        line = line[:-1]
    gap = " " * fit.GAP
    last = len(line) - 1
    return [
        Piece(one.text.rstrip() if n == last else fit.pad(one.text, wide) + gap, one.style)
        for n, (one, wide) in enumerate(zip(line, widths, strict=False))
    ]


def _stacked(
    headings: Sequence[Heading], rows: Sequence[Sequence[str]], width: int, styles: Mapping[str, str]
) -> Iterator[list[Piece]]:
    """Yields a line for each cell that is not empty, ids first: ids are too long to stand side by side."""
    order = sorted(range(len(headings)), key=lambda n: (headings[n].kind != "ident" or headings[n].rank > 0, n))
    wide = max(fit.cells(one.text) for one in headings)
    for row in rows:
        for at, n in enumerate(order):
            text = row[n]
            if not at:
                yield [Piece(text, "bold")]
            elif text.strip() not in ("", NONE):
                name = f"{' ' * INDENT}{fit.pad(headings[n].text, wide)}{' ' * fit.GAP}"
                yield from _beside(name, headings[n], text, width, styles.get(text, ""))


def _beside(name: str, heading: Heading, text: str, width: int, style: str) -> Iterator[list[Piece]]:
    room = width - fit.cells(name)
    if fit.cells(text) <= room:
        yield [Piece(name), Piece(text, style)]
    elif heading.kind == "ident":  # an id on its own line is whole and can be copied
        yield [Piece(name.rstrip())]
        yield [Piece(text, style)]
    else:
        yield [Piece(name), Piece(_cut(heading, text, room), style)]


def _field(name: str, value: str, beside: int, width: int) -> Iterator[str]:
    margin = beside + fit.GAP
    lines = [part for line in value.split("\n") for part in fit.fold(line, width - margin, whole=_always)]
    if fit.cells(name) > beside or any(fit.cells(line) > width - margin for line in lines):
        # A long id or address gets its own line, so that it can be copied.
        yield name
        margin, whole = INDENT, _always if name.rpartition(".")[2] in IDENT_FIELDS else _is_ident
        lines = [part for line in value.split("\n") for part in fit.fold(line, width - margin, whole=whole)]
        name = ""
    for line in lines:
        room = 0 if fit.cells(line) > width - margin else margin
        yield f"{fit.pad(name, room)}{line}"
        name = ""

"""Fits tables and fields into a width: which columns stay, how wide each is, and how texts are cut and folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from paceline.shells.cli.text.columns import Heading

GAP = 2
CUT = "…"
LEAST = {"words": 12, "address": 26}
"""Least width of a column of this kind, before other columns are left out."""


class Layout(NamedTuple):
    """Positions and widths of the columns that stay. Without columns, rows are stacked: a line for each cell."""

    columns: list[int]
    widths: list[int]
    left_out: list[str]


def lay_out(headings: Sequence[Heading], rows: Sequence[Sequence[str]], width: int | None) -> Layout:
    """Returns the layout of a table. Without a width nothing is cut or left out."""
    natural = [max([cells(one.text), *(cells(row[n]) for row in rows)]) for n, one in enumerate(headings)]
    everything = list(range(len(headings)))
    if width is None or _total(natural) <= width:
        return Layout(everything, natural, [])
    least = [
        min(wide, max(LEAST.get(one.kind, wide), cells(one.text))) for one, wide in zip(headings, natural, strict=True)
    ]
    kept = everything
    while _total([least[n] for n in kept]) > width:
        last = max(kept, key=lambda n: (headings[n].rank, n))
        if headings[last].rank == 0:
            return Layout([], [], [])
        kept = [n for n in kept if n != last]
    widths = _share([least[n] for n in kept], [natural[n] for n in kept], width)
    return Layout(kept, widths, [one.text for n, one in enumerate(headings) if n not in kept])


def cut(text: str, width: int) -> str:
    """Returns the text, without its end if it is too wide."""
    if cells(text) <= width:
        return text
    return _head(text, width - 1) + CUT if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """Returns the text, without its middle if it is too wide: both ends of an address tell it apart."""
    if cells(text) <= width:
        return text
    behind = (width - 1) // 2
    return _head(text, width - 1 - behind) + CUT + _tail(text, behind) if width > 0 else ""


def pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def fold(text: str, width: int, *, whole: Callable[[str], bool]) -> Iterator[str]:
    """Yields lines of at most this width, broken at blanks. A longer word is broken, unless it must stay ``whole``."""
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cells(longer) <= width:
            line = longer
            continue
        if line:
            yield line
        line = word
        while cells(line) > width and not whole(word):
            part = _head(line, width) or line[0]
            yield part
            line = line[len(part) :]
    yield line


def cells(text: str) -> int:
    """Returns how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _share(least: list[int], natural: list[int], width: int) -> list[int]:
    """Gives each column its least width, then shares the rest evenly between those that want more."""
    widths = list(least)
    left = width - _total(widths)
    while left > 0 and (wanting := [n for n, wide in enumerate(widths) if wide < natural[n]]):
        part = max(left // len(wanting), 1)
        for n in wanting[:left]:
            more = min(part, natural[n] - widths[n])
            widths[n] += more
            left -= more
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _head(text: str, width: int) -> str:
    """Returns the longest beginning of the text that fits."""
    end, used = 0, 0
    for end, char in enumerate(text):  # how many characters fit
        used += cells(char)
        if used > width:
            return text[:end]
    return text


def _tail(text: str, width: int) -> str:
    return _head(text[::-1], width)[::-1]

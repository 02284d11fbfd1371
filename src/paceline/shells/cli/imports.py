"""Puts many items from a file, a page at a time, and counts the results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, TypeVar

from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.output import EXIT_FAILED, EXIT_LIMIT, EXIT_OK, TextNote, emit, progress_bar

if TYPE_CHECKING:
    from paceline.shells.api.http.problems import Problem

REFUSALS_KEPT_MAX = 1_000
REASONS_KEPT_MAX = 1_000
REASONS_SHOWN = 20
LINES_SHOWN = 5
_FIGURES = re.compile(r"[0-9]+")
"""Texts that differ only in numbers, such as the position in a line, count as one reason."""
T = TypeVar("T")


class RefusedItem(NamedTuple):
    line: int
    id: str | None
    code: str
    detail: str


class RefusalGroup:
    """Lines that were refused for the same reason: how many, and the first few."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[RefusedItem] = []

    def add(self, refusal: RefusedItem) -> None:
        self.count += 1
        # Refusals of one page come in two passes, so the first lines are found by sorting.
        self.first = sorted([*self.first, refusal], key=lambda one: one.line)[:LINES_SHOWN]


class Reason(Protocol):
    """Reason why an item was refused: one of our errors, or one from REST."""

    @property
    def code(self) -> str: ...
    @property
    def detail(self) -> str: ...


def alone(index: int, problem: Problem | None) -> Reason | None:
    """Returns the reason for an item alone: its pointers do not have the item's place in the list."""
    if problem is None or not problem.errors:
        return problem
    place = f"/items/{index}"
    return InvalidInput.of(*(FieldProblem(one.pointer.removeprefix(place), one.detail) for one in problem.errors))


class Tally:
    """Counts of items that were created, replaced, unchanged and refused, with the reasons of the refused ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter({"created": 0, "replaced": 0, "unchanged": 0, "refused": 0})
        self.refusals: list[RefusedItem] = []
        self.groups: dict[tuple[str, str], RefusalGroup] = {}
        self.only_limits = True

    def add_result(self, line: int, item_id: str | None, disposition: str, error: Reason | None) -> None:
        """Counts the result of an item; ``error`` says why it was refused."""
        if error is None:
            self.counts[disposition] += 1
        else:
            self.refuse(line, item_id, error)

    def refuse(self, line: int, item_id: str | None, error: Reason) -> None:
        self.counts["refused"] += 1
        self.only_limits &= error.code == "limit_reached"
        refusal = RefusedItem(line, item_id, error.code, error.detail)
        if len(self.refusals) < REFUSALS_KEPT_MAX:
            self.refusals.append(refusal)
        same = (error.code, _FIGURES.sub("", error.detail))
        if same in self.groups or len(self.groups) < REASONS_KEPT_MAX:
            self.groups.setdefault(same, RefusalGroup()).add(refusal)

    @property
    def exit_code(self) -> int:
        if not self.counts["refused"]:
            return EXIT_OK
        return EXIT_LIMIT if self.only_limits else EXIT_FAILED


def import_items(
    file: Path, stream: BinaryIO, items: Iterator[T], put: Callable[[Sequence[T], Tally], None], *, page_items: int
) -> Tally:
    """Puts all items of the stream, a page at a time, with a progress bar by bytes if the file's size is known."""
    tally, size = Tally(), file.stat().st_size if file.is_file() else None
    with progress_bar("Importing", of_bytes=size is not None) as progress:
        while page := list(islice(items, page_items)):
            put(page, tally)
            progress(stream.tell() if size else tally.counts.total(), size)
    return tally


def emit_tally(call: CliCall, tally: Tally) -> int:
    """Prints the counts, for people after a note for each reason of refusals. Returns the exit code."""
    refusals = sorted(tally.refusals, key=lambda one: one.line)
    # The most frequent reason comes first: it is the first to fix.
    groups = sorted(tally.groups.values(), key=lambda one: (-one.count, one.first[0].line))[:REASONS_SHOWN]
    notes = [TextNote(_group_text(one)) for one in groups]
    if unshown := tally.counts["refused"] - sum(one.count for one in groups):
        notes.append(TextNote(f"and {unshown} more refused for other reasons"))
    counts = ", ".join(f"{count} {disposition}" for disposition, count in tally.counts.items())
    emit(call, {**tally.counts, "refusals": [one._asdict() for one in refusals]}, *notes, counts)
    return tally.exit_code


def _group_text(group: RefusalGroup) -> str:
    """Returns the line, or the number of lines and the first of them, followed by the reason."""
    first = group.first[0]
    if group.count == 1:
        where = f"line {first.line}{f' ({first.id})' if first.id else ''}"
    else:
        lines = ", ".join(str(one.line) for one in group.first)
        where = f"{group.count} lines ({lines}{', …' if group.count > len(group.first) else ''})"
    return f"{where}: {first.detail} ({first.code})"

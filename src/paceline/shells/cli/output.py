"""Output of the command line: tables for people, one JSON document for programs, one clear line for an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from paceline.core.instants import to_text
from paceline.errors import OverDailyCredits, PacelineError
from paceline.shells.cli.text.columns import Cell, Column, Heading, column_of
from paceline.shells.cli.text.form import (
    Form,
    Piece,
    draw_fields,
    draw_paragraph,
    draw_table,
    form_of,
    printable,
)
from paceline.shells.cli.text.times import long_time
from paceline.shells.lists import ListPage

if TYPE_CHECKING:
    from paceline.shells.cli.call import CliCall

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_LIMIT = 0, 1, 2, 3, 4
EXIT_DIFFERS = 5
"""Exit code of a dry run that found differences."""
_EXIT_CODES = {
    "invalid_input": EXIT_USAGE,
    "malformed_body": EXIT_USAGE,
    "wrong_setting": EXIT_USAGE,
    "wrong_secret_key": EXIT_USAGE,
    "usage": EXIT_USAGE,
    "not_found": EXIT_NOT_FOUND,
    "no_store": EXIT_NOT_FOUND,
    "limit_reached": EXIT_LIMIT,
    "over_daily_credits": EXIT_LIMIT,
    "throttled": EXIT_LIMIT,
}
_STYLES = {"ok": "green", "failing": "red", "failed": "red", "late": "yellow", "dead": "red", "unknown": "yellow"}


class CliProblem(NamedTuple):
    """An error as it is shown: the fields of an RFC 9457 problem that the command line needs."""

    title: str
    detail: str
    code: str
    errors: tuple[dict[str, str], ...] = ()
    figures: tuple[tuple[str, int | str], ...] = ()
    """Numbers and times for programs, which become members of the JSON document."""

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES.get(self.code, EXIT_FAILED)


class RemoteError(Exception):
    """A problem that the service reported, or one of the connection to it."""

    def __init__(self, problem: CliProblem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def detail(self) -> str:
        return self.problem.detail


Columns = Mapping[str, Cell | Column]
"""Columns of a list: heading and cell. A bare cell is text, and is left out sooner the further right it stands."""


class TextTable(NamedTuple):
    headings: Sequence[Heading]
    rows: Iterable[Sequence[Any]]


class TextFields(NamedTuple):
    """Fields of one thing, a line for each."""

    pairs: Iterable[tuple[str, Any]]


class TextTime(NamedTuple):
    """A time on a line of its own; on a terminal followed by how far away it is."""

    text: str


class Paragraph(NamedTuple):
    """A text that a terminal folds at blanks; later lines are indented by ``indent``."""

    text: str
    indent: int = 2


class TextNote(NamedTuple):
    """A remark for people. It goes to stderr, apart from the output that a program would read."""

    text: str


Text = str | Paragraph | TextNote | TextTime | TextTable | TextFields | None
"""A part of the text that a command prints for people."""


class ProgressCallback(Protocol):
    """Callback with how much is done, and the total if that is known."""

    def __call__(self, done: int, total: int | None, /) -> None: ...


def problem_of(error: PacelineError) -> CliProblem:
    errors = tuple({"pointer": pointer, "detail": detail} for pointer, detail in error.errors)
    figures: tuple[tuple[str, int | str], ...] = ()
    if isinstance(error, OverDailyCredits):
        resets_at = to_text(error.resets_ms)
        figures = (("cost", error.cost), ("credits_left", error.credits_left), ("resets_at", resets_at))
        figures += (("refusal", error.refusal),) if error.refusal else ()
    return CliProblem(error.title, error.detail, error.code, errors, figures)


def print_problem(problem: CliProblem, *, as_json: bool) -> None:
    """Prints an error to stderr: one line for people, with each wrong field below; a JSON document for programs."""
    if as_json:
        document = problem._asdict()
        _write_json(sys.stderr, document | dict(document.pop("figures")))
        return
    if len(problem.errors) > 1:
        print(f"error: {problem.title} ({problem.code})", file=sys.stderr)
        for field in problem.errors:
            print(f"  {field['pointer'] or '/'}: {printable(field['detail'])}", file=sys.stderr)
        return
    print(f"error: {printable(problem.detail)} ({problem.code})", file=sys.stderr)
    if refusal := dict(problem.figures).get("refusal"):
        print(f"  Why, also later: paceline why {printable(str(refusal))}", file=sys.stderr)


def emit(call: CliCall, document: Any, *text: Text) -> None:
    """Prints the answer of a command: the document with ``--json``, else the text for people, part by part.

    Flushes at once, because a program may be waiting for the answer at a pipe.
    """
    if call.as_json:
        print_json(document)
    else:
        _print_parts(form_of(utc=call.utc), text)
    sys.stdout.flush()


def emit_page(
    call: CliCall, page: ListPage[Any], columns: Columns, *, more: str = "There are more:", none: str = ""
) -> None:
    """Prints a page of a list. For people a note follows: ``more`` with the next cursor, or ``none`` if it is empty."""
    text = f"{more} --cursor {page.next_cursor}" if page.next_cursor else "" if page.items else none
    emit(call, page, table(columns, page.items), TextNote(text) if text else None)


def emit_list(call: CliCall, views: Sequence[Any], columns: Columns, *, none: str) -> None:
    """Prints a list that has only one page."""
    emit_page(call, ListPage(views, None), columns, none=none)


def table(columns: Columns, views: Iterable[Any]) -> TextTable:
    """Returns a table with a row for each view."""
    found = [column_of(one, position) for position, one in enumerate(columns.values())]
    headings = [Heading(name, one.kind, one.rank) for name, one in zip(columns, found, strict=True)]
    cells = [attrgetter(one.cell) if isinstance(one.cell, str) else one.cell for one in found]
    return TextTable(headings, ([cell(view) for cell in cells] for view in views))


def print_text(*text: Text) -> None:
    _print_parts(form_of(utc=True), text)


def _print_parts(form: Form, text: Sequence[Text]) -> None:
    for part in text:
        match part:
            case TextTable():
                _print_table(form, part)
            case TextFields(pairs):
                for line in draw_fields(form, pairs):
                    print(line)
            case TextTime(moment):
                print(long_time(moment, form.now_ms) if form.relative else moment)
            case Paragraph(paragraph, indent):
                for line in draw_paragraph(form, paragraph, indent):
                    print(line)
            case TextNote(note):
                sys.stdout.flush()  # keeps the order if stdout and stderr go to one file
                print(printable(note), file=sys.stderr)
            case str():
                print(printable(part))


def print_json(value: Any) -> None:
    _write_json(sys.stdout, value)


def print_note(text: str) -> None:
    print_text(TextNote(text))


def _print_table(form: Form, shown: TextTable) -> None:
    """Prints the table, and a note about columns that did not fit."""
    drawn = draw_table(form, shown.headings, shown.rows, _STYLES)
    if sys.stdout.isatty():
        _print_coloured(drawn.lines)
    else:
        for line in drawn.lines:
            print("".join(one.text for one in line))
    if drawn.left_out:
        sys.stdout.flush()
        print_note(f"A wider terminal or --json shows: {', '.join(drawn.left_out)}")


def _print_coloured(lines: Sequence[Sequence[Piece]]) -> None:
    from rich.console import Console  # slow to import, and pipes do not need it
    from rich.text import Text as RichText

    console = Console(highlight=False)
    for line in lines:
        console.print(RichText.assemble(*((one.text, one.style) for one in line)), soft_wrap=True)


@contextmanager
def progress_bar(title: str, *, of_bytes: bool) -> Iterator[ProgressCallback]:
    """Shows a bar on stderr while long work runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich import progress as bars
    from rich.console import Console

    count = bars.DownloadColumn() if of_bytes else bars.MofNCompleteColumn()
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), count, bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def byte_text(count: int) -> str:
    """Returns the size in a suitable unit."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"


def _write_json(stream: Any, value: Any) -> None:
    document = msgspec.json.encode(value)
    if stream.isatty():
        document = msgspec.json.format(document, indent=2)
    print(document.decode(), file=stream)

"""How the command line speaks: tables for people, one JSON document for programs, one clear line for an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from paceline.core.instants import to_text
from paceline.errors import OverDailyCredits, PacelineError

if TYPE_CHECKING:  # rich is slow to import, and `--json` does not need it
    from rich.console import Console

    from paceline.shells.cli.call import Call

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_LIMIT = 0, 1, 2, 3, 4
EXIT_DIFFERS = 5
"""A dry run found differences."""
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
_WIDE = 10_000
_WHOLE = frozenset({"DUE", "NEXT DUE", "CREATED", "STATE", "HEALTH"})  # columns that are never wrapped
_STYLES = {"ok": "green", "failing": "red", "failed": "red", "late": "yellow", "dead": "red", "unknown": "yellow"}


class Problem(NamedTuple):
    """An error as it is shown: the fields of an RFC 9457 problem that make sense here."""

    title: str
    detail: str
    code: str
    errors: tuple[dict[str, str], ...] = ()
    figures: tuple[tuple[str, int | str], ...] = ()
    """Numbers and times for programs: members of their own in the JSON document."""

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES.get(self.code, EXIT_FAILED)


class RemoteError(Exception):
    """A problem that the service told of, or that stands between it and us."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def detail(self) -> str:
        return self.problem.detail


Columns = Mapping[str, str | Callable[[Any], Any]]
"""The columns of a table: heading, and the attribute of a view that stands below it, or a function of the view."""


class Table(NamedTuple):
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


class Fields(NamedTuple):
    """The fields of one thing, a line for each."""

    pairs: Iterable[tuple[str, Any]]


class Note(NamedTuple):
    """An aside for people; it goes to stderr, out of what a program would read."""

    text: str


class Progress(Protocol):
    """Called with how much is done, and of how much if that is known."""

    def __call__(self, done: int, total: int | None, /) -> None: ...


def problem_of(error: PacelineError) -> Problem:
    errors = tuple({"pointer": pointer, "detail": detail} for pointer, detail in error.errors)
    figures: tuple[tuple[str, int | str], ...] = ()
    if isinstance(error, OverDailyCredits):
        resets_at = to_text(error.resets_ms)
        figures = (("cost", error.cost), ("credits_left", error.credits_left), ("resets_at", resets_at))
    return Problem(error.title, error.detail, error.code, errors, figures)


def print_problem(problem: Problem, *, as_json: bool) -> None:
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


def emit(call: Call, document: Any, *text: str | Note | Table | Fields | None) -> None:
    """Prints the answer of a command: the document with ``--json``, else the text for people, part by part.

    It is flushed at once, because a program may be waiting for it at a pipe.
    """
    if call.as_json:
        print_json(document)
    else:
        print_text(*text)
    sys.stdout.flush()


def emit_page(
    call: Call,
    views: Sequence[Any],
    columns: Columns,
    *,
    next_cursor: str | int | None = None,
    more: str = "",
    none: str = "",
) -> None:
    """Prints a page of a list. For people a note follows: ``more`` with the next cursor, or ``none`` if it is empty."""
    following = None if next_cursor is None else str(next_cursor)
    note = Note(f"{more} --cursor {following}") if more and following else Note(none) if none and not views else None
    emit(call, {"items": views, "next_cursor": following}, table(columns, views), note)


def table(columns: Columns, views: Iterable[Any]) -> Table:
    """A row for each view."""
    cells = [attrgetter(cell) if isinstance(cell, str) else cell for cell in columns.values()]
    return Table([*columns], ([cell(view) for cell in cells] for view in views))


def print_text(*text: str | Note | Table | Fields | None) -> None:
    for part in text:
        match part:
            case Table():
                _print_table(part)
            case Fields():
                _print_fields(part)
            case Note(note):
                print(printable(note), file=sys.stderr)
            case str():
                print(printable(part))


def print_json(value: Any) -> None:
    _write_json(sys.stdout, value)


def print_note(text: str) -> None:
    print_text(Note(text))


def _print_table(shown: Table) -> None:
    """On a terminal framed and coloured; elsewhere plain columns that are never cut short."""
    from rich import table as rich_table
    from rich.box import SIMPLE_HEAD
    from rich.text import Text

    console = _console()
    table = rich_table.Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, show_edge=False)
    for column in shown.columns:
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    for row in shown.rows:
        cells = [_shown(cell) for cell in row]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _print_fields(fields: Fields) -> None:
    pairs = [(name, _shown(value)) for name, value in fields.pairs]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")


@contextmanager
def progress_bar(title: str, *, of_bytes: bool) -> Iterator[Progress]:
    """A bar on stderr while long work runs; nothing when that is not a terminal."""
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


def printable(text: str) -> str:
    """The text without control characters: what one user stored must not steer the terminal of another."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def byte_text(count: int) -> str:
    """The size in the unit a person would choose."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return printable(", ".join(str(item) for item in value)) or "-"
    return printable(str(value))


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def _write_json(stream: Any, value: Any) -> None:
    document = msgspec.json.encode(value)
    if stream.isatty():
        document = msgspec.json.format(document, indent=2)
    print(document.decode(), file=stream)

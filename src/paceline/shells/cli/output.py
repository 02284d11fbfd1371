"""How the command line speaks: tables for people, one JSON document for programs, one clear line for an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from paceline.core.instants import to_text
from paceline.errors import OverDailyCredits, PacelineError

if TYPE_CHECKING:  # rich is slow to import, and `--json` needs it not
    from rich.console import Console

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_LIMIT = 0, 1, 2, 3, 4
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
_WHOLE = frozenset({"DUE", "NEXT DUE", "CREATED", "STATE", "HEALTH"})  # columns that make no sense in two lines
_STYLES = {"ok": "green", "failing": "red", "failed": "red", "late": "yellow", "dead": "red", "unknown": "yellow"}


class Problem(NamedTuple):
    """An error as it is shown: the fields of an RFC 9457 problem that make sense here."""

    title: str
    detail: str
    code: str
    errors: tuple[dict[str, str], ...] = ()
    figures: tuple[tuple[str, int | str], ...] = ()
    """What a program may want to reckon with: members of their own in its JSON."""

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES.get(self.code, EXIT_FAILED)


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
    """To stderr: one line for people, with each wrong field below; a JSON document for programs."""
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


def print_json(value: Any) -> None:
    _write_json(sys.stdout, value)


def print_line(text: str) -> None:
    print(printable(text))


def print_note(text: str) -> None:
    """An aside for people, kept out of what a program would read."""
    print(printable(text), file=sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """On a terminal framed and coloured; elsewhere plain columns that are never cut short."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = _console()
    table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    for row in rows:
        cells = [_shown(cell) for cell in row]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """One thing, a field to a line."""
    pairs = [(name, _shown(value)) for name, value in fields]
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
    """Without control characters: what a user stored must not steer somebody else's terminal."""
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

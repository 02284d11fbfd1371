"""Progress of a job: a bar in a terminal or a notebook, or your own function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO, TypeAlias

from paceline_client.models.jobs import JobStatus

Show: TypeAlias = Callable[[JobStatus], object]
ProgressLike: TypeAlias = Show | Literal[False] | None
"""None: a bar in a terminal or a notebook. False: no bar. A function: called with each status."""
BAR_CHARS = 30


@contextmanager
def progress_of(progress: ProgressLike, title: str, file: TextIO | None = None) -> Iterator[Show]:
    """Yields a function that shows a status, and completes its output when the context ends."""
    out = file or sys.stderr
    if callable(progress):
        yield progress
    elif progress is False or not (out.isatty() or _in_notebook()):
        yield lambda _: None
    elif (tqdm := _tqdm()) is not None:
        with tqdm(desc=title, unit="measurement", file=out) as bar:
            yield lambda status: _update(bar, status)
    else:
        try:
            yield lambda status: out.write(f"\r{bar_line(title, status)}") and out.flush()
        finally:
            out.write("\n")


def bar_line(title: str, status: JobStatus) -> str:
    """Returns a line such as ``j1 [#####.....] 5/10 running, 1 failed``."""
    counts = status.counts
    full = BAR_CHARS * counts.ended // max(1, counts.total)
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"{title} [{'#' * full}{'.' * (BAR_CHARS - full)}] {counts.ended}/{counts.total} {status.state}{failed}"


def _update(bar: Any, status: JobStatus) -> None:
    bar.total = status.counts.total
    bar.n = status.counts.ended
    bar.set_postfix_str(status.state, refresh=False)
    bar.refresh()


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415  an extra
    except ImportError:
        return None
    return tqdm


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"

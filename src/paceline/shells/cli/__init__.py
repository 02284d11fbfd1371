"""The command line: parse, call one step, render."""

from __future__ import annotations

import signal
import sys
from types import FrameType

__all__ = ["main"]

LONG_RUNNING = frozenset({"up", "worker", "simulator"})
_WITH_VALUE = frozenset({"--config", "--store"})


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    if arguments is None and _first_word(sys.argv[1:]) in LONG_RUNNING:
        # Before the slow imports: a signal at any moment of the start ends it cleanly, and nothing has run yet.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
    from paceline.shells.cli.app import main as run

    return run(arguments)


def _first_word(arguments: list[str]) -> str:
    """The command, behind options that stand before it."""
    left = iter(arguments)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif not word.startswith("-"):
            return word
    return ""


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)

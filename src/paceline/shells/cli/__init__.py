"""The command line: parse, call one step, render."""

from __future__ import annotations

import io
import os
import sys

from paceline.shells.daemon.signals import end_start_on_signal

__all__ = ["main"]

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, as shells have it."""
LONG_RUNNING = frozenset({"up", "worker", "simulator"})
_WITH_VALUE = frozenset({"--config", "--store", "--url", "--token", "--token-file", "--ca-file"})


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _open_streams()
    if arguments is None and _first_word(sys.argv[1:]) in LONG_RUNNING:
        # Before the slow imports, so that a signal at any moment of the start ends the process cleanly.
        end_start_on_signal()
    try:
        from paceline.shells.cli.app import main as run

        return run(arguments)
    except KeyboardInterrupt:  # also during the imports
        return INTERRUPTED


def _open_streams() -> None:
    """A stream that was closed (`>&-`) goes nowhere, and one that cannot show a character shows its number."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _first_word(arguments: list[str]) -> str:
    """Returns the name of the command, which may come after options."""
    left = iter(arguments)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif not word.startswith("-"):
            return word
    return ""

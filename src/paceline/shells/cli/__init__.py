"""The command line: parse, call one step, render."""

from __future__ import annotations

import sys

from paceline.shells.daemon.signals import end_start_when_told

__all__ = ["main"]

LONG_RUNNING = frozenset({"up", "worker", "simulator"})
_WITH_VALUE = frozenset({"--config", "--store", "--url", "--token", "--token-file", "--ca-file"})


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    if arguments is None and _first_word(sys.argv[1:]) in LONG_RUNNING:
        # Before the slow imports, so that a signal at any moment of the start ends the process cleanly.
        end_start_when_told()
    from paceline.shells.cli.app import main as run

    return run(arguments)


def _first_word(arguments: list[str]) -> str:
    """Returns the name of the command, which may come after options."""
    left = iter(arguments)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif not word.startswith("-"):
            return word
    return ""

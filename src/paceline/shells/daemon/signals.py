"""Signals that end a process, SIGINT and SIGTERM: heard at any moment of its life, whichever thread they come to."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)
_told = False


def end_start_when_told() -> None:
    """From now on a signal ends the process cleanly: nothing runs yet."""
    sys.unraisablehook = _say_unless_told
    for number in STOPS:
        signal.signal(number, _end_start)


def was_told() -> bool:
    """Whether a signal came during the start. What it raised may have been swallowed, for example by a destructor."""
    return _told


class StopSignals:
    """Signals to be waited for. Make it in the main thread, before anything runs that must be drained.

    The interpreter writes a byte into a pipe for each. So no thread has to be in a certain state: one that a library
    started earlier, and that does not block signals, would take them away from ``sigwait``.
    """

    def __init__(self) -> None:
        self._pipe, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, _go_on)

    def wait(self) -> None:
        """Until the next one. From any thread."""
        os.read(self._pipe, 1)


def _end_start(_number: int, _frame: FrameType | None) -> None:
    global _told  # noqa: PLW0603  a signal is about the whole process
    _told = True
    raise SystemExit(0)


def _say_unless_told(error: sys.UnraisableHookArgs) -> None:
    """Prints what a destructor or a callback raised, but not the end of the start: ``was_told`` is asked instead."""
    if not (_told and isinstance(error.exc_value, SystemExit)):
        sys.__unraisablehook__(error)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Who waits reads it from the pipe."""

"""SIGINT and SIGTERM, which end a process: noticed at any moment of its life, in any thread."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)
_requested = False


def end_start_on_signal() -> None:
    """Makes a signal end the process cleanly during its start, when nothing runs yet."""
    sys.unraisablehook = _print_unless_stopping
    for number in STOPS:
        signal.signal(number, _end_start)


def stop_requested() -> bool:
    """True if a signal came during the start. Its exception may have been swallowed, for example by a destructor."""
    return _requested


class StopSignals:
    """Signals to wait for. Made in the main thread, before anything runs that must be drained.

    The interpreter writes a byte into a pipe for each signal. That works whatever the threads do: with ``sigwait``, a
    thread that a library started, and that does not block signals, could take them.
    """

    def __init__(self) -> None:
        self._pipe, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, _go_on)

    def wait(self) -> None:
        """Waits for the next signal. May be called from any thread."""
        os.read(self._pipe, 1)


def _end_start(_number: int, _frame: FrameType | None) -> None:
    global _requested  # noqa: PLW0603  a signal is about the whole process
    _requested = True
    raise SystemExit(0)


def _print_unless_stopping(error: sys.UnraisableHookArgs) -> None:
    """Prints an error of a destructor or a callback, but not SystemExit of a signal: ``stop_requested`` has that."""
    if not (_requested and isinstance(error.exc_value, SystemExit)):
        sys.__unraisablehook__(error)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: ``wait`` reads the signal from the pipe."""

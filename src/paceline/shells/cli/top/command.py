"""``paceline top``: a live view of what runs, waits and fails. ``q`` or Ctrl-C leaves it."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from paceline.errors import PacelineError
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import flag
from paceline.shells.cli.output import EXIT_OK, RemoteError, emit
from paceline.shells.cli.text.form import WIDTH_LEAST, form_of

if TYPE_CHECKING:  # slow imports that no other command needs
    from rich.console import Console
    from rich.text import Text

    from paceline.shells.cli.top.facts import TopFacts

REFRESH_S = 1.0
LOOK_S = 0.1
LEAVE_KEYS = (b"q", b"Q", b"\x03", b"\x04")
OnceOption = Annotated[bool, flag("--once", "Print the screen once and exit, as in a pipe.")]


def top(call: CliCall, *, once: OnceOption = False) -> int:
    """Show what runs, waits and fails, live: daemons, checks, providers, batches, jobs and accounts. q quits."""
    from paceline.shells.cli.top.facts import RemoteFacts, StoreFacts

    return call.answer(
        lambda at: _show(
            call, StoreFacts(at.store, at.settings.store, at.ahead_places, at.clock.now_ms).read, once=once
        ),
        lambda remote: _show(call, RemoteFacts(remote).read, once=once),
    )


def _show(call: CliCall, read: Callable[[], TopFacts], *, once: bool) -> int:
    from paceline.shells.cli.top.frame import draw

    facts = read()
    if once or call.as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        lines = draw(facts, form_of(utc=call.utc), height=None)
        emit(call, facts, *("".join(one.text for one in line) for line in lines))
        return EXIT_OK
    _live(call, read, facts)
    return EXIT_OK


def _live(call: CliCall, read: Callable[[], TopFacts], facts: TopFacts) -> None:
    """Draws the screen each second, and at once when the terminal's size changes, until a key or a signal ends it."""
    from rich.console import Console
    from rich.live import Live

    console, trouble = Console(highlight=False), ""
    with (
        suppress(KeyboardInterrupt),
        _signals() as ending,
        _keys_alone(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            until_s = time.monotonic() + REFRESH_S
            while time.monotonic() < until_s:
                size = console.size
                live.update(_picture(call, facts, size.width, size.height, trouble), refresh=True)
                if ending.is_set() or _key_within(console, until_s, ending) in LEAVE_KEYS:
                    return
            try:
                facts, trouble = read(), ""
            except (PacelineError, RemoteError) as error:
                trouble = f"No news: {error.detail}"


def _picture(call: CliCall, facts: TopFacts, width: int, height: int, trouble: str) -> Text:
    from rich.text import Text

    from paceline.shells.cli.top.frame import draw

    form = form_of(utc=call.utc)._replace(width=max(width, WIDTH_LEAST))
    lines = draw(facts, form, height=height, trouble=trouble)
    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for one in line:
            text.append(one.text, style=one.style)
    return text


def _key_within(console: Console, until_s: float, ending: threading.Event) -> bytes:
    """Returns the key that was pressed; nothing if the time is over, a signal came, or the terminal has a new size."""
    size = console.size
    while time.monotonic() < until_s and console.size == size and not ending.is_set():
        if select.select([sys.stdin], [], [], LOOK_S)[0]:
            return os.read(sys.stdin.fileno(), 1) or LEAVE_KEYS[0]
    return b""


@contextmanager
def _keys_alone() -> Iterator[None]:
    """Reads keys as they are pressed, without an echo; restores the terminal afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C, SIGTERM and SIGHUP set. A second signal ends whatever is going on.

    An exception on the first signal could get lost in code that ignores exceptions, such as a finalizer.
    """
    ending = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if ending.is_set():
            signal.default_int_handler(number, frame)
        ending.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

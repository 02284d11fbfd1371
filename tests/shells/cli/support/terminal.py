"""A command on a real terminal of some size: what it writes there, keys that are pressed, and how it leaves it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from types import TracebackType
from typing import Any, Self

from tests.shells.cli.support.program import Program

TIMEOUT_S = 120.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A pseudo-terminal with a command of the program in it."""

    def __init__(self, program: Program, *words: str, columns: int = 80, lines: int = 30, **settings: str) -> None:
        self.master, self._slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._slave)
        self._seen = b""
        env = program.env | {"TERM": "xterm"} | {f"PACELINE_{name.upper()}": value for name, value in settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *words],
            cwd=program.folder,
            env=env,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509  # the child must get the terminal's signals
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        self._reader.join(TIMEOUT_S)
        os.close(self.master)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def forget(self) -> None:
        """Looks from here on only at what is written later."""
        self._seen = b""

    @property
    def raw(self) -> str:
        return self._seen.decode(errors="replace")

    @property
    def text(self) -> str:
        """What was written, without the codes that move the cursor and colour it."""
        return _CODES.sub("", self.raw).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while text not in self.text:
            assert time.monotonic() < deadline_s, f"{text!r} is not in:\n{self.text[-3_000:]}"
            assert self.process.poll() is None or text in self.text, f"it ended:\n{self.text[-3_000:]}"
            time.sleep(0.05)

    def ended(self) -> int:
        return self.process.wait(TIMEOUT_S)

    @property
    def is_as_before(self) -> bool:
        """True if the command has left the terminal's modes as it found them."""
        now: list[Any] = termios.tcgetattr(self._slave)
        return now == self.before

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self.master, 65_536)
            except OSError:  # how Linux says that the other side is closed
                return
            if not piece:
                return
            self._seen += piece


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

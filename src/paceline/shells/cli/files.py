"""Files that commands read and write. ``-`` is stdin or stdout, and a file appears only once it is complete."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from paceline.errors import AlreadyExists, InvalidInput


@contextmanager
def open_input(file: Path) -> Iterator[BinaryIO]:
    """Opens the file, or stdin for ``-``."""
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.") from None
    with stream:
        yield stream


def read_input(file: Path, bytes_max: int, *, advice: str = "") -> bytes:
    """Reads the whole file or stdin.

    Raises InvalidInput, with the advice, if it is longer than a request body may be.
    """
    with open_input(file) as stream:
        body = stream.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise InvalidInput(f"{file}: more than {bytes_max} bytes.{advice and ' '}{advice}")
    return body


@contextmanager
def open_output(file: Path | None) -> Iterator[BinaryIO]:
    """Opens the file, which appears or is replaced once it is complete; None: stdout."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with draft_of(file) as draft, draft.open("wb") as stream:
        yield stream


def refuse_existing(file: Path) -> None:
    """Raises AlreadyExists if there is such a file."""
    if file.exists():
        raise AlreadyExists(f"{file} exists already. Choose another name.")


@contextmanager
def open_private(file: Path) -> Iterator[BinaryIO]:
    """Opens a file like ``open_output``, that only its owner can read, and that is on the disk when it appears."""
    with draft_of(file) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def draft_of(file: Path) -> Iterator[Path]:
    """Yields a path beside the file to write to. It is renamed to the file if the block succeeds, else deleted.

    An OSError about the draft, or a write to it, names the file: the person has never seen the draft's name. A device
    or a pipe is refused: it would be replaced by a file.
    """
    target = file.resolve()  # a link stays, and what it leads to is replaced
    if target.exists() and not target.is_file():
        raise InvalidInput(f"{file} is not an ordinary file. Name another one.")
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    with _ended_by_signals():
        try:
            yield draft
            draft.replace(target)
        except OSError as error:
            if error.errno is not None and (error.filename is None or Path(error.filename) == draft):
                raise OSError(error.errno, error.strerror, str(file)) from error
            raise
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit inside the block, so that a half-written file is removed.

    A signal that is ignored (nohup) or has a handler already stays as it is.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    usual = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in usual:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)

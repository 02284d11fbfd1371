"""Files that commands read and write. ``-`` is stdin or stdout, and a file appears only once it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paceline.errors import InvalidInput


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
def draft_of(file: Path) -> Iterator[Path]:
    """Yields a path beside the file to write to. It is renamed to the file if the block succeeds, else deleted."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        yield draft
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)

"""Sources of ``batch import``: a file, stdin, a URL, or a DynamoDB table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

from paceline.errors import InvalidInput
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.files import open_input

TABLE = "dynamodb://"
ADDRESSES = ("https://", "http://")


class Source(NamedTuple):
    """An open file. ``path`` is its place on disk, and ``name`` shows its format."""

    path: Path
    name: str
    stream: BinaryIO


def table_name(source: str) -> str | None:
    """Returns the name of the table, or None if the source is a file."""
    if not source.startswith(TABLE):
        return None
    name = source.removeprefix(TABLE).strip("/")
    if not name or "/" in name:
        raise InvalidInput("Write dynamodb://TABLE, for example dynamodb://records.")
    return name


@contextmanager
def open_source(call: CliCall, source: str) -> Iterator[Source]:
    """Opens the source. A URL is downloaded first, so that nothing is put if the connection breaks."""
    if not source.startswith(ADDRESSES):
        with open_input(Path(source)) as stream:
            yield Source(Path(source), source, stream)
        return
    from paceline.wiring import download_file

    with tempfile.TemporaryDirectory(prefix="paceline-import-") as folder:
        path = Path(folder, "file")
        with path.open("wb") as into:
            download_file(call.settings(), source, into)
        with path.open("rb") as stream:
            yield Source(path, urlsplit(source).path, stream)

"""Reads a job's results through the store or over REST, and writes them as lines to stdout or to a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from paceline.shells.cli.files import open_output
from paceline.shells.cli.output import ProgressCallback, progress_bar
from paceline.steps.views import job_report

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

RESULTS_S = 600.0
"""Longest wait for the next line from RIPE."""


class WrittenResults(NamedTuple):
    """What was written. ``errors`` counts definitions without results, or without all of them."""

    results: int
    errors: int
    bytes: int


class _Line(msgspec.Struct, frozen=True):
    """A line: one result or one error; merged, all results and errors of a target."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    results: list[msgspec.Raw] = []
    errors: list[msgspec.Raw] = []


_LINE = msgspec.json.Decoder(_Line)


def write_on_store(system: System, job: str, output: Path | None, *, merged: bool) -> WrittenResults:
    from paceline.steps.jobs.results import write_merged, write_results
    from paceline.wiring import open_atlas

    write = write_merged if merged else write_results
    with closing(open_atlas(system.settings)) as atlas:
        found = job_report.find_job(system.store, None, job)
        expected = sum(one.delivered for item in job_report.job_measurements(system.store, found) for one in item.atlas)
        with open_output(output) as sink, _results_bar(output) as bar:
            take = _CountedWriter(sink, lambda lines: bar(lines, max(expected, lines)))
            read = write(system.store, atlas, system.vault, found, take)
    return WrittenResults(read.results, read.errors, take.bytes)


def write_over_rest(remote: Remote, job: str, output: Path | None, *, merged: bool) -> WrittenResults:
    pieces = remote.stream(
        "/v1/jobs/{job}/results", query={"merged": "target" if merged else None}, wait_s=RESULTS_S, job=job
    )
    results = errors = 0
    first = next(pieces, b"")  # a job that does not exist must not leave an empty file
    with open_output(output) as sink, _results_bar(output) as bar:
        take = _CountedWriter(sink, lambda lines: bar(lines, None))
        for line in _lines(first, pieces):
            take(line)
            held = _LINE.decode(line)
            results += len(held.results) + (held.result is not msgspec.UNSET)
            errors += len(held.errors) + (held.error is not msgspec.UNSET)
    return WrittenResults(results, errors, take.bytes)


def _lines(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the whole lines of the pieces."""
    rest = first
    while True:
        *whole, rest = rest.split(b"\n")
        yield from (line + b"\n" for line in whole)
        piece = next(pieces, None)
        if piece is None:
            break
        rest += piece
    if rest:
        yield rest


class _CountedWriter:
    """Writes pieces to the sink, counts them and their bytes, and calls ``tell`` with the count."""

    def __init__(self, sink: BinaryIO, tell: Callable[[int], None]) -> None:
        self._sink, self._tell = sink, tell
        self.pieces = self.bytes = 0

    def __call__(self, piece: bytes) -> None:
        self._sink.write(piece)
        self.pieces += 1
        self.bytes += len(piece)
        self._tell(self.pieces)


@contextmanager
def _results_bar(output: Path | None) -> Iterator[ProgressCallback]:
    if output is None and sys.stdout.isatty():  # a bar would mix with the lines on the terminal
        yield lambda _done, _total: None
        return
    with progress_bar("Reading results", of_bytes=False) as bar:
        yield bar

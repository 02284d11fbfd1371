"""``paceline import``: reads the stream of ``paceline export`` into the store of any engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from paceline.errors import MalformedBody
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.export import refuse_while_running
from paceline.shells.cli.files import open_input
from paceline.shells.cli.options import argument, flag

COLUMNS: output.Columns = {
    "KIND": lambda row: row[0],
    "CREATED": lambda row: row[1].get("created", 0),
    "REPLACED": lambda row: row[1].get("replaced", 0),
    "UNCHANGED": lambda row: row[1].get("unchanged", 0),
    "PASSED OVER": lambda row: row[1].get("passed over", 0),
}
"""Columns of counts by kind."""
LINE_BYTES_MAX = 64 * 1024 * 1024
FileArgument = Annotated[Path, argument("FILE", "The file of paceline export; - reads stdin.")]
LiveOption = Annotated[bool, flag("--live", "Import even if a Paceline runs on this store.")]


def import_stream(call: CliCall, file: FileArgument = Path("-"), *, live: LiveOption = False) -> None:
    """Read an export: replace definitions that differ, keep all others. Importing it again changes nothing."""
    from paceline.steps.move.move_in import import_lines

    with (
        open_input(file) as stream,
        call.new_system() as system,
        output.progress_bar("Importing", of_bytes=False) as progress,
    ):
        if not live:
            refuse_while_running(system, act="imported")
        done = import_lines(
            system.store,
            system.vault,
            _lines(stream),
            now_ms=system.clock.now_ms(),
            progress=lambda lines: progress(lines, None),
        )
    note = output.TextNote(
        f"{done.unplaced} monitors were scheduled by a running Paceline before the import could do so:"
        " they fire like new ones. Stop all processes on this store before an import."
    )
    shown = output.table(COLUMNS, done.counts.items())
    output.emit(call, msgspec.to_builtins(done), shown, note if done.unplaced else None)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(LINE_BYTES_MAX):
        if len(line) >= LINE_BYTES_MAX:
            raise MalformedBody(f"A line is longer than {LINE_BYTES_MAX} bytes: this is no export.")
        yield line

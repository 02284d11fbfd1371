"""Receipts of files: written for an export or a job's results, and checked without a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from paceline.core.verify.receipt import FORMAT, Receipt, compare, make_receipt
from paceline.errors import InvalidInput, MalformedBody
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.files import draft_of, open_input, read_input
from paceline.shells.cli.options import option

LINE_BYTES_MAX = 64 * 1024 * 1024
RECEIPT_BYTES_MAX = 64 * 1024 * 1024

ReceiptOption = Annotated[
    Path | None,
    option("FILE", "Write a receipt of the file, for paceline verify FILE RECEIPT on any machine.", "--receipt"),
]


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file, each with a limited length."""
    while line := stream.readline(LINE_BYTES_MAX):
        if len(line) >= LINE_BYTES_MAX:
            raise MalformedBody(f"A line is longer than {LINE_BYTES_MAX} bytes.")
        yield line


def write_receipt(file: Path, receipt: Path) -> None:
    """Reads the file that was just written, and writes its receipt."""
    with open_input(file) as stream:
        made = make_receipt(file.name, read_lines(stream))
    with draft_of(receipt) as draft:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")


def check_receipt(call: CliCall, file: Path, receipt: Path) -> int:
    """Compares a file with its receipt, prints the result, and returns the exit code."""
    try:
        known = msgspec.json.decode(read_input(receipt, RECEIPT_BYTES_MAX), type=Receipt)
    except msgspec.MsgspecError as error:
        raise MalformedBody(f"{receipt} is no receipt: {error}.") from None
    if known.paceline_receipt != FORMAT:
        raise InvalidInput(f"{receipt} has format {known.paceline_receipt}, and this version reads {FORMAT}.")
    with open_input(file) as stream:
        found = compare(known, read_lines(stream))
    difference = None if found is None else found._asdict()
    document = {"ok": found is None, "file": str(file), "lines": known.lines, "difference": difference}
    if found is None:
        output.emit(call, document, f"{file}: {known.lines:,} lines, PASS: they match the receipt.")
        return output.EXIT_OK
    output.emit(call, document, f"{file}: BROKEN, lines {found.first} to {found.last}: {found.says}.")
    return output.EXIT_FAILED

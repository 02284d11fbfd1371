"""``paceline export``: writes all definitions as a stream that ``paceline import`` reads on any engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from paceline.errors import InvalidInput
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.files import open_private, refuse_existing
from paceline.shells.cli.history.receipts import ReceiptOption, write_receipt
from paceline.shells.cli.options import argument, flag, option
from paceline.shells.cli.upkeep import daemon_text, running_daemons

if TYPE_CHECKING:
    from paceline.steps.move.move_out import Exported
    from paceline.wiring import System

FileArgument = Annotated[Path, argument("FILE", "The file to write, mode 0600; - writes to stdout.")]
LiveOption = Annotated[
    bool, flag("--live", "Export even if a daemon runs or work is unfinished: a copy to try, not for moving the store.")
]
AsCodeOption = Annotated[
    bool,
    flag(
        "--as-code",
        "Write monitors, channels, providers and batches as YAML, for paceline apply; possible at any time.",
    ),
]
OnlyUserOption = Annotated[str | None, option("USER", "With --as-code: only this user's definitions.", "--user")]
HistoryOption = Annotated[
    bool, flag("--history", "Also write the ledger, for paceline verify FILE on another machine.")
]
LEFT_SHOWN_MAX = 10


def export(
    call: CliCall,
    file: FileArgument = Path("-"),
    *,
    live: LiveOption = False,
    as_code: AsCodeOption = False,
    user: OnlyUserOption = None,
    history: HistoryOption = False,
    receipt: ReceiptOption = None,
) -> None:
    """Write users, monitors, providers, batches, accounts and their keys as one stream, for paceline import."""
    if receipt is not None and (as_code or str(file) == "-"):
        raise InvalidInput("--receipt needs a FILE, and cannot be used with --as-code.")
    if as_code:
        _export_as_code(call, file, user)
        return
    if user is not None:
        raise InvalidInput("--user goes with --as-code: the stream is for a whole store.")
    from paceline.steps.history.verify import store_facts
    from paceline.steps.move import move_out
    from paceline.steps.move.stream import obstacles

    with call.system() as system:
        if not live:
            refuse_while_running(system, act="exported")
        if not live and (found := obstacles(system.store, now_ms=system.clock.now_ms())):
            raise InvalidInput(_under_way(found))
        with _open_output(file) as write:
            facts = store_facts(system.store) if history else ()
            done = move_out.export(system.store, system.vault, write, now_ms=system.clock.now_ms(), history=facts)
    if receipt is not None:
        write_receipt(file, receipt)
    _emit_report(call, file, done)


def _export_as_code(call: CliCall, file: Path, user: str | None) -> None:
    from paceline.shells.cli.as_code.export import as_code

    text = as_code(call, user)
    if str(file) == "-":
        sys.stdout.write(text)
        return
    with _open_output(file) as write:
        write(text.encode())
    output.emit(call, {"file": str(file), "bytes": file.stat().st_size}, f"{file}: for paceline apply -f {file}")


def refuse_while_running(system: System, *, act: str) -> None:
    """Raises InvalidInput while a daemon uses the store: its writes would be in neither store, or in both."""
    running = running_daemons(system.store, now_ms=system.clock.now_ms())
    if running:
        raise InvalidInput(
            f"Nothing was {act}: a Paceline {daemon_text(running[0])}. Stop all processes on this store first (SIGTERM"
            " lets them finish their work); or add --live if you only want to try."
        )


def _under_way(found: list[str]) -> str:
    more = f"; and {len(found) - LEFT_SHOWN_MAX} more" if len(found) > LEFT_SHOWN_MAX else ""
    return (
        f"Nothing was exported, because this is under way: {'; '.join(found[:LEFT_SHOWN_MAX])}{more}. Start Paceline"
        " until it has ended and stop it with SIGTERM, or add --live for a copy to try."
    )


@contextmanager
def _open_output(file: Path) -> Iterator[Callable[[bytes], object]]:
    """Opens stdout, or a file that only its owner can read and that appears once it is complete."""
    if str(file) == "-":
        if sys.stdout.isatty():
            raise InvalidInput("The stream is not for a terminal: name a FILE, or write paceline export | ...")
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    refuse_existing(file)
    with open_private(file) as stream:
        yield stream.write


def _emit_report(call: CliCall, file: Path, done: Exported) -> None:
    """Prints what was exported; to stderr if the stream itself is on stdout."""
    document = msgspec.to_builtins(done)
    left = {name: document.pop(name) for name in ("runs_left", "dead_letters_left")}
    notes = [output.TextNote("Exported " + ", ".join(f"{count} {name}" for name, count in document.items()) + ".")]
    if any(left.values()):
        notes.append(
            output.TextNote(
                f"Left behind: {left['runs_left']} runs of monitors that nobody has claimed, and"
                f" {left['dead_letters_left']} dead letters."
            )
        )
    notes.append(output.TextNote("The store that imports it needs the same PACELINE_SECRET_KEY."))
    if str(file) == "-":
        output.print_text(*notes)
    else:
        size = output.byte_text(file.stat().st_size)
        output.emit(call, {"file": str(file), **document, **left}, f"{file}: {size}", *notes)

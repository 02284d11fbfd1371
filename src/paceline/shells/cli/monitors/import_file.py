"""``paceline monitor import``: many monitors from one file, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.core.monitors.values import PutMonitor
from paceline.core.parsing import decode
from paceline.errors import FieldProblem, InvalidInput, MalformedBody, PacelineError
from paceline.shells.cli.call import Call, command, owner_id
from paceline.shells.cli.files import open_input
from paceline.shells.cli.imports import Tally, emit_tally, import_items
from paceline.shells.cli.monitors.commands import app
from paceline.shells.cli.monitors.items import Broken, Item, read_items
from paceline.shells.cli.options import UserOption
from paceline.steps.monitors import define
from paceline.steps.monitors.check_secrets import seal_put

if TYPE_CHECKING:
    from paceline.wiring import System

__all__ = ["app"]  # the monitor commands, with this one

PAGE = 1_000
FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help='JSON array, {"items": [...]} or NDJSON; - reads stdin.',
    ),
]
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@command(app, "import")
def import_monitors(
    call: Call,
    file: FileArgument,
    *,
    user: UserOption = None,
) -> int:
    """Put many monitors. Good ones are kept; each refused one is named with its line and the reason."""
    with open_input(file) as stream, call.system() as system:
        owner = owner_id(system, user)
        tally = import_items(
            file, stream, read_items(stream), lambda page, tally: _put(system, owner, page, tally), page_items=PAGE
        )
    return emit_tally(call, tally)


def _put(system: System, owner: str, page: Sequence[Item | Broken], tally: Tally) -> None:
    parsed: list[tuple[int, PutMonitor]] = []
    for item in page:
        monitor_id = None
        try:
            monitor_id, body = _split(item)
            put = define.parse_put(owner, monitor_id, body, system.limits)
            parsed.append((item.line, seal_put(system.store, system.vault, put)))
        except PacelineError as error:
            tally.refuse(item.line, monitor_id, error)
    limits = {
        "monitors_max": system.settings.monitors_max,
        "firings_max": system.settings.firings_per_second_max,
    }
    puts = [put for _, put in parsed]
    results = define.put_monitors(system.store, puts, **limits, now_ms=system.clock.now_ms())
    for (line, put), result in zip(parsed, results, strict=True):
        if refused := define.put_error(result, put, **limits):
            tally.refuse(line, put.id, refused)
        else:
            tally.counts[result.disposition] += 1


def _split(item: Item | Broken) -> tuple[str, bytes]:
    """An item's id, and the rest of it: the definition."""
    if isinstance(item, Broken):
        raise MalformedBody(f"{item.reason}; the file was read no further.")
    fields = decode(_FIELDS, item.body)
    raw = fields.pop("id", None)
    if raw is None:
        raise InvalidInput.of(FieldProblem("/id", "this field is required"))
    return decode(msgspec.json.Decoder(str), bytes(raw), "/id"), msgspec.json.encode(fields)

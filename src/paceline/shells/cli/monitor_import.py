"""``paceline monitor import``: many monitors from one file, in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from paceline.core.parsing import decode
from paceline.errors import FieldProblem, InvalidInput, MalformedBody, PacelineError
from paceline.ports import PutMonitor
from paceline.shells.cli import output
from paceline.shells.cli.call import Call, UserOption, command, owner_id
from paceline.shells.cli.monitor_items import Broken, Item, open_input, read_items
from paceline.shells.cli.monitors import app
from paceline.steps import define
from paceline.steps.check_secrets import seal_put

if TYPE_CHECKING:
    from paceline.wiring import System

__all__ = ["app"]  # the monitor commands, with this one

BATCH = 1_000
REFUSALS_KEPT_MAX = 1_000
FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help='JSON array, {"items": [...]} or NDJSON; - reads stdin.',
    ),
]
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Refusal(NamedTuple):
    line: int
    id: str | None
    code: str
    detail: str


class Tally:
    """What came of the items so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter({"created": 0, "replaced": 0, "unchanged": 0, "refused": 0})
        self.refusals: list[Refusal] = []
        self.only_limits = True

    def refuse(self, line: int, monitor_id: str | None, error: PacelineError) -> None:
        self.counts["refused"] += 1
        self.only_limits &= error.code == "limit_reached"
        if len(self.refusals) < REFUSALS_KEPT_MAX:
            self.refusals.append(Refusal(line, monitor_id, error.code, error.detail))

    @property
    def exit_code(self) -> int:
        if not self.counts["refused"]:
            return output.EXIT_OK
        return output.EXIT_LIMIT if self.only_limits else output.EXIT_FAILED


@command(app, "import")
def import_monitors(
    call: Call,
    file: FileArgument,
    *,
    user: UserOption = None,
) -> int:
    """Put many monitors. Good ones are kept; each refused one is named with its line and the reason."""
    tally = Tally()
    with open_input(file) as stream, call.system() as system:
        size = file.stat().st_size if file.is_file() else None
        owner = owner_id(system, user)
        items = read_items(stream)
        with output.progress_bar("Importing", of_bytes=True) as progress:
            while batch := list(islice(items, BATCH)):
                _put(system, owner, batch, tally)
                progress(stream.tell() if size else tally.counts.total(), size)
    if call.as_json:
        output.print_json({**tally.counts, "refusals": [refusal._asdict() for refusal in tally.refusals]})
    else:
        print_tally(tally)
    return tally.exit_code


def _put(system: System, owner: str, batch: Sequence[Item | Broken], tally: Tally) -> None:
    parsed: list[tuple[int, PutMonitor]] = []
    for item in batch:
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


def print_tally(tally: Tally) -> None:
    for refusal in tally.refusals:
        name = f" ({refusal.id})" if refusal.id else ""
        output.print_note(f"line {refusal.line}{name}: {refusal.detail} ({refusal.code})")
    if unshown := tally.counts["refused"] - len(tally.refusals):
        output.print_note(f"and {unshown} more refused")
    output.print_line(", ".join(f"{count} {disposition}" for disposition, count in tally.counts.items()))

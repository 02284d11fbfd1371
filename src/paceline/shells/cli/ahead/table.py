"""The next hours as a table, from the store or over REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.shells.cli.call import CliCall
from paceline.shells.cli.output import Columns, Paragraph, TextNote, emit, table
from paceline.steps.access import get_user
from paceline.steps.ahead.report import AheadMinute, AheadView, AheadWindow, ahead

if TYPE_CHECKING:
    from paceline.wiring import System

ROWS_MAX = 24
COLUMNS: Columns = {
    "FROM": lambda row: _short(row.start),
    "MONITORS": "monitors",
    "BATCHES": "batches",
    "JOBS": "jobs",
    "BUSIEST": lambda row: _short(row.busiest.start),
    "STARTS": lambda row: _starts(row.busiest),
    "CAPACITY": lambda row: row.busiest.capacity,
}


def show(call: CliCall, *, hours: int, user: str | None) -> None:
    """Prints the next hours of this user, or of everybody."""

    def on_store(system: System) -> AheadView:
        owner = get_user(system.store, user).id if user else None
        return ahead(system.store, system.ahead_places, user=owner, hours=hours, now_ms=system.clock.now_ms())

    asked = {"hours": str(hours)} | ({"user": user} if user else {})
    view = call.answer(on_store, lambda remote: remote.get("/v1/ahead", AheadView, query=asked))
    worst = [Paragraph(f"{_short(one.start)}  {one.text}") for one in view.worst] or [Paragraph("Nothing is due.")]
    shown = table(COLUMNS, _rows(view.windows))
    emit(call, view, shown, "\nWorst minutes:", *worst, _note(view))


def _rows(windows: Sequence[AheadWindow]) -> list[AheadWindow]:
    """Returns the windows, joined so that all of them fit on a screen."""
    size = -(-len(windows) // ROWS_MAX)
    return [_together(windows[at : at + size]) for at in range(0, len(windows), size)]


def _together(windows: Sequence[AheadWindow]) -> AheadWindow:
    return AheadWindow(
        windows[0].start,
        sum(one.monitors for one in windows),
        sum(one.batches for one in windows),
        sum(one.jobs for one in windows),
        sum(one.capacity for one in windows),
        max((one.busiest for one in windows), key=_starts),
    )


def _note(view: AheadView) -> TextNote | None:
    if view.left_out:
        return TextNote(f"{view.left_out} monitors are left out: there are too many different cadences.")
    return None if view.complete else TextNote("Not everything is counted yet; the daemon counts the rest.")


def _starts(one: AheadMinute) -> int:
    return one.monitors + one.batches + one.jobs


def _short(instant: str) -> str:
    """Returns day and minute."""
    return f"{instant[5:10]} {instant[11:16]}"

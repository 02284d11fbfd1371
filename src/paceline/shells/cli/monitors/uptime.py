"""``paceline monitor uptime``: the share of time in which a monitor's target was good."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.shells.cli.call import CliCall, command, owner_id
from paceline.shells.cli.files import open_output
from paceline.shells.cli.monitors.ahead import app
from paceline.shells.cli.monitors.commands import IdArgument
from paceline.shells.cli.monitors.over_rest import MONITOR_PATH
from paceline.shells.cli.monitors.uptime_text import uptime_fields
from paceline.shells.cli.options import UserOption, option
from paceline.shells.cli.output import Columns, TextFields, emit, table
from paceline.shells.cli.text.columns import when, words
from paceline.steps.monitors.define import get_monitor
from paceline.steps.views.uptime import UptimeView, days_csv, uptime_view

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

__all__ = ["app"]  # the monitor commands, including this one

INCIDENT_COLUMNS: Columns = {"BEGAN": when("began"), "ENDED": when("ended"), "REASON": words("reason", 1)}
CsvOption = Annotated[Path | None, option("FILE", "Write the days to this file as CSV; - is stdout.", "--csv")]


@command(app, "uptime")
def show_uptime(call: CliCall, monitor_id: IdArgument, *, user: UserOption = None, csv: CsvOption = None) -> None:
    """Show uptime over 1, 7, 30 and 90 days, latencies and incidents."""

    def on_store(system: System) -> UptimeView:
        monitor = get_monitor(system.store, owner_id(system, user), monitor_id)
        return uptime_view(system.store, monitor, now_ms=system.clock.now_ms())

    def over_rest(remote: Remote) -> UptimeView:
        return remote.get(f"{MONITOR_PATH}/uptime", UptimeView, user=remote.owner(user), id=monitor_id)

    view = call.answer(on_store, over_rest)
    if csv is not None:
        _write_csv(call, view, csv)
        return
    incidents = ("\nIncidents:", table(INCIDENT_COLUMNS, view.incidents)) if view.incidents else ("\nNo incident.",)
    emit(call, view, TextFields(uptime_fields(view)), *incidents)


def _write_csv(call: CliCall, view: UptimeView, file: Path) -> None:
    target, days = None if str(file) == "-" else file, len(view.days)
    with open_output(target) as stream:
        stream.write(days_csv(view))
    if target is not None:
        emit(call, {"file": str(file), "days": days}, f"{file}: {days} days")

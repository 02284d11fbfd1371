"""``paceline run``: one run in full."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from paceline.core.ids import parse_call_run_id
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_fields, print_json, print_table
from paceline.steps import report
from paceline.steps.days import CallRunView, show_call_run
from paceline.steps.report import RunView

app = typer.Typer(name="run", help="Look at single runs.")

RUN_COLUMNS = ["DUE", "STATE", "LATENCY", "CODE", "ATTEMPT", "REASON", "RUN"]


@command(app, "show")
def show(
    call: Call,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The run's id: user/monitor#generation@counter, or batch/record@date."),
    ],
) -> None:
    """Show one run: what it was due for and what came of it."""
    with call.system() as system:
        view: RunView | CallRunView
        if parse_call_run_id(run) is not None:
            view = show_call_run(system.store, run, now_ms=system.clock.now_ms())
        else:
            view = report.show_run(system.store, run, viewer=None, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json(view)
        return
    fields: dict[str, Any] = msgspec.structs.asdict(view)
    detail = fields.pop("detail", {})
    print_fields([*fields.items(), *((f"detail.{name}", value) for name, value in detail.items())])


def print_runs(views: list[RunView]) -> None:
    print_table(RUN_COLUMNS, [_row(view) for view in views])


def print_call_runs(views: list[CallRunView]) -> None:
    """Of batches."""
    columns = [*RUN_COLUMNS[:-1], "PROVIDER", "RUN"]
    print_table(columns, [(*_row(view)[:-1], view.provider, view.run) for view in views])


def _row(view: RunView | CallRunView) -> tuple[Any, ...]:
    latency = None if view.latency_ms is None else f"{view.latency_ms:.1f} ms"
    return view.due, view.state, latency, view.status_code, view.attempt, view.reason, view.run

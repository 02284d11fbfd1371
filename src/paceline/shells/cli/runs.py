"""``paceline run``: one run in full."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import typer

from paceline.core.ids import parse_call_run_id
from paceline.errors import NotFound
from paceline.ports import JobStore
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_fields, print_json, print_table
from paceline.steps import job_report, report
from paceline.steps.days import CallRunView, show_call_run
from paceline.steps.job_report import MeasurementView
from paceline.steps.report import RunView

app = typer.Typer(name="run", help="Look at single runs.")

_MEASUREMENT = re.compile(r"([0-9a-z]{1,64})/([0-9]{1,6})", re.ASCII)
RUN_COLUMNS = ["DUE", "STATE", "LATENCY", "CODE", "ATTEMPT", "REASON", "RUN"]


class MeasurementRun(MeasurementView, frozen=True, kw_only=True):
    """A measurement, with the job that it belongs to."""

    run: str
    job: str
    user: str


@command(app, "show")
def show(
    call: Call,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="The run's id: user/monitor#generation@counter, batch/record@date, or job/index."
        ),
    ],
) -> None:
    """Show one run: what it was due for and what came of it."""
    with call.system() as system:
        view: RunView | CallRunView | MeasurementRun
        if (name := _MEASUREMENT.fullmatch(run)) is not None:
            view = _show_measurement(system.store, name[1], int(name[2]), now_ms=system.clock.now_ms())
        elif parse_call_run_id(run) is not None:
            view = show_call_run(system.store, run, now_ms=system.clock.now_ms())
        else:
            view = report.show_run(system.store, run, viewer=None, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json(view)
        return
    fields: dict[str, Any] = msgspec.structs.asdict(view)
    detail = fields.pop("detail", {})
    first = [(name, fields.pop(name)) for name in ("run", "job", "user") if name in fields]
    print_fields([*first, *fields.items(), *((f"detail.{name}", value) for name, value in detail.items())])


def _show_measurement(store: JobStore, job_id: str, index: int, *, now_ms: int) -> MeasurementRun:
    job = store.job(job_id)
    found = [] if job is None else store.measurements(job.number, after=index - 1, limit=1)
    if job is None or not found or found[0].index != index:
        raise NotFound(f"There is no run '{job_id[:100]}/{index}'.")
    view = job_report.measurement_view(found[0], job_report.WaitReasons(store, now_ms=now_ms))
    return MeasurementRun(run=f"{job.id}/{index}", job=job.id, user=job.owner, **msgspec.structs.asdict(view))


def print_runs(views: list[RunView]) -> None:
    print_table(RUN_COLUMNS, [_row(view) for view in views])


def print_call_runs(views: list[CallRunView]) -> None:
    """Of batches."""
    columns = [*RUN_COLUMNS[:-1], "PROVIDER", "RUN"]
    print_table(columns, [(*_row(view)[:-1], view.provider, view.run) for view in views])


def _row(view: RunView | CallRunView) -> tuple[Any, ...]:
    latency = None if view.latency_ms is None else f"{view.latency_ms:.1f} ms"
    return view.due, view.state, latency, view.status_code, view.attempt, view.reason, view.run

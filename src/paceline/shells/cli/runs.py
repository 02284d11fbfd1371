"""``paceline run``: shows one run in full."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from paceline.core.ids import parse_call_run_id
from paceline.errors import NotFound
from paceline.ports import JobStore
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import argument
from paceline.shells.cli.output import Columns, TextFields, emit
from paceline.shells.cli.text.columns import ident, when, word, words
from paceline.steps.views import job_report, report
from paceline.steps.views.days import CallRunView, show_call_run
from paceline.steps.views.job_report import JobView, MeasurementView
from paceline.steps.views.report import RunView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="run", help="Show single runs.")

_MEASUREMENT = re.compile(r"([0-9a-z]{1,64})/([0-9]{1,6})", re.ASCII)
_SHARED_COLUMNS: Columns = {
    "DUE": when("due"),
    "STATE": word("state"),
    "LATENCY": word(lambda view: None if view.latency_ms is None else f"{view.latency_ms:.1f} ms", 3),
    "CODE": word("status_code", 4),
    "ATTEMPT": word("attempt", 5),
    "REASON": words("reason", 1),
}
RUN_COLUMNS: Columns = {**_SHARED_COLUMNS, "RUN": ident("run")}
"""Columns of a monitor's runs."""
CALL_RUN_COLUMNS: Columns = {**_SHARED_COLUMNS, "PROVIDER": ident("provider", 2), "RUN": ident("run")}
"""Columns of a batch's runs."""


class MeasurementRun(MeasurementView, frozen=True, kw_only=True):
    """A measurement, with the job that it belongs to."""

    run: str
    job: str
    user: str


@command(app, "show")
def show(
    call: CliCall,
    run: Annotated[
        str, argument("RUN", "The run's id: user/monitor#generation@counter, batch/record@date, or job/index.")
    ],
) -> None:
    """Show one run: when it was due, and its outcome."""
    view = call.answer(lambda at: _show(at, run), lambda remote: _show_over_rest(remote, run))
    fields: dict[str, Any] = msgspec.structs.asdict(view)
    detail = fields.pop("detail", {})
    first = [(name, fields.pop(name)) for name in ("run", "job", "user") if name in fields]
    emit(
        call,
        view,
        TextFields([*first, *fields.items(), *((f"detail.{name}", value) for name, value in detail.items())]),
    )


def _show(system: System, run: str) -> RunView | CallRunView | MeasurementRun:
    """Returns the view of a run. The form of its id says whether it belongs to a job, a batch or a monitor."""
    now_ms = system.clock.now_ms()
    if (name := _MEASUREMENT.fullmatch(run)) is not None:
        return _show_measurement(system.store, name[1], int(name[2]), now_ms=now_ms)
    if parse_call_run_id(run) is not None:
        return show_call_run(system.store, run, now_ms=now_ms)
    return report.show_run(system.store, run, viewer=None, now_ms=now_ms)


def _show_over_rest(remote: Remote, run: str) -> RunView | CallRunView | MeasurementRun:
    if (name := _MEASUREMENT.fullmatch(run)) is None:
        kind: type[RunView | CallRunView] = CallRunView if parse_call_run_id(run) is not None else RunView
        return remote.get("/v1/runs/{run}", kind, run=run)
    job, index = name[1], int(name[2])
    found = remote.find("/v1/jobs/{job}", JobView, job=job)
    for view in (found and found.view.measurements) or ():
        if found and view.index == index:
            return MeasurementRun(run=f"{job}/{index}", job=job, user=found.view.user, **msgspec.structs.asdict(view))
    raise _no_measurement(job, index)


def _no_measurement(job_id: str, index: int) -> NotFound:
    return NotFound(f"There is no run '{job_id[:100]}/{index}'.")


def _show_measurement(store: JobStore, job_id: str, index: int, *, now_ms: int) -> MeasurementRun:
    job = store.job(job_id)
    found = [] if job is None else store.measurements(job.number, after=index - 1, limit=1)
    if job is None or not found or found[0].index != index:
        raise _no_measurement(job_id, index)
    view = job_report.measurement_view(found[0], job_report.WaitReasons(store, now_ms=now_ms))
    return MeasurementRun(run=f"{job.id}/{index}", job=job.id, user=job.owner, **msgspec.structs.asdict(view))

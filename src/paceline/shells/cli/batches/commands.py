"""``paceline batch``: records that run once a day, spread over a window, and how their days go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from paceline.core.batches.batch import Batch, Day, batch_document, day_at
from paceline.core.batches.calls import CallState
from paceline.core.batches.values import BatchPut
from paceline.core.monitors.schedule import Missed
from paceline.errors import InvalidInput
from paceline.ports import Store
from paceline.shells.cli.batches.day_text import day_text, preview_text
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.options import (
    PAGE_MAX,
    CursorOption,
    LimitOption,
    NumberCursorOption,
    PausedOption,
    ProviderOption,
    ReplaceOption,
    given,
    merged,
)
from paceline.shells.cli.output import Columns, emit, emit_page, print_json, progress_bar
from paceline.shells.cli.runs import CALL_RUN_COLUMNS
from paceline.steps.batches import batches, export
from paceline.steps.edit import edit, unless_changed
from paceline.steps.views import days
from paceline.steps.views.report import BatchView, batch_view

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="batch", help="Set batches, import their records, plan and watch their days.")

BATCH_COLUMNS: Columns = {
    "BATCH": "id",
    "START": "start",
    "WINDOW": "window",
    "ZONE": "timezone",
    "JITTER": "jitter",
    "MISSED": "missed",
    "PAUSED": "paused",
    "NEXT START": "next_start",
}
DAY_COLUMNS: Columns = {
    "DATE": "date",
    "STATE": "state",
    "START": "start",
    "END": "end",
    "ENQUEUED": "enqueued",
    "SKIPPED": "skipped",
}

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.")]
BatchOption = Annotated[
    str | None,
    typer.Option("--batch", metavar="BATCH", help="The batch it is about. [default: the only batch there is]"),
]
BatchArgument = Annotated[str | None, typer.Argument(metavar="BATCH", help="The same as --batch.")]
DayArgument = Annotated[
    str | None, typer.Argument(metavar="DAY", help="The date, for example 2026-11-15. [default: the running day]")
]
DateOption = Annotated[
    str | None, typer.Option("--date", metavar="DATE", help="For example 2026-11-15. [default: the running day]")
]
StateOption = Annotated[
    CallState | None,
    typer.Option("--state", metavar="STATE", help="Only runs in this state, for example failed."),
]


class BatchOptions(NamedTuple):
    """The options of ``batch set``; None for one that was not given."""

    start: Annotated[
        str | None, typer.Option(metavar="HH:MM", help="When each day begins, in its zone. [default: 00:00]")
    ] = None
    window: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long the records are spread over; 24h is the day. [default: 24h]"),
    ] = None
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="The zone of --start. [default: UTC]")] = None
    jitter: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Delay each record by a fixed part of this.")
    ] = None
    missed: Annotated[
        Missed | None,
        typer.Option(metavar="skip|once|all", help="What becomes of runs whose time was missed. [default: once]"),
    ] = None
    paused: PausedOption = None


@command(app, "set")
def set_batch(call: Call, batch_id: IdArgument, *, replace: ReplaceOption = False, options: BatchOptions) -> None:
    """Create a batch, or change what the options name of the one there is and keep the rest."""
    done, view = call.on_store_or_new(_set, batch_id, given(options), replace=replace)
    _emit_one(call, view, done=done)


@command(app, "list")
def list_batches(call: Call, *, limit: LimitOption = PAGE_MAX, cursor: CursorOption = None) -> None:
    """List the batches and when each is planned next."""
    views, following = call.on_store(_list, after=cursor or "", limit=limit)
    emit_page(call, views, BATCH_COLUMNS, next_cursor=following, more="There are more: paceline batch list")


@command(
    app,
    "resume",
    help_text="Let a paused batch go on; what came up meanwhile is caught up at a pace, not in a burst.",
    paused=False,
)
@command(app, "pause", help_text="Let nothing more of a batch start; what comes up steps aside.", paused=True)
def set_paused(call: Call, batch_id: IdArgument, *, paused: bool) -> None:
    def act(system: System) -> BatchView:
        now_ms = system.clock.now_ms()
        return _view(batches.set_batch_paused(system.store, batch_id, paused=paused, now_ms=now_ms), now_ms=now_ms)

    _emit_one(call, call.on_store(act), done="paused" if paused else "resumed")


@command(app, "plan")
def plan_batch(
    call: Call,
    name: BatchArgument = None,
    *,
    batch: BatchOption = None,
    date: DateOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its warnings, and change nothing.")] = (
        False
    ),
) -> None:
    """Plan a day: each active record gets its run, once, however often this is asked."""
    from paceline.steps.batches.plan import plan_day
    from paceline.steps.batches.preview import preview

    with call.system() as system:
        now_ms = system.clock.now_ms()
        target = the_batch(system.store, batch or name)
        day = days.check_date(date, "--date") if date else day_at(target.spec, now_ms)
        if dry_run:
            shown = preview(system.store, target, day, now_ms=now_ms)
            emit(call, shown, *preview_text(shown))
            return
        with progress_bar("Planning", of_bytes=False) as bar:
            report = plan_day(
                system.store,
                target,
                day,
                now_ms=now_ms,
                progress=lambda now: bar(now.enqueued + now.skipped, now.records),
            )
    print_json({"enqueued": report.enqueued, "already": report.already, "skipped": report.skipped})


@command(app, "days")
def list_days(
    call: Call,
    name: BatchArgument = None,
    *,
    batch: BatchOption = None,
    limit: LimitOption = 30,
    cursor: CursorOption = None,
) -> None:
    """List a batch's days, newest first."""
    found = call.on_store(lambda at: at.store.days(the_batch(at.store, batch or name), before=cursor, limit=limit + 1))
    views = [days.day_summary(day) for day in found[:limit]]
    emit_page(call, views, DAY_COLUMNS, next_cursor=views[-1].date if len(found) > limit else None)


@command(app, "show")
def show(call: Call, day: DayArgument = None, *, batch: BatchOption = None) -> None:
    """Show a day: totals by state and provider, how even it is, and a chart of its quarters of an hour."""
    report = call.on_store(lambda at: days.day_report(at.store, _day(at, batch, day)))
    emit(call, report, *day_text(report))


@command(app, "runs")
def list_runs(
    call: Call,
    day: DayArgument = None,
    *,
    batch: BatchOption = None,
    state: StateOption = None,
    provider: ProviderOption = None,
    limit: LimitOption = 100,
    cursor: NumberCursorOption = 0,
) -> None:
    """List a day's runs with what came of them."""
    views, following = call.on_store(
        lambda at: days.day_runs(
            at.store, _day(at, batch, day), state=state, provider=provider, after=cursor or 0, limit=limit
        )
    )
    emit_page(call, views, CALL_RUN_COLUMNS, next_cursor=following, more="There may be more:")


@command(app, "export")
def export_day(
    call: Call,
    day: DayArgument = None,
    *,
    batch: BatchOption = None,
    form: Annotated[export.Format, typer.Option("--format", metavar="ndjson|csv", help="What to write.")] = "ndjson",
    state: StateOption = None,
    provider: ProviderOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Where it goes. [default: stdout]")
    ] = None,
) -> None:
    """Write a day's runs with their results, one to a line. CSV is safe to open in a spreadsheet."""
    with call.system() as system:
        found = _day(system, batch, day)
        pages = export.export_day(system.store, found, form=form, state=state, provider=provider)
        if output is None:
            sys.stdout.buffer.writelines(pages)
            return
        with output.open("wb") as file:
            file.writelines(pages)
            size = file.tell()
    emit(call, {"file": str(output), "bytes": size}, f"{output}: {size} bytes")


def the_batch(store: Store, name: str | None) -> Batch:
    """The batch a command is about: the one named, else the only one there is."""
    if name is not None:
        return batches.get_batch(store, name)
    found = store.batches(after="", limit=2)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidInput("There is no batch yet. Make one: paceline batch set ID")
    raise InvalidInput("There are several batches. Name one with --batch.")


def _day(system: System, batch: str | None, day: str | None) -> Day:
    """The planned day of the batch: the one named, else the running one."""
    target = the_batch(system.store, batch)
    return days.get_day(system.store, target, day or str(day_at(target.spec, system.clock.now_ms())))


def _set(system: System, batch_id: str, changes: dict[str, Any], *, replace: bool) -> tuple[str, BatchView]:
    """Creates or changes the batch. Returns the disposition and the batch as it is now."""
    now_ms = system.clock.now_ms()

    def attempt() -> BatchPut:
        there = system.store.batch(batch_id)
        kept = batch_document(there.spec) if there and not replace else {}
        body, seen = msgspec.json.encode(merged(kept, changes)), there.revision if there else 0
        return batches.put_batch(system.store, batch_id, body, expected_revision=seen, now_ms=now_ms)

    put = edit(f"Batch {batch_id!r}", lambda: unless_changed(attempt))
    return put.disposition, _view(put, now_ms=now_ms)


def _list(system: System, *, after: str, limit: int) -> tuple[list[BatchView], str | None]:
    """A page of batches, and the cursor of the next page."""
    found = system.store.batches(after=after, limit=limit + 1)
    views = [batch_view(batch, now_ms=system.clock.now_ms()) for batch in found[:limit]]
    return views, views[-1].id if len(found) > limit else None


def _view(put: BatchPut, *, now_ms: int) -> BatchView:
    assert put.batch is not None, "a put returns the batch, or raises"
    return batch_view(put.batch, now_ms=now_ms)


def _emit_one(call: Call, view: BatchView, *, done: str) -> None:
    rests = "; it is paused" if view.paused else ""
    emit(call, view, f"{view.id} {done}; next start: {view.next_start}{rests}")

"""``paceline batch``: records that run once a day, spread over a window, and how their days go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from paceline.core.batch import Batch, batch_document, day_at
from paceline.core.calls import CallState
from paceline.core.schedule import Missed
from paceline.errors import InvalidInput
from paceline.ports import BatchPut, Store
from paceline.shells.cli.call import Call, ReplaceOption, command, guarded
from paceline.shells.cli.output import (
    Progress,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_table,
    progress_bar,
)
from paceline.shells.cli.runs import print_call_runs
from paceline.steps import batches, days, export
from paceline.steps.days import DayReport, EvennessView, WindowView
from paceline.steps.plan import PlanReport, plan_day
from paceline.steps.preview import Preview, preview
from paceline.steps.report import BatchView, batch_view

app = typer.Typer(name="batch", help="Set batches, import their records, plan and watch their days.")

PAGE_MAX = 1_000
ROW_WINDOWS = 24
BARS = " ▁▂▃▄▅▆▇█"
PROVIDERS_SHOWN = 50

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
ProviderOption = Annotated[
    str | None, typer.Option("--provider", metavar="PROVIDER", help="Only those of this provider.")
]


class Wanted(NamedTuple):
    """What the options said; None for what was not given."""

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
    paused: Annotated[bool | None, typer.Option("--paused/--no-paused", help="At rest, or not.")] = None


@command(app, "set")
def set_batch(call: Call, batch_id: IdArgument, *, replace: ReplaceOption = False, wanted: Wanted) -> None:
    """Create a batch, or change what the options name of the one there is and keep the rest."""
    given = {name: value for name, value in wanted._asdict().items() if value is not None}
    with call.system_or_new() as system:

        def put_or_edit() -> BatchPut:
            now = system.store.batch(batch_id)
            kept = batch_document(now.spec) if now and not replace else {}
            body, seen = msgspec.json.encode({**kept, **given}), now.revision if now else 0
            return batches.put_batch(system.store, batch_id, body, expected_revision=seen, now_ms=system.clock.now_ms())

        put = guarded(put_or_edit)
        assert put.batch is not None
        _tell(call, batch_view(put.batch, now_ms=system.clock.now_ms()), done=put.disposition)


@command(app, "list")
def list_batches(
    call: Call,
    *,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = PAGE_MAX,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Where the next page begins, as the last one said.")
    ] = None,
) -> None:
    """List the batches and when each is planned next."""
    with call.system() as system:
        found = system.store.batches(after=cursor or "", limit=limit + 1)
        views = [batch_view(batch, now_ms=system.clock.now_ms()) for batch in found[:limit]]
    following = views[-1].id if len(found) > limit else None
    if call.as_json:
        print_json({"items": views, "next_cursor": following})
        return
    print_table(
        ["BATCH", "START", "WINDOW", "ZONE", "JITTER", "MISSED", "PAUSED", "NEXT START"],
        [(v.id, v.start, v.window, v.timezone, v.jitter, v.missed, v.paused, v.next_start) for v in views],
    )
    if following:
        print_note(f"There are more: paceline batch list --cursor {following}")


@command(app, "pause")
def pause(call: Call, batch_id: IdArgument) -> None:
    """Let nothing more of a batch start; what comes up steps aside."""
    _set_paused(call, batch_id, paused=True)


@command(app, "resume")
def resume(call: Call, batch_id: IdArgument) -> None:
    """Let a paused batch go on; what came up meanwhile is caught up at a pace, not in a burst."""
    _set_paused(call, batch_id, paused=False)


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
    with call.system() as system:
        now_ms = system.clock.now_ms()
        target = the_batch(system.store, batch or name)
        day = days.check_date(date, "--date") if date else day_at(target.spec, now_ms)
        if dry_run:
            shown = preview(system.store, target, day, now_ms=now_ms)
            (print_json if call.as_json else print_preview)(shown)
            return
        with progress_bar("Planning", of_bytes=False) as bar:
            report = plan_day(system.store, target, day, now_ms=now_ms, progress=lambda now: _move(bar, now))
    print_json({"enqueued": report.enqueued, "already": report.already, "skipped": report.skipped})


@command(app, "days")
def list_days(
    call: Call,
    name: BatchArgument = None,
    *,
    batch: BatchOption = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = 30,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="CURSOR", help="Where the next page begins, as the last one said.")
    ] = None,
) -> None:
    """List a batch's days, newest first."""
    with call.system() as system:
        target = the_batch(system.store, batch or name)
        found = system.store.days(target, before=cursor, limit=limit + 1)
    views = [days.day_summary(day) for day in found[:limit]]
    following = views[-1].date if len(found) > limit else None
    if call.as_json:
        print_json({"items": views, "next_cursor": following})
        return
    print_table(
        ["DATE", "STATE", "START", "END", "ENQUEUED", "SKIPPED"],
        [(v.date, v.state, v.start, v.end, v.enqueued, v.skipped) for v in views],
    )


@command(app, "show")
def show(call: Call, day: DayArgument = None, *, batch: BatchOption = None) -> None:
    """Show a day: totals by state and provider, how even it is, and a chart of its quarters of an hour."""
    with call.system() as system:
        target = the_batch(system.store, batch)
        date = day or str(day_at(target.spec, system.clock.now_ms()))
        report = days.day_report(system.store, days.get_day(system.store, target, date))
    if call.as_json:
        print_json(report)
    else:
        _print_report(report)


@command(app, "runs")
def list_runs(
    call: Call,
    day: DayArgument = None,
    *,
    batch: BatchOption = None,
    state: StateOption = None,
    provider: ProviderOption = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = 100,
    cursor: Annotated[
        int, typer.Option("--cursor", min=0, metavar="CURSOR", help="Where the next page begins, as the last one said.")
    ] = 0,
) -> None:
    """List a day's runs with what came of them."""
    with call.system() as system:
        target = the_batch(system.store, batch)
        found = days.get_day(system.store, target, day or str(day_at(target.spec, system.clock.now_ms())))
        views, following = days.day_runs(system.store, found, state=state, provider=provider, after=cursor, limit=limit)
    if call.as_json:
        print_json({"items": views, "next_cursor": None if following is None else str(following)})
        return
    print_call_runs(views)
    if following is not None:
        print_note(f"There may be more: --cursor {following}")


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
        target = the_batch(system.store, batch)
        found = days.get_day(system.store, target, day or str(day_at(target.spec, system.clock.now_ms())))
        pages = export.export_day(system.store, found, form=form, state=state, provider=provider)
        if output is None:
            sys.stdout.buffer.writelines(pages)
            return
        with output.open("wb") as file:
            file.writelines(pages)
            size = file.tell()
    if call.as_json:
        print_json({"file": str(output), "bytes": size})
    else:
        print_line(f"{output}: {size} bytes")


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


def _move(bar: Progress, report: PlanReport) -> None:
    bar(report.enqueued + report.skipped, report.records)


def _set_paused(call: Call, batch_id: str, *, paused: bool) -> None:
    with call.system() as system:
        put = batches.set_batch_paused(system.store, batch_id, paused=paused, now_ms=system.clock.now_ms())
        assert put.batch is not None
        view = batch_view(put.batch, now_ms=system.clock.now_ms())
    _tell(call, view, done="paused" if paused else "resumed")


def _tell(call: Call, view: BatchView, *, done: str) -> None:
    if call.as_json:
        print_json(view)
    else:
        rests = "; it is paused" if view.paused else ""
        print_line(f"{view.id} {done}; next start: {view.next_start}{rests}")


def _print_report(report: DayReport) -> None:
    totals = [f"{count} {state}" for state, count in report.totals.items() if count]
    print_fields(
        [
            ("batch", report.batch),
            ("date", f"{report.date} ({report.state})"),
            ("window", f"{report.start} to {report.end}"),
            ("runs", report.runs),
            ("totals", totals),
            *_evenness_fields(report.evenness),
        ]
    )
    print_chart(report.histogram)
    shown = report.providers[:PROVIDERS_SHOWN]
    states = [state for state in days.CALL_STATES if any(one.totals[state] for one in shown)]
    print_line("")
    print_table(
        ["PROVIDER", "RUNS", *(state.upper() for state in states), "IDEAL GAP", "MAX GAP"],
        [
            (
                one.provider,
                one.runs,
                *(one.totals[state] for state in states),
                gap_text(one.evenness.ideal_gap_ms),
                gap_text(one.evenness.max_gap_ms),
            )
            for one in shown
        ],
    )
    if left := len(report.providers) + report.providers_left_out - len(shown):
        print_note(f"and {left} more providers; --json shows them")
    if report.outside:
        print_note(f"{report.outside} runs are due outside the window.")


def _evenness_fields(figures: EvennessView) -> list[tuple[str, Any]]:
    gaps = f"{gap_text(figures.max_gap_ms)} at most, {gap_text(figures.ideal_gap_ms)} ideal, ratio {figures.ratio:.2f}"
    return [("gap", gaps), ("worst minute", f"{figures.worst_minute_runs} runs")]


def print_chart(histogram: list[WindowView]) -> None:
    """A row for six hours; each mark is a quarter of an hour."""
    most = max((window.runs for window in histogram), default=0)
    print_line("")
    for first in range(0, len(histogram), ROW_WINDOWS):
        row = histogram[first : first + ROW_WINDOWS]
        bars = "".join(BARS[-(-window.runs * (len(BARS) - 1) // most) if most else 0] for window in row)
        print_line(f"{row[0].start[11:16]}Z |{bars:<{ROW_WINDOWS}}| {sum(window.runs for window in row)}")


def gap_text(ms: float) -> str:
    """A time between runs, as a person would say it."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    seconds = ms / 1_000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def print_preview(shown: Preview) -> None:
    print_fields(
        [
            ("batch", shown.batch),
            ("date", f"{shown.date} (not planned by this)"),
            ("window", f"{shown.start} to {shown.end}"),
            ("records", shown.records),
            ("already planned", shown.already),
            *_evenness_fields(shown.evenness),
        ]
    )
    print_chart(shown.histogram)
    print_line("")
    print_table(
        ["PROVIDER", "RECORDS", "IDEAL GAP", "MAX GAP", "AT ONCE", "RATE", "LATENCY"],
        [
            (
                one.provider,
                one.records,
                gap_text(one.gap_ms),
                gap_text(one.max_gap_ms),
                one.max_in_flight,
                one.rate,
                None if one.latency_ms is None else gap_text(one.latency_ms),
            )
            for one in shown.providers[:PROVIDERS_SHOWN]
        ],
    )
    if (left := len(shown.providers) - PROVIDERS_SHOWN) > 0:
        print_note(f"and {left} more providers; --json shows them")
    for warning in shown.warnings[:PROVIDERS_SHOWN]:
        print_note(f"warning: {warning.provider}: {warning.detail}")

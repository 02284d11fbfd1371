"""``paceline batch``: records that run once a day, spread over a window, and how their days go."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import typer

from paceline.core.batches.batch import Batch, Day, batch_document, day_at
from paceline.core.batches.calls import CallState
from paceline.core.batches.values import BatchPut
from paceline.core.monitors.schedule import Missed
from paceline.ports import Store
from paceline.shells import lists
from paceline.shells.cli.batches.day_text import day_text, preview_text
from paceline.shells.cli.batches.over_rest import (
    BATCH_PATH,
    DAY_PATH,
    DAYS_PATH,
    batch_over_rest,
    day_over_rest,
    document_of,
    no_single_batch,
    running_date,
)
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import (
    LONGEST_PAGE,
    PageOptions,
    PausedOption,
    ProviderOption,
    ReplaceOption,
    argument,
    flag,
    given,
    merged,
    option,
)
from paceline.shells.cli.output import Columns, emit, emit_page, print_json, progress_bar
from paceline.shells.cli.runs import CALL_RUN_COLUMNS
from paceline.shells.cli.text.columns import ident, when, word
from paceline.steps.batches import batches, deletion, export
from paceline.steps.edit import edit, unless_changed
from paceline.steps.views import days
from paceline.steps.views.days import CallRunView, DayReport, DaySummary
from paceline.steps.views.report import BatchView, batch_view

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="batch", help="Set batches, import their records, plan and watch their days.")

DAYS_PAGE = PageOptions(30)
PLAN_S = 600.0
"""Longest wait for a plan over REST: a plan of many records takes time."""
T = TypeVar("T")
BATCH_COLUMNS: Columns = {
    "BATCH": ident("id"),
    "START": word("start", 2),
    "WINDOW": word("window", 3),
    "ZONE": word("timezone", 4),
    "JITTER": word("jitter", 6),
    "MISSED": word("missed", 5),
    "PAUSED": word("paused", 1),
    "NEXT START": when("next_start"),
}
DAY_COLUMNS: Columns = {
    "DATE": ident("date"),
    "RERUN": word(lambda day: day.rerun or None, 4),
    "STATE": word("state"),
    "START": when("start", 2),
    "END": when("end", 1),
    "ENQUEUED": word("enqueued"),
    "SKIPPED": word("skipped", 3),
}

_NONE = "There is no batch yet. Set one: paceline batch set ID --start 02:00 --window 6h"
_NO_DAY = "No day is planned yet. Plan today: paceline batch plan BATCH"
_NO_RUN = "No run of that day matches. See the day: paceline batch show DAY --batch BATCH"
IdArgument = Annotated[str, argument("ID", "The batch's id.")]
BatchOption = Annotated[str | None, option("BATCH", "The batch. [default: the only batch]", "--batch")]
BatchArgument = Annotated[str | None, argument("BATCH", "The same as --batch.")]
DayArgument = Annotated[str | None, argument("DAY", "The date, for example 2026-11-15. [default: the running day]")]
DateOption = Annotated[str | None, option("DATE", "For example 2026-11-15. [default: the running day]", "--date")]
StateOption = Annotated[CallState | None, option("STATE", "Only runs in this state, for example failed.", "--state")]


class BatchOptions(NamedTuple):
    """Options of ``batch set``; None for an option that was not given."""

    start: Annotated[str | None, option("HH:MM", "When each day begins, in its zone. [default: 00:00]")] = None
    window: Annotated[
        str | None, option("DURATION", "Time over which the records are spread; 24h is the whole day. [default: 24h]")
    ] = None
    timezone: Annotated[str | None, option("ZONE", "The zone of --start. [default: UTC]")] = None
    jitter: Annotated[str | None, option("DURATION", "Delay each record by a fixed part of this.")] = None
    missed: Annotated[
        Missed | None, option("skip|once|all", "What to do with runs whose time was missed. [default: once]")
    ] = None
    paused: PausedOption = None
    channels: Annotated[
        list[str] | None, option("ID", "A channel of admins to tell; may be repeated.", "--channel")
    ] = None


@command(app, "set")
def set_batch(call: CliCall, batch_id: IdArgument, *, replace: ReplaceOption = False, options: BatchOptions) -> None:
    """Create a batch, or change the fields that the options name and keep the rest."""
    changes = given(options)
    done, view = call.answer_or_new(
        lambda at: _set(at, batch_id, changes, replace=replace),
        lambda remote: remote.put_edited(
            BATCH_PATH,
            BatchView,
            lambda there: merged(document_of(there) if there and not replace else {}, changes),
            batch=batch_id,
        ),
    )
    _emit_one(call, view, done=done)


@command(app, "list")
def list_batches(call: CliCall, *, page: PageOptions = LONGEST_PAGE) -> None:
    """List the batches and when each is planned next."""
    listed = call.answer(
        lambda at: lists.list_batches(at, page), lambda remote: remote.page("/v1/batches", BatchView, page)
    )
    emit_page(call, listed, BATCH_COLUMNS, more="There are more: paceline batch list", none=_NONE)


@command(
    app,
    "resume",
    help_text="Resume a paused batch; runs that came due meanwhile are caught up at a limited pace, not in a burst.",
    paused=False,
)
@command(app, "pause", help_text="Pause a batch: no run of it starts; runs that come due are put aside.", paused=True)
def set_paused(call: CliCall, batch_id: IdArgument, *, paused: bool) -> None:
    def on_store(system: System) -> BatchView:
        now_ms = system.clock.now_ms()
        return _view(batches.set_batch_paused(system.store, batch_id, paused=paused, now_ms=now_ms), now_ms=now_ms)

    path = f"{BATCH_PATH}/{'pause' if paused else 'resume'}"
    view = call.answer(on_store, lambda remote: remote.ask("POST", path, BatchView, batch=batch_id))
    _emit_one(call, view, done="paused" if paused else "resumed")


@command(app, "rm")
def remove(call: CliCall, batch_id: IdArgument) -> None:
    """Delete a batch with its records and runs. No further run starts; calls in flight finish first."""

    def over_rest(remote: Remote) -> BatchView | None:
        return remote.ask("DELETE", BATCH_PATH, BatchView, batch=batch_id)

    left = call.answer(lambda at: _remove(at, batch_id), over_rest)
    if left is None:
        emit(call, {"removed": batch_id}, f"{batch_id} removed.")
    else:
        emit(call, left, f"{batch_id} is being deleted. The daemon goes on; without a daemon, run this command again.")


@command(app, "plan")
def plan_batch(
    call: CliCall,
    name: BatchArgument = None,
    *,
    batch: BatchOption = None,
    date: DateOption = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show the plan and its warnings, and change nothing.")] = False,
) -> None:
    """Plan a day: each active record gets one run, however often you plan it."""
    from paceline.steps.batches.preview import Preview, preview

    named = batch or name
    if dry_run:
        shown = call.answer(
            lambda at: preview(at.store, *_planned(at, named, date), now_ms=at.clock.now_ms()),
            lambda remote: _plan_over_rest(remote, named, date, Preview, dry_run="true"),
        )
        emit(call, shown, *preview_text(shown))
        return
    print_json(
        call.answer(
            lambda at: _plan(at, named, date),
            lambda remote: _plan_over_rest(remote, named, date, dict[str, int], dry_run=None),
        )
    )


@command(app, "days")
def list_days(
    call: CliCall,
    name: BatchArgument = None,
    *,
    batch: BatchOption = None,
    page: PageOptions = DAYS_PAGE,
) -> None:
    """List a batch's days, newest first."""
    named = batch or name
    listed = call.answer(
        lambda at: lists.list_days(at, the_batch(at.store, named), page),
        lambda remote: remote.page(DAYS_PATH, DaySummary, page, batch=batch_over_rest(remote, named).id),
    )
    emit_page(call, listed, DAY_COLUMNS, none=_NO_DAY)


@command(app, "show")
def show(call: CliCall, day: DayArgument = None, *, batch: BatchOption = None) -> None:
    """Show a day: totals by state and provider, how even it is, and a chart of when its runs are due."""
    report = call.answer(
        lambda at: lists.show_day(at, _day(at, batch, day)),
        lambda remote: remote.get(DAY_PATH, DayReport, **day_over_rest(remote, batch, day)),
    )
    emit(call, report, *day_text(report))


@command(app, "runs")
def list_runs(
    call: CliCall,
    day: DayArgument = None,
    *,
    batch: BatchOption = None,
    state: StateOption = None,
    provider: ProviderOption = None,
    page: PageOptions,
) -> None:
    """List a day's runs with their outcomes."""
    asked = {"state": state, "provider": provider}
    listed = call.answer(
        lambda at: lists.list_day_runs(at, _day(at, batch, day), page, **asked),
        lambda remote: remote.page(
            f"{DAY_PATH}/runs", CallRunView, page, query=asked, **day_over_rest(remote, batch, day)
        ),
    )
    emit_page(call, listed, CALL_RUN_COLUMNS, more="There may be more:", none=_NO_RUN)


@command(app, "export")
def export_day(
    call: CliCall,
    day: DayArgument = None,
    *,
    batch: BatchOption = None,
    form: Annotated[export.Format, option("ndjson|csv", "Format of the output.", "--format")] = "ndjson",
    state: StateOption = None,
    provider: ProviderOption = None,
    output: Annotated[Path | None, option("FILE", "The file to write. [default: stdout]", "--output")] = None,
) -> None:
    """Write a day's runs with their results, one per line. CSV is safe to open in a spreadsheet."""
    asked = {"format": form, "state": state, "provider": provider}
    size = call.answer(
        lambda at: _write(
            export.export_day(at.store, _day(at, batch, day), form=form, state=state, provider=provider), output
        ),
        lambda remote: _write(
            remote.stream(f"{DAY_PATH}/export", query=asked, **day_over_rest(remote, batch, day)), output
        ),
    )
    if output is not None:
        emit(call, {"file": str(output), "bytes": size}, f"{output}: {size} bytes")


def the_batch(store: Store, name: str | None) -> Batch:
    """Returns the batch of a command: the one that is named, else the only one."""
    if name is not None:
        return batches.get_batch(store, name)
    found = store.batches(after="", limit=2)
    if len(found) != 1:
        raise no_single_batch(len(found))
    return found[0]


def _remove(system: System, batch_id: str) -> BatchView | None:
    """Deletes the batch as far as possible without waiting. Returns the batch if something is left of it."""
    with progress_bar("Deleting", of_bytes=False) as bar:
        left = deletion.delete_all_of(
            system.store, batch_id, read_ms=system.clock.now_ms, progress=lambda now: bar(now.runs + now.records, None)
        )
    return None if left is None else batch_view(left, now_ms=system.clock.now_ms())


def _day(system: System, batch: str | None, day: str | None) -> Day:
    """Returns the planned day of the batch: the one that is named, else the current one."""
    target = the_batch(system.store, batch)
    return days.get_day(system.store, target, day or str(day_at(target.spec, system.clock.now_ms())))


def _planned(system: System, batch: str | None, date: str | None) -> tuple[Batch, dt.date]:
    """Returns the batch and the date to plan."""
    target = the_batch(system.store, batch)
    return target, days.check_date(date, "--date") if date else day_at(target.spec, system.clock.now_ms())


def _plan(system: System, batch: str | None, date: str | None) -> dict[str, int]:
    from paceline.steps.batches.plan import plan_day

    target, day = _planned(system, batch, date)
    with progress_bar("Planning", of_bytes=False) as bar:
        report = plan_day(
            system.store,
            target,
            day,
            now_ms=system.clock.now_ms(),
            progress=lambda now: bar(now.enqueued + now.skipped, now.records),
        )
    return {"enqueued": report.enqueued, "already": report.already, "skipped": report.skipped}


def _plan_over_rest(
    remote: Remote, batch: str | None, date: str | None, type_: type[T], *, dry_run: Literal["true"] | None
) -> T:
    target = batch_over_rest(remote, batch)
    day = str(days.check_date(date, "--date")) if date else running_date(target)
    path, query = f"{BATCH_PATH}/plan", {"dry_run": dry_run}
    return remote.ask("POST", path, type_, body={"date": day}, query=query, wait_s=PLAN_S, batch=target.id)


def _write(pages: Iterable[bytes], output: Path | None) -> int:
    """Writes the pages to the file, or to stdout. Returns how many bytes are in the file."""
    if output is None:
        sys.stdout.buffer.writelines(pages)
        return 0
    with output.open("wb") as file:
        file.writelines(pages)
        return file.tell()


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


def _view(put: BatchPut, *, now_ms: int) -> BatchView:
    assert put.batch is not None, "a put returns the batch, or raises"
    return batch_view(put.batch, now_ms=now_ms)


def _emit_one(call: CliCall, view: BatchView, *, done: str) -> None:
    rests = "; it is paused" if view.paused else ""
    emit(call, view, f"{view.id} {done}; next start: {view.next_start}{rests}")

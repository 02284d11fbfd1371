"""``paceline job``: RIPE Atlas measurements for a user, priced, sent within budget, and followed to their end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec
import typer

from paceline.core.instants import to_text
from paceline.core.jobs.cost import Cost, add_costs, price
from paceline.core.jobs.job import Job, parse_job
from paceline.core.jobs.measurement import kind_of
from paceline.shells.cli.call import Call, command, owner_id
from paceline.shells.cli.files import draft_of, read_input
from paceline.shells.cli.jobs.watch import watch_job
from paceline.shells.cli.options import LimitOption, NumberCursorOption, UserOption
from paceline.shells.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    Columns,
    Fields,
    Note,
    Progress,
    Table,
    byte_text,
    emit,
    emit_page,
    print_note,
    progress_bar,
    table,
)
from paceline.steps import access
from paceline.steps.jobs import submit
from paceline.steps.views import job_report
from paceline.steps.views.job_report import CostView, CountsView, JobSummary, JobView

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="job", help="Submit jobs of RIPE Atlas measurements, watch them and read their results.")

MEASUREMENTS_SHOWN = 100
READ_ADVICE = "Make several jobs of it, or raise PACELINE_BODY_BYTES_MAX."

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Stay and show how it goes until it is finished. Ctrl-C leaves it running.")
]


class KindPrice(msgspec.Struct, frozen=True):
    """The most that all definitions of one type can cost together."""

    type: str
    definitions: int
    results: int
    credits: int


@command(app, "submit")
def submit_job(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job as JSON; - reads stdin.")],
    *,
    user: UserOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Price it, and change nothing.")] = False,
    watch: WatchOption = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="Submitted twice under the same key, it is one job."),
    ] = None,
) -> int:
    """Submit a job: checked field by field, priced, and taken whole if the user's credits of the day allow it."""
    with call.system() as system:
        owner = owner_id(system, user)
        body = read_input(file, system.job_limits.bytes_max, advice=READ_ADVICE)
        if dry_run:
            _emit_quote(call, system, owner, body)
            return EXIT_OK
        done = submit.submit_job(
            system.store,
            owner,
            body,
            limits=system.job_limits,
            idempotency_key=idempotency_key,
            now_ms=system.clock.now_ms(),
        )
        _emit_submitted(call, done)
        return watch_job(call, system, done.job.id) if watch else EXIT_OK


@command(app, "list")
def list_jobs(
    call: Call,
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="USER", help="Only this user's. [default: $PACELINE_USER, or everybody's]"),
    ] = None,
    limit: LimitOption = 100,
    cursor: NumberCursorOption = None,
) -> None:
    """List jobs, newest first, with how far each is and what it costs."""
    named = user or os.environ.get("PACELINE_USER")

    def act(system: System) -> tuple[list[JobSummary], int | None]:
        owner = access.get_user(system.store, named).id if named else None
        return job_report.job_summaries(system.store, owner, before=cursor, limit=limit)

    views, following = call.on_store(act)
    emit_page(call, views, JOB_COLUMNS, next_cursor=following, more="There are more:")


@command(app, "show")
def show(
    call: Call,
    job: JobArgument,
    *,
    watch: WatchOption = False,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many measurements are listed; --json lists all.")
    ] = MEASUREMENTS_SHOWN,
) -> int:
    """Show a job: state, credits, why it waits, and each measurement with what became of it."""
    with call.system() as system:
        found = job_report.find_job(system.store, None, job)
        if watch:
            return watch_job(call, system, found.id)
        view = job_report.job_view(system.store, found, now_ms=system.clock.now_ms())
    measurements = view.measurements or []
    shown = measurements[:limit]
    left = len(measurements) - len(shown)
    emit(
        call,
        view,
        Fields(_fields(view)),
        *(("", table(MEASUREMENT_COLUMNS, shown)) if shown else ()),
        Note(f"and {left} more measurements; --limit or --json shows them") if left else None,
    )
    return EXIT_OK


@command(app, "results")
def results(
    call: Call,
    job: JobArgument,
    *,
    merged: Annotated[bool, typer.Option("--merged", help="One line for each target, with all its results.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Where they go. [default: stdout]")
    ] = None,
) -> int:
    """Read a job's results from RIPE and write them as NDJSON; what has none has a line that says why."""
    from paceline.steps.jobs.results import write_merged, write_results
    from paceline.wiring import open_atlas

    write = write_merged if merged else write_results
    with call.system() as system, closing(open_atlas(system.settings)) as atlas:
        found = job_report.find_job(system.store, None, job)
        expected = sum(one.delivered for item in job_report.job_measurements(system.store, found) for one in item.atlas)
        with _sink(output) as sink, _results_bar(output) as bar:
            take = _Counted(sink, lambda lines: bar(lines, max(expected, lines)))
            read = write(system.store, atlas, system.vault, found, take)
    if output is not None:
        document = {"file": str(output), "bytes": take.bytes, "results": read.results, "errors": read.errors}
        emit(call, document, f"{output}: {read.results} results, {byte_text(take.bytes)}")
    if read.errors:
        print_note(f"{read.errors} definitions have no or not all results; their lines say why.")
    return EXIT_FAILED if read.errors and not read.results else EXIT_OK


@command(app, "cancel")
def cancel(call: Call, job: JobArgument) -> None:
    """Cancel what is not finished of a job: what was not sent is refunded at once, what runs is stopped."""
    with call.system() as system:
        now_ms = system.clock.now_ms()
        before = job_report.find_job(system.store, None, job)
        after = job_report.cancel_job(system.store, before, now_ms=now_ms)
        view = job_report.job_progress(system.store, after, now_ms=now_ms)
    rest = f"; {after.open} are still to be stopped" if after.open else ""
    cancelled, refunded = after.cancelled - before.cancelled, after.refunded - before.refunded
    emit(call, view, f"{after.id}: {cancelled} measurements cancelled, {refunded} credits refunded{rest}.")


class _Counted:
    """Writes pieces to the sink, counts them and their bytes, and calls ``tell`` with the count."""

    def __init__(self, sink: BinaryIO, tell: Callable[[int], None]) -> None:
        self._sink, self._tell = sink, tell
        self.pieces = self.bytes = 0

    def __call__(self, piece: bytes) -> None:
        self._sink.write(piece)
        self.pieces += 1
        self.bytes += len(piece)
        self._tell(self.pieces)


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Stdout; or a file that appears, or takes the place of an older one, only when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with draft_of(output) as draft, draft.open("wb") as file:
        yield file


@contextmanager
def _results_bar(output: Path | None) -> Iterator[Progress]:
    if output is None and sys.stdout.isatty():  # the lines themselves are seen, and a bar would run through them
        yield lambda _done, _total: None
        return
    with progress_bar("Reading results", of_bytes=False) as bar:
        yield bar


def kind_prices(job: Job, *, now_ms: int) -> list[KindPrice]:
    """The price of a job, by type of measurement, the dearest first."""
    costs: dict[str, list[Cost]] = {}
    for one in job.measurements:
        for definition in one.definitions:
            alone = msgspec.structs.replace(one, definitions=(definition,))
            costs.setdefault(kind_of(definition), []).append(price(alone, now_ms=now_ms))
    sums = [(kind, len(each), add_costs(each)) for kind, each in costs.items()]
    return sorted((KindPrice(kind, count, one.results, one.credits) for kind, count, one in sums), key=_dearest_first)


def _dearest_first(one: KindPrice) -> tuple[int, str]:
    return -one.credits, one.type


def _emit_quote(call: Call, system: System, owner: str, body: bytes) -> None:
    now_ms, limits = system.clock.now_ms(), system.job_limits
    quote = submit.quote_job(system.store, owner, body, limits=limits, now_ms=now_ms)
    kinds = kind_prices(parse_job(body, limits, now_ms=now_ms), now_ms=now_ms)
    left, resets_at = quote.budget.left, to_text(quote.budget.resets_ms)
    document = {"cost": quote.cost, "credits_left": left, "measurements": quote.measurements, "fits": quote.fits}
    after = f"yes, {left - quote.cost} would be left" if quote.fits else f"no, {quote.cost - left} too many"
    fields = [
        ("measurements", quote.measurements),
        ("cost", f"{quote.cost} credits at most"),
        ("credits left", f"{left} of {quote.budget.limit} for {owner} until {resets_at}"),
        ("fits", after),
    ]
    rows = [(one.type, one.definitions, one.results, one.credits) for one in kinds]
    emit(
        call,
        {**document, "resets_at": resets_at, "types": kinds, "user": owner},
        Table(["TYPE", "DEFINITIONS", "RESULTS", "CREDITS"], rows),
        "",
        Fields(fields),
    )


def _emit_submitted(call: Call, done: submit.Submitted) -> None:
    job, left = done.job, done.budget.left
    document = {"job": job.id, "cost": job.reserved, "credits_left": left, "measurements": job.measurements}
    told = f"{job.measurements} measurements, {job.reserved} credits reserved, {left} left today"
    note = Note("It was submitted before under this idempotency key; nothing was added.") if done.again else None
    emit(call, {**document, "again": done.again}, note, f"{job.id} submitted: {told}.")


def _counts(counts: CountsView) -> list[str]:
    return [f"{count} {name}" for name, count in msgspec.structs.asdict(counts).items() if count]


def _credits(cost: CostView) -> str:
    return f"{cost.reserved} reserved, {cost.settled} settled, {cost.refunded} refunded"


def _fields(view: JobView) -> list[tuple[str, Any]]:
    fields: list[tuple[str, Any]] = [
        ("job", view.job),
        ("title", view.title),
        ("user", view.user),
        ("state", view.state),
        ("success", view.success if view.finished else "not known yet"),
        ("measurements", _counts(view.counts)),
        ("credits", _credits(view.cost)),
        ("webhook", view.webhook),
    ]
    times = ("created_at", "started_at", "cancelled_at", "finished_at")
    fields += [(name.removesuffix("_at"), getattr(view, name)) for name in times]
    if waiting := view.waiting:
        fields.append(("waits", waiting.reason))
        fields += [("next try", waiting.next_try)] if waiting.next_try else []
        fields += [("room expected", waiting.expected_room_at)] if waiting.expected_room_at else []
        fields += [(f"account {one.account}", one.reason) for one in waiting.accounts or ()]
    return fields


def _state(view: JobSummary) -> str:
    return view.state if not view.finished else "success" if view.success else "failed"


JOB_COLUMNS: Columns = {
    "JOB": "job",
    "USER": "user",
    "STATE": _state,
    "MEASUREMENTS": lambda view: f"{view.measurements}: {', '.join(_counts(view.counts))}",
    "CREDITS": lambda view: _credits(view.cost),
    "CREATED": "created_at",
    "TITLE": "title",
}
MEASUREMENT_COLUMNS: Columns = {
    "INDEX": "index",
    "STATE": "state",
    "TYPES": "types",
    "TARGETS": "targets",
    "PROBES": "probes",
    "RIPE ID": "atlas_ids",
    "ACCOUNT": "account",
    "RESULTS": "results",
    "COST": "cost",
    "SETTLED": "settled",
    "NEXT TRY": "next_try",
    "REASON": "reason",
}

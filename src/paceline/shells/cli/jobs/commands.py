"""``paceline job``: RIPE Atlas measurements for a user, priced, sent within budget, and followed to their end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from paceline.errors import InvalidInput
from paceline.shells import lists
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.files import read_input
from paceline.shells.cli.history.receipts import ReceiptOption, write_receipt
from paceline.shells.cli.jobs import submission
from paceline.shells.cli.jobs.results import write_on_store, write_over_rest
from paceline.shells.cli.jobs.sources import JOB_PATH, RemoteJobs, StoreJobs
from paceline.shells.cli.jobs.watch import watch_job
from paceline.shells.cli.options import PageOptions, UserOption, argument, flag, option
from paceline.shells.cli.text.columns import address, ident, when, word, words
from paceline.shells.lists import ListPage
from paceline.steps import access
from paceline.steps.views import job_report
from paceline.steps.views.job_report import CostView, CountsView, JobSummary, JobView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="job", help="Submit jobs of RIPE Atlas measurements, watch them and read their results.")

MEASUREMENTS_SHOWN = 100
READ_ADVICE = "Make several jobs of it, or raise PACELINE_BODY_BYTES_MAX."

_NO_JOB = "There is no job yet. Price one first: paceline job submit FILE --dry-run"
JobArgument = Annotated[str, argument("JOB", "The job's id.")]
WatchOption = Annotated[bool, flag("--watch", "Show the progress until the job is finished. Ctrl-C leaves it running.")]


@command(app, "submit")
def submit_job(
    call: CliCall,
    file: Annotated[Path, argument("FILE", "The job as JSON; - reads stdin.")],
    *,
    user: UserOption = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show the price, and change nothing.")] = False,
    watch: WatchOption = False,
    idempotency_key: Annotated[
        str | None, option("KEY", "With the same key a job is submitted only once.", "--idempotency-key")
    ] = None,
) -> int:
    """Submit a job: check each field, price it, and accept it whole if the user's daily credits suffice."""

    def read(bytes_max: int) -> bytes:
        return read_input(file, bytes_max, advice=READ_ADVICE)

    if dry_run:
        quoted = call.answer(
            lambda at: submission.quote_on_store(at, user, read(at.job_limits.bytes_max)),
            lambda remote: submission.quote_over_rest(remote, user, read(call.settings().body_bytes_max)),
        )
        submission.emit_quote(call, quoted)
        return output.EXIT_OK

    def on_store(system: System) -> int:
        body = read(system.job_limits.bytes_max)
        done = submission.submit_on_store(system, user, body, idempotency_key=idempotency_key)
        submission.emit_submitted(call, done)
        return watch_job(call, StoreJobs(system), done.job) if watch else output.EXIT_OK

    def over_rest(remote: Remote) -> int:
        body = read(call.settings().body_bytes_max)
        done = submission.submit_over_rest(remote, user, body, idempotency_key=idempotency_key)
        submission.emit_submitted(call, done)
        return watch_job(call, RemoteJobs(remote), done.job) if watch else output.EXIT_OK

    return call.answer(on_store, over_rest)


@command(app, "list")
def list_jobs(
    call: CliCall,
    *,
    user: Annotated[
        str | None, option("USER", "Only this user's. [default: $PACELINE_USER, or everybody's]", "--user")
    ] = None,
    page: PageOptions,
) -> None:
    """List jobs, newest first, with progress and cost."""
    named = user or os.environ.get("PACELINE_USER")

    def on_store(system: System) -> ListPage[JobSummary]:
        owner = access.get_user(system.store, named).id if named else None
        return lists.list_jobs(system, owner, page)

    listed = call.answer(on_store, lambda remote: remote.page("/v1/jobs", JobSummary, page, query={"user": named}))
    output.emit_page(call, listed, JOB_COLUMNS, none=_NO_JOB)


@command(app, "show")
def show(
    call: CliCall,
    job: JobArgument,
    *,
    watch: WatchOption = False,
    limit: Annotated[
        int, option("N", "How many measurements are listed; --json lists all.", min=0)
    ] = MEASUREMENTS_SHOWN,
) -> int:
    """Show a job: state, credits, why it waits, and the state of each measurement."""
    if watch:
        return call.answer(
            lambda at: watch_job(call, StoreJobs(at), job), lambda remote: watch_job(call, RemoteJobs(remote), job)
        )

    def on_store(system: System) -> JobView:
        found = job_report.find_job(system.store, None, job)
        return job_report.job_view(system.store, found, now_ms=system.clock.now_ms())

    view = call.answer(on_store, lambda remote: remote.get(JOB_PATH, JobView, job=job))
    measurements = view.measurements or []
    shown = measurements[:limit]
    left = len(measurements) - len(shown)
    output.emit(
        call,
        view,
        output.TextFields(_fields(view)),
        *(("", output.table(MEASUREMENT_COLUMNS, shown)) if shown else ()),
        output.TextNote(f"and {left} more measurements; --limit or --json shows them") if left else None,
    )
    return output.EXIT_OK


@command(app, "results")
def results(
    call: CliCall,
    job: JobArgument,
    *,
    merged: Annotated[bool, flag("--merged", "One line for each target, with all its results.")] = False,
    into: Annotated[Path | None, option("FILE", "The file to write. [default: stdout]", "--output")] = None,
    receipt: ReceiptOption = None,
) -> int:
    """Read a job's results from RIPE and write them as NDJSON. A line says why a measurement has no results."""
    if receipt is not None and into is None:
        raise InvalidInput("--receipt needs a file: name it with --output.")
    read = call.answer(
        lambda at: write_on_store(at, job, into, merged=merged),
        lambda remote: write_over_rest(remote, job, into, merged=merged),
    )
    if into is not None and receipt is not None:
        write_receipt(into, receipt)
    if into is not None:
        document = {"file": str(into), "bytes": read.bytes, "results": read.results, "errors": read.errors}
        output.emit(call, document, f"{into}: {read.results} results, {output.byte_text(read.bytes)}")
    if read.errors:
        output.print_note(f"{read.errors} definitions have no results, or not all of them; their lines say why.")
    return output.EXIT_FAILED if read.errors and not read.results else output.EXIT_OK


@command(app, "cancel")
def cancel(call: CliCall, job: JobArgument) -> None:
    """Cancel a job: measurements that were not sent are refunded at once, running ones are stopped."""

    def on_store(system: System) -> tuple[JobView, JobView]:
        now_ms = system.clock.now_ms()
        before = StoreJobs(system).progress(job)
        after = job_report.cancel_job(system.store, job_report.find_job(system.store, None, job), now_ms=now_ms)
        return before, job_report.job_progress(system.store, after, now_ms=now_ms)

    def over_rest(remote: Remote) -> tuple[JobView, JobView]:
        return RemoteJobs(remote).progress(job), remote.ask("DELETE", JOB_PATH, JobView, job=job)

    before, view = call.answer(on_store, over_rest)
    counts = view.counts
    left = counts.queued + counts.parked + counts.sending + counts.unknown + counts.ongoing
    rest = f"; {left} are still to be stopped" if left else ""
    cancelled = counts.cancelled - before.counts.cancelled
    refunded = view.cost.refunded - before.cost.refunded
    output.emit(call, view, f"{view.job}: {cancelled} measurements cancelled, {refunded} credits refunded{rest}.")


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
    fields += [("place", _place(view.place))] if view.place is not None else []
    fields += _expected(view)
    if waiting := view.waiting:
        fields.append(("waits", waiting.reason))
        fields += [("next try", waiting.next_try)] if waiting.next_try else []
        fields += [("room expected", waiting.expected_room_at)] if waiting.expected_room_at else []
        fields += [(f"account {one.account}", one.reason) for one in waiting.accounts or ()]
    return fields


def _place(place: int | None) -> str:
    if place is None:
        return ""
    return "next" if not place else f"{place:,} sends before it"


def _expected(view: JobView) -> list[tuple[str, Any]]:
    """Returns when the first measurement is expected to be sent, or the last one to end."""
    if view.eta is None:
        return []
    word = "starts" if view.started_at is None else "ends"
    first, last = view.eta.from_, view.eta.to
    return [(word, first)] if first == last else [(f"{word} from", first), (f"{word} by", last)]


def _state(view: JobSummary) -> str:
    return view.state if not view.finished else "success" if view.success else "failed"


JOB_COLUMNS: output.Columns = {
    "JOB": ident("job"),
    "USER": ident("user", 3),
    "STATE": word(_state),
    "PLACE": word("place", 5),
    "BY": when(lambda view: view.eta.to if view.eta else None, 6),
    "MEASUREMENTS": words(lambda view: f"{view.measurements}: {', '.join(_counts(view.counts))}"),
    "CREDITS": words(lambda view: _credits(view.cost), 4),
    "CREATED": when("created_at", 2),
    "TITLE": words("title", 1),
}
MEASUREMENT_COLUMNS: output.Columns = {
    "INDEX": ident("index"),
    "STATE": word("state"),
    "TYPES": words("types", 5),
    "TARGETS": address("targets", 1),
    "PROBES": word("probes", 7),
    "RIPE ID": ident("atlas_ids", 4),
    "ACCOUNT": ident("account", 3),
    "RESULTS": word("results", 6),
    "COST": word("cost", 8),
    "SETTLED": word("settled", 9),
    "NEXT TRY": when("next_try", 5),
    "REASON": words("reason", 2),
}

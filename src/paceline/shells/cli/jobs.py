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

from paceline.core.cost import Cost, add_costs, price
from paceline.core.instants import to_text
from paceline.core.job import Job, parse_job
from paceline.core.measurement import kind_of
from paceline.errors import InvalidInput
from paceline.shells.cli.call import Call, UserOption, command, owner_id
from paceline.shells.cli.job_watch import watch_job
from paceline.shells.cli.monitor_items import open_input
from paceline.shells.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    Progress,
    byte_text,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_table,
    progress_bar,
)
from paceline.steps import access, job_report, submit
from paceline.steps.job_report import CostView, CountsView, JobSummary, JobView, MeasurementView
from paceline.steps.results import write_merged, write_results

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="job", help="Submit jobs of RIPE Atlas measurements, watch them and read their results.")

PAGE_MAX = 1_000
MEASUREMENTS_SHOWN = 100
JOB_COLUMNS = ("JOB", "USER", "STATE", "MEASUREMENTS", "CREDITS", "CREATED", "TITLE")
MEASUREMENT_COLUMNS = (
    "INDEX",
    "STATE",
    "TYPES",
    "TARGETS",
    "PROBES",
    "RIPE ID",
    "ACCOUNT",
    "RESULTS",
    "COST",
    "SETTLED",
    "NEXT TRY",
    "REASON",
)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Stay and show how it goes until it is finished. Ctrl-C leaves it running.")
]


class KindPrice(msgspec.Struct, frozen=True):
    """What all definitions of one type can cost together."""

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
        body = _read(file, system.job_limits.bytes_max)
        if dry_run:
            _print_quote(call, system, owner, body)
            return EXIT_OK
        done = submit.submit_job(
            system.store,
            owner,
            body,
            limits=system.job_limits,
            idempotency_key=idempotency_key,
            now_ms=system.clock.now_ms(),
        )
        _print_submitted(call, done)
        return watch_job(call, system, done.job.id) if watch else EXIT_OK


@command(app, "list")
def list_jobs(
    call: Call,
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="USER", help="Only this user's. [default: $PACELINE_USER, or everybody's]"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = 100,
    cursor: Annotated[
        int | None,
        typer.Option("--cursor", min=0, metavar="CURSOR", help="Where the next page begins, as the last one said."),
    ] = None,
) -> None:
    """List jobs, newest first, with how far each is and what it costs."""
    named = user or os.environ.get("PACELINE_USER")
    with call.system() as system:
        owner = access.get_user(system.store, named).id if named else None
        views, following = job_report.job_summaries(system.store, owner, before=cursor, limit=limit)
    if call.as_json:
        print_json({"items": views, "next_cursor": None if following is None else str(following)})
        return
    print_table(
        JOB_COLUMNS,
        [_summary_row(view) for view in views],
    )
    if following is not None:
        print_note(f"There are more: --cursor {following}")


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
    if call.as_json:
        print_json(view)
        return EXIT_OK
    print_fields(_fields(view))
    measurements = view.measurements or []
    if shown := measurements[:limit]:
        print_line("")
        print_table(
            MEASUREMENT_COLUMNS,
            [_row(one) for one in shown],
        )
    if left := len(measurements) - len(shown):
        print_note(f"and {left} more measurements; --limit or --json shows them")
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
    from paceline.wiring import open_atlas

    write = write_merged if merged else write_results
    with call.system() as system, closing(open_atlas(system.settings)) as atlas:
        found = job_report.find_job(system.store, None, job)
        expected = sum(one.delivered for item in job_report.job_measurements(system.store, found) for one in item.atlas)
        with _sink(output) as sink, _results_bar(output) as bar:
            take = _Counted(sink, lambda lines: bar(lines, max(expected, lines)))
            read = write(system.store, atlas, system.vault, found, take)
    if output is not None and call.as_json:
        print_json({"file": str(output), "bytes": take.bytes, "results": read.results, "errors": read.errors})
    elif output is not None:
        print_line(f"{output}: {read.results} results, {byte_text(take.bytes)}")
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
    if call.as_json:
        print_json(view)
        return
    rest = f"; {after.open} are still to be stopped" if after.open else ""
    cancelled, refunded = after.cancelled - before.cancelled, after.refunded - before.refunded
    print_line(f"{after.id}: {cancelled} measurements cancelled, {refunded} credits refunded{rest}.")


class _Counted:
    """Hands pieces on to where they go, and tells how many there were."""

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
    draft = output.with_name(f"{output.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            yield file
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


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


def _print_quote(call: Call, system: System, owner: str, body: bytes) -> None:
    now_ms, limits = system.clock.now_ms(), system.job_limits
    quote = submit.quote_job(system.store, owner, body, limits=limits, now_ms=now_ms)
    kinds = kind_prices(parse_job(body, limits, now_ms=now_ms), now_ms=now_ms)
    left, resets_at = quote.budget.left, to_text(quote.budget.resets_ms)
    if call.as_json:
        document = {"cost": quote.cost, "credits_left": left, "measurements": quote.measurements, "fits": quote.fits}
        print_json({**document, "resets_at": resets_at, "types": kinds, "user": owner})
        return
    print_table(
        ["TYPE", "DEFINITIONS", "RESULTS", "CREDITS"],
        [*((one.type, one.definitions, one.results, one.credits) for one in kinds)],
    )
    print_line("")
    after = f"yes, {left - quote.cost} would be left" if quote.fits else f"no, {quote.cost - left} too many"
    print_fields(
        [
            ("measurements", quote.measurements),
            ("cost", f"{quote.cost} credits at most"),
            ("credits left", f"{left} of {quote.budget.limit} for {owner} until {resets_at}"),
            ("fits", after),
        ]
    )


def _print_submitted(call: Call, done: submit.Submitted) -> None:
    job, left = done.job, done.budget.left
    if call.as_json:
        document = {"job": job.id, "cost": job.reserved, "credits_left": left, "measurements": job.measurements}
        print_json({**document, "again": done.again})
        return
    if done.again:
        print_note("It was submitted before under this idempotency key; nothing was added.")
    told = f"{job.measurements} measurements, {job.reserved} credits reserved, {left} left today"
    print_line(f"{job.id} submitted: {told}.")


def _read(file: Path, bytes_max: int) -> bytes:
    """Never more than a request may have."""
    with open_input(file) as stream:
        body = stream.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise InvalidInput(
            f"{file}: more than {bytes_max} bytes. Make several jobs of it, or raise PACELINE_BODY_BYTES_MAX."
        )
    return body


def _summary_row(view: JobSummary) -> tuple[Any, ...]:
    state = view.state if not view.finished else "success" if view.success else "failed"
    measurements = f"{view.measurements}: {', '.join(_counts(view.counts))}"
    return view.job, view.user, state, measurements, _credits(view.cost), view.created_at, view.title


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


def _row(view: MeasurementView) -> tuple[Any, ...]:
    return (
        view.index,
        view.state,
        view.types,
        view.targets,
        view.probes,
        view.atlas_ids,
        view.account,
        view.results,
        view.cost,
        view.settled,
        view.next_try,
        view.reason,
    )

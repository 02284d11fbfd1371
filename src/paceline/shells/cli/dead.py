"""``paceline dead``: runs that failed for good or are unknown, until somebody redrives or discards them."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.ports import DeadChoice
from paceline.shells.cli.batches import PAGE_MAX, ProviderOption
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_json, print_line, print_note
from paceline.shells.cli.runs import print_call_runs
from paceline.steps import redrive
from paceline.steps.days import call_run_view

MESSAGES_MAX = 10_000
"""Of each dead queue in one call."""

app = typer.Typer(name="dead", help="Look at dead letters, put them back, or let them rest.")

RunsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="RUN...", help="Runs by their ids: batch/record@2026-11-15.")
]
BatchOption = Annotated[str | None, typer.Option("--batch", metavar="BATCH", help="Only those of this batch.")]
DateOption = Annotated[str | None, typer.Option("--date", metavar="DATE", help="Only those of this date of --batch.")]


@command(app, "list")
def list_dead(
    call: Call,
    *,
    provider: ProviderOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = 100,
    cursor: Annotated[
        int, typer.Option("--cursor", min=0, metavar="CURSOR", help="Where the next page begins, as the last one said.")
    ] = 0,
) -> None:
    """List dead letters by provider and due time, with the reason of each."""
    with call.system() as system:
        choice = DeadChoice(provider=provider, batch=batch, date=date)
        page = redrive.list_dead(system.store, choice, after=cursor, limit=limit)
    views = [call_run_view(run) for run in page.runs]
    if call.as_json:
        print_json({"items": views, "next_cursor": None if page.next_after is None else str(page.next_after)})
        return
    print_call_runs(views)
    if page.next_after is not None:
        print_note(f"There are more: --cursor {page.next_after}")


@command(app, "redrive")
def redrive_dead(
    call: Call,
    runs: RunsArgument = None,
    *,
    provider: ProviderOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
    queues: Annotated[
        bool, typer.Option("--queues", help="On AWS: send messages of the dead queues again, instead of runs.")
    ] = False,
) -> None:
    """Put dead letters back, in their old order and paced; each once, however often this is asked."""
    if queues:
        redrive.refuse_beside_queues(runs=runs or None, provider=provider, batch=batch, date=date)
        _replay(call)
        return
    with call.system() as system:
        choice = redrive.choose(system.store, runs=runs or None, provider=provider, batch=batch, date=date)
        count = redrive.redrive(system.store, choice, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json({"redriven": count})
    else:
        print_line(f"{count} redriven.")


def _replay(call: Call) -> None:
    with call.system() as system:
        done = redrive.replay(system.store, now_ms=system.clock.now_ms(), messages_max=MESSAGES_MAX)
    if call.as_json:
        print_json(done._asdict())
        return
    print_line(f"{done.redriven} redriven, {done.dropped} dropped, {done.left} left.")
    for name, count in done.queues.items():
        print_line(f"  {name}: {count}")
    if done.left:
        print_note("What is left cannot be read: look at it in its queue, and delete there what nobody needs.")


@command(app, "discard")
def discard_dead(
    call: Call,
    runs: RunsArgument = None,
    *,
    provider: ProviderOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
) -> None:
    """Let dead letters rest. Their results stay in their day."""
    with call.system() as system:
        choice = redrive.choose(system.store, runs=runs or None, provider=provider, batch=batch, date=date)
        count = redrive.discard(system.store, choice)
    if call.as_json:
        print_json({"discarded": count})
    else:
        print_line(f"{count} discarded.")

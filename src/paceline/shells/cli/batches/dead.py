"""``paceline dead``: runs that failed for good or are unknown, until somebody redrives or discards them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.core.batches.values import DeadChoice
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.options import LimitOption, NumberCursorOption, ProviderOption
from paceline.shells.cli.output import Note, emit, emit_page
from paceline.shells.cli.runs import CALL_RUN_COLUMNS
from paceline.steps.batches import redrive
from paceline.steps.views.days import call_run_view

if TYPE_CHECKING:
    from paceline.wiring import System

MESSAGES_MAX = 10_000
"""How many messages of each dead queue one command replays at most."""

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
    limit: LimitOption = 100,
    cursor: NumberCursorOption = 0,
) -> None:
    """List dead letters by provider and due time, with the reason of each."""
    choice = DeadChoice(provider=provider, batch=batch, date=date)
    page = call.on_store(lambda at: redrive.list_dead(at.store, choice, after=cursor or 0, limit=limit))
    views = [call_run_view(run) for run in page.runs]
    emit_page(call, views, CALL_RUN_COLUMNS, next_cursor=page.next_after, more="There are more:")


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

    def act(system: System) -> int:
        choice = redrive.choose(system.store, runs=runs or None, provider=provider, batch=batch, date=date)
        return redrive.redrive(system.store, choice, now_ms=system.clock.now_ms())

    count = call.on_store(act)
    emit(call, {"redriven": count}, f"{count} redriven.")


def _replay(call: Call) -> None:
    done = call.on_store(lambda at: redrive.replay(at.store, now_ms=at.clock.now_ms(), messages_max=MESSAGES_MAX))
    emit(
        call,
        done._asdict(),
        f"{done.redriven} redriven, {done.dropped} dropped, {done.left} left.",
        *(f"  {name}: {count}" for name, count in done.queues.items()),
        Note("What is left cannot be read: look at it in its queue, and delete there what nobody needs.")
        if done.left
        else None,
    )


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

    def act(system: System) -> int:
        choice = redrive.choose(system.store, runs=runs or None, provider=provider, batch=batch, date=date)
        return redrive.discard(system.store, choice)

    count = call.on_store(act)
    emit(call, {"discarded": count}, f"{count} discarded.")

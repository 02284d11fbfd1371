"""``paceline dead``: runs that failed for good or are unknown, until they are redriven or discarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.core.batches.values import DeadChoice
from paceline.shells import lists
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import PageOptions, ProviderOption, argument, flag, option
from paceline.shells.cli.output import TextNote, emit, emit_page
from paceline.shells.cli.runs import CALL_RUN_COLUMNS
from paceline.steps.batches import redrive
from paceline.steps.views.days import CallRunView

if TYPE_CHECKING:
    from paceline.wiring import System

_REDRIVE = "/v1/dead/redrive"
_NO_DEAD = "There is no dead letter. How a day goes: paceline batch show"
MESSAGES_MAX = 10_000
"""Most messages of each dead queue that one command sends again."""

app = typer.Typer(name="dead", help="Look at dead letters, put them back, or discard them.")

RunsArgument = Annotated[list[str] | None, argument("RUN...", "Runs by their ids: batch/record@2026-11-15.")]
BatchOption = Annotated[str | None, option("BATCH", "Only those of this batch.", "--batch")]
DateOption = Annotated[str | None, option("DATE", "Only those of this date of --batch.", "--date")]


@command(app, "list")
def list_dead(
    call: CliCall,
    *,
    provider: ProviderOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
    page: PageOptions,
) -> None:
    """List dead letters by provider and due time, with the reason of each."""
    asked = {"provider": provider, "batch": batch, "date": date}
    choice = DeadChoice(provider=provider, batch=batch, date=date)
    listed = call.answer(
        lambda at: lists.list_dead_letters(at, choice, page),
        lambda remote: remote.page("/v1/dead", CallRunView, page, query=asked),
    )
    emit_page(call, listed, CALL_RUN_COLUMNS, none=_NO_DEAD)


@command(app, "redrive")
def redrive_dead(
    call: CliCall,
    runs: RunsArgument = None,
    *,
    provider: ProviderOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
    queues: Annotated[
        bool, flag("--queues", "On AWS: send messages of the dead queues again, instead of runs.")
    ] = False,
) -> None:
    """Send dead letters again, in their old order and at a limited pace; each once, however often you ask."""
    if queues:
        redrive.refuse_beside_queues(runs=runs or None, provider=provider, batch=batch, date=date)
        _replay(call)
        return

    asked = _named(runs=runs or None, provider=provider, batch=batch, date=date)

    def on_store(system: System) -> int:
        choice = redrive.choose(system.store, **asked)
        return redrive.redrive(system.store, choice, now_ms=system.clock.now_ms())

    count = call.answer(
        on_store, lambda remote: remote.ask("POST", _REDRIVE, dict[str, int], body=asked).view["redriven"]
    )
    emit(call, {"redriven": count}, f"{count} redriven.")


def _replay(call: CliCall) -> None:
    done = call.answer(
        lambda at: redrive.replay(at.store, now_ms=at.clock.now_ms(), messages_max=MESSAGES_MAX),
        lambda remote: redrive.Replay(**remote.ask("POST", _REDRIVE, dict[str, Any], body={"queues": True}).view),
    )
    emit(
        call,
        done._asdict(),
        f"{done.redriven} redriven, {done.dropped} dropped, {done.left} left.",
        *(f"  {name}: {count}" for name, count in done.queues.items()),
        TextNote("The messages left cannot be read: look at them in their queue, and delete those that nobody needs.")
        if done.left
        else None,
    )


@command(app, "discard")
def discard_dead(
    call: CliCall,
    runs: RunsArgument = None,
    *,
    provider: ProviderOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
) -> None:
    """Discard dead letters: they leave the list; their results stay in their day."""
    asked = _named(runs=runs or None, provider=provider, batch=batch, date=date)
    count = call.answer(
        lambda at: redrive.discard(at.store, redrive.choose(at.store, **asked)),
        lambda remote: remote.ask("POST", "/v1/dead/discard", dict[str, int], body=asked).view["discarded"],
    )
    emit(call, {"discarded": count}, f"{count} discarded.")


def _named(**choice: Any) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if value is not None}

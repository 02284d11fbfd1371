"""``paceline dead``: runs that failed for good or are unknown, until they are redriven or discarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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


class DeadOptions(NamedTuple):
    """Options that choose dead letters."""

    provider: ProviderOption = None
    batch: Annotated[str | None, option("BATCH", "Only those of this batch.", "--batch")] = None
    date: Annotated[str | None, option("DATE", "Only those of this date of --batch.", "--date")] = None


@command(app, "list")
def list_dead(
    call: CliCall,
    *,
    chosen: DeadOptions,
    page: PageOptions,
) -> None:
    """List dead letters by provider and due time, with the reason of each."""
    asked = chosen._asdict()
    listed = call.answer(
        lambda at: lists.list_dead_letters(at, DeadChoice(**asked), page),
        lambda remote: remote.page("/v1/dead", CallRunView, page, query=asked),
    )
    emit_page(call, listed, CALL_RUN_COLUMNS, none=_NO_DEAD)


@command(app, "redrive")
def redrive_dead(
    call: CliCall,
    runs: RunsArgument = None,
    *,
    chosen: DeadOptions,
    queues: Annotated[
        bool, flag("--queues", "On AWS: send messages of the dead queues again, instead of runs.")
    ] = False,
) -> None:
    """Send dead letters again, in their old order and at a limited pace; each once, however often you ask."""
    if queues:
        redrive.refuse_beside_queues(runs=runs or None, **chosen._asdict())
        _replay(call)
        return
    asked = _named(runs, chosen)

    def on_store(system: System) -> int:
        choice = redrive.choose(system.store, **asked)
        return redrive.redrive(system.store, choice, now_ms=system.clock.now_ms())

    count = call.answer(on_store, lambda remote: remote.ask("POST", _REDRIVE, dict[str, int], body=asked)["redriven"])
    emit(call, {"redriven": count}, f"{count} redriven.")


def _replay(call: CliCall) -> None:
    done = call.answer(
        lambda at: redrive.replay(at.store, now_ms=at.clock.now_ms(), messages_max=MESSAGES_MAX),
        lambda remote: redrive.Replay(**remote.ask("POST", _REDRIVE, dict[str, Any], body={"queues": True})),
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
    chosen: DeadOptions,
) -> None:
    """Discard dead letters: they leave the list; their results stay in their day."""
    asked = _named(runs, chosen)
    count = call.answer(
        lambda at: redrive.discard(at.store, redrive.choose(at.store, **asked)),
        lambda remote: remote.ask("POST", "/v1/dead/discard", dict[str, int], body=asked)["discarded"],
    )
    emit(call, {"discarded": count}, f"{count} discarded.")


def _named(runs: list[str] | None, chosen: DeadOptions) -> dict[str, Any]:
    """Returns the options that were given."""
    given = {"runs": runs or None, **chosen._asdict()}
    return {name: value for name, value in given.items() if value is not None}

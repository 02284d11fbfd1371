"""``paceline monitor run``, ``next`` and ``export``: check now, show the next times, and write the definitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from paceline.core.monitors.definition import MonitorSpec, spec_document
from paceline.shells.cli.call import CliCall, command, owner_id
from paceline.shells.cli.files import open_output, refuse_existing
from paceline.shells.cli.monitors.commands import IdArgument
from paceline.shells.cli.monitors.import_file import app
from paceline.shells.cli.monitors.over_rest import MONITOR_PATH, MONITORS_PATH
from paceline.shells.cli.options import UserOption, argument, flag, option
from paceline.shells.cli.output import EXIT_FAILED, EXIT_OK, TextFields, TextNote, TextTime, emit, print_note
from paceline.steps.monitors.run_now import TIMES_DEFAULT, TIMES_MAX, RunNowView, UpcomingView, run_now, upcoming
from paceline.steps.views import report
from paceline.steps.views.report import MonitorView, RunView
from paceline.steps.walk import walk

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

__all__ = ["app"]  # the monitor commands, including these

LOOK_S = 0.2
WAIT_S_DEFAULT = 60.0
_REASONS = {"paused": "It is paused.", "owner_disabled": "Its owner is disabled."}
ExportArgument = Annotated[Path, argument("FILE", "The file to write; - writes to stdout.")]
WaitOption = Annotated[bool, flag("--wait", "Wait until the run has ended; exits with 1 if it is not ok.")]
WaitTimeOption = Annotated[float, option("SECONDS", "How long to wait with --wait.", "--wait-for", min=0.1)]
CountOption = Annotated[int, option("N", "How many times to show.", "--count", min=1, max=TIMES_MAX)]


@command(app, "run")
def run_monitor(
    call: CliCall,
    monitor_id: IdArgument,
    *,
    user: UserOption = None,
    wait: WaitOption = False,
    wait_for: WaitTimeOption = WAIT_S_DEFAULT,
) -> int:
    """Check now, once, even if the monitor is paused. Its next firing does not change."""

    def on_store(system: System) -> RunNowView | RunView:
        owner = owner_id(system, user)
        made = run_now(system.store, owner, monitor_id, now_ms=system.clock.now_ms(), catch_up=system.catch_up)
        if not wait:
            return made
        return _ended(
            lambda: report.show_run(system.store, made.run, viewer=None, now_ms=system.clock.now_ms()),
            wait_s=wait_for,
        )

    def over_rest(remote: Remote) -> RunNowView | RunView:
        made = remote.ask("POST", f"{MONITOR_PATH}/run", RunNowView, user=remote.owner(user), id=monitor_id)
        if not wait:
            return made
        return _ended(lambda: remote.get("/v1/runs/{run}", RunView, run=made.run), wait_s=wait_for)

    view = call.answer(on_store, over_rest)
    if isinstance(view, RunNowView):
        emit(call, view, view.run, TextNote(f"See it: paceline run show {view.run}"))
        return EXIT_OK
    shown = [(name, getattr(view, name)) for name in ("run", "state", "latency_ms", "status_code", "reason")]
    emit(call, view, TextFields(shown), None if view.outcome else TextNote(f"It has not ended within {wait_for:g} s."))
    return EXIT_OK if view.outcome == "ok" else EXIT_FAILED


@command(app, "next")
def list_next_times(
    call: CliCall, monitor_id: IdArgument, *, user: UserOption = None, count: CountOption = TIMES_DEFAULT
) -> None:
    """Show when a monitor fires next, if nothing is edited."""
    view = call.answer(
        lambda at: upcoming(at.store, owner_id(at, user), monitor_id, count=count, now_ms=at.clock.now_ms()),
        lambda remote: remote.get(
            f"{MONITOR_PATH}/next", UpcomingView, query={"count": count}, user=remote.owner(user), id=monitor_id
        ),
    )
    emit(call, view, *map(TextTime, view.items), TextNote(_REASONS[view.reason]) if view.reason else None)


@command(app, "export")
def export_monitors(call: CliCall, file: ExportArgument = Path("-"), *, user: UserOption = None) -> None:
    """Write a user's monitors, one JSON document per line, for paceline monitor import."""
    target, lines = None if str(file) == "-" else file, 0

    def write(documents: Iterator[dict[str, Any]]) -> None:
        nonlocal lines
        if target is not None:
            refuse_existing(target)
        with open_output(target) as stream:
            for document in documents:
                stream.write(msgspec.json.encode(document) + b"\n")
                lines += 1

    call.answer(
        lambda system: write(_definitions(system, owner_id(system, user))),
        lambda remote: write(_definitions_over_rest(remote, remote.owner(user))),
    )
    text = f"{lines} monitors exported. Sealed values are written as ***, and stay as they are where they exist."
    if target is None:
        print_note(text)
    else:
        emit(call, {"file": str(file), "monitors": lines}, f"{file}: {lines} monitors", TextNote(text))


def _definitions(system: System, owner: str) -> Iterator[dict[str, Any]]:
    for monitor in walk(partial(system.store.monitors, owner)):
        yield {"id": monitor.id} | spec_document(monitor.spec)


def _definitions_over_rest(remote: Remote, owner: str) -> Iterator[dict[str, Any]]:
    """Yields the definitions alone, without schedule and health."""
    for view in remote.walk(MONITORS_PATH, MonitorView, user=owner):
        shown = msgspec.to_builtins(view)
        yield {"id": view.id} | {name: shown[name] for name in MonitorSpec.__struct_fields__ if name in shown}


def _ended(look: Callable[[], RunView], *, wait_s: float) -> RunView:
    """Waits until the run has ended or the time is over, and returns the run."""
    until_s = time.monotonic() + wait_s
    view = look()
    while view.outcome is None and time.monotonic() < until_s:
        time.sleep(LOOK_S)
        view = look()
    return view

"""``paceline monitor``: what is watched, how often, and how it is doing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from paceline.core.definition import MonitorSpec
from paceline.errors import InvalidInput, RevisionMismatch
from paceline.ports import PutResult
from paceline.shells.cli.call import Call, ReplaceOption, UserOption, command, owner_id
from paceline.shells.cli.monitor_document import Wanted, document_of, patch_of
from paceline.shells.cli.monitor_items import open_input
from paceline.shells.cli.output import print_fields, print_json, print_line, print_note, print_table
from paceline.shells.cli.runs import print_runs
from paceline.steps import define, report
from paceline.steps.check_secrets import seal_put
from paceline.steps.report import MonitorView

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="monitor", help="Put, pause, watch and remove monitors.")

RUNS_SHOWN = 10
PAGE_MAX = 1_000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The monitor's id.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The whole definition as JSON; - reads stdin.",
    ),
]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Where the next page begins, as the last one said.")
]


@command(app, "set")
def set_monitor(
    call: Call,
    monitor_id: IdArgument,
    *,
    user: UserOption = None,
    file: FileOption = None,
    replace: ReplaceOption = False,
    wanted: Wanted,
) -> None:
    """Create a monitor, or change what the options name of the one there is and keep the rest."""
    document = document_of(wanted)
    if bool(document) == (file is not None):
        raise InvalidInput("Say what to set: either --file, or options such as --url and --every.")
    with call.system() as system:
        owner = owner_id(system, user)
        if file is not None:
            result = _put(system, owner, monitor_id, _read(file, system.settings.body_bytes_max))
        elif replace:
            result = _put(system, owner, monitor_id, msgspec.json.encode(document))
        else:
            result = _put_or_edit(system, owner, monitor_id, wanted)
        _tell(call, system, result, done=result.disposition)


@command(app, "list")
def list_monitors(
    call: Call,
    *,
    user: UserOption = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = PAGE_MAX,
    cursor: CursorOption = None,
) -> None:
    """List a user's monitors with health and next due time."""
    with call.system() as system:
        owner = owner_id(system, user)
        monitors = system.store.monitors(owner, after=cursor or "", limit=limit + 1)
        views = report.monitor_views(system.store, monitors[:limit], now_ms=system.clock.now_ms())
    following = views[-1].id if len(monitors) > limit else None
    if call.as_json:
        print_json({"items": views, "next_cursor": following})
        return
    print_table(["MONITOR", "HEALTH", "CHECK", "WHEN", "RUNS", "NEXT DUE", "TAGS"], [_row(view) for view in views])
    if following:
        print_note(f"There are more: paceline monitor list --user {owner} --cursor {following}")


@command(app, "show")
def show(call: Call, monitor_id: IdArgument, *, user: UserOption = None) -> None:
    """Show a monitor: definition, schedule, health and the latest runs."""
    with call.system() as system:
        now_ms = system.clock.now_ms()
        monitor = define.get_monitor(system.store, owner_id(system, user), monitor_id)
        view = report.monitor_view(system.store, monitor, now_ms=now_ms)
        runs, _ = report.monitor_runs(system.store, monitor, before=None, limit=RUNS_SHOWN, now_ms=now_ms)
    if call.as_json:
        print_json({**msgspec.to_builtins(view), "runs": runs})
        return
    print_fields(_fields(view))
    print_line("\nLatest runs:" if runs else "\nNo run yet.")
    if runs:
        print_runs(runs)


@command(app, "runs")
def list_runs(
    call: Call,
    monitor_id: IdArgument,
    *,
    user: UserOption = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, metavar="N", help="How many at most.")] = 100,
    cursor: CursorOption = None,
) -> None:
    """List a monitor's runs, newest first."""
    before = _handle(cursor)
    with call.system() as system:
        monitor = define.get_monitor(system.store, owner_id(system, user), monitor_id)
        views, following = report.monitor_runs(
            system.store, monitor, before=before, limit=limit, now_ms=system.clock.now_ms()
        )
    if call.as_json:
        print_json({"items": views, "next_cursor": None if following is None else str(following)})
        return
    print_runs(views)
    if following is not None:
        print_note(f"There may be more: --cursor {following}")


@command(app, "pause")
def pause(call: Call, monitor_id: IdArgument, *, user: UserOption = None) -> None:
    """Let a monitor rest: it keeps its place and does not fire."""
    with call.system() as system:
        owner = owner_id(system, user)
        result = _edit(system, owner, monitor_id, lambda spec: define.set_paused(spec, paused=True))
        _tell(call, system, result, done="paused")


@command(app, "resume")
def resume(call: Call, monitor_id: IdArgument, *, user: UserOption = None) -> None:
    """Let a paused monitor go on, at once."""
    with call.system() as system:
        owner = owner_id(system, user)
        result = _edit(system, owner, monitor_id, lambda spec: define.set_paused(spec, paused=False))
        _tell(call, system, result, done="resumed")


@command(app, "rm")
def remove(call: Call, monitor_id: IdArgument, *, user: UserOption = None) -> None:
    """Remove a monitor. Nothing of it fires afterwards."""
    with call.system() as system:
        define.remove_monitor(system.store, owner_id(system, user), monitor_id, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json({"removed": monitor_id})
    else:
        print_line(f"{monitor_id} removed.")


def _put_or_edit(system: System, owner: str, monitor_id: str, wanted: Wanted) -> PutResult:
    """Creates it only if it is not there, edits it only as it was read: of two at once neither is lost."""
    if wanted.names_check and system.store.monitor(owner, monitor_id) is None:
        with suppress(RevisionMismatch):  # somebody else has just created it
            return _put(system, owner, monitor_id, msgspec.json.encode(document_of(wanted)), expected_revision=0)

    def change(spec: MonitorSpec) -> MonitorSpec:
        return define.merge_patch(spec, msgspec.json.encode(patch_of(wanted, spec)), system.limits, system.vault)

    return _edit(system, owner, monitor_id, change)


def _put(
    system: System, owner: str, monitor_id: str, body: bytes, *, expected_revision: int | None = None
) -> PutResult:
    put = define.parse_put(owner, monitor_id, body, system.limits, expected_revision=expected_revision)
    put = seal_put(system.store, system.vault, put)
    return define.put_monitor(
        system.store,
        put,
        monitors_max=system.settings.monitors_max,
        firings_max=system.settings.firings_per_second_max,
        now_ms=system.clock.now_ms(),
    )


def _edit(system: System, owner: str, monitor_id: str, change: Callable[[MonitorSpec], MonitorSpec]) -> PutResult:
    return define.edit_monitor(
        system.store,
        owner,
        monitor_id,
        change,
        expected_revision=None,
        monitors_max=system.settings.monitors_max,
        firings_max=system.settings.firings_per_second_max,
        now_ms=system.clock.now_ms(),
    )


def _tell(call: Call, system: System, result: PutResult, *, done: str) -> None:
    assert result.monitor is not None
    view = report.monitor_view(system.store, result.monitor, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json(view)
    else:
        print_line(f"{view.id} {done}; next due: {view.schedule.next_due or 'never, it rests'}")


def _read(file: Path, bytes_max: int) -> bytes:
    """The definition from a file or stdin, never more than a request body may have."""
    with open_input(file) as stream:
        body = stream.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise InvalidInput(f"{file}: more than {bytes_max} bytes. For many monitors use: paceline monitor import FILE")
    return body


def _handle(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidInput("--cursor: give it as the last page named it.")
    return int(cursor)


def _row(view: MonitorView) -> tuple[Any, ...]:
    state = view.schedule
    return view.id, view.health, _check_text(view.check), _when(view), state.counter, state.next_due, view.tags


def _check_text(check: dict[str, Any]) -> str:
    """The kind and what it is aimed at."""
    target = check.get("url") or check.get("host") or check.get("name") or ""
    port = f":{check['port']}" if check.get("host") and "port" in check else ""
    return f"{check['kind']} {target}{port}".strip()


def _when(view: MonitorView) -> str:
    return f"every {view.every}" if view.every else f"{view.cron} {view.timezone}"


def _fields(view: MonitorView) -> list[tuple[str, Any]]:
    document = msgspec.to_builtins(view)
    check, schedule = document.pop("check"), document.pop("schedule")
    first = [("monitor", document.pop("id")), *((name, document.pop(name)) for name in ("user", "health"))]
    when = [(name, document.pop(name)) for name in ("every", "cron", "timezone") if name in document]
    aim = [(f"check.{name}", value if isinstance(value, str) else _json(value)) for name, value in check.items()]
    return [*first, *aim, *when, *document.items(), *((f"schedule.{name}", value) for name, value in schedule.items())]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

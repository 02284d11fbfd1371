"""``paceline monitor``: set, list, show, pause and remove monitors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from paceline.core.alerts.silence import SilenceBody, monitor_silence
from paceline.core.monitors.definition import Monitor, MonitorSpec, spec_document
from paceline.core.monitors.values import PutResult
from paceline.errors import InvalidInput, RevisionMismatch
from paceline.shells.cli.call import CliCall, command, owner_id
from paceline.shells.cli.channels import ForOption, ReasonOption, emit_silence, silence_now
from paceline.shells.cli.files import read_input
from paceline.shells.cli.monitors.document import MonitorOptions, document_of, patch_of
from paceline.shells.cli.monitors.lists import ListOptions, again, list_on_store, list_over_rest
from paceline.shells.cli.monitors.over_rest import MONITOR_PATH, set_over_rest
from paceline.shells.cli.monitors.uptime_text import uptime_fields
from paceline.shells.cli.options import (
    LONGEST_PAGE,
    DefinitionOption,
    PageOptions,
    ReplaceOption,
    UserOption,
    argument,
)
from paceline.shells.cli.output import Columns, TextFields, emit, emit_page, table
from paceline.shells.cli.runs import RUN_COLUMNS
from paceline.shells.cli.text.columns import address, ident, when, word, words
from paceline.shells.lists import list_monitor_runs
from paceline.steps.monitors import define
from paceline.steps.monitors.check_secrets import seal_put
from paceline.steps.views import report
from paceline.steps.views.alert_report import SilenceView
from paceline.steps.views.report import MonitorView, RunView
from paceline.steps.views.uptime import UptimeView, uptime_view

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="monitor", help="Set, pause, watch and remove monitors.")

RUNS_SHOWN = 10
_RUNS_PATH = f"{MONITOR_PATH}/runs"
_NO_RUN = "There is no run yet. Check now: paceline monitor run ID"
Shown = tuple[MonitorView, Sequence[RunView], UptimeView]
"""A monitor, its latest runs, and its uptime."""
IdArgument = Annotated[str, argument("ID", "The monitor's id.")]


@command(app, "set")
def set_monitor(
    call: CliCall,
    monitor_id: IdArgument,
    *,
    user: UserOption = None,
    file: DefinitionOption = None,
    replace: ReplaceOption = False,
    options: MonitorOptions,
) -> None:
    """Create a monitor, or change the fields that the options name and keep the rest."""
    document = document_of(options)
    if bool(document) == (file is not None):
        raise InvalidInput("Say what to set: either --file, or options such as --url and --every.")

    def on_store(system: System) -> tuple[str, MonitorView]:
        owner = owner_id(system, user)
        if file is None and not replace:
            put = _put_or_edit(system, owner, monitor_id, options)
        else:
            body = msgspec.json.encode(document) if file is None else _read(file, system.settings.body_bytes_max)
            put = _put(system, owner, monitor_id, body)
        return put.disposition, _view(system, put)

    def over_rest(remote: Remote) -> tuple[str, MonitorView]:
        owner = remote.owner(user)
        if file is None and not replace:
            return set_over_rest(remote, owner, monitor_id, options)
        body = msgspec.json.encode(document) if file is None else _read(file, call.settings().body_bytes_max)
        return remote.put_edited(MONITOR_PATH, MonitorView, lambda _: body, user=owner, id=monitor_id)

    done, view = call.answer(on_store, over_rest)
    _emit_one(call, view, done=done)


@command(app, "list")
def list_monitors(
    call: CliCall,
    *,
    user: UserOption = None,
    filters: ListOptions,
    page: PageOptions = LONGEST_PAGE,
) -> None:
    """List monitors with health and next due time, of a user or of all users."""
    if filters.all_users and user is not None:
        raise InvalidInput("Give either --user or --all-users.")
    owner, listed = call.answer(
        lambda at: list_on_store(at, None if filters.all_users else owner_id(at, user), filters, page),
        lambda remote: list_over_rest(remote, None if filters.all_users else remote.owner(user), filters, page),
    )
    more = f"There are more: paceline monitor list {again(owner, filters)}"
    columns = {"USER": ident("user"), **MONITOR_COLUMNS} if owner is None else MONITOR_COLUMNS
    emit_page(call, listed, columns, more=more, none=_none_text(owner, filters))


@command(app, "show")
def show(call: CliCall, monitor_id: IdArgument, *, user: UserOption = None) -> None:
    """Show a monitor: definition, schedule, health, uptime and the latest runs."""
    view, runs, uptime = call.answer(
        lambda at: _show(at, user, monitor_id), lambda remote: _show_over_rest(remote, user, monitor_id)
    )
    latest = ("\nLatest runs:", table(RUN_COLUMNS, runs)) if runs else ("\nNo run yet.",)
    document = {**msgspec.to_builtins(view), "runs": runs, "uptime": uptime}
    emit(call, document, TextFields(_fields(view)), "\nUptime:", TextFields(uptime_fields(uptime)), *latest)


@command(app, "silence")
def silence(
    call: CliCall, monitor_id: IdArgument, *, user: UserOption = None, lasting: ForOption, reason: ReasonOption = ""
) -> None:
    """Hold back a monitor's alerts for a time; its runs go on."""
    body = SilenceBody(lasting, reason)

    def on_store(system: System) -> SilenceView:
        monitor = _find(system, user, monitor_id)
        return silence_now(system, monitor.owner, lambda now_ms: monitor_silence(body, monitor.id, now_ms=now_ms))

    def over_rest(remote: Remote) -> SilenceView:
        path, owner = f"{MONITOR_PATH}/silence", remote.owner(user)
        return remote.ask("POST", path, SilenceView, body=msgspec.to_builtins(body), user=owner, id=monitor_id)

    emit_silence(call, call.answer(on_store, over_rest))


@command(app, "runs")
def list_runs(
    call: CliCall,
    monitor_id: IdArgument,
    *,
    user: UserOption = None,
    page: PageOptions,
) -> None:
    """List a monitor's runs, newest first."""
    listed = call.answer(
        lambda at: list_monitor_runs(at, _find(at, user, monitor_id), page),
        lambda remote: remote.page(_RUNS_PATH, RunView, page, user=remote.owner(user), id=monitor_id),
    )
    emit_page(call, listed, RUN_COLUMNS, more="There may be more:", none=_NO_RUN)


@command(app, "resume", help_text="Resume a paused monitor, at once.", paused=False)
@command(app, "pause", help_text="Pause a monitor: it keeps its schedule and does not fire.", paused=True)
def set_paused(call: CliCall, monitor_id: IdArgument, *, user: UserOption = None, paused: bool) -> None:
    def on_store(system: System) -> MonitorView:
        owner = owner_id(system, user)
        return _view(system, _edit(system, owner, monitor_id, lambda spec: define.set_paused(spec, paused=paused)))

    def over_rest(remote: Remote) -> MonitorView:
        path = f"{MONITOR_PATH}/{'pause' if paused else 'resume'}"
        return remote.ask("POST", path, MonitorView, user=remote.owner(user), id=monitor_id)

    _emit_one(call, call.answer(on_store, over_rest), done="paused" if paused else "resumed")


@command(app, "rm")
def remove(call: CliCall, monitor_id: IdArgument, *, user: UserOption = None) -> None:
    """Remove a monitor. It does not fire any more."""
    call.answer(
        lambda at: define.remove_monitor(at.store, owner_id(at, user), monitor_id, now_ms=at.clock.now_ms()),
        lambda remote: remote.do("DELETE", MONITOR_PATH, user=remote.owner(user), id=monitor_id),
    )
    emit(call, {"removed": monitor_id}, f"{monitor_id} removed.")


def _none_text(owner: str | None, filters: ListOptions) -> str:
    """Returns advice for an empty list."""
    if any(filters.asked().values()):
        return f"No monitor matches. See all: paceline monitor list {'--all-users' if owner is None else '--user USER'}"
    return "There is no monitor yet. Put one: paceline monitor set ID --url URL --every 60s"


def _show(system: System, user: str | None, monitor_id: str) -> Shown:
    now_ms = system.clock.now_ms()
    monitor = _find(system, user, monitor_id)
    runs, _ = report.monitor_runs(system.store, monitor, before=None, limit=RUNS_SHOWN, now_ms=now_ms)
    uptime = uptime_view(system.store, monitor, now_ms=now_ms)
    return report.monitor_view(system.store, monitor, now_ms=now_ms), runs, uptime


def _show_over_rest(remote: Remote, user: str | None, monitor_id: str) -> Shown:
    names: dict[str, Any] = {"user": remote.owner(user), "id": monitor_id}
    view = remote.get(MONITOR_PATH, MonitorView, **names)
    runs = remote.page(_RUNS_PATH, RunView, PageOptions(RUNS_SHOWN), **names).items
    return view, runs, remote.get(f"{MONITOR_PATH}/uptime", UptimeView, **names)


def _find(system: System, user: str | None, monitor_id: str) -> Monitor:
    return define.get_monitor(system.store, owner_id(system, user), monitor_id)


def _put_or_edit(system: System, owner: str, monitor_id: str, options: MonitorOptions) -> PutResult:
    """Creates the monitor if it does not exist, else edits the stored one, so that no concurrent edit is lost."""
    if options.names_check and system.store.monitor(owner, monitor_id) is None:
        with suppress(RevisionMismatch):  # it was created by somebody else just now
            return _put(system, owner, monitor_id, msgspec.json.encode(document_of(options)), expected_revision=0)

    def change(spec: MonitorSpec) -> MonitorSpec:
        patch = patch_of(options, spec_document(spec)["check"])
        return define.merge_patch(spec, msgspec.json.encode(patch), system.limits, system.vault)

    return _edit(system, owner, monitor_id, change)


def _put(
    system: System, owner: str, monitor_id: str, body: bytes, *, expected_revision: int | None = None
) -> PutResult:
    put = define.parse_put(owner, monitor_id, body, system.limits, expected_revision=expected_revision)
    put = seal_put(system.store, system.vault, put)
    return define.put_monitor(system.store, put, **system.user_limits, now_ms=system.clock.now_ms())


def _edit(system: System, owner: str, monitor_id: str, change: Callable[[MonitorSpec], MonitorSpec]) -> PutResult:
    limits, now_ms = system.user_limits, system.clock.now_ms()
    return define.edit_monitor(system.store, owner, monitor_id, change, expected_revision=None, **limits, now_ms=now_ms)


def _view(system: System, put: PutResult) -> MonitorView:
    assert put.monitor is not None, "a put returns the monitor, or raises"
    return report.monitor_view(system.store, put.monitor, now_ms=system.clock.now_ms())


def _emit_one(call: CliCall, view: MonitorView, *, done: str) -> None:
    emit(call, view, f"{view.id} {done}; next due: {view.schedule.next_due or 'none'}")


def _read(file: Path, bytes_max: int) -> bytes:
    return read_input(file, bytes_max, advice="For many monitors use: paceline monitor import FILE")


def _check_text(check: dict[str, Any]) -> str:
    """Returns the kind of the check and its target."""
    target = check.get("url") or check.get("host") or check.get("name") or ""
    port = f":{check['port']}" if check.get("host") and "port" in check else ""
    return f"{check['kind']} {target}{port}".strip()


def _health_text(view: MonitorView) -> str:
    """Returns the health, and the number of failures that do not yet make it failing."""
    return f"ok, {view.failures} failed" if view.health == "ok" and view.failures else view.health


def _when(view: MonitorView) -> str:
    return f"every {view.every}" if view.every else f"{view.cron} {view.timezone}"


MONITOR_COLUMNS: Columns = {
    "MONITOR": ident("id"),
    "HEALTH": word(_health_text),
    "CHECK": address(lambda view: _check_text(view.check), 1),
    "WHEN": words(_when, 3),
    "RUNS": word("schedule.counter", 4),
    "NEXT DUE": when("schedule.next_due"),
    "TAGS": words("tags", 2),
}


def _fields(view: MonitorView) -> list[tuple[str, Any]]:
    document = msgspec.to_builtins(view)
    check, alert, schedule = document.pop("check"), document.pop("alert"), document.pop("schedule")
    shown = [name for name in ("user", "health", "failures", "failing_since") if name in document]
    first = [("monitor", document.pop("id")), *((name, document.pop(name)) for name in shown)]
    when = [(name, document.pop(name)) for name in ("every", "cron", "timezone") if name in document]
    aim = [(f"check.{name}", value if isinstance(value, str) else _json(value)) for name, value in check.items()]
    alerts = [(f"alert.{name}", value) for name, value in alert.items()]
    placed = [(f"schedule.{name}", value) for name, value in schedule.items()]
    return [*first, *aim, *when, *document.items(), *alerts, *placed]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

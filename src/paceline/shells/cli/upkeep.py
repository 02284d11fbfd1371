"""``paceline status``, ``check``, ``backup``, ``migrate`` and ``purge``: take care of the store."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from paceline.core.batches.outgoing import WAITS_FOR_WORKER
from paceline.core.durations import DURATION_RULE, parse_duration_ms
from paceline.core.monitors.values import PurgeReport
from paceline.errors import AlreadyExists, FieldProblem, InvalidInput
from paceline.ports import Store
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.files import draft_of
from paceline.shells.cli.options import argument, flag, option
from paceline.steps.history.notes import note_retention
from paceline.steps.upkeep import purge as purge_step
from paceline.steps.upkeep.daemons import DaemonView, daemon_views
from paceline.steps.upkeep.recount import phase_problems
from paceline.steps.upkeep.secret import seal_checks
from paceline.steps.views.service_report import ServiceStatus, service_status

if TYPE_CHECKING:
    from paceline.config import Settings

DAEMONS_SHOWN_MAX = 10
PURGE_PASSES_MAX = 1_000_000


def status(call: CliCall) -> None:
    """Show the state of everything: users, monitors, batches, jobs, accounts, lateness, and running daemons."""
    view, expected_at = call.answer(
        lambda at: (service_status(at.store, at.settings.store, now_ms=at.clock.now_ms()), daemon_url(at.settings)),
        lambda remote: (remote.get("/v1/status", ServiceStatus), remote.url),
    )
    running = [one for one in view.daemons if is_running(one)]
    url = next((one.url for one in running if one.url), None)
    daemon = {"url": url or expected_at, "answering": url is not None}
    figures = msgspec.to_builtins(view)
    document = {"store": figures.pop("store"), **figures, "daemon": daemon}
    output.emit(
        call, document, output.TextFields(_status_fields(view, _daemon_rows(view.daemons, running, expected_at)))
    )


def _status_fields(view: ServiceStatus, daemons: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    pause = view.atlas_pause
    return [
        ("store", f"{view.store} ({output.byte_text(view.file_bytes)})" if view.file_bytes else view.store),
        *daemons,
        ("users", view.users),
        ("monitors", view.monitors),
        ("entries", view.entries),
        ("changes pending", view.changes_pending),
        ("runs waiting", view.runs_waiting),
        ("runs out", view.runs_out),
        ("next due", view.next_due),
        ("late by", f"{view.late_s:.1f} s"),
        *((f"{kind} start late by", f"{late_s:.1f} s") for kind, late_s in view.start_late_s.items()),
        ("oldest waiting", f"{view.queue_age_s:.1f} s"),
        ("providers", view.providers),
        ("batches", view.batches),
        ("batch runs waiting", view.calls_waiting),
        *([(f"of them, {WAITS_FOR_WORKER}", view.calls_for_workers)] if view.calls_for_workers else []),
        ("batch runs late by", f"{view.call_age_s:.1f} s"),
        ("dead letters", view.dead_letters),
        *((f"messages in {name}", count) for name, count in view.dead_messages.items()),
        ("alerts open", view.alerts_open),
        ("alerts not told", view.alerts_failed),
        ("jobs open", view.jobs_open),
        ("measurements", [f"{count} {state}" for state, count in view.measurements.items()]),
        ("oldest job waiting", f"{view.job_age_s:.1f} s"),
        ("accounts", f"{view.accounts}, {view.accounts - len(view.accounts_aside)} ready"),
        *((f"account {one.id}", one.reason) for one in view.accounts_aside),
        *([("RIPE pauses until", f"{pause.until}: {pause.reason}")] if pause else []),
    ]


def check(call: CliCall) -> int:
    """Check the store: integrity, credit accounting and Paceline's promises. Exits with 1 if anything is wrong.

    Notes are about faults that repair themselves: a store with only notes is in order.
    """
    from paceline.wiring import secret_problem

    with call.system() as system:
        problems, notes = system.store.verify(), phase_problems(system.store, now_ms=system.clock.now_ms())
        if problem := secret_problem(system):
            problems.append(problem)
    document = {"ok": not problems, "problems": problems, "notes": notes}
    output.emit(call, document, *(problems or ["OK"]), *(f"note: {note}" for note in notes))
    return output.EXIT_FAILED if problems else output.EXIT_OK


def backup(
    call: CliCall,
    file: Annotated[Path, argument("FILE", "The file to write.")],
    *,
    force: Annotated[bool, flag("--force", "Replace the file if it exists.")] = False,
) -> None:
    """Copy the store while it is in use, into a file of mode 0600. Keep the key file as well: the copy needs it."""
    from paceline.wiring import store_files

    if str(file) == "-":
        raise InvalidInput("A backup is a file of its own and does not go to stdout: name one.")
    if file.exists() and not force:
        raise AlreadyExists(f"{file} exists already. Choose another name, or --force to replace it.")
    with (
        draft_of(file) as draft,
        call.system() as system,
        output.progress_bar("Copying", of_bytes=False) as progress,
    ):
        if file.exists() and any(file.samefile(own) for own in store_files(system.settings)):
            raise InvalidInput(f"{file} belongs to the store itself. Choose another name for the copy.")
        system.store.backup(draft, progress=progress)
    size = file.stat().st_size
    output.emit(call, {"file": str(file), "bytes": size}, f"{file}: {output.byte_text(size)}")


def migrate(
    call: CliCall,
    *,
    adopt_key: Annotated[
        bool, flag("--adopt-key", "Use the secret key that is set now, because the store's own is lost.")
    ] = False,
) -> None:
    """Bring the store's schema up to date, and print its version. Every other command updates it as well."""
    from paceline import wiring

    with call.new_system() as system:
        system.store.ping()  # on AWS, opening the store does not read it, and it may not exist
        schema = system.store.schema_version
        adopted = adopt_key and wiring.adopt_key(system)
        if wiring.has_key(system.settings):
            assert system.secret_key, "compared with the store's"
            seal_checks(system.store, system.vault)
    note = None
    if adopt_key:
        note = output.TextNote(
            "The store now uses this secret key: make new tokens, put the headers of providers and checks again,"
            " and remove the accounts' keys and add them again."
            if adopted
            else "The store already uses this secret key."
        )
    document = {"schema": schema, **({"adopted_key": adopted} if adopt_key else {})}
    output.emit(call, document, f"The store has schema {schema}, the newest this version knows.", note)


def purge(
    call: CliCall,
    *,
    keep: Annotated[
        str | None, option("DURATION", "Keep settled runs this long. [default: the setting runs_keep]")
    ] = None,
    expire: Annotated[
        str | None, option("DURATION", "End runs that have waited this long. [default: the setting runs_expire]")
    ] = None,
    keep_jobs: Annotated[
        str | None, option("DURATION", "Keep finished jobs this long. [default: the setting jobs_keep]")
    ] = None,
) -> None:
    """Delete old runs and finished jobs, and end runs that nobody claimed. The daemon does this by itself."""
    settings = call.settings()
    keep_ms = _duration_ms("--keep", keep or settings.runs_keep)
    expire_ms = _duration_ms("--expire", expire or settings.runs_expire)
    dead_keep_ms = _duration_ms("--keep", settings.dead_keep)
    jobs_keep_ms = _duration_ms("--keep-jobs", keep_jobs or settings.jobs_keep)
    deleted = expired = measurements = 0
    walk = purge_step.PurgeWalk()
    with call.system(settings) as system, output.progress_bar("Purging", of_bytes=False) as progress:
        note_retention(system.store, keep_ms=keep_ms, expire_ms=expire_ms)
        for _ in range(PURGE_PASSES_MAX):
            done: PurgeReport = purge_step.purge(
                system.store, keep_ms=keep_ms, expire_ms=expire_ms, now_ms=system.clock.now_ms()
            )
            walk = purge_step.purge_calls(
                system.store, walk, keep_ms=keep_ms, dead_keep_ms=dead_keep_ms, now_ms=system.clock.now_ms()
            )
            deleted, expired = deleted + done.runs_deleted, expired + done.runs_expired
            removed = purge_step.purge_jobs(system.store, keep_ms=jobs_keep_ms, now_ms=system.clock.now_ms())
            measurements += removed
            progress(deleted + expired + walk.runs_deleted + measurements, None)
            if not any(done) and walk.over and not removed:
                break
    deleted += walk.runs_deleted
    output.emit(
        call,
        {"runs_deleted": deleted, "runs_expired": expired, "measurements_deleted": measurements},
        f"{deleted} runs deleted, {expired} runs expired, {measurements} measurements deleted.",
    )


def _duration_ms(option: str, text: str) -> int:
    ms = parse_duration_ms(text)
    if ms is None:
        raise InvalidInput.of(FieldProblem(option, f"write {DURATION_RULE}"))
    return ms


def running_daemons(store: Store, *, now_ms: int) -> list[DaemonView]:
    """Returns the daemons that reported lately and, if they are on this machine, whose process still exists."""
    return [one for one in daemon_views(store, now_ms=now_ms) if is_running(one)]


def daemon_text(daemon: DaemonView) -> str:
    where = f"answers at {daemon.url}" if daemon.url else "works without an API"
    return f"{where} (process {daemon.pid} on {daemon.host})"


def _daemon_rows(views: list[DaemonView], running: list[DaemonView], expected_at: str) -> list[tuple[str, str]]:
    rows = [("daemon" if one.url else "worker", daemon_text(one)) for one in running]
    gone = [one for one in views if one not in running]
    rows += [(one.kind, f"gone without a word since {one.seen_at} (process {one.pid} on {one.host})") for one in gone]
    if not running:
        rows.insert(0, ("daemon", f"none answers at {expected_at}; start one: paceline up"))
    return rows[:DAEMONS_SHOWN_MAX]


def is_running(daemon: DaemonView) -> bool:
    """True if the daemon reported lately and, if it is on this machine, its process still exists."""
    return daemon.state == "running" and not _has_ended(daemon)


def _has_ended(daemon: DaemonView) -> bool:
    """True if the daemon was a process of this machine and has ended. Processes of other machines are unknown."""
    if daemon.host != socket.gethostname():
        return False
    try:
        os.kill(daemon.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it exists, and belongs to somebody else
        return False
    return False


def daemon_url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if _speaks_tls(settings) else 'http'}://{host}:{settings.port}"


def _speaks_tls(settings: Settings) -> bool:
    return settings.tls_self_signed or settings.tls_cert is not None

"""Root of the command line; turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from paceline import __version__
from paceline.errors import PacelineError
from paceline.shells.cli import (
    aws,
    channels,
    export,
    import_,
    login,
    options,
    runs,
    simulator,
    tokens,
    up,
    upkeep,
    users,
)
from paceline.shells.cli.ahead import commands as ahead
from paceline.shells.cli.as_code import commands as as_code
from paceline.shells.cli.batches import dead, providers
from paceline.shells.cli.batches import records as batch_records
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.history import commands as history
from paceline.shells.cli.jobs import accounts, commands, keys
from paceline.shells.cli.logins import RemoteOptions
from paceline.shells.cli.monitors import uptime as monitor_uptime
from paceline.shells.cli.options import flag
from paceline.shells.cli.output import EXIT_FAILED, CliProblem, RemoteError, print_problem, problem_of
from paceline.shells.cli.top import command as top
from paceline.shells.cli.why import commands as why

WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

app = typer.Typer(
    name="paceline",
    help="A durable scheduler for calling other people's APIs within their limits.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused by a limit, 5 a dry run found differences.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: dict[str, Callable[..., int | None]] = {
    "up": up.up,
    "worker": up.worker,
    "status": upkeep.status,
    "check": upkeep.check,
    "backup": upkeep.backup,
    "migrate": upkeep.migrate,
    "purge": upkeep.purge,
    "verify": history.verify,
    "ahead": ahead.show_ahead,
    "login": login.login,
    "logout": login.logout,
    "export": export.export,
    "import": import_.import_stream,
    "apply": as_code.apply,
    "why": why.why,
    "top": top.top,
}
"""Commands without a group, in the order of the help."""
GROUPS = (
    users.app,
    tokens.app,
    monitor_uptime.app,
    channels.app,
    channels.silence_app,
    channels.alert_app,
    providers.app,
    batch_records.app,
    dead.app,
    commands.app,
    accounts.app,
    keys.app,
    runs.app,
    simulator.app,
    aws.app,
)
for _name, _function in COMMANDS.items():
    command(app, _name)(_function)
for _group in GROUPS:
    app.add_typer(_group)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # typer calls it so
    if wanted:
        print(f"paceline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    *,
    config: options.ConfigOption = None,
    store: options.StoreOption = None,
    url: options.UrlOption = None,
    token: options.TokenOption = None,
    token_file: options.TokenFileOption = None,
    ca_file: options.CaFileOption = None,
    as_json: options.JsonOption = False,
    utc: options.UtcOption = False,
    version: Annotated[
        bool, flag("--version", "Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version
    ctx.obj = CliCall(config, store, as_json, RemoteOptions(url, token, token_file, ca_file), utc)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. Users never see a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(given or ["--help"], prog_name="paceline", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()  # the reader went away (`| head`)
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001  # the last resort: told in one line instead of a traceback
        if _is_failed_write(error):
            _silence_stdout()
        problem = _problem(error, given)
        print_problem(problem, as_json="--json" in given)
        return problem.exit_code
    return code if isinstance(code, int) else 0


def _silence_stdout() -> None:
    """Keeps the interpreter's own last flush from failing again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_failed_write(error: Exception) -> bool:
    """Whether the disk behind stdout failed: errors of named files have their name."""
    return isinstance(error, OSError) and error.filename is None and error.errno in WRITE_ERRORS


def _is_utf8(words: list[str]) -> bool:
    """Whether the arguments are text: bytes of another encoding reach a program as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for word in words for char in word)


def _problem(error: Exception, given: list[str]) -> CliProblem:
    match error:
        case PacelineError():
            return problem_of(error)
        case RemoteError():
            return error.problem
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            path = context.command_path if context else "paceline"
            message = error.format_message().rstrip(".")
            if re.search(r"No such option.*--(url|token|token-file|ca-file)\b", message):
                return CliProblem(
                    "Wrong usage", f"{message}. It stands before the command: paceline --url URL …", "usage"
                )
            return CliProblem("Wrong usage", f"{message}. Try: {path} --help", "usage")
        case typer.Abort():
            return CliProblem(
                "Wrong usage", "The input ended before a question was answered; nothing was done.", "usage"
            )
        case UnicodeEncodeError() if not _is_utf8(given):
            return CliProblem(
                "Wrong usage", "An argument is not text in UTF-8. Check the encoding of your terminal.", "usage"
            )
        case OSError() if error.filename:
            return CliProblem("The system refused", f"{Path(error.filename)}: {error.strerror}.", "failed")
        case OSError() if _is_failed_write(error):
            return CliProblem("The system refused", f"The output cannot be written: {error.strerror}.", "failed")
        case _ if os.environ.get("PACELINE_LOG_LEVEL") == "debug":
            raise error
        case _:
            hint = "This is a defect of Paceline; PACELINE_LOG_LEVEL=debug shows where."
            return CliProblem("Something went wrong", f"{type(error).__name__}: {error}. {hint}", "internal")

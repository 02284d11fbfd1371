"""``paceline key``: what an account's measurements are sent with. A secret goes in and never comes out again."""

from __future__ import annotations

import getpass
import sys
from contextlib import ExitStack, closing
from typing import Annotated, Any

import typer

from paceline.errors import FieldProblem, InvalidInput
from paceline.ports import StoredKey
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_json, print_line, print_note, print_table
from paceline.steps import accounts
from paceline.steps.account_report import KeyView, added_key_view, key_view

app = typer.Typer(name="key", help="Add, list, enable, disable and remove the keys of RIPE Atlas accounts.")

LINE_CHARS_MAX = 1_024
ON_COMMAND_LINE = (
    "Warning: a key on the command line can be read by other users of this machine and stays in the shell's history."
    " Leave it out next time: it is then asked for, or read from stdin."
)

AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account's id.")]
KeyIdArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, as `paceline key list` shows it.")]


@command(app, "add")
def add(
    call: Call,
    account: AccountArgument,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="The key as RIPE shows it. Better leave it out: it is then asked for, or read from stdin, and is"
            " in no history.",
        ),
    ] = None,
    *,
    label: Annotated[str, typer.Option(metavar="LABEL", help="What you will know it by.")] = "",
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Add it without asking RIPE whether it can be used.")
    ] = False,
) -> None:
    """Add a key to an account. RIPE is asked first whether it may do what is needed; what it lacks is named."""
    from paceline.wiring import open_atlas

    with call.system() as system, ExitStack() as stack:
        accounts.get_account(system.store, account, now_ms=system.clock.now_ms())
        if key not in (None, "-") and not call.as_json:
            print_note(ON_COMMAND_LINE)
        secret = _read_secret() if key is None or key == "-" else key
        added, unverified = accounts.check_and_add_key(
            system.store,
            system.vault,
            None if no_check else stack.enter_context(closing(open_atlas(system.settings))),
            account,
            secret,
            label=label,
            now_ms=system.clock.now_ms(),
        )
    if call.as_json:
        print_json(added_key_view(added, unverified))
        return
    if unverified is None:
        _tell(call, added, done=f"added to {account}; RIPE was not asked what it may do")
        return
    _tell(
        call,
        added,
        done=f"added to {account}; tried at RIPE" + ("" if unverified else ", it may do all that is needed"),
    )
    if unverified:
        print_note(f"Not verified: that it may {'; that it may '.join(unverified)}.")


@command(app, "list")
def list_keys(
    call: Call,
    account: Annotated[
        str | None, typer.Argument(metavar="ACCOUNT", help="Only the keys of this account. [default: of all accounts]")
    ] = None,
) -> None:
    """List keys by their last four characters, and how each stands."""
    with call.system() as system:
        now_ms = system.clock.now_ms()
        if account is None:
            found = [one.id for one in system.store.accounts(now_ms=now_ms, releases_until_ms=now_ms)]
        else:
            found = [accounts.get_account(system.store, account, now_ms=now_ms).id]
        views = [key_view(key) for name in found for key in system.store.keys(name)]
    if call.as_json:
        print_json({"items": views, "next_cursor": None})
        return
    print_table(["ACCOUNT", "KEY", "ENDS IN", "STATE", "LABEL", "CREATED", "REASON"], [_row(view) for view in views])
    if not views:
        print_note("There is no key yet. Add one: paceline key add ACCOUNT")


@command(app, "enable")
def enable(call: Call, account: AccountArgument, key_id: KeyIdArgument) -> None:
    """Let a key send again, at once; one that RIPE refused is tried again."""
    _set_enabled(call, account, key_id, enabled=True)


@command(app, "disable")
def disable(call: Call, account: AccountArgument, key_id: KeyIdArgument) -> None:
    """Let a key send nothing more, from the next measurement on."""
    _set_enabled(call, account, key_id, enabled=False)


@command(app, "rm")
def remove(call: Call, account: AccountArgument, key_id: KeyIdArgument) -> None:
    """Remove a key with its secret. At RIPE it stays as it is."""
    with call.system() as system:
        accounts.remove_key(system.store, account, key_id)
    if call.as_json:
        print_json({"removed": key_id})
    else:
        print_line(f"{key_id} removed from {account}.")


def _set_enabled(call: Call, account: str, key_id: str, *, enabled: bool) -> None:
    with call.system() as system:
        key = accounts.set_key_enabled(system.store, account, key_id, enabled=enabled)
    _tell(call, key, done="enabled" if enabled else "disabled")


def _read_secret() -> str:
    """From a person without an echo, from a program through a pipe; so it is in no history and no list of processes."""
    if sys.stdin.isatty():
        return getpass.getpass("Key (it is not shown): ").strip()
    secret = sys.stdin.readline(LINE_CHARS_MAX).strip()
    if not secret:
        raise InvalidInput.of(FieldProblem("/key", "stdin was empty; write the key to it, or give it as KEY"))
    return secret


def _tell(call: Call, key: StoredKey, *, done: str) -> None:
    if call.as_json:
        print_json(key_view(key))
    else:
        print_line(f"{key.id} (…{key.last_four}) {done}.")


def _row(view: KeyView) -> tuple[Any, ...]:
    return view.account, view.id, view.last_four, view.state, view.label, view.created_at, view.reason

"""``paceline key``: the RIPE Atlas keys of an account. A secret goes in and never comes out again."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import argument, flag, option
from paceline.shells.cli.output import Columns, TextNote, emit, emit_list, print_note
from paceline.shells.cli.text.columns import ident, when, word, words
from paceline.steps.jobs import accounts
from paceline.steps.views.account_report import AccountView, AddedKeyView, KeyView, added_key_view, key_view

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="key", help="Add, list, enable, disable and remove the keys of RIPE Atlas accounts.")

LINE_CHARS_MAX = 1_024
TRIAL_S = 120.0
"""Longest wait for the check of a new key: RIPE is asked several questions."""
_KEYS = "/v1/accounts/{account}/keys"
_KEY = f"{_KEYS}/{{key}}"
KEY_COLUMNS: Columns = {
    "ACCOUNT": ident("account"),
    "KEY": ident("id"),
    "ENDS IN": word("last_four", 2),
    "STATE": word("state"),
    "LABEL": words("label", 3),
    "CREATED": when("created_at", 4),
    "REASON": words("reason", 1),
}
ON_COMMAND_LINE = (
    "Warning: a key on the command line can be read by other users of this machine and stays in the shell's history."
    " Leave it out next time: it is then asked for, or read from stdin."
)

AccountArgument = Annotated[str, argument("ACCOUNT", "The account's id.")]
KeyIdArgument = Annotated[str, argument("KEY_ID", "The key's id, as `paceline key list` shows it.")]


@command(app, "add")
def add(
    call: CliCall,
    account: AccountArgument,
    key: Annotated[
        str | None,
        argument(
            "KEY",
            (
                "The key as RIPE shows it. Better leave it out: then you are asked for it, or it is read from stdin,"
                " and no shell history has it."
            ),
        ),
    ] = None,
    *,
    label: Annotated[str, option("LABEL", "A name for the key.")] = "",
    no_check: Annotated[bool, flag("--no-check", "Add it without asking RIPE whether it can be used.")] = False,
) -> None:
    """Add a key to an account. RIPE is asked first what the key may do; missing permissions are named."""

    def read_key() -> str:
        if key not in (None, "-") and not call.as_json:
            print_note(ON_COMMAND_LINE)
        return _read_secret() if key is None or key == "-" else key

    def over_rest(remote: Remote) -> AddedKeyView:
        remote.get("/v1/accounts/{account}", AccountView, account=account)
        body, query = {"key": read_key(), "label": label}, {"check": "false" if no_check else None}
        return remote.ask("POST", _KEYS, AddedKeyView, body=body, query=query, wait_s=TRIAL_S, account=account)

    view = call.answer(lambda at: _add(at, account, read_key, label=label, check=not no_check), over_rest)
    if view.unverified is None:
        done = "RIPE was not asked what it may do"
    else:
        done = "tried at RIPE" + ("" if view.unverified else ", it may do all that is needed")
    note = TextNote(f"Not verified: that it may {'; that it may '.join(view.unverified)}.") if view.unverified else None
    emit(call, view, _line(view, f"added to {account}; {done}"), note)


@command(app, "list")
def list_keys(
    call: CliCall,
    account: Annotated[
        str | None, argument("ACCOUNT", "Only the keys of this account. [default: of all accounts]")
    ] = None,
) -> None:
    """List keys by their last four characters, with the state of each."""
    views = call.answer(lambda at: _list(at, account), lambda remote: _list_over_rest(remote, account))
    emit_list(call, views, KEY_COLUMNS, none="There is no key yet. Add one: paceline key add ACCOUNT")


@command(
    app,
    "disable",
    help_text="Disable a key: nothing more is sent with it, from the next measurement on.",
    enabled=False,
)
@command(app, "enable", help_text="Enable a key again, at once; one that RIPE refused is tried again.", enabled=True)
def set_enabled(call: CliCall, account: AccountArgument, key_id: KeyIdArgument, *, enabled: bool) -> None:
    body = {"enabled": enabled}
    view = call.answer(
        lambda at: key_view(accounts.set_key_enabled(at.store, account, key_id, enabled=enabled)),
        lambda remote: remote.ask("PATCH", _KEY, KeyView, body=body, account=account, key=key_id),
    )
    emit(call, view, _line(view, "enabled" if enabled else "disabled"))


@command(app, "rm")
def remove(call: CliCall, account: AccountArgument, key_id: KeyIdArgument) -> None:
    """Remove a key with its secret. The key at RIPE does not change."""
    call.answer(
        lambda at: accounts.remove_key(at.store, account, key_id),
        lambda remote: remote.do("DELETE", _KEY, account=account, key=key_id),
    )
    emit(call, {"removed": key_id}, f"{key_id} removed from {account}.")


def _add(system: System, account: str, read_key: Callable[[], str], *, label: str, check: bool) -> AddedKeyView:
    """Adds the key to the account. The key is read only after the account was found."""
    from paceline.wiring import open_atlas

    accounts.get_account(system.store, account, now_ms=system.clock.now_ms())
    secret = read_key()
    with closing(open_atlas(system.settings)) if check else nullcontext() as atlas:
        added, unverified = accounts.check_and_add_key(
            system.store, system.vault, atlas, account, secret, label=label, now_ms=system.clock.now_ms()
        )
    return added_key_view(added, unverified)


def _list_over_rest(remote: Remote, account: str | None) -> list[KeyView]:
    if account is not None:
        return remote.get("/v1/accounts/{account}", AccountView, account=account).keys
    return [key for one in remote.every("/v1/accounts", AccountView) for key in one.keys]


def _list(system: System, account: str | None) -> list[KeyView]:
    """Returns the keys of one account, or of all accounts."""
    now_ms = system.clock.now_ms()
    if account is None:
        found = [one.id for one in system.store.accounts(now_ms=now_ms, releases_until_ms=now_ms)]
    else:
        found = [accounts.get_account(system.store, account, now_ms=now_ms).id]
    return [key_view(key) for name in found for key in system.store.keys(name)]


def _read_secret() -> str:
    """Asks a person without an echo, or reads one line of stdin, so that no history or process list has the key."""
    if sys.stdin.isatty():
        return getpass.getpass("Key (it is not shown): ").strip()
    secret = sys.stdin.readline(LINE_CHARS_MAX).strip()
    if not secret:
        raise InvalidInput.of(FieldProblem("/key", "stdin was empty; write the key to it, or give it as KEY"))
    return secret


def _line(key: KeyView, done: str) -> str:
    return f"{key.id} (…{key.last_four}) {done}."

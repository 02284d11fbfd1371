"""``paceline account``: the RIPE Atlas accounts that send measurements, and how much of each is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from paceline.core.jobs.values import AccountSpec
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import ReplaceOption, argument, flag, given, option
from paceline.shells.cli.output import Columns, TextNote, emit, table
from paceline.shells.cli.text.columns import ident, word, words
from paceline.shells.lists import ListPage
from paceline.steps.jobs import accounts
from paceline.steps.views.account_report import AccountView, MeterView, account_view, account_views

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="account", help="Set RIPE Atlas accounts and see what is left of each.")

COLUMNS: Columns = {
    "ACCOUNT": ident("account"),
    "STATE": word("state"),
    "METER": word("name"),
    "SPENT": word("meter.spent"),
    "HELD": word("meter.held", 2),
    "ELSEWHERE": word("meter.foreign", 3),
    "LIMIT": word("meter.limit"),
    "REASON": words("reason", 1),
}
IdArgument = Annotated[str, argument("ID", "The account's id; a name that you choose.")]


class AccountOptions(NamedTuple):
    """Options of ``account set``; None for an option that was not given."""

    concurrent: Annotated[
        int | None, option("N", "Measurements that may run at once. [default: 100, as at RIPE]", "--concurrent")
    ] = None
    daily_results: Annotated[
        int | None, option("N", "Results in any 24 hours. [default: 100000, as at RIPE]", "--daily-results")
    ] = None
    daily_credits: Annotated[
        int | None, option("N", "Credits in any 24 hours. [default: 1000000, as at RIPE]", "--daily-credits")
    ] = None
    enabled: Annotated[bool | None, flag("--enabled/--disabled", "Whether the account is used. [default: enabled]")] = (
        None
    )


class MeterRow(NamedTuple):
    account: str
    state: str
    name: str
    meter: MeterView
    reason: str


@command(app, "set")
def set_account(
    call: CliCall, account_id: IdArgument, *, replace: ReplaceOption = False, options: AccountOptions
) -> None:
    """Create an account, or change the fields that the options name and keep the rest. The next send uses it."""
    changes = given(options)
    done, view = call.answer_or_new(
        lambda at: _set(at, account_id, changes, replace=replace),
        lambda remote: remote.put_edited(
            "/v1/accounts/{account}",
            AccountView,
            lambda there: changes if replace or there is None else _limits(there) | changes,
            account=account_id,
        ),
    )
    limits = f"{view.concurrent} at once, {view.daily_results} results and {view.daily_credits} credits a day"
    note = None if view.keys else TextNote(f"It has no key yet. Add one: paceline key add {account_id}")
    emit(call, view, f"{view.id} {done}: {limits}; {view.reason or view.state}", note)


@command(app, "list")
def list_accounts(call: CliCall) -> None:
    """List the accounts: what is spent, held and allowed of each meter, the state, and why one cannot send."""
    views = call.answer(
        lambda at: account_views(at.store, now_ms=at.clock.now_ms()),
        lambda remote: remote.every("/v1/accounts", AccountView),
    )
    rows = table(COLUMNS, (row for view in views for row in _rows(view)))
    note = None if views else TextNote("There is no account yet. Set one: paceline account set ID")
    emit(call, ListPage(views, None), rows, note)


def _set(system: System, account_id: str, changes: dict[str, Any], *, replace: bool) -> tuple[str, AccountView]:
    """Creates or changes the account. Returns the disposition and the account as it is now."""
    now_ms = system.clock.now_ms()
    if replace:
        done = accounts.put_account_spec(system.store, account_id, AccountSpec(**changes))
    else:
        done = accounts.edit_account(system.store, account_id, changes, now_ms=now_ms)
    return done, account_view(system.store, account_id, now_ms=now_ms)


def _limits(view: AccountView) -> dict[str, Any]:
    """Returns the account's definition, from its view."""
    return {name: getattr(view, name) for name in AccountSpec.__struct_fields__}


def _rows(view: AccountView) -> list[MeterRow]:
    """Returns a row for each meter. The first row has the account's id, state and reason."""
    usage = view.usage
    meters = {"at once": usage.concurrent, "results": usage.daily_results, "credits": usage.daily_credits}
    meters |= {} if usage.balance is None else {"balance": usage.balance}
    first, *others = meters.items()
    row = MeterRow(view.id, view.state, *first, view.reason or " ")
    return [row, *(MeterRow(" ", " ", name, meter, " ") for name, meter in others)]

"""``paceline account``: the RIPE Atlas accounts that measurements are sent with, and how much of each is used."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from paceline.ports import AccountSpec
from paceline.shells.cli.call import Call, ReplaceOption, command
from paceline.shells.cli.output import print_json, print_line, print_note, print_table
from paceline.steps import accounts
from paceline.steps.account_report import AccountView, MeterView, account_view, account_views

app = typer.Typer(name="account", help="Set RIPE Atlas accounts and see what is left of each.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The account's id; a name of your own for it.")]


class Wanted(NamedTuple):
    """What the options said; None for what was not given."""

    concurrent: Annotated[
        int | None,
        typer.Option("--concurrent", metavar="N", help="Measurements that may run at once. [default: 100, as RIPE's]"),
    ] = None
    daily_results: Annotated[
        int | None,
        typer.Option("--daily-results", metavar="N", help="Results in any 24 hours. [default: 100000, as RIPE's]"),
    ] = None
    daily_credits: Annotated[
        int | None,
        typer.Option("--daily-credits", metavar="N", help="Credits in any 24 hours. [default: 1000000, as RIPE's]"),
    ] = None
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Whether it is used. [default: enabled]")
    ] = None


@command(app, "set")
def set_account(call: Call, account_id: IdArgument, *, replace: ReplaceOption = False, wanted: Wanted) -> None:
    """Create an account, or change what the options name and keep the rest. It takes effect with the next send."""
    given = {name: value for name, value in wanted._asdict().items() if value is not None}
    with call.system_or_new() as system:
        now_ms = system.clock.now_ms()
        if replace:
            done = accounts.put_account_spec(system.store, account_id, AccountSpec(**given))
        else:
            done = accounts.edit_account(system.store, account_id, given, now_ms=now_ms)
        view = account_view(system.store, account_id, now_ms=now_ms)
    if call.as_json:
        print_json(view)
        return
    limits = f"{view.concurrent} at once, {view.daily_results} results and {view.daily_credits} credits a day"
    print_line(f"{view.id} {done}: {limits}; {view.reason or view.state}")
    if not view.keys:
        print_note(f"It has no key yet. Add one: paceline key add {account_id}")


@command(app, "list")
def list_accounts(call: Call) -> None:
    """List the accounts: what is spent, held and allowed of each meter, the state, and why one is set aside."""
    with call.system() as system:
        views = account_views(system.store, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json({"items": views, "next_cursor": None})
        return
    rows = [row for view in views for row in _rows(view)]
    print_table(["ACCOUNT", "STATE", "METER", "SPENT", "HELD", "ELSEWHERE", "LIMIT", "REASON"], rows)
    if not views:
        print_note("There is no account yet. Set one: paceline account set ID")


def _rows(view: AccountView) -> list[tuple[Any, ...]]:
    """A line for each meter; what concerns the whole account stands on the first."""
    usage = view.usage
    meters = {"at once": usage.concurrent, "results": usage.daily_results, "credits": usage.daily_credits}
    meters |= {} if usage.balance is None else {"balance": usage.balance}
    rows: list[tuple[Any, ...]] = []
    for name, meter in meters.items():
        first = not rows
        reason = view.reason if first else ""
        rows.append((view.id if first else " ", view.state if first else " ", name, *_figures(meter), reason or " "))
    return rows


def _figures(meter: MeterView) -> tuple[int, int, int, int]:
    return meter.spent, meter.held, meter.foreign, meter.limit

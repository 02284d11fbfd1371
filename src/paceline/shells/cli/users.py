"""``paceline user``: who may use this Paceline."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from paceline.errors import InvalidInput
from paceline.ports import Role, Store, User, UserEdit
from paceline.shells.cli.call import Call, command
from paceline.shells.cli.output import print_fields, print_json, print_line, print_note, print_table
from paceline.steps import access, report
from paceline.steps.job_report import budget_view
from paceline.steps.webhook import webhook_secret

app = typer.Typer(name="user", help="Add, list and limit users.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's id.")]
PAGE = 1_000
CreditsOption = Annotated[
    int | None, typer.Option("--daily-credits", metavar="N", help="Credits the user may spend in a day.")
]


@command(app, "add")
def add(
    call: Call,
    name: NameArgument,
    *,
    role: Annotated[Role, typer.Option(metavar="user|admin", help="What the user may do.")] = "user",
    daily_credits: CreditsOption = None,
) -> None:
    """Add a user and print the first token. It is shown this once."""
    with call.new_system() as system:
        user, token = access.add_user(
            system.store,
            name,
            role=role,
            daily_credits=access.DAILY_CREDITS_DEFAULT if daily_credits is None else daily_credits,
            token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
            secret_key=system.secret_key,
            now_ms=system.clock.now_ms(),
        )
    if call.as_json:
        print_json({"user": user.id, "token": token.secret})
        return
    print_note(f"Added {user.role} {user.id}. The token is shown only now; keep it:")
    print_line(token.secret)


@command(app, "list")
def list_users(call: Call) -> None:
    """List the users."""
    with call.system() as system:
        views = [report.user_view(user) for user in _all_users(system.store)]
    if call.as_json:
        print_json({"items": views, "next_cursor": None})
        return
    print_table(
        ["USER", "ROLE", "STATE", "MONITORS", "DAILY CREDITS", "CREATED"],
        [
            (v.id, v.role, "disabled" if v.disabled else "enabled", v.monitors, v.daily_credits, v.created_at)
            for v in views
        ],
    )


@command(app, "limit")
def limit(
    call: Call,
    name: NameArgument,
    amount: Annotated[int | None, typer.Argument(metavar="N", help="The same as --daily-credits.")] = None,
    *,
    daily_credits: CreditsOption = None,
) -> None:
    """Set how many credits a user may spend in a day."""
    wanted = daily_credits if daily_credits is not None else amount
    if wanted is None:
        raise InvalidInput("Say how many: paceline user limit NAME --daily-credits N")
    _edit(call, name, UserEdit(daily_credits=wanted), f"{name} may spend {wanted} credits a day.")


@command(app, "disable")
def disable(call: Call, name: NameArgument) -> None:
    """Shut a user out at once; monitors rest and waiting runs are held."""
    _edit(call, name, UserEdit(disabled=True), f"{name} is disabled; the monitors rest.")


@command(app, "enable")
def enable(call: Call, name: NameArgument) -> None:
    """Let a disabled user in again; the monitors go on."""
    _edit(call, name, UserEdit(disabled=False), f"{name} is enabled; the monitors go on.")


@command(app, "budget")
def show_budget(call: Call, name: NameArgument) -> None:
    """Show what is left of a user's credits of the day, and when the next day begins."""
    with call.system() as system:
        view = budget_view(system.store, name, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json(view)
    else:
        print_fields(msgspec.structs.asdict(view).items())


@command(app, "webhook-secret")
def show_webhook_secret(call: Call, name: NameArgument) -> None:
    """Print what a user's receiver verifies the signatures of webhooks with. It is the same each time."""
    with call.system() as system:
        user = access.get_user(system.store, name)
        secret = webhook_secret(system.secret_key, user.id)
    if call.as_json:
        print_json({"user": user.id, "webhook_secret": secret})
    else:
        print_line(secret)


@command(app, "rm")
def remove(call: Call, name: NameArgument) -> None:
    """Remove a user with all tokens and monitors. Nothing of theirs fires afterwards."""
    with call.system() as system:
        access.remove_user(system.store, name, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json({"removed": name})
    else:
        print_line(f"Removed {name} with all tokens and monitors.")


def _edit(call: Call, name: str, edit: UserEdit, told: str) -> None:
    with call.system() as system:
        user = access.edit_user(system.store, name, edit, now_ms=system.clock.now_ms())
    if call.as_json:
        print_json(report.user_view(user))
    else:
        print_line(told)


def _all_users(store: Store) -> Iterator[User]:
    page = store.users(after="", limit=PAGE)
    while page:
        yield from page
        page = store.users(after=page[-1].id, limit=PAGE)

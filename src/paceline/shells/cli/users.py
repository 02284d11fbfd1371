"""``paceline user``: add, list, limit and remove users."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.core.users import Role, UserEdit
from paceline.errors import InvalidInput
from paceline.shells.cli.call import CliCall, command
from paceline.shells.cli.options import argument, option
from paceline.shells.cli.output import Columns, TextFields, TextNote, emit, emit_list
from paceline.shells.cli.text.columns import ident, when, word
from paceline.steps import access
from paceline.steps.jobs.webhook import webhook_secret
from paceline.steps.views import report
from paceline.steps.views.job_report import BudgetView, budget_view
from paceline.steps.views.report import UserView
from paceline.steps.walk import walk

if TYPE_CHECKING:
    from paceline.wiring import System

app = typer.Typer(name="user", help="Add, list and limit users.")

NameArgument = Annotated[str, argument("NAME", "The user's id.")]
_USER = "/v1/users/{user}"
USER_COLUMNS: Columns = {
    "USER": ident("id"),
    "ROLE": word("role", 1),
    "STATE": word(lambda view: "disabled" if view.disabled else "enabled"),
    "MONITORS": word("monitors", 2),
    "DAILY CREDITS": word("daily_credits", 3),
    "CREATED": when("created_at", 4),
}
CreditsOption = Annotated[int | None, option("N", "Credits the user may spend in a day.", "--daily-credits")]


@command(app, "add")
def add(
    call: CliCall,
    name: NameArgument,
    *,
    role: Annotated[Role, option("user|admin", "What the user may do.")] = "user",
    daily_credits: CreditsOption = None,
) -> None:
    """Add a user and print the first token. It is shown only once."""
    allowed = access.DAILY_CREDITS_DEFAULT if daily_credits is None else daily_credits
    body = {"id": name, "role": role, "daily_credits": allowed}
    made = call.answer_on_own(
        lambda at: _add(at, name, role=role, daily_credits=allowed),
        lambda remote: remote.ask("POST", "/v1/users", dict[str, str], body=body),
    )
    note = TextNote(f"Added {role} {made['user']}. The token is shown only now; keep it:")
    emit(call, made, note, made["token"])


@command(app, "list")
def list_users(call: CliCall) -> None:
    """List the users."""
    views = call.answer(
        lambda at: [report.user_view(user) for user in walk(at.store.users)],
        lambda remote: remote.every("/v1/users", UserView),
    )
    emit_list(call, views, USER_COLUMNS, none="There is no user yet. Add one: paceline user add NAME")


@command(app, "limit")
def limit(
    call: CliCall,
    name: NameArgument,
    amount: Annotated[int | None, argument("N", "The same as --daily-credits.")] = None,
    *,
    daily_credits: CreditsOption = None,
) -> None:
    """Set how many credits a user may spend in a day."""
    wanted = daily_credits if daily_credits is not None else amount
    if wanted is None or amount not in (None, wanted):
        raise InvalidInput("Say how many, once: paceline user limit NAME --daily-credits N")
    _edit(call, name, UserEdit(daily_credits=wanted), f"{name} may spend {wanted} credits a day.")


@command(app, "enable", help_text="Enable a disabled user; the monitors go on.", disabled=False)
@command(
    app,
    "disable",
    help_text="Disable a user at once: tokens are refused, monitors pause, waiting runs are held.",
    disabled=True,
)
def set_disabled(call: CliCall, name: NameArgument, *, disabled: bool) -> None:
    state = "is disabled; the monitors rest" if disabled else "is enabled; the monitors go on"
    _edit(call, name, UserEdit(disabled=disabled), f"{name} {state}.")


@command(app, "budget")
def show_budget(call: CliCall, name: NameArgument) -> None:
    """Show how many of a user's daily credits are left, and when the next day begins."""
    view = call.answer(
        lambda at: budget_view(at.store, name, now_ms=at.clock.now_ms()),
        lambda remote: remote.get(f"{_USER}/budget", BudgetView, user=name),
    )
    emit(call, view, TextFields(msgspec.structs.asdict(view).items()))


@command(app, "webhook-secret")
def show_webhook_secret(call: CliCall, name: NameArgument) -> None:
    """Print the secret that verifies the signatures of a user's webhooks. It never changes."""
    secret = call.answer(
        lambda at: webhook_secret(at.secret_key, access.get_user(at.store, name).id),
        lambda remote: remote.get(f"{_USER}/webhook-secret", dict[str, str], user=name)["secret"],
    )
    emit(call, {"user": name, "webhook_secret": secret}, secret)


@command(app, "rm")
def remove(call: CliCall, name: NameArgument) -> None:
    """Remove a user with all tokens and monitors. Their monitors do not fire any more."""
    call.answer(
        lambda at: access.remove_user(at.store, name, now_ms=at.clock.now_ms()),
        lambda remote: remote.do("DELETE", _USER, user=name),
    )
    emit(call, {"removed": name}, f"Removed {name} with all tokens and monitors.")


def _edit(call: CliCall, name: str, edit: UserEdit, text: str) -> None:
    changes = {field: value for field, value in msgspec.structs.asdict(edit).items() if value is not None}
    view = call.answer(
        lambda at: report.user_view(access.edit_user(at.store, name, edit, now_ms=at.clock.now_ms())),
        lambda remote: remote.ask("PATCH", _USER, UserView, body=changes, user=name),
    )
    emit(call, view, text)


def _add(system: System, name: str, *, role: Role, daily_credits: int) -> dict[str, str]:
    user, token = access.add_user(
        system.store,
        name,
        role=role,
        daily_credits=daily_credits,
        token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
        secret_key=system.secret_key,
        now_ms=system.clock.now_ms(),
    )
    return {"user": user.id, "token": token.secret}

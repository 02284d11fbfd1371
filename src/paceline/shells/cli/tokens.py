"""``paceline token``: make, list and revoke API tokens."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from paceline.errors import NotFound
from paceline.shells.cli.call import CliCall, command, owner_id
from paceline.shells.cli.options import UserOption, argument, option
from paceline.shells.cli.output import Columns, RemoteError, TextNote, emit, emit_list
from paceline.shells.cli.text.columns import ident, when, words
from paceline.steps import access
from paceline.steps.views import report
from paceline.steps.views.report import TokenView

if TYPE_CHECKING:
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

app = typer.Typer(name="token", help="Make, list and revoke tokens.")

TOKEN_COLUMNS: Columns = {
    "TOKEN ID": ident("id"),
    "LABEL": words("label", 1),
    "SCOPE": words("scope", 2),
    "EXPIRES": when("expires", 3),
    "CREATED": when("created_at", 4),
}
_TOKENS = "/v1/users/{user}/tokens"
UserArgument = Annotated[str | None, argument("USER", "The same as --user.")]


@command(app, "new")
def new(
    call: CliCall,
    name: UserArgument = None,
    *,
    user: UserOption = None,
    label: Annotated[str, option("TEXT", "What the token is for.")] = "",
    scope: Annotated[
        str, option("SCOPE", "read, checker or worker:PROVIDER. [default: everything its user may do]")
    ] = "",
    expires: Annotated[str | None, option("TIME", "When the token expires, for example 2027-01-01T00:00:00Z.")] = None,
) -> None:
    """Make another token for a user and print it. It is shown only once."""
    wanted = {"label": label, "scope": scope, "expires": expires}
    made = call.answer(
        lambda at: _add(at, name or user, wanted), lambda remote: _add_over_rest(remote, name or user, wanted)
    )
    note = TextNote(f"A new token of {made['user']}, id {made['id']}. It is shown only now; keep it:")
    emit(call, made, note, made["token"])


@command(app, "list")
def list_tokens(call: CliCall, name: UserArgument = None, *, user: UserOption = None) -> None:
    """List a user's tokens, without their secrets, which are not stored."""
    views = call.answer(
        lambda at: [report.token_view(token) for token in at.store.tokens(owner_id(at, name or user))],
        lambda remote: remote.every(_TOKENS, TokenView, user=remote.owner(name or user)),
    )
    shown = sorted(views, key=lambda view: (view.created_at, view.id))
    emit_list(call, shown, TOKEN_COLUMNS, none="There is no token. Make one: paceline token new USER")


@command(app, "revoke")
def revoke(
    call: CliCall,
    token: Annotated[str, argument("TOKEN", "The token's id, or the token itself.")],
    *,
    user: UserOption = None,
) -> None:
    """Revoke a token; the next request with it is refused."""
    token_id = _id_of(token)
    owner = call.answer(
        lambda at: _revoke(at, token_id, user), lambda remote: _revoke_over_rest(remote, token_id, user)
    )
    emit(call, {"revoked": token_id}, f"Revoked token {token_id} of {owner}.")


def _add(system: System, user: str | None, wanted: dict[str, Any]) -> dict[str, Any]:
    """Adds a token. Returns it with its user and its secret."""
    made = access.add_token(
        system.store,
        owner_id(system, user),
        token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
        secret_key=system.secret_key,
        now_ms=system.clock.now_ms(),
        **wanted,
    )
    return {"user": made.token.user, **msgspec.to_builtins(report.token_view(made.token)), "token": made.secret}


def _add_over_rest(remote: Remote, user: str | None, wanted: dict[str, Any]) -> dict[str, Any]:
    owner = remote.owner(user)
    body = {name: value for name, value in wanted.items() if value}
    return {"user": owner, **remote.ask("POST", _TOKENS, dict[str, Any], body=body, user=owner)}


def _revoke_over_rest(remote: Remote, token_id: str, user: str | None) -> str:
    """Revokes a token over REST: of the user that is named, else of the user who asks. REST finds tokens by user."""
    owner = remote.owner(user)
    try:
        remote.do("DELETE", f"{_TOKENS}/{{token}}", user=owner, token=token_id)
    except RemoteError as error:
        raise _no_token(token_id) if error.code == "not_found" else error from None
    return owner


def _no_token(token_id: str) -> NotFound:
    return NotFound(f"There is no token {token_id!r}. See: paceline token list")


def _revoke(system: System, token_id: str, user: str | None) -> str:
    """Revokes the token, if it belongs to the user or no user is named. Returns its user."""
    found = system.store.token(token_id)
    if found is None or user not in (None, found[1].id):
        raise _no_token(token_id)
    access.revoke_token(system.store, found[1].id, token_id)
    return found[1].id


def _id_of(token: str) -> str:
    """Returns the id inside ``pl_<id>_<secret>``, so that the secret is neither looked up nor shown again."""
    return token.split("_", 2)[1][:64] if token.startswith("pl_") else token[:64]
